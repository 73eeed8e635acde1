package mockprovider_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/model"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const script = `
price: {input: 3.00, output: 15.00}
replies:
  - {text: "one two three four", usage: {input: 100, output: 8}}
  - {error: rate_limit}
  - {error: network}
  - {text: "both", calls: [{tool: look, args: {at: 1}}, {tool: look, args: "not json"}], usage: {input: 200, output: 50}}
  - {text: "the end"}
`

func parsed(t *testing.T, text string) *model.Script {
	t.Helper()
	s, err := model.ParseScript("script.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A server is a mock on a server of its own.
type server struct {
	*mockprovider.Mock
	*httptest.Server
	t testing.TB
}

func serve(t testing.TB, c mockprovider.Config) *server {
	p := &server{Mock: mockprovider.New(c), t: t}
	p.Server = httptest.NewServer(p.Mock)
	t.Cleanup(p.Server.Close)
	t.Cleanup(p.Client().CloseIdleConnections)
	return p
}

// post sends a body with a key, and reads the whole answer.
func (p *server) post(path, body string) (int, string, http.Header) {
	p.t.Helper()
	r, err := http.NewRequest("POST", p.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer k")
	w, err := p.Client().Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		return w.StatusCode, string(b) + "\n" + err.Error(), w.Header
	}
	return w.StatusCode, string(b), w.Header
}

func (p *server) billed(input, output int64) {
	p.t.Helper()
	if s := p.Idle(p.t.Context()); s.Input != input || s.Output != output || s.InFlight != 0 {
		p.t.Errorf("billed in %d, out %d, %d in flight; expected in %d, out %d, none in flight", s.Input, s.Output, s.InFlight, input, output)
	}
}

const hi = `{"role":"user","content":"hi"}`

// dig finds a value in a JSON answer by a path such as choices.0.message.content.
func dig(t testing.TB, body, path string) any {
	t.Helper()
	var at any
	if err := json.Unmarshal([]byte(body), &at); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for k := range strings.SplitSeq(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[k]
		case []any:
			var i int
			if _, err := fmt.Sscan(k, &i); err != nil || i >= len(v) {
				t.Fatalf("%s is not in %s", path, body)
			}
			at = v[i]
		}
	}
	return at
}

func same(t testing.TB, body, path string, want any) {
	t.Helper()
	if got := dig(t, body, path); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, expected %v in %s", path, got, want, body)
	}
}

func TestFaces(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, script)})
	_, b, _ := p.post("/v1/chat/completions", `{"model":"m","messages":[`+hi+`]}`)
	same(t, b, "choices.0.message.content", "one two three four")
	same(t, b, "choices.0.finish_reason", "stop")
	same(t, b, "usage.prompt_tokens", 100)
	same(t, b, "usage.completion_tokens", 8)
	_, b, _ = p.post("/v1/responses", `{"model":"m","input":"hi"}`)
	same(t, b, "output.0.content.0.text", "one two three four")
	same(t, b, "status", "completed")
	same(t, b, "usage.total_tokens", 108)
	_, b, _ = p.post("/v1/messages", `{"model":"m","max_tokens":4,"messages":[`+hi+`]}`)
	same(t, b, "content.0.text", "one two")
	same(t, b, "stop_reason", "max_tokens")
	same(t, b, "usage.output_tokens", 4)
	_, b, _ = p.post("/v1/embeddings", `{"model":"m","input":["one","one two"],"dimensions":2}`)
	same(t, b, "usage.prompt_tokens", 3)
	same(t, b, "data.1.index", 1)
	_, b, _ = p.post("/v1/messages/count_tokens", `{"model":"m","messages":[`+hi+`]}`)
	same(t, b, "input_tokens", model.CountMessage(&model.Message{Role: model.User, Text: "hi"})+3)
	p.billed(303, 20)
	if s := p.Stats(); s.Dollars != "0.001209" || s.Keys[mockprovider.HashKey("k")].Requests != 5 || s.Models["m"].OK != 5 {
		t.Errorf("the books: %+v", s)
	}
}

// TestScriptedErrors: errors come once to each conversation, and then its reply.
func TestScriptedErrors(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, script)})
	ask := `{"model":"m","messages":[` + hi + `,{"role":"assistant","content":"one two three four"},{"role":"user","content":"%s"}]}`
	for _, who := range []string{"a", "b"} {
		status, b, h := p.post("/v1/chat/completions", fmt.Sprintf(ask, who))
		if status != 429 || h.Get("Retry-After") != "1" {
			t.Fatalf("status %d, expected 429 with Retry-After: %s", status, b)
		}
		if status, b, _ := p.post("/v1/chat/completions", fmt.Sprintf(ask, who)); status != 0 {
			t.Fatalf("status %d, expected no answer: %s", status, b)
		}
		for range 2 {
			_, b, _ = p.post("/v1/chat/completions", fmt.Sprintf(ask, who))
			same(t, b, "choices.0.message.tool_calls.1.function.arguments", "not json")
			same(t, b, "choices.0.finish_reason", "tool_calls")
		}
	}
	p.billed(800, 200)
}

// TestConversation: results must answer calls, and the end of the script is
// reached in all formats.
func TestConversation(t *testing.T) {
	const replies = `{replies: [{calls: [{tool: a}, {tool: b}]}, {text: done}]}`
	p := serve(t, mockprovider.Config{Script: parsed(t, replies)})
	for _, try := range []struct{ path, broken, whole, at string }{
		{
			"/v1/chat/completions",
			`{"model":"m","messages":[` + hi + `,{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"a","arguments":"{}"}}]}]}`,
			`{"model":"m","messages":[` + hi + `,{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"a","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}`,
			"choices.0.message.content",
		},
		{
			"/v1/responses",
			`{"model":"m","input":[` + hi + `,{"type":"function_call","call_id":"1","name":"a","arguments":"{}"}]}`,
			`{"model":"m","input":[` + hi + `,{"type":"function_call","call_id":"1","name":"a","arguments":"{}"},{"type":"function_call","call_id":"2","name":"b","arguments":"{}"},{"type":"function_call_output","call_id":"2","output":"x"},{"type":"function_call_output","call_id":"1","output":"x"}]}`,
			"output.0.content.0.text",
		},
		{
			"/v1/messages",
			`{"model":"m","max_tokens":99,"messages":[` + hi + `,{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"a","input":{}}]},` + hi + `]}`,
			`{"model":"m","max_tokens":99,"messages":[` + hi + `,{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"a","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"}]}]}`,
			"content.0.text",
		},
	} {
		if status, b, _ := p.post(try.path, try.broken); status != 400 || !strings.Contains(b, "has no result") {
			t.Errorf("%s: a call without a result: status %d, %s", try.path, status, b)
		}
		_, b, _ := p.post(try.path, try.whole)
		same(t, b, try.at, "done")
	}
}

