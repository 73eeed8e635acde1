package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/mockprovider"
)

// TestEndWaitsForTheJournal: when the kernel answers a call, which is when its
// answer is written down, the program has not yet the end of a stream, and of an
// answer that is not streamed it has nothing.
//
// Mutants that die here: the last events of a stream handed on as they come, an
// answer that is given when the provider has given it.
func TestEndWaitsForTheJournal(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: longWords, Chunk: 4}, "")
	k := r.key("")
	for _, f := range faces {
		client := httptest.NewRecorder()
		var before string
		gateway.Answered(r.kernel.Gateway, func(abi.Call, abi.Result) { before = client.Body.String() })
		q := httptest.NewRequestWithContext(t.Context(), "POST", f.path, strings.NewReader(f.body))
		q.Header.Set("Authorization", "Bearer "+k.Key)
		r.kernel.Gateway.ServeHTTP(client, q)
		end := map[string]string{"/v1/chat/completions": "[DONE]", "/v1/responses": "response.completed", "/v1/messages": "message_stop"}[f.path]
		switch all := client.Body.String(); {
		case !strings.Contains(f.name, "streamed"):
			if before != "" || !strings.Contains(all, f.says) {
				t.Errorf("%s: it was given %s before it was written down, and then %s", f.name, before, all)
			}
		case strings.Contains(before, end) || !strings.Contains(all, end):
			t.Errorf("%s: it was given %s before it was written down, and then %s", f.name, before, all)
		}
	}
}

// TestAskedAgain: who leaves before a request could begin has left nothing of it
// in the journal, so all of it is written down when somebody asks the same again.
//
// Mutant that dies here: what was not written down taken for known.
func TestAskedAgain(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	k := r.key("")
	body := chat(strings.Repeat(longWords, 3))
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Stop, "test"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan abi.Result, 1)
	gateway.Answered(r.kernel.Gateway, func(_ abi.Call, res abi.Result) { answered <- res })
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		resp, err := r.request(ctx, k.Key, "/v1/chat/completions", body)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	eventually(t, "it waits", func() bool { i, err := r.kernel.Info(k.Pid); return err == nil && len(i.Waits) > 0 })
	leave()
	if err := <-left; err == nil {
		t.Error("it was answered")
	}
	if res := <-answered; res.Err == nil || res.Err.Code != abi.Interrupted {
		t.Errorf("%+v", res)
	}
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Cont, "test"); err != nil {
		t.Fatal(err)
	}
	r.ok(k.Key, "/v1/chat/completions", body)
	r.stored(k.Pid, 0, body)
}

// A silent provider takes requests, and hangs up on the first few of them.
type silent struct {
	mute  int64
	asked atomic.Int64
}

func (p *silent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if p.asked.Add(1) <= p.mute {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answers[r.URL.Path])
}

// TestNeverAnswered: a request that was sent and found no answer has cost its
// input, each time that it was sent; what the tools gave in it is counted once.
//
// Mutants that die here: such a request taken for one that nobody saw, a result
// that counts with each try.
func TestNeverAnswered(t *testing.T) {
	p := &silent{mute: 2}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	r := newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q, key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 100}}}}\n", up.URL+"/v1"))
	k := r.key("money=1,output_bytes=60")
	given := strings.Repeat("x", 60)
	r.ok(k.Key, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"go"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"`+given+`"}]}`)
	var bound int64
	for _, rec := range r.records(k.Pid) {
		if rec.Intent != nil {
			bound = rec.Intent.Reserve[abi.InputTokens]
		}
	}
	used := r.info(k.Pid).Used
	if want := 2*bound + 9; bound == 0 || p.asked.Load() != 3 || used[abi.InputTokens] != want || used[abi.Money] != want*1000+2000 || used[abi.OutputBytes] != int64(len(given)) {
		t.Errorf("asked %d times, at most %d tokens each: booked %v", p.asked.Load(), bound, used)
	}
}

// A provider by hand.
func answering(t *testing.T, h http.HandlerFunc) *rig {
	t.Helper()
	up := httptest.NewServer(h)
	t.Cleanup(up.Close)
	return newRig(t, mockprovider.Config{}, fmt.Sprintf(`providers:
  openai: {base_url: "%[1]s/v1", key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 1000}}}
  anthropic: {base_url: "%[1]s", key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 1000}}}
  lent: {format: openai, base_url: "%[1]s/v1", key: program, models: {m: {input: 1, output: 2, max_output: 1000}}}
`, up.URL))
}

// TestMoreThanGranted is a provider that does not heed the maximum: it is left at
// the limit, the program is told which, and all that came is booked.
//
// Mutant that dies here: an answer that is not counted while it comes.
func TestMoreThanGranted(t *testing.T) {
	r := answering(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 1000 {
			if _, err := io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":" one two three four"}}]}`+"\n\n"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	})
	k := r.key("output_tokens=70,money=1")
	g := r.post(k.Key, "/v1/chat/completions", chat("x", `,"stream":true`))
	if g.code() != abi.LimitOutputTokens || !strings.Contains(g.body, "four") || strings.Contains(g.body, "[DONE]") {
		t.Errorf("%d %.2000s", g.status, g.body)
	}
	if a, used := r.answer(k.Pid), r.info(k.Pid).Used; a.Cut == nil || a.Err == nil || a.Err.Code != abi.LimitOutputTokens || used[abi.OutputTokens] <= 70 || used[abi.ModelCalls] != 1 || int64(strings.Count(g.body, "four"))*4 > used[abi.OutputTokens] {
		t.Errorf("%v; booked %v", a.Err, used)
	}
}

