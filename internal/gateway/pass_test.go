package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/mockprovider"
)

// A listener is a provider that keeps the bodies it was sent, and answers with
// what a test hands it.
type listener struct {
	mu     sync.Mutex
	bodies []string
	answer func(path, body string) string
}

func (p *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, string(b))
	w.Header().Set("Content-Type", "application/json")
	answer := p.answer
	if answer == nil {
		answer = func(path, _ string) string { return answers[path] }
	}
	_, _ = io.WriteString(w, answer(r.URL.Path, string(b)))
}

func (p *listener) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bodies) == 0 {
		return ""
	}
	return p.bodies[len(p.bodies)-1]
}

// answers are the least that each format takes for an answer.
var answers = map[string]string{
	"/v1/chat/completions": `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`,
	"/v1/responses":        `{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":9,"output_tokens":1}}`,
	"/v1/embeddings":       `{"data":[],"usage":{"prompt_tokens":9,"total_tokens":9}}`,
	"/v1/messages":         `{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":1}}`,
}

// listening is a rig before a listener, with a model m of these facts, in both
// formats.
func listening(t *testing.T, facts string) (*rig, *listener) {
	t.Helper()
	p := &listener{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	return newRig(t, mockprovider.Config{}, fmt.Sprintf(`providers:
  openai: {base_url: "%[1]s/v1", key_env: UP_KEY, models: {m: {%[2]s}}}
  anthropic: {base_url: "%[1]s", key_env: UP_KEY, models: {m: {%[2]s}}}
`, up.URL, facts)), p
}

// odd are requests as nobody here would write them.
var odd = []struct{ path, body string }{
	{"/v1/chat/completions", `{ "model" : "m","messages":[ {"role":"user","content":"h\u00e9 \/ 1"}], "temperature":1.0e0,"n":2,"stop":["a"],"x_new":{"b":[1.0,2e5]} }`},
	{"/v1/chat/completions", `{"model":"m","max_tokens":90000,"max_completion_tokens":80000,"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]}]}`},
	{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"functions":[{"name":"f","parameters":{}}],"function_call":"auto","logprobs":true}`},
	{"/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true,"x":1},"messages":[{"role":"user","content":"x"}]}`},
	{"/v1/chat/completions", `{"model":"nobody-knows","messages":[{"role":"user","content":"x"}]}`},
	{"/v1/responses", `{"model":"m","input":[{"type":"item_reference","id":"msg_1"}],"previous_response_id":"resp_1","store":true,"tools":[{"type":"web_search"}]}`},
	{"/v1/embeddings", `{"model":"m","input":[[1,2],[3]],"encoding_format":"base64","dimensions":5}`},
	{"/v1/messages", `{"model":"m","max_tokens":90000,"thinking":{"type":"enabled","budget_tokens":60000},"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`},
	{"/v1/messages", `{"model":"nobody-knows","max_tokens":90000,"messages":[{"role":"user","content":"x"}]}`},
}

// TestAsItCame sends on what no limit binds, to the byte: no output maximum is
// put in, and none is lowered, whatever is known of the model.
//
// Mutants that die here: a maximum that is set where there is no limit, one
// that is lowered to what the model is said to give.
func TestAsItCame(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 1000, window: 8000")
	for _, l := range []string{"", "steps=100,wall=1h,context=1000000"} {
		k := r.key(l)
		for _, q := range odd {
			r.ok(k.Key, q.path, q.body)
			if p.last() != q.body {
				t.Errorf("under %q\n%s was sent as\n%s", l, q.body, p.last())
			}
		}
	}
	k := r.key("money=100")
	q := `{"model":"m","max_tokens":90000,"messages":[{"role":"user","content":"x"}]}`
	if r.ok(k.Key, "/v1/messages", q); p.last() != q {
		t.Errorf("there is room for all of it, and it was sent as %s", p.last())
	}
	q = `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	if r.ok(k.Key, "/v1/chat/completions", q); p.last() != strings.TrimSuffix(q, "}")+`,"max_tokens":1000}` {
		t.Errorf("under a limit it was sent as %s", p.last())
	}
}

// TestWindow leaves it to the provider to say that a request is too long: what
// is known here is a bound, and the truth may be half of it. A limit on context
// is held by the bound.
//
// Mutants that die here: a request refused for its window, an output maximum
// lowered to nothing because the bound of the input fills the window.
func TestWindow(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 2000")
	long := chat(strings.Repeat(longWords+", ", 60))
	for _, l := range []string{"", "money=100", "tokens=100000"} {
		k := r.key(l)
		r.ok(k.Key, "/v1/chat/completions", long)
		if l != "" && !strings.HasSuffix(p.last(), `,"max_tokens":125}`) {
			t.Errorf("under %s the output is %s", l, p.last()[len(p.last())-30:])
		}
	}
	r.refused(r.key("context=1000").Key, "/v1/chat/completions", long, abi.LimitContext, http.StatusBadRequest)
	for facts, status := range map[string]abi.Code{"input: 1, output: 2": abi.LimitContext, "input: 1, output: 2, window: 900": ""} {
		r, _ := listening(t, facts)
		g := r.post(r.key("context=1000").Key, "/v1/responses", `{"model":"m","previous_response_id":"resp_9","input":"x"}`)
		if g.code() != status {
			t.Errorf("%s: a request without a bound under a limit on context: %d %s", facts, g.status, g.body)
		}
	}
}

// TestDeafProvider does not notice that nobody listens: what it goes on to say
// until it is cut off, and a little after, is booked.
//
// Mutants that die here: what came taken for all that was said.
func TestDeafProvider(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	wrote := 0
	ended := make(chan bool)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			_, err := io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":" one two three four"}}]}`+"\n\n")
			if err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			mu.Lock()
			wrote += 4
			mu.Unlock()
		}
	}))
	t.Cleanup(up.Close)
	r := newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q, key_env: UP_KEY, models: {m: {input: 1, output: 2}}}}\n", up.URL+"/v1"))
	k := r.key("money=1")
	s := r.stream(k.Key, "/v1/chat/completions", chat("x", `,"stream":true,"max_tokens":9000`))
	if !s.until("four") {
		t.Fatal("no text")
	}
	s.stop()
	<-ended
	eventually(t, "it is settled", func() bool { return r.info(k.Pid).Used[abi.ModelCalls] == 1 })
	mu.Lock()
	defer mu.Unlock()
	if n := r.info(k.Pid).Used[abi.OutputTokens]; n < int64(wrote) || n > int64(wrote)*2+100 {
		t.Errorf("%d tokens are booked, and %d were said", n, wrote)
	}
}

