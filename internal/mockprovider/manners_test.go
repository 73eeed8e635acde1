package mockprovider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

const (
	chatHi     = `{"model":"m","messages":[` + hi + `]}`
	messagesHi = `{"model":"m","max_tokens":9,"messages":[` + hi + `]}`
)

// TestHeaders: how limits stand is told in the words of each provider: OpenAI
// with times from now, and one limit on tokens; Anthropic with moments, and each
// limit by itself.
func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(400 * time.Millisecond) // moments are of whole seconds, and not before the time
		all := mockprovider.Limits{Requests: 3, Tokens: 1000, Input: 600, Output: 700}
		var begun time.Time
		answer := func(l mockprovider.Limits, path, body string) (http.Header, string) {
			m := mockprovider.New(mockprovider.Config{Limits: l, Reply: "one two", Script: parsed(t, `{replies: [{text: one two, usage: {input: 100, output: 20}}], repeat: true}`)})
			begun = time.Now()
			in(m, path, body)
			time.Sleep(1500 * time.Millisecond)
			w := in(m, path, body)
			return w.Header(), w.Body.String()
		}
		told := func(name string, h http.Header, want map[string]string) {
			t.Helper()
			for k, v := range want {
				if got := h.Get(k); got != v {
					t.Errorf("%s: %s is %q, want %q", name, k, got, v)
				}
			}
		}
		h, _ := answer(all, "/v1/chat/completions", chatHi)
		told("OpenAI", h, map[string]string{
			"X-Ratelimit-Limit-Requests": "3", "X-Ratelimit-Remaining-Requests": "1", "X-Ratelimit-Reset-Requests": "1m0s",
			"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "760", "X-Ratelimit-Reset-Tokens": "1m0s",
			"X-Request-Id": "req_000000000002", "Request-Id": "", "Anthropic-Ratelimit-Requests-Limit": "", "Retry-After": "", "Content-Type": "application/json",
		})
		h, _ = answer(mockprovider.Limits{Input: 600}, "/v1/chat/completions", chatHi)
		told("OpenAI, input alone", h, map[string]string{"X-Ratelimit-Limit-Tokens": "600", "X-Ratelimit-Remaining-Tokens": "400", "X-Ratelimit-Limit-Requests": ""})
		h, _ = answer(all, "/v1/messages", messagesHi)
		reset := begun.Add(61500*time.Millisecond + time.Second).UTC().Truncate(time.Second).Format(time.RFC3339)
		told("Anthropic", h, map[string]string{
			"Anthropic-Ratelimit-Requests-Limit": "3", "Anthropic-Ratelimit-Requests-Remaining": "1", "Anthropic-Ratelimit-Requests-Reset": reset,
			"Anthropic-Ratelimit-Tokens-Limit": "1000", "Anthropic-Ratelimit-Tokens-Remaining": "782",
			"Anthropic-Ratelimit-Input-Tokens-Limit": "600", "Anthropic-Ratelimit-Input-Tokens-Remaining": "400", "Anthropic-Ratelimit-Input-Tokens-Reset": reset,
			"Anthropic-Ratelimit-Output-Tokens-Limit": "700", "Anthropic-Ratelimit-Output-Tokens-Remaining": "682",
			"Request-Id": "req_000000000002", "X-Request-Id": "", "X-Ratelimit-Limit-Requests": "",
		})
		h, b := answer(mockprovider.Limits{Requests: 1}, "/v1/chat/completions", chatHi)
		told("429", h, map[string]string{"Retry-After": "59", "Retry-After-Ms": "58501", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "58.5s"})
		same(t, b, "error.type", "requests")
		same(t, b, "error.code", "rate_limit_exceeded")
		_, b = answer(mockprovider.Limits{Input: 199}, "/v1/chat/completions", chatHi)
		same(t, b, "error.type", "tokens")
		_, b = answer(mockprovider.Limits{Input: 99}, "/v1/chat/completions", chatHi)
		if got := dig(t, b, "error.message").(string); !strings.HasPrefix(got, "Request too large: ") {
			t.Errorf("more than a minute's: %s", got)
		}
		w := in(mockprovider.New(mockprovider.Config{}), "/v1/chat/completions", strings.Replace(chatHi, "{", `{"stream":true,`, 1))
		told("a stream", w.Header(), map[string]string{"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"})
	})
}