func TestPreviousResponse(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, `{replies: [{text: one}, {text: two}]}`)})
	_, b, _ := p.post("/v1/responses", `{"model":"m","input":"hi"}`)
	id := dig(t, b, "id")
	_, b, _ = p.post("/v1/responses", fmt.Sprintf(`{"model":"m","input":"go on","previous_response_id":%q}`, id))
	same(t, b, "output.0.content.0.text", "two")
	if status, b, _ := p.post("/v1/responses", `{"model":"m","input":"go on","previous_response_id":"resp_0"}`); status != 404 {
		t.Errorf("an unknown response: status %d, %s", status, b)
	}
}

// TestReference: an item that was said before can be named by its id.
func TestReference(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, `{replies: [{text: "some words", calls: [{tool: a}]}, {text: two}]}`)})
	_, b, _ := p.post("/v1/responses", `{"model":"m","input":"hi"}`)
	said, called := dig(t, b, "output.0.id"), dig(t, b, "output.1.id")
	call := dig(t, b, "output.1.call_id")
	result := fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"x"}`, call)
	_, b, _ = p.post("/v1/responses", fmt.Sprintf(`{"model":"m","input":[{"role":"user","content":"hi"},{"type":"item_reference","id":%q},{"type":"item_reference","id":%q},%s]}`, said, called, result))
	same(t, b, "output.0.content.0.text", "two")
	named := dig(t, b, "usage.input_tokens")
	_, b, _ = p.post("/v1/responses", fmt.Sprintf(`{"model":"m","input":[{"role":"user","content":"hi"},{"role":"assistant","content":"some words"},{"type":"function_call","call_id":%q,"name":"a","arguments":"{}"},%s]}`, call, result))
	same(t, b, "usage.input_tokens", named)
	if status, b, _ := p.post("/v1/responses", `{"model":"m","input":[{"type":"item_reference","id":"msg_0"}]}`); status != 404 {
		t.Errorf("an unknown item: status %d, %s", status, b)
	}
}

// TestStreams reads each format's stream through the model package, which has
// its own reading of the formats.
func TestStreams(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, script)})
	for kind, base := range map[string]string{"openai": p.URL + "/v1", "anthropic": p.URL} {
		m, err := provider.Open(kind+":m", provider.Config{HTTP: p.Client(), Providers: map[string]provider.Provider{kind: {BaseURL: base}}})
		if err != nil {
			t.Fatal(err)
		}
		var text string
		var done *model.Done
		for e, err := range m.Stream(t.Context(), model.Request{Messages: []model.Message{{Role: model.User, Text: "hi"}}, MaxOutput: 50}) {
			if err != nil {
				t.Fatal(kind, err)
			}
			text += e.Text
			if e.Done != nil {
				done = e.Done
			}
		}
		want := model.Usage{Input: 100, Output: 8}
		if text != "one two three four" || done == nil || done.Usage != want || !done.Reported || done.Stop != model.StopEnd {
			t.Errorf("%s: %q, %+v", kind, text, done)
		}
	}
	_, b, _ := p.post("/v1/responses", `{"model":"m","stream":true,"input":"hi"}`)
	var kinds []string
	for line := range strings.Lines(b) {
		if kind, ok := strings.CutPrefix(line, "event: response."); ok {
			kinds = append(kinds, strings.TrimSpace(kind))
		}
	}
	want := strings.Fields("created in_progress output_item.added content_part.added output_text.delta output_text.delta output_text.delta output_text.delta output_text.done content_part.done output_item.done completed")
	if !slices.Equal(kinds, want) {
		t.Errorf("the events of a response are %v, expected %v", kinds, want)
	}
	p.billed(300, 24)
}

// TestHangUp: a client that hangs up pays for what it was sent.
func TestHangUp(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, script), Faults: []mockprovider.Fault{{Kind: mockprovider.Hang, At: 3}}})
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"m","stream":true,"messages":[` + hi + `]}`,
		"/v1/messages":         `{"model":"m","stream":true,"max_tokens":99,"messages":[` + hi + `]}`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", p.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		w, err := p.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(w.Body)
		for n := 0; n < 3 && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data: ") {
				n++
			}
		}
		cancel()
		w.Body.Close()
	}
	// "one two" of "one two three four", 8 tokens: 7 of 18 bytes. Of the
	// messages three events are sent before the first word.
	p.billed(200, 4)
	if s := p.Stats(); s.Aborted != 2 {
		t.Errorf("%d aborted, expected 2", s.Aborted)
	}
}

