// Mutants that a test here or in stream_test.go kills; each was tried:
//   - clean does not replace the key, or cuts before it replaces: TestKeyShowsNowhere
//   - Key holds its secret in a plain field: TestKeyShowsNowhere
//   - redirects are followed: TestRedirectDoesNotCarryTheKey
//   - a stream without an end is Done: TestStreamsCutAnywhere
//   - half a call is given at StopLength: TestStreams (length, max_tokens)
//   - calls are told apart by index alone: TestStreams (index_zero)
//   - an event waits for the byte after it: TestEventsComeAsTheyAreSent
//   - breaking the loop leaves the request open: TestBreakStopsTheRequest
//   - the deadline is not looked at: TestContextStopsTheRequest
//   - silence is not ended, or counts the caller's time: TestSilenceEnds
//   - cached tokens are counted twice: TestStreams (text, parallel)
//   - an answer, its calls or its stream have no bound: TestAnswersAreBounded, TestStreamIsBounded
//   - counted usage is called reported: TestStreams (no_usage, loose)
package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/kern-run/kern/model"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serve starts a provider and opens ref there, with a connection pool that
// ends with the test.
func serve(t *testing.T, ref string, c Config, h http.HandlerFunc) model.Model {
	t.Helper()
	s := httptest.NewServer(h)
	tr := &http.Transport{}
	t.Cleanup(func() { tr.CloseIdleConnections(); s.Close() })
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: tr}
	}
	c.Getenv = env("OPENAI_BASE_URL", s.URL+"/v1/", "OPENAI_API_KEY", canary, "ANTHROPIC_BASE_URL", s.URL, "ANTHROPIC_API_KEY", canary)
	m, err := Open(ref, c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// conversation has one of everything.
var conversation = model.Request{
	MaxOutput: 77,
	Messages: []model.Message{
		{Role: model.System, Text: "Be brief. <&>"},
		{Role: model.System, Text: "Be kind."},
		{Role: model.User, Text: "Read a and b."},
		{Role: model.Assistant, Text: "I will. ", Calls: []model.ToolCall{{ID: "c1", Name: "read", Args: `{"path": "a"}`}, {ID: "c.2", Name: "read", Args: `{"path":`}}},
		{Role: model.Tool, CallID: "c1", Text: "contents of a"},
		{Role: model.Tool, CallID: "c.2", Text: "no such file", Failed: true},
		{Role: model.User, Text: "And now?"},
		{Role: model.Assistant, Text: " \n"},
		{Role: model.User, Text: "Well?"},
		{Role: model.Assistant, Text: "So: \n"},
	},
	Tools: []model.ToolSpec{
		{Name: "read", Description: "Read a file", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
		{Name: "now"},
	},
}

func TestRequestsOnTheWire(t *testing.T) {
	for ref, path := range map[string]string{
		"openai:gpt-5":                "/v1/chat/completions",
		"anthropic:claude-sonnet-4-5": "/v1/messages",
	} {
		dir, _, _ := strings.Cut(ref, ":")
		var head http.Header
		var body []byte
		m := serve(t, ref, Config{}, func(w http.ResponseWriter, r *http.Request) {
			head = r.Header
			body, _ = io.ReadAll(r.Body)
			if r.URL.Path != path || r.Method != http.MethodPost {
				t.Errorf("%s %s, want POST %s", r.Method, r.URL.Path, path)
			}
			data, _ := os.ReadFile("testdata/" + dir + "/text.sse")
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			w.Write(data)
		})
		if o := run(t, m, conversation); o.Done == nil {
			t.Fatal(o.Err)
		}
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		pretty, _ := json.MarshalIndent(v, "", " ")
		golden(t, "testdata/"+dir+"/request.json", string(pretty)+"\n")
		if strings.Contains(string(body), `\u003c`) {
			t.Error("the request is escaped for HTML")
		}
		switch dir {
		case "openai":
			if head.Get("Authorization") != "Bearer "+canary {
				t.Errorf("headers %v", head)
			}
		case "anthropic":
			if head.Get("X-Api-Key") != canary || head.Get("Anthropic-Version") != "2023-06-01" {
				t.Errorf("headers %v", head)
			}
		}
	}
}

// OpenAI itself is asked for max_completion_tokens, and so is who passes its
// models on, other servers for max_tokens; without a maximum neither is sent.
func TestOutputMaximumOnTheWire(t *testing.T) {
	for _, c := range []struct {
		base, ref string
		max       int
		want, not string
	}{
		{"", "openai:gpt-5", 77, `"max_completion_tokens":77`, "max_tokens"},
		{"https://api.openai.com/v1/", "openai:gpt-5", 77, `"max_completion_tokens":77`, "max_tokens"},
		{"http://127.0.0.1:1/v1", "openai:gpt-5", 77, `"max_completion_tokens":77`, "max_tokens"},
		{"http://127.0.0.1:1/v1", "openai:llama3", 77, `"max_tokens":77`, "max_completion_tokens"},
		{"", "openai:gpt-5", 0, `"stream":true`, "max_"},
		{"", "anthropic:claude-opus-4-1", 0, `"max_tokens":32000`, "max_completion"},
		{"", "anthropic:claude-of-tomorrow", 0, `"max_tokens":4096`, "max_completion"},
	} {
		p := &tape{status: 500}
		m, err := Open(c.ref, Config{
			HTTP:   &http.Client{Transport: p},
			Getenv: env("OPENAI_BASE_URL", c.base, "OPENAI_API_KEY", canary, "ANTHROPIC_API_KEY", canary),
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, m, model.Request{Messages: hello.Messages, MaxOutput: c.max})
		if s := string(p.asked); !strings.Contains(s, c.want) || strings.Contains(s, c.not) {
			t.Errorf("%s at %q with %d: sent %s, want %s and no %s", c.ref, c.base, c.max, s, c.want, c.not)
		}
	}
}

// A whole JSON answer of a server that does not stream is an answer too.
func TestAnswerWithoutStreaming(t *testing.T) {
	json := http.Header{"Content-Type": {"application/json"}}
	o := run(t, over(t, "openai:gpt-5", &tape{status: http.StatusCreated, header: json, pieces: []string{
		`{"choices":[{"message":{"role":"assistant","content":"hi","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`,
	}}), hello)
	if o.Text != "hi" || len(o.Calls) != 1 || o.Done == nil || o.Done.Usage != (model.Usage{Input: 9, Output: 2}) || o.Done.Stop != model.StopTools {
		t.Errorf("got %s", o)
	}
	for ref, body := range map[string]string{"openai:gpt-5": `{}`, "anthropic:claude-sonnet-4-5": `{"type":"other"}`} {
		if o := run(t, over(t, ref, &tape{header: json, pieces: []string{body}}), hello); o.Err == nil || o.Err.Kind != model.Malformed {
			t.Errorf("%s: got %s, want malformed", ref, o)
		}
	}
}

// A web page is what stands at an address that is not the provider's.
func TestWebPage(t *testing.T) {
	for _, ref := range []string{"openai:gpt-5", "anthropic:claude-sonnet-4-5"} {
		o := run(t, over(t, ref, &tape{header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, pieces: []string{"<html>\n\n<p>hello"}}), hello)
		if o.Err == nil || o.Err.Kind != model.Malformed || !strings.Contains(o.Err.Message, "check the base URL") {
			t.Errorf("%s: got %s", ref, o)
		}
	}
}

// Each event is given before the server sends the next: the server waits for
// the reader.
func TestEventsComeAsTheyAreSent(t *testing.T) {
	for _, newline := range []string{"\n", "\r\n", "\r"} {
		next := make(chan bool)
		m := serve(t, "openai:m", Config{}, func(w http.ResponseWriter, r *http.Request) {
			for i := range 3 {
				for _, b := range []byte(strings.ReplaceAll(fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"%d\"}}]}\n\n", i), "\n", newline)) {
					w.Write([]byte{b})
					w.(http.Flusher).Flush()
				}
				<-next
			}
			io.WriteString(w, "data: [DONE]\n\n")
		})
		got := ""
		for e, err := range m.Stream(t.Context(), hello) {
			if err != nil {
				t.Fatal(err)
			}
			if got += e.Text; e.Text != "" {
				next <- true
			}
		}
		if got != "012" {
			t.Errorf("got %q", got)
		}
	}
}

// endless writes text until the client goes away, then closes gone.
func endless(gone chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"more \"}}]}\n\n"); err != nil {
				break
			}
			w.(http.Flusher).Flush()
		}
		close(gone)
	}
}