// TestErrorsOfBoth: each provider has its own status and names for what is wrong.
func TestErrorsOfBoth(t *testing.T) {
	for _, v := range []struct {
		name   string
		c      mockprovider.Config
		path   string
		body   string
		status int
		kind   string
		code   any
	}{
		{"overloaded", mockprovider.Config{Overload: 1}, "/v1/chat/completions", chatHi, 503, "server_error", "server_is_overloaded"},
		{"overloaded", mockprovider.Config{Overload: 1}, "/v1/messages", messagesHi, 529, "overloaded_error", nil},
		{"too long", mockprovider.Config{Script: parsed(t, `{window: 9, replies: [{text: x, usage: {input: 10}}]}`)}, "/v1/chat/completions", chatHi, 400, "invalid_request_error", "context_length_exceeded"},
		{"as long as it may be", mockprovider.Config{Script: parsed(t, `{window: 10, replies: [{text: x, usage: {input: 10}}]}`)}, "/v1/chat/completions", chatHi, 200, "", nil},
		{"too large", mockprovider.Config{}, "/v1/messages", strings.Repeat(" ", 64<<20) + messagesHi, 413, "request_too_large", nil},
		{"a key in the other style", mockprovider.Config{Keys: []string{"k"}}, "/v1/chat/completions", chatHi, 200, "", nil},
		{"choices count", mockprovider.Config{Limits: mockprovider.Limits{Output: 19}}, "/v1/chat/completions", `{"model":"m","n":2,"max_tokens":10,"messages":[` + hi + `]}`, 429, "tokens", "rate_limit_exceeded"},
		{"choices fit", mockprovider.Config{Limits: mockprovider.Limits{Output: 20}}, "/v1/chat/completions", `{"model":"m","n":2,"max_tokens":10,"messages":[` + hi + `]}`, 200, "", nil},
	} {
		w := in(mockprovider.New(v.c), v.path, v.body)
		if w.Code != v.status {
			t.Errorf("%s: status %d, want %d", v.name, w.Code, v.status)
		}
		if v.kind != "" {
			same(t, w.Body.String(), "error.type", v.kind)
			same(t, w.Body.String(), "error.code", v.code)
		}
	}
	banned := mockprovider.New(mockprovider.Config{Limits: mockprovider.Limits{Requests: 1, Ban: 1}})
	for range 2 {
		in(banned, "/v1/messages", messagesHi)
	}
	same(t, in(banned, "/v1/messages", messagesHi).Body.String(), "error.type", "permission_error")
	same(t, in(banned, "/v1/chat/completions", chatHi).Body.String(), "error.code", "access_terminated")
}

// TestRounds: a script that is repeated begins again with its first reply and its
// errors, and no two of its calls have one name.
func TestRounds(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, `{repeat: true, price: {input: 1}, replies: [{text: a, calls: [{tool: f}]}, {error: overloaded, usage: {input: 7}}, {text: b}]}`)})
	said := func(answers int) (int, string) {
		body := `{"model":"m","messages":[` + hi + strings.Repeat(`,{"role":"assistant","content":"x"},`+hi, answers) + `]}`
		status, b, _ := p.post("/v1/chat/completions", body)
		return status, b
	}
	ids := map[any]bool{}
	for answers, want := range []string{"a", "b", "a", "b", "a"} {
		status, b := said(answers)
		if want == "b" {
			if status != 503 {
				t.Errorf("after %d answers: %d, want an error first", answers, status)
			}
			_, b = said(answers)
		}
		same(t, b, "choices.0.message.content", want)
		if want == "a" {
			ids[dig(t, b, "choices.0.message.tool_calls.0.id")] = true
		}
	}
	if len(ids) != 3 {
		t.Errorf("three calls have the names %v", ids)
	}
	if s := p.Idle(t.Context()); s.Errors != 2 || s.Dollars == "0" || s.Nano != s.Input*1000 || s.Input < 14 {
		t.Errorf("the errors are billed wrongly: %+v", s.Tally)
	}
}