func TestFaults(t *testing.T) {
	body := `{"model":"m","messages":[` + hi + `]}`
	stream := `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[` + hi + `]}`
	for _, try := range []struct {
		fault, body string
		holds       func(status int, b string) bool
	}{
		{"cut", body, func(_ int, b string) bool { return strings.Contains(b, "EOF") }},
		{"cut@2", stream, func(_ int, b string) bool { return strings.Count(b, "data: ") == 2 && strings.Contains(b, "EOF") }},
		{"malformed", body, func(s int, b string) bool { return s == 200 && !json.Valid([]byte(b)) }},
		{"malformed@1", stream, func(s int, b string) bool {
			return s == 200 && !json.Valid([]byte(strings.TrimPrefix(strings.Split(b, "\n\n")[1], "data: ")))
		}},
		{"nousage", stream, func(_ int, b string) bool { return !strings.Contains(b, "total_tokens") }},
		{"nousage", body, func(_ int, b string) bool { return !strings.Contains(b, "usage") }},
		{"wrongusage@5", body, func(_ int, b string) bool { return strings.Contains(b, `"completion_tokens":13,`) }},
		{"wrongusage@-5", body, func(_ int, b string) bool { return strings.Contains(b, `"completion_tokens":3,`) }},
		{"slow@1", body, func(_ int, b string) bool { return json.Valid([]byte(b)) }},
		{"cut@0#2", body, func(_ int, b string) bool { return json.Valid([]byte(b)) }},
		{"cut@0=0.000001%", body, func(_ int, b string) bool { return json.Valid([]byte(b)) }},
	} {
		f, err := mockprovider.ParseFault(try.fault)
		if err != nil {
			t.Fatal(err)
		}
		p := serve(t, mockprovider.Config{Script: parsed(t, script), Faults: []mockprovider.Fault{f}})
		if status, b, _ := p.post("/v1/chat/completions", try.body); !try.holds(status, b) {
			t.Errorf("%s: status %d, %s", try.fault, status, b)
		}
	}
	for _, s := range []string{"", "cat", "cut@", "cut@x", "cut@-1", "cut=2", "cut#0", "cut=5%#2", "slow@1e3"} {
		if f, err := mockprovider.ParseFault(s); err == nil {
			t.Errorf("%q is a fault: %+v", s, f)
		}
	}
}