// TestSold refuses under a limit on money or tokens a field by which more is sold
// than words, says what could be done, and sends nothing; and hands it on where
// there is no such limit, or where a person says that it costs nothing there.
//
// Mutants that die here: such a field taken for free, one that is refused without a
// limit, what a provider's entry says taken for all providers, a hint at it where it
// does not help.
func TestSold(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 100")
	body := chat("x", `,"mcp_servers":[{"a":1}]`)
	for _, limit := range []string{"money=1", "tokens=1000"} {
		g := r.refused(r.key(limit).Key, "/v1/chat/completions", body, abi.UnknownPrice, http.StatusBadRequest)
		if !strings.Contains(g.body, "/mcp_servers") || !strings.Contains(g.body, "free: [mcp_servers]") {
			t.Errorf("under %s: %s", limit, g.body)
		}
	}
	for _, body := range []string{chat("x", `,"tools":[{"type":"web_search"}]`), strings.Replace(chat("x"), `"m"`, `"m:online"`, 1)} { // what free does not name
		if g := r.refused(r.key("tokens=1000").Key, "/v1/chat/completions", body, abi.UnknownPrice, http.StatusBadRequest); strings.Contains(g.body, "kern.yaml") {
			t.Errorf("%s", g.body)
		}
	}
	if p.last() != "" {
		t.Errorf("%s was sent", p.last())
	}
	if r.ok(r.key("").Key, "/v1/chat/completions", body); p.last() != body {
		t.Errorf("%s was sent, want %s", p.last(), body)
	}
	r.stop()
	r.config = strings.Replace(r.config, "openai: {", "openai: {free: [mcp_servers], ", 1)
	r.start()
	k := r.key("money=1")
	if r.ok(k.Key, "/v1/chat/completions", body); !strings.Contains(p.last(), `"mcp_servers":[{"a":1}]`) {
		t.Errorf("%s was sent", p.last())
	}
	r.refused(k.Key, "/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"mcp_servers":[1]}`, abi.UnknownPrice, http.StatusBadRequest)
	if r.ok(k.Key, "/v1/chat/completions", chat("x", `,"new_field":0.5`)); !strings.Contains(p.last(), `"new_field":0.5`) {
		t.Errorf("of a field that nobody knows, %s was sent", p.last())
	}
}

// TestUnbounded refuses under a limit what that could not hold, and sends
// nothing.
//
// Mutants that die here: a model without a price under a limit on money, a tool
// of the provider's under one, a request without a bound and a model without a
// window, a window that is not reserved.
func TestUnbounded(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2")
	k := r.key("money=1")
	for _, q := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"nobody-knows","messages":[{"role":"user","content":"x"}]}`},
		{"/v1/responses", `{"model":"m","input":"x","tools":[{"type":"web_search"}]}`},
		{"/v1/responses", `{"model":"m","input":"x","previous_response_id":"resp_7"}`},
		{"/v1/messages", `{"model":"m","max_tokens":9,"messages":[],"mcp_servers":[{"url":"u"}]}`},
	} {
		r.refused(k.Key, q.path, q.body, abi.UnknownPrice, http.StatusBadRequest)
	}
	if p.last() != "" {
		t.Errorf("%s was sent", p.last())
	}
	r, _ = listening(t, "input: 1, output: 2, window: 50000")
	k = r.key("money=1")
	r.ok(k.Key, "/v1/responses", `{"model":"m","input":"x","previous_response_id":"resp_7"}`)
	if n := r.reserved(k.Pid); n < 49_000 {
		t.Errorf("%d tokens were reserved for a window of 50,000", n)
	}
}

// TestHoldRefused holds nobody who did not ask for it, and nobody who is not
// there; what is ordered of them is told to no one.
//
// Mutants that die here: a process that is held without its wish, words that do
// not say so.
func TestHoldRefused(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	tell := func(kernel.Orders) error { t.Error("something is told"); return nil }
	var e *abi.Error
	err := r.kernel.Gateway.Hold(t.Context(), r.key("").Pid, tell)
	if !errors.As(err, &e) || e.Code != abi.InvalidCall || e.Message != "the process does not want to be held" {
		t.Errorf("%v", err)
	}
	if err := r.kernel.Gateway.Hold(t.Context(), 999, tell); !errors.As(err, &e) || e.Code != abi.UnknownProcess {
		t.Errorf("%v", err)
	}
}
