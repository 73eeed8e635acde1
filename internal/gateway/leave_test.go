package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
)

// What every speech says that it took: no count of its words comes to that.
const saidIn, saidOut = 7, 41

// speeches are streams as providers give them, event by event.
var speeches = []struct {
	name, path, body string
	events           []string
	leave            []string // where a client may have all it wants
}{
	{"chat", "/v1/chat/completions", chat("x", `,"stream":true,"stream_options":{"include_usage":true}`), []string{
		`data: {"choices":[{"index":0,"delta":{"content":"one two"}}]}`,
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":41,"total_tokens":48}}`,
		`data: [DONE]`,
	}, []string{"finish_reason", "total_tokens", "[DONE]"}},
	{"chat with choices", "/v1/chat/completions", chat("x", `,"stream":true,"n":2,"stream_options":{"include_usage":true}`), []string{
		`data: {"choices":[{"index":0,"delta":{"content":"one two"}}]}`,
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`data: {"choices":[{"index":1,"delta":{"content":"three"}}]}`,
		`data: {"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}`,
		`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":41,"total_tokens":48}}`,
		`data: [DONE]`,
	}, []string{`"length"`, "total_tokens", "[DONE]"}},
	{"responses", "/v1/responses", `{"model":"m","stream":true,"input":"x"}`, []string{
		"event: response.created\n" + `data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress"}}`,
		"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","output_index":0,"delta":"one two"}`,
		"event: response.completed\n" + `data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[],"usage":{"input_tokens":7,"output_tokens":41}}}`,
	}, []string{"response.completed"}},
	{"messages", "/v1/messages", `{"model":"m","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"x"}]}`, []string{
		"event: message_start\n" + `data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":7,"output_tokens":1}}}`,
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one two"}}`,
		"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":41}}`,
		"event: message_stop\n" + `data: {"type":"message_stop"}`,
	}, []string{"message_delta", "message_stop"}},
}

// A speaker is a provider that gives such a stream.
type speaker struct {
	events []string
	pause  time.Duration // before each event
	heeds  bool          // it says no more when nobody listens
	end    string        // of its body: at once, late, or torn
}

func (s *speaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range s.events {
		pace := time.NewTimer(s.pause)
		select {
		case <-pace.C:
		case <-r.Context().Done():
			if s.heeds {
				return
			}
			<-pace.C
		}
		if _, err := io.WriteString(w, e+"\n\n"); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
	}
	switch s.end {
	case "late":
		<-r.Context().Done()
	case "torn":
		panic(http.ErrAbortHandler)
	}
}

// speaking is a rig before a speaker.
func speaking(t *testing.T, s *speaker) *rig {
	t.Helper()
	up := httptest.NewServer(s)
	t.Cleanup(up.Close)
	return newRig(t, mockprovider.Config{}, fmt.Sprintf(`providers:
  openai: {base_url: "%[1]s/v1", key_env: UP_KEY, concurrency: 2000, models: {m: {input: 1, output: 2, max_output: 1000}}}
  anthropic: {base_url: "%[1]s", key_env: UP_KEY, concurrency: 2000, models: {m: {input: 1, output: 2, max_output: 1000}}}