func TestRefusals(t *testing.T) {
	p := serve(t, mockprovider.Config{Models: []string{"m"}, Keys: []string{"k"}})
	for _, try := range []struct {
		path, body string
		status     int
		at, want   string
	}{
		{"/v1/chat/completions", `{`, 400, "error.type", "invalid_request_error"},
		{"/v1/chat/completions", `{"model":"m"}`, 400, "error.message", "the messages are missing; expected a list in messages"},
		{"/v1/chat/completions", `{"model":"x","messages":[` + hi + `]}`, 404, "error.code", "model_not_found"},
		{"/v1/chat/completions", `{"model":"m","n":0,"messages":[` + hi + `]}`, 400, "error.message", "n is 0, expected 1 to 128"},
		{"/v1/messages", `{"model":"m","messages":[` + hi + `]}`, 400, "error.message", "max_tokens: field required"},
		{"/v1/messages", `{"model":"x","max_tokens":1,"messages":[` + hi + `]}`, 404, "error.type", "not_found_error"},
		{"/v1/messages", `{"model":"m","max_tokens":9,"thinking":{"type":"enabled","budget_tokens":9},"messages":[` + hi + `]}`, 400, "error.type", "invalid_request_error"},
		{"/v1/nothing", `{}`, 404, "error.code", "unknown_url"},
	} {
		status, b, _ := p.post(try.path, try.body)
		if status != try.status {
			t.Errorf("%s %s: status %d, expected %d", try.path, try.body, status, try.status)
		}
		same(t, b, try.at, try.want)
	}
	w, err := p.Client().Post(p.URL+"/v1/messages", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	same(t, string(b), "error.type", "authentication_error")
	p.billed(0, 0)
}

// in calls the handler without a network, for the fake clock.
func in(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("X-Api-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestPaces: a client that waits as it is told is let in at once, and one that
// does not is banned in the end.
func TestPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mockprovider.New(mockprovider.Config{Limits: mockprovider.Limits{Requests: 2, Ban: 3}})
		body := `{"model":"m","max_tokens":9,"messages":[` + hi + `]}`
		for range 2 {
			if w := in(m, "/v1/messages", body); w.Code != 200 {
				t.Fatal(w.Code, w.Body)
			}
			time.Sleep(10*time.Second + 300*time.Millisecond)
		}
		w := in(m, "/v1/messages", body)
		h := w.Header()
		if w.Code != 429 || h.Get("Retry-After") != "40" || h.Get("Anthropic-Ratelimit-Requests-Remaining") != "0" || h.Get("Anthropic-Ratelimit-Requests-Limit") != "2" {
			t.Fatal(w.Code, h)
		}
		same(t, w.Body.String(), "error.type", "rate_limit_error")
		time.Sleep(39400 * time.Millisecond)
		if w := in(m, "/v1/messages", body); w.Code != 200 {
			t.Fatal("a minute after the first request:", w.Code, w.Body)
		}
		for _, want := range []int{429, 429, 403, 403} {
			if w := in(m, "/v1/messages", body); w.Code != want {
				t.Fatalf("status %d, expected %d", w.Code, want)
			}
		}
		time.Sleep(time.Hour)
		if w := in(m, "/v1/messages", body); w.Code != 403 {
			t.Error("a ban is for good, and yet the status is", w.Code)
		}
		if s := m.Stats(); s.OK != 3 || s.Refused != 3 || s.Statuses["403"] != 3 {
			t.Errorf("the books: %+v", s)
		}
	})
}