func waitFor(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
}

func TestBreakStopsTheRequest(t *testing.T) {
	gone := make(chan struct{})
	m := serve(t, "openai:m", Config{}, endless(gone))
	for _, err := range m.Stream(t.Context(), hello) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	waitFor(t, "the end of the request at the server", gone)
}

func TestContextStopsTheRequest(t *testing.T) {
	t.Run("within the stream", func(t *testing.T) {
		gone := make(chan struct{})
		m := serve(t, "openai:m", Config{}, endless(gone))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last *model.Error
		for e, err := range m.Stream(ctx, model.Request{Messages: hello.Messages}) {
			if e.Text != "" {
				cancel()
			}
			errors.As(err, &last)
		}
		if last == nil || !errors.Is(last, context.Canceled) || last.Retryable() || last.Usage == nil || last.Usage.Output == 0 {
			t.Errorf("got %+v, want what came so far, not for retrying", last)
		}
		waitFor(t, "the end of the request at the server", gone)
	})
	t.Run("before the answer", func(t *testing.T) {
		gone := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		m := serve(t, "anthropic:m", Config{}, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			cancel()
			<-r.Context().Done()
			close(gone)
		})
		o := runContext(t, ctx, m, hello)
		if !errors.Is(o.Err, context.Canceled) || o.Err.Usage == nil || o.Err.Usage.Input == 0 || o.output == 0 {
			t.Errorf("got %+v, want all that the provider may bill", o.Err)
		}
		waitFor(t, "the end of the request at the server", gone)
	})
	t.Run("deadline", func(t *testing.T) {
		m := serve(t, "openai:m", Config{}, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if o := runContext(t, ctx, m, hello); !errors.Is(o.Err, context.DeadlineExceeded) {
			t.Errorf("got %v", o.Err)
		}
	})
	t.Run("before it began", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m := serve(t, "openai:m", Config{}, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") })
		if o := runContext(t, ctx, m, hello); !errors.Is(o.Err, context.Canceled) || o.Err.Usage == nil {
			t.Errorf("got %+v, want an error and no usage", o.Err)
		}
	})
}