// TestStandingIsTrue: what the headers and the last comment of a stream say that
// was taken and is left is what the kernel has, with the call that they are of.
//
// Mutants that die here: what stood when the answer began, in a header or in the
// comment.
func TestStandingIsTrue(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: longWords, Price: price}, "")
	k := r.key("money=1,steps=9")
	for n := range 3 {
		for _, stream := range []bool{false, true} {
			more := ""
			if stream {
				more = `,"stream":true`
			}
			g := r.ok(k.Key, "/v1/chat/completions", chat("x", more))
			used := r.info(k.Pid).Used
			spent := fmt.Sprintf("money=%s,tokens=%d,input_tokens=%d,output_tokens=%d", abi.FormatMoney(used[abi.Money]), used[abi.Tokens], used[abi.InputTokens], used[abi.OutputTokens])
			left := fmt.Sprintf("money=%s,steps=%d", abi.FormatMoney(1_000_000_000-used[abi.Money]), 9-used[abi.Steps])
			says := fmt.Sprintf("spent %s left %s", g.header.Get("X-Kern-Spent"), g.header.Get("X-Kern-Left"))
			if stream {
				_, says, _ = strings.Cut(g.body, fmt.Sprintf("\n: kern pid=%d call=%s ", k.Pid, g.header.Get("X-Kern-Call")))
				says, _, _ = strings.Cut(says, "\n")
			}
			if want := "spent " + spent + " left " + left; says != want {
				t.Errorf("answer %d, streamed %v, says %q, want %q", n, stream, says, want)
			}
		}
	}
}

// TestNotGiven: of an answer that is not given nothing comes through, nor what its
// provider says to libraries.
//
// Mutant that dies here: headers of such an answer beside our own error.
func TestNotGiven(t *testing.T) {
	r := answering(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json; of=theirs")
		w.Header().Set("X-Request-Id", "req_1")
		w.Header().Set("X-Should-Retry", "true")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
	})
	g := r.refused(r.key("tool_calls=0").Key, "/v1/chat/completions", chat("x"), abi.LimitToolCalls, http.StatusPaymentRequired)
	if h := g.header; h.Get("X-Request-Id") != "" || h.Get("X-Should-Retry") != "false" || h.Get("Content-Type") != "application/json" || h.Get("X-Kern-Call") == "" || strings.Contains(g.body, "look\\\"") {
		t.Errorf("%v %s", h, g.body)
	}
}

// TestRepeatedCredentials is a provider that repeats in its error all that it was
// sent: its key does not reach the program, nor is a credential of the program's
// written down. Its other headers come through.
//
// Mutants that die here: an error that is handed on with the key in it, each of
// the headers with credentials left out of what is hidden.
func TestRepeatedCredentials(t *testing.T) {
	r := answering(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Request-Id", "req_1")
		w.WriteHeader(http.StatusUnauthorized)
		said := strings.Join(append(append(r.Header["Authorization"], r.Header["X-Api-Key"]...), append(r.Header["Api-Key"], r.Header["Cookie"]...)...), " and ")
		_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":"authentication_error","message":"we do not know %s"}}`, said)
	})
	k := r.key("")
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		g := r.post(k.Key, path, chat("x", `,"max_tokens":9`))
		if g.status != http.StatusUnauthorized || !strings.Contains(g.body, "we do not know") || strings.Contains(g.body, providerKey) || g.header.Get("X-Request-Id") != "req_1" {
			t.Errorf("%s: %d %v %s", path, g.status, g.header, g.body)
		}
	}
	own := []string{"Authorization", "Bearer first-own-secret", "X-Api-Key", "second-own-secret", "Api-Key", "third-own-secret", "Cookie", "fourth-own-secret"}
	g := r.post("", "/k/"+k.Key+"/v1/chat/completions", strings.Replace(chat("x"), `"m"`, `"lent/m"`, 1), own...)
	if g.status != http.StatusUnauthorized || strings.Count(g.body, "-own-secret") != 4 {
		t.Errorf("the program's own: %d %s", g.status, g.body)
	}
	for _, rec := range r.records(k.Pid) {
		if b, err := json.Marshal(rec); err != nil || strings.Contains(string(b), "-own-secret") || strings.Contains(string(b), providerKey) {
			t.Errorf("%v: it is written down: %s", err, b)
		}
	}
}