// TestTimes: latency, time to first token and tokens a second add up.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spread := func(s string) mockprovider.Spread {
			d, err := mockprovider.ParseSpread(s)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		m := mockprovider.New(mockprovider.Config{Reply: "one two three four", Latency: spread("1s"), TTFT: spread("500ms"), TPS: 10})
		for _, stream := range []bool{false, true} {
			begun := time.Now()
			if w := in(m, "/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%v,"messages":[%s]}`, stream, hi)); w.Code != 200 {
				t.Fatal(w.Code, w.Body)
			}
			if took := time.Since(begun); took != 1900*time.Millisecond {
				t.Errorf("stream %v took %s, expected 1.9s", stream, took)
			}
		}
		m = mockprovider.New(mockprovider.Config{Latency: spread("p50=100ms,p99=1s"), Seed: 7})
		var slow, below int
		for range 2000 {
			begun := time.Now()
			in(m, "/v1/chat/completions", `{"model":"m","messages":[`+hi+`]}`)
			switch took := time.Since(begun); {
			case took < 100*time.Millisecond:
				below++
			case took > time.Second:
				slow++
			}
		}
		if below < 900 || below > 1100 || slow < 5 || slow > 40 {
			t.Errorf("of 2000, %d were below the median and %d above p99", below, slow)
		}
	})
	for _, s := range []string{"", "1", "-1s", "1s±", "p50=1s", "p50=2s,p99=1s", "p50=1s,p99=x"} {
		if _, err := mockprovider.ParseSpread(s); err == nil {
			t.Errorf("%q is a time", s)
		}
	}
}

// TestSeed: what is left to chance follows from the seed.
func TestSeed(t *testing.T) {
	run := func(seed uint64) (codes []int) {
		m := mockprovider.New(mockprovider.Config{Overload: 0.3, Seed: seed})
		for range 100 {
			codes = append(codes, in(m, "/v1/messages", `{"model":"m","max_tokens":9,"messages":[`+hi+`]}`).Code)
		}
		return codes
	}
	first := run(1)
	if !slices.Equal(first, run(1)) || slices.Equal(first, run(2)) {
		t.Error("the same seed gives other answers, or another one the same")
	}
	if n := len(slices.DeleteFunc(first, func(c int) bool { return c != 529 })); n < 15 || n > 45 {
		t.Errorf("%d of 100 were answered with 529, expected about 30", n)
	}
}

// TestSchema: where there is no script, a value of the schema that was asked for.
func TestSchema(t *testing.T) {
	p := serve(t, mockprovider.Config{})
	_, b, _ := p.post("/v1/chat/completions", `{"model":"m","messages":[`+hi+`],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":
		{"type":"object","properties":{"name":{"type":"string"},"size":{"$ref":"#/$defs/size"},"tags":{"type":"array","minItems":2,"items":{"enum":["a","b"]}},"n":{"anyOf":[{"type":"integer","minimum":3},{"type":"null"}]}},"$defs":{"size":{"type":"number"}}}}}}`)
	if got := dig(t, b, "choices.0.message.content"); got != `{"n":3,"name":"hi","size":0,"tags":["a","a"]}` {
		t.Errorf("the value is %s", got)
	}
}

// TestTogether: many clients at once; the books hold every one.
func TestTogether(t *testing.T) {
	p := serve(t, mockprovider.Config{Script: parsed(t, script), Limits: mockprovider.Limits{Requests: 150}})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			p.post("/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%v,"messages":[%s]}`, i%2 == 0, hi))
		})
	}
	wg.Wait()
	p.billed(15000, 1200)
	if s := p.Stats(); s.OK != 150 || s.Refused != 50 {
		t.Errorf("%d were answered and %d refused, expected 150 and 50", s.OK, s.Refused)
	}
}
