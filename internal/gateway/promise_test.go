package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/mock"
)

// TestEndWaitsForTheJournal: when the kernel answers a call, which is when its
// answer is written down, the program has not yet the end of a stream, and of an
// answer that is not streamed it has nothing.
//
// Mutants that die here: the last events of a stream handed on as they come, an
// answer that is given when the provider has given it.
func TestEndWaitsForTheJournal(t *testing.T) {
	r := newRig(t, mock.Config{Reply: longWords, Chunk: 4}, "")
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
	r := newRig(t, mock.Config{Reply: "yes"}, "")
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
	r := newRig(t, mock.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q, key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 100}}}}\n", up.URL+"/v1"))
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