`, up.URL))
}

// hear sends a request by hand, reads up to what has a mark in it, and closes
// the connection at once. It returns what came.
func (r *rig) hear(key, path, body, mark string) string {
	r.t.Helper()
	c := dial(r.t, r.front.Listener.Addr())
	defer c.Close()
	if _, err := io.WriteString(c, byHand(key, "localhost", path, "Connection: close\r\n", body)); err != nil {
		r.t.Fatal(err)
	}
	var all []byte
	buf := make([]byte, 4<<10)
	for !bytes.Contains(all, []byte(mark)) {
		n, err := c.Read(buf)
		if all = append(all, buf[:n]...); err != nil {
			break
		}
	}
	return string(all)
}

// answer is how the only call to a model of a process ended.
func (r *rig) answer(pid abi.Pid) (a *abi.Answer) {
	r.t.Helper()
	eventually(r.t, "the call has ended", func() bool {
		for _, rec := range r.records(pid) {
			if rec.Answer != nil {
				a = rec.Answer
			}
		}
		return a != nil
	})
	return a
}

// took holds what is booked of a call, and how it ended.
func (r *rig) took(pid abi.Pid, in, out int64, code abi.Code, why string) {
	r.t.Helper()
	a, i := r.answer(pid), r.info(pid)
	if i.Used[abi.InputTokens] != in || i.Used[abi.OutputTokens] != out || i.Used[abi.Money] != in*1000+out*2000 || i.Reserved != (abi.Usage{}) {
		r.t.Errorf("%s: booked %d in, %d out, %d nano-dollars, reserved %v; expected %d and %d", why, i.Used[abi.InputTokens], i.Used[abi.OutputTokens], i.Used[abi.Money], i.Reserved, in, out)
	}
	if (a.Err == nil) != (code == "") || a.Err != nil && a.Err.Code != code {
		r.t.Errorf("%s: the outcome is %s: %v; expected the code %q", why, a.Outcome, a.Err, code)
	}
}

// TestLeaving lets clients close the connection at the moment at which they
// have all they want, long before the end of the stream. The provider had said
// all by then: what it took is booked, to the token, as if they had stayed.
//
// Mutants that die here: a provider that has only its count to give and is hung
// up on, or is heard of its end after the client; an end of the body that is
// waited for, an answer that is taken for cut off because its body was.
func TestLeaving(t *testing.T) {
	t.Parallel()
	for _, f := range speeches {
		for _, s := range []speaker{
			{end: "at once"}, {end: "late"}, {end: "torn"},
			{end: "at once", heeds: true, pause: 40 * time.Millisecond}, {end: "late", pause: 40 * time.Millisecond},
		} {
			t.Run(fmt.Sprintf("%s, ends %s, pause %s", f.name, s.end, s.pause), func(t *testing.T) {
				s.events = f.events
				r := speaking(t, &s)
				var clients sync.WaitGroup
				for _, mark := range f.leave {
					for range 10 {
						k := r.key("money=1")
						clients.Go(func() {
							if all := r.hear(k.Key, f.path, f.body, mark); !strings.Contains(all, mark) {
								t.Errorf("without %s: %s", mark, all)
							}
							r.took(k.Pid, saidIn, saidOut, "", "left at "+mark)
						})
					}
				}
				clients.Wait()
			})
		}
	}
}

// TestEndings are of providers that leave something out, or that end in some
// other way than in the format's own.
//
// Mutants that die here: a margin for an answer that came to its end, a broken
// body that is taken for whole where its end was not said, one that is taken
// for broken where it was.
func TestEndings(t *testing.T) {
	const own, ownOut = 0, 2 // our own count, where the provider gives none: of what was sent the bound
	for _, c := range []struct {
		face    int
		without string
		end     string
		in, out int64
		code    abi.Code
	}{
		{0, "", "torn", saidIn, saidOut, ""},
		{0, "[DONE]", "at once", saidIn, saidOut, ""},
		{0, "[DONE]", "torn", saidIn, saidOut, abi.ModelNetwork},
		{0, "usage", "at once", own, ownOut, ""},
		{0, "usage", "late", own, ownOut, ""},
		{0, "usage", "torn", own, ownOut, ""},
		{2, "", "torn", saidIn, saidOut, ""},
		{2, "", "late", saidIn, saidOut, ""},
		{3, "", "torn", saidIn, saidOut, ""},
		{3, "message_stop", "at once", saidIn, saidOut, ""},
		{3, "message_stop", "torn", saidIn, saidOut, abi.ModelNetwork},
	} {
		f := speeches[c.face]
		t.Run(fmt.Sprintf("%s without %q, ends %s", f.name, c.without, c.end), func(t *testing.T) {
			s := &speaker{end: c.end, pause: time.Millisecond}
			for _, e := range f.events {
				if c.without == "" || !strings.Contains(e, c.without) {
					s.events = append(s.events, e)
				}
			}
			r := speaking(t, s)
			k := r.key("money=1")
			g := r.post(k.Key, f.path, f.body)
			if g.code() != c.code {
				t.Errorf("the client was told %s", g.body)
			}
			if last := s.events[len(s.events)-1]; c.code == "" && !strings.Contains(g.body, last+"\n\n") {
				t.Errorf("the client has no end: %s", g.body)
			}
			if c.in == own {
				c.in = r.reserved(k.Pid)
			}
			r.took(k.Pid, c.in, c.out, c.code, "at the end")
		})
	}
}