// TestSizes: what a request asks for beside its text is counted, and all of its
// choices are billed.
func TestSizes(t *testing.T) {
	m := mockprovider.New(mockprovider.Config{Reply: "one two three four"})
	usage := func(body, at string) float64 {
		t.Helper()
		return dig(t, in(m, "/v1/chat/completions", body).Body.String(), "usage."+at).(float64)
	}
	plain := usage(chatHi, "prompt_tokens")
	pictured := usage(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url"},{"type":"image_url"}]}]}`, "prompt_tokens")
	if pictured != plain+2*85 {
		t.Errorf("two images count %v, want %d", pictured-plain, 2*85)
	}
	one := usage(chatHi, "completion_tokens")
	if three := usage(strings.Replace(chatHi, "{", `{"n":3,`, 1), "completion_tokens"); three != 3*one {
		t.Errorf("three choices are %v tokens, one is %v", three, one)
	}
	cut := mockprovider.New(mockprovider.Config{Reply: "one two three four", Faults: []mockprovider.Fault{{Kind: mockprovider.Cut, At: 3}}})
	func() {
		defer func() { _ = recover() }() // what breaks the connection
		in(cut, "/v1/chat/completions", strings.Replace(chatHi, "{", `{"stream":true,"n":2,`, 1))
	}()
	if s := cut.Stats(); s.Output == 0 || s.Output >= int64(one) {
		t.Errorf("two words of two answers of four are billed with %d tokens, one answer with %v", s.Output, one)
	}
	wrong := mockprovider.New(mockprovider.Config{Reply: "x", Faults: []mockprovider.Fault{{Kind: mockprovider.WrongUsage, At: -50}}})
	same(t, in(wrong, "/v1/chat/completions", chatHi).Body.String(), "usage.completion_tokens", 0)
	b := in(m, "/v1/messages", strings.Replace(messagesHi, "{", `{"stream":true,`, 1)).Body.String()
	first, _, _ := strings.Cut(strings.SplitAfterN(b, "data: ", 2)[1], "\n")
	same(t, first, "message.usage.output_tokens", 1)
}

// TestForgotten: a stored response is forgotten when there are four thousand
// after it.
func TestForgotten(t *testing.T) {
	m := mockprovider.New(mockprovider.Config{Reply: "x"})
	first := dig(t, in(m, "/v1/responses", `{"model":"m","input":"hi"}`).Body.String(), "id")
	follow := fmt.Sprintf(`{"model":"m","input":"on","store":false,"previous_response_id":%q}`, first)
	for range 4095 {
		in(m, "/v1/responses", `{"model":"m","input":"hi"}`)
	}
	if w := in(m, "/v1/responses", follow); w.Code != 200 {
		t.Errorf("too early: %d %s", w.Code, w.Body)
	}
	for range 2 {
		in(m, "/v1/responses", `{"model":"m","input":"hi"}`)
	}
	if w := in(m, "/v1/responses", follow); w.Code != 404 {
		t.Errorf("it is kept: %d", w.Code)
	}
}

// TestFaultsSaid: what a fault says and does not say.
func TestFaultsSaid(t *testing.T) {
	for s, want := range map[string]mockprovider.Fault{
		"slow": {Kind: mockprovider.Slow, At: 10}, "slow@3": {Kind: mockprovider.Slow, At: 3}, "wrongusage": {Kind: mockprovider.WrongUsage, At: 1000}, "wrongusage@0": {Kind: mockprovider.WrongUsage},
		"cut": {Kind: mockprovider.Cut}, "cut@3=10%": {Kind: mockprovider.Cut, At: 3, Share: 0.1}, "cut@3=0.25": {Kind: mockprovider.Cut, At: 3, Share: 0.25}, "hang@2#9": {Kind: mockprovider.Hang, At: 2, Only: 9},
	} {
		if got, err := mockprovider.ParseFault(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
}

// TestFaultTimes: a slow answer takes its time for each byte, one that hangs says
// nothing, and one that a script delays comes after both delays.
func TestFaultTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timed := func(c mockprovider.Config) (time.Duration, *httptest.ResponseRecorder) {
			begun := time.Now()
			w := in(mockprovider.New(c), "/v1/chat/completions", chatHi)
			return time.Since(begun), w
		}
		if took, w := timed(mockprovider.Config{Faults: []mockprovider.Fault{{Kind: mockprovider.Slow, At: 3}}}); took != time.Duration(w.Body.Len())*3*time.Millisecond {
			t.Errorf("%d bytes took %s", w.Body.Len(), took)
		}
		latency, err := mockprovider.ParseSpread("1s")
		if err != nil {
			t.Fatal(err)
		}
		if took, _ := timed(mockprovider.Config{Latency: latency, Script: parsed(t, `{latency: 200ms, replies: [{text: x}]}`)}); took != 1200*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		m := mockprovider.New(mockprovider.Config{Faults: []mockprovider.Fault{{Kind: mockprovider.Hang}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(chatHi)).WithContext(ctx))
		if s := m.Stats(); ctx.Err() == nil || w.Body.Len() > 0 || s.Aborted != 1 || s.Output != 0 {
			t.Errorf("it hangs, and says %q; %+v", w.Body, s.Tally)
		}
	})
	evenly, err := mockprovider.ParseSpread("200ms+-50ms")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m := mockprovider.New(mockprovider.Config{Latency: evenly, Seed: 3})
		var low, high int
		for range 400 {
			begun := time.Now()
			in(m, "/v1/chat/completions", chatHi)
			switch took := time.Since(begun); {
			case took < 150*time.Millisecond || took > 250*time.Millisecond:
				t.Fatalf("%s is not within 50ms of 200ms", took)
			case took < 170*time.Millisecond:
				low++
			case took > 230*time.Millisecond:
				high++
			}
		}
		if low < 40 || low > 120 || high < 40 || high > 120 {
			t.Errorf("of 400 a fifth each is expected at the ends: %d and %d", low, high)
		}
	})
	if d, err := mockprovider.ParseSpread("1s±-1s"); err == nil {
		t.Errorf("%+v is a time", d)
	}
}

