package host_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/host"
)

// Mutants that die here: a sleep or a wait for mail that ends at once; a
// duration that is none and is slept all the same; a message that arrives
// changed, twice or at somebody else; a question that nobody is asked; limits
// that are raised against the policy, or not with it.

// said are the answers of all tool calls of a process, as its model reads them.
func said(t *testing.T, k *host.Kernel, pid abi.Pid) (all []string) {
	t.Helper()
	for _, r := range answers(t, k, pid) {
		if r.Answer.Err != nil {
			all = append(all, string(r.Answer.Err.Code)+" "+r.Answer.Err.Where)
			continue
		}
		b, err := k.Bytes(r.Answer.Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return all
}

func wantSaid(t *testing.T, k *host.Kernel, pid abi.Pid, want ...string) {
	t.Helper()
	if got := said(t, k, pid); !slices.Equal(got, want) {
		t.Errorf("process %d was told\n%q, want\n%q", pid, got, want)
	}
}

// TestWaitingCalls: a model sleeps, and waits for mail, for as long as it said.
func TestWaitingCalls(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls: [{tool: sleep, args: {for: 90s}}]
  - calls: [{tool: recv, args: {timeout: 2m}}]
  - calls: [{tool: sleep, args: {for: soon}}]
  - calls: [{tool: sleep, args: {for: "-1s"}}]
  - calls: [{tool: recv, args: {timeout: never}}]
  - calls: [{tool: recv}]
  - calls: [{tool: recv}]
  - text: done
`)
	sender := newWorld(t, `
replies:
  - calls: [{tool: sleep, args: {for: 1h}}]
  - calls: [{tool: send, args: {to: 1, message: {"a": [1, "é"]}}}]
  - calls: [{tool: send, args: {to: 7, message: hello}}]
  - calls: [{tool: send, args: {to: 1, message: hello}}]
  - text: done
`)
	w.virtual(t, func(t *testing.T, k *host.Kernel) {
		calls := []string{"sleep", "send", "recv"}
		start := time.Now()
		one := w.spawn(k, host.Agent{Calls: calls})
		two, err := k.Spawn(t.Context(), host.Agent{Model: "script:" + sender.script, Calls: calls}, "go")
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(30 * time.Minute)
		wantSaid(t, k, one, `{"slept":"1m30s"}`, `{"timeout":true}`, "INVALID_ARGUMENTS /for", "INVALID_ARGUMENTS /for", "INVALID_ARGUMENTS /timeout")
		for _, pid := range []abi.Pid{one, two} {
			if r, err := k.Wait(t.Context(), pid); err != nil || r.Exit != abi.ExitDone {
				t.Errorf("%+v %v", r, err)
			}
		}
		if d := time.Since(start); d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("it took %s", d)
		}
		if got := said(t, k, one); len(got) != 7 || got[5] != `{"from":"2","message":{"a":[1,"é"]}}` || got[6] != `{"from":"2","message":"hello"}` {
			t.Errorf("the receiver was told %q", got)
		}
		wantSaid(t, k, two, `{"slept":"1h0m0s"}`, `{"sent":true}`, "UNKNOWN_PROCESS ", `{"sent":true}`)
	})
}

// TestAskingCalls: a model asks a person, and for higher limits.
func TestAskingCalls(t *testing.T) {
	const script = `
replies:
  - calls: [{tool: ask, args: {question: may I?}}]
  - calls: [{tool: ask, args: {question: may I now?}}]
  - calls: [{tool: yield, args: {limits: {steps: 50}, why: it is long}}]
  - text: done
`
	for policy, want := range map[string]struct {
		asks  []string
		yield string
		steps int64
	}{
		"":     {[]string{"may I?", "may I now?", `may the limits be {"steps":50}? it is long`}, `{"limits":{"steps":50,"children":100,"depth":5}}`, 50},
		"deny": {[]string{"may I?", "may I now?"}, "NOT_APPROVED ", 10},
	} {
		w := newWorld(t, script)
		synctest.Test(t, func(t *testing.T) {
			w.t = t
			k, err := host.Open(host.Config{Dir: w.dir, Settings: config.Settings{Yield: policy}})
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			pid := w.spawn(k, host.Agent{Calls: []string{"ask", "yield"}, Limits: host.Limits{abi.Steps: 10}})
			for i, question := range want.asks {
				<-time.After(time.Hour)
				info, err := k.Info(pid)
				if err != nil || len(info.Asks) != 1 {
					t.Fatalf("%d questions, %v", len(info.Asks), err)
				}
				if q, err := k.Bytes(info.Asks[0].Question); err != nil || string(q) != question {
					t.Errorf("asked %q, %v; want %q", q, err, question)
				}
				if err := k.Decide(t.Context(), pid, info.Asks[0].Call, i != 0, "ann", "said ann"); err != nil {
					t.Fatal(err)
				}
			}
			if r, err := k.Wait(t.Context(), pid); err != nil || r.Exit != abi.ExitDone {
				t.Errorf("%+v %v", r, err)
			}
			wantSaid(t, k, pid, "NOT_APPROVED ", `{"approved":true,"words":"said ann"}`, want.yield)
			info, err := k.Info(pid)
			if n, _ := info.Limits.Get(abi.Steps); err != nil || n != want.steps {
				t.Errorf("it may take %d steps, %v; want %d", n, err, want.steps)
			}
		})
	}
}