// TestChildAgain: a child that has ended is not the one that its name means from
// then on, nor is it after a restart.
//
// Mutants that die here: a name that stands for who has ended, before and after.
func TestChildAgain(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	seen := map[string]bool{}
	for restart := range 3 {
		pid := r.ok(k.Key, "/v1/chat/completions", chat("x"), "X-Kern-Child", "kid").header.Get("X-Kern-Pid")
		if seen[pid] || pid == fmt.Sprint(k.Pid) {
			t.Errorf("child %s again", pid)
		}
		seen[pid] = true
		n, err := strconv.ParseInt(pid, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.kernel.Signal(t.Context(), abi.Pid(n), abi.Kill, "test"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has ended", func() bool { return r.info(abi.Pid(n)).Exit != nil })
		if restart == 1 {
			r.stop()
			r.start()
		}
	}
}

// TestChildOfKern: a program cannot make calls in the name of a child whose loop Kern
// runs. The child does its work and exits.
func TestChildOfKern(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	script := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(script, []byte("latency: 300ms\nreplies:\n  - text: one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := abi.Run{Parent: k.Pid, Task: "go", Program: abi.Agent{Name: "kid", Model: "script:" + script}}
	if err := config.Prepare(&run); err != nil {
		t.Fatal(err)
	}
	pid, err := r.kernel.SpawnSpec(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.NotGranted, http.StatusConflict, "X-Kern-Child", "kid")
	res, err := r.kernel.Wait(t.Context(), pid)
	if err != nil || res.Exit != abi.ExitDone || res.Output != "one" {
		t.Errorf("%+v %v", res, err)
	}
	r.ok(k.Key, "/v1/chat/completions", chat("x"), "X-Kern-Child", "kid") // the name is free again
}

// TestAddress takes the port again that it was given once, and never an address
// from the file that others could reach.
//
// Mutants that die here: a port that is not remembered, any address that is.
func TestAddress(t *testing.T) {
	a := gateway.Address{Dir: t.TempDir()}
	open := func() string {
		t.Helper()
		l, _, err := a.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	again := 0
	for range 5 { // somebody else may have taken it meanwhile
		if open() == open() {
			again++
		}
	}
	if again == 0 {
		t.Error("no port was taken again")
	}
	if err := os.WriteFile(filepath.Join(a.Dir, "gateway.addr"), []byte("0.0.0.0:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if at := open(); !strings.HasPrefix(at, "127.0.0.1:") {
		t.Errorf("it listens at %s", at)
	}
	type mark struct{}
	ctx := context.WithValue(t.Context(), mark{}, true)
	if s := newRig(t, mockprovider.Config{}, "").kernel.Gateway.Server(ctx); s.BaseContext(nil) != ctx {
		t.Error("requests do not end with the server's context")
	}
}

// TestCannotBeKnown are answers that were cut off in a way that leaves nothing to
// say how much they took: they keep what was reserved for them.
//
// Mutants that die here: each of them booked at what was seen of it.
func TestCannotBeKnown(t *testing.T) {
	t.Parallel()
	const word = `data: {"choices":[{"index":0,"delta":{"content":"one two three"}}]}` + "\n\n"
	for _, c := range []struct {
		name, more, kind, says string
		deaf                   bool // it does not hear that the client has left
	}{
		{"a whole that is torn", ``, "application/json", `{"choices":[{"index":0,"message":{"content":"one tw`, false},
		{"a stream that turned to garbage", `,"stream":true`, "text/event-stream", word + "data: <html>\n\n", false},
		{"a model that thinks in silence", `,"stream":true,"reasoning_effort":"high"`, "text/event-stream", word, false},
		{"a stream that was left before a word", `,"stream":true`, "text/event-stream", ": nothing yet\n\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			settled := make(chan struct{})
			defer close(settled)
			r := answering(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.says)
				_ = http.NewResponseController(w).Flush()
				if c.deaf {
					<-settled
				}
				panic(http.ErrAbortHandler)
			})
			k := r.key("money=1")
			s := r.stream(k.Key, "/v1/chat/completions", chat("x", c.more))
			if c.deaf {
				s.stop()
			}
			_, _ = io.Copy(io.Discard, s.Body) // it ends somehow
			a, i := r.answer(k.Pid), r.info(k.Pid)
			if a.Err == nil || a.Err.Code != abi.OutcomeUnknown || a.Outcome != abi.Unknown || i.Doubt[abi.Money] == 0 || i.Doubt != i.Reserved || i.Used[abi.Money] != 0 {
				t.Errorf("%s %v; booked %v, in doubt %v of %v", a.Outcome, a.Err, i.Used, i.Doubt, i.Reserved)
			}
		})
	}
}

// TestHourInTheCache: what a provider keeps in its cache for an hour is billed at
// twice the input, and booked so.
//
// Mutant that dies here: booked as what is kept for five minutes.
func TestHourInTheCache(t *testing.T) {
	r := answering(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5,"cache_creation_input_tokens":1000,
			"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":1000}}}`)
	})
	k := r.key("")
	r.ok(k.Key, "/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`)
	if got := r.info(k.Pid).Used[abi.Money]; got != 10*1000+5*2000+1000*2*1000 {
		t.Errorf("%d nano-dollars are booked", got)
	}
}