// A phone is a RoundTripper whose answer is said while it is read.
type phone func(ctx context.Context, w io.Writer)

func (say phone) RoundTrip(req *http.Request) (*http.Response, error) {
	r, w := io.Pipe()
	ctx := req.Context()
	hangUp := context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer hangUp()
		say(ctx, w)
		w.CloseWithError(context.Cause(ctx)) // its end, unless it was stopped
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
}

// A silent provider is given up; one that goes on in time is not, nor is a
// caller that takes its time.
func TestSilenceEnds(t *testing.T) {
	const idle = time.Minute
	const event = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
	opened := func(t *testing.T, say phone) model.Model {
		m, err := Open("openai:m", Config{Getenv: keys, Idle: idle, HTTP: &http.Client{Transport: say}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	synctest.Test(t, func(t *testing.T) {
		m := opened(t, func(ctx context.Context, w io.Writer) {
			for range 3 {
				<-time.After(idle - 1)
				io.WriteString(w, event)
			}
			<-ctx.Done()
		})
		began := time.Now()
		o := run(t, m, hello)
		if o.Text != "xxx" || o.Err == nil || o.Err.Kind != model.Network || !strings.Contains(o.Err.Message, "silent") || o.Err.Usage == nil {
			t.Errorf("got %s, want silence", o)
		}
		if d := time.Since(began); d != 4*idle-3 {
			t.Errorf("it was given up after %s", d)
		}
		step := make(chan struct{})
		m = opened(t, func(_ context.Context, w io.Writer) {
			io.WriteString(w, event)
			<-step
			io.WriteString(w, event+"data: [DONE]\n\n")
		})
		text := ""
		for e, err := range m.Stream(t.Context(), hello) {
			if err != nil {
				t.Fatal(err)
			}
			if text += e.Text; text == "x" && e.Text != "" {
				<-time.After(3 * idle) // the caller thinks for longer than the provider may be silent
				close(step)
			}
		}
		if text != "xx" {
			t.Errorf("got %q", text)
		}
	})
}

func TestNobodyThere(t *testing.T) {
	// A port that was free a moment ago may be somebody else's by now; this one
	// is nobody's.
	m, err := Open("openai:m", Config{Getenv: env("OPENAI_BASE_URL", "http://127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, m, hello)
	if o.Err == nil || o.Err.Kind != model.Network || !o.Err.Retryable() || o.Err.Usage == nil || *o.Err.Usage != (model.Usage{}) {
		t.Errorf("got %+v, want a network error that cost nothing", o.Err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	event := `data: {"choices":[{"delta":{"content":"` + long + `"}}]}` + "\n\n"
	many := make([]string, 0, 4)
	for range 10 {
		many = append(many, event)
	}
	open := `data: {"choices":[{"delta":{"tool_calls":[{"id":"%d","function":{"name":"f"}}]}}]}` + "\n\n"
	var calls []string
	for i := range 1024 + 1 {
		calls = append(calls, fmt.Sprintf(open, i))
	}
	for name, p := range map[string]*tape{
		"one event":   {pieces: strings.SplitAfter("data: "+strings.Repeat(long, 9), "xxxx")},
		"all of it":   {pieces: chop(many, 1<<12)},
		"calls":       {pieces: calls},
		"error body":  {status: 400, pieces: chop([]string{strings.Repeat(long, 2)}, 1<<12)},
		"one message": {pieces: []string{`data: {"error":{"message":"` + long[:9000] + `"}}` + "\n\n"}},
	} {
		var o outcome
		var text int
		for e, err := range over(t, "openai:m", p).Stream(t.Context(), model.Request{Messages: hello.Messages}) {
			text += len(e.Text)
			errors.As(err, &o.Err)
		}
		want := map[string]model.Kind{"error body": model.BadRequest, "one message": model.Overloaded}[name]
		if o.Err == nil || o.Err.Kind != cmp.Or(want, model.Malformed) || text > 8<<20+len(event) || len(o.Err.Message) > 610 {
			t.Errorf("%s: %d bytes of text and %v", name, text, o.Err)
		}
	}
}

// A stream that says nothing for ever ends too.
func TestStreamIsBounded(t *testing.T) {
	comment := ":" + strings.Repeat("x", 1<<20) + "\n\n"
	pieces := make([]string, maxStream>>20+1)
	for i := range pieces {
		pieces[i] = comment
	}
	if o := run(t, over(t, "openai:m", &tape{pieces: pieces}), hello); o.Err == nil || o.Err.Kind != model.Malformed {
		t.Errorf("got %s", o)
	}
}

func chop(all []string, size int) (pieces []string) {
	for _, s := range all {
		for len(s) > size {
			pieces, s = append(pieces, s[:size]), s[size:]
		}
		pieces = append(pieces, s)
	}
	return pieces
}