// torn is a client that is gone when it is answered.
type torn struct{ *httptest.ResponseRecorder }

func (torn) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

// TestBooks: the books and the log hold how each request went, and when.
func TestBooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		latency, err := mockprovider.ParseSpread("2s")
		if err != nil {
			t.Fatal(err)
		}
		m := mockprovider.New(mockprovider.Config{Log: &log, Latency: latency, Chunk: 2, Limits: mockprovider.Limits{Requests: 3}, Script: parsed(t, `{replies: [{text: one two three four five}, {error: network}]}`)})
		begun := time.Now().UnixMilli()
		for range 2 {
			go in(m, "/v1/chat/completions", strings.Replace(chatHi, "{", `{"stream":true,`, 1))
		}
		synctest.Wait()
		time.Sleep(3 * time.Second)
		in(m, "/v1/chat/completions", chatHi)
		in(m, "/v1/chat/completions", chatHi)
		in(m, "/v1/nothing", "{}")
		for range 2 { // one is not answered at all, the other is gone when it is answered
			func() {
				defer func() { _ = recover() }() // what breaks the connection
				m.ServeHTTP(torn{httptest.NewRecorder()}, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(
					`{"model":"m","messages":[`+hi+`,{"role":"assistant","content":"x"},`+hi+`]}`)))
			}()
		}
		s := m.Stats()
		if s.Most != 2 || s.FirstSeen != begun || s.LastSeen != begun+7000 || s.OK != 4 || s.Refused != 1 || s.Errors != 1 || s.Aborted != 2 || s.Models["m"].FirstSeen != begun {
			t.Errorf("%+v, of the model %+v", s.Tally, s.Models["m"])
		}
		var entries []mockprovider.Entry
		for line := range strings.Lines(log.String()) {
			var e mockprovider.Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		if len(entries) != 6 || entries[0].Millis != 2000 || !entries[0].Stream || entries[0].Model != "m" || entries[3].Status != 429 || !strings.Contains(entries[3].Error, "requests: limit 3") {
			t.Errorf("the log: %s", &log)
		}
	})
	gone := mockprovider.New(mockprovider.Config{Overload: 1})
	gone.ServeHTTP(torn{httptest.NewRecorder()}, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(chatHi)))
	if s := gone.Stats(); s.Aborted != 1 || s.Errors != 1 {
		t.Errorf("a client that is gone: %+v", s.Tally)
	}
	pieces := in(mockprovider.New(mockprovider.Config{Reply: "one two three four five", Chunk: 2}), "/v1/chat/completions", strings.Replace(chatHi, "{", `{"stream":true,`, 1)).Body.String()
	for _, want := range []string{`"one two"`, `" three four"`, `" five"`} {
		if !strings.Contains(pieces, `"content":`+want) {
			t.Errorf("there is no piece %s in %s", want, pieces)
		}
	}
}

// TestEachFlag: each flag of the command says what it is for.
func TestEachFlag(t *testing.T) {
	f, err := flags(t, "--rpm", "1", "--tpm", "2", "--itpm", "3", "--otpm", "4", "--concurrency", "5", "--ban", "6", "--chunk", "7", "--burst", "25%", "--overload", "0.5",
		"--latency", "1s", "--ttft", "2s", "--tps", "8", "--price", "3.00/15.00", "--fault", "cut@3", "--fault", "slow", "--seed", "9", "--reply", "r", "--model", "a,b", "--key", "k")
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Config()
	if err != nil {
		t.Fatal(err)
	}
	if want := (mockprovider.Limits{Requests: 1, Tokens: 2, Input: 3, Output: 4, Concurrency: 5, Ban: 6, Burst: 0.25}); c.Limits != want {
		t.Errorf("limits %+v", c.Limits)
	}
	first, _ := mockprovider.ParseSpread("1s")
	second, _ := mockprovider.ParseSpread("2s")
	if c.Chunk != 7 || c.Overload != 0.5 || c.Latency != first || c.TTFT != second || c.TPS != 8 || c.Price != (model.Price{Input: 3e9, Output: 15e9}) || c.Seed != 9 || c.Reply != "r" ||
		fmt.Sprint(c.Models, c.Keys) != "[a b] [k]" || fmt.Sprint(c.Faults) != "[{cut 3 0 0} {slow 10 0 0}]" {
		t.Errorf("%+v", c)
	}
}
