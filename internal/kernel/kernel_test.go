package kernel

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/ledger"
)

func TestOnce(t *testing.T) {
	m := newRig(t, Config{})
	pid := m.spawn(Spawning{})
	ask := func(args string) abi.Result {
		return m.Do(context.Background(), abi.Call{Pid: pid, N: 1, Row: "act", Args: json.RawMessage(args)})
	}
	first := ask(`{"give":"x","nonce":1}`)
	again := ask(` { "nonce" : 1.0, "give":"x" } `)
	m.crash()
	after := ask(`{"give":"x","nonce":1}`)
	if string(first.Value) != `"x"` || string(again.Value) != `"x"` || string(after.Value) != `"x"` || m.effects(pid, 1) != 1 {
		t.Errorf("answers %s %s %s, ran %d times", first.Value, again.Value, after.Value, m.effects(pid, 1))
	}
	if r := ask(`{"give":"y"}`); code(r) != abi.Diverged {
		t.Errorf("other content: %+v", r)
	}
}

// TestCountsWithoutLock: a text may be long, and nothing is decided while
// somebody has the lock.
func TestCountsWithoutLock(t *testing.T) {
	var m *rig
	counted := 0
	m = newRig(t, Config{Count: func(b []byte) int {
		counted += len(b)
		free := make(chan bool)
		go func() {
			m.Kernel.procs.mu.Lock()
			defer m.Kernel.procs.mu.Unlock()
			close(free)
		}()
		select {
		case <-free:
		case <-time.After(30 * time.Second):
			t.Errorf("%q is counted under the lock", b)
		}
		return len(b)
	}})
	pid := m.spawn(Spawning{Task: []byte("a task")})
	if r := m.do(pid, 1, "spawn", deed{}); r.Err != nil {
		t.Fatal(r.Err)
	}
	m.do(pid, 2, "act", deed{Say: "said"})
	if counted < len("a task")+len("task")+len("said") {
		t.Errorf("%d bytes were counted", counted)
	}
}

func TestMoneyLimit(t *testing.T) {
	m := newRig(t, Config{})
	pid := m.spawn(under(limits(abi.Money, 3)))
	for n := uint64(1); n <= 5; n++ {
		r := m.do(pid, n, "act", deed{Reserve: abi.Usage{abi.Money: 1}, Nonce: int(n)})
		if refused := code(r) == abi.LimitMoney; refused != (n > 3) || m.effects(pid, n) == 1 == refused {
			t.Errorf("call %d: %+v, ran %d times", n, r, m.effects(pid, n))
		}
	}
}

func TestKillStopsRunning(t *testing.T) {
	m := newRig(t, Config{})
	pid := m.spawn(Spawning{})
	began := make(chan struct{})
	m.onRun = func(*Job) { close(began) }
	res := m.start(pid, 1, "act", deed{Gate: "never"})
	<-began
	if err := m.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
		t.Fatal(err)
	}
	r := <-res
	i, err := m.Wait(t.Context(), pid)
	if err != nil || i.Exit.Exit != abi.ExitKilled || r.Outcome != abi.Failed || code(r) != abi.Interrupted {
		t.Errorf("%+v %+v %v", r, i.Exit, err)
	}
	a := m.dump(pid)
	m.crash()
	if b := m.dump(pid); a != b {
		t.Errorf("live\n%s\nrecovered\n%s", a, b)
	}
}

func BenchmarkDoNoop(b *testing.B) {
	noop := &Row{Name: "act", Watch: true, Instant: true, Run: func(context.Context, *Job) Done { return Done{Value: json.RawMessage(`1`)} }}
	log := journal.NewLog(journal.Nowhere, journal.Lease{})
	defer log.Close()
	k, err := New(Config{Rows: Table{"act": noop}, Store: journal.Nowhere, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	pid, err := k.Spawn(b.Context(), Spawning{Spawn: abi.Spawn{Rows: []string{"act"}, Watchdog: abi.Watchdog{Profile: "off"}}})
	if err != nil {
		b.Fatal(err)
	}
	args := json.RawMessage(`{}`)
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		n++
		if r := k.Do(context.Background(), abi.Call{Pid: pid, N: n, Row: "act", Args: args}); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}

// BenchmarkReserveSettle is the part of a call that is about accounts: whether
// it fits on a path of four, holding, reserving and settling it.
func BenchmarkReserveSettle(b *testing.B) {
	var path *ledger.Account
	for range 4 {
		path = &ledger.Account{Parent: path, Limits: limits(abi.Money, 1<<60, abi.ToolCalls, 1<<60)}
	}
	need := abi.Usage{abi.Money: 1, abi.ToolCalls: 1}
	var none Elastic
	b.ReportAllocs()
	for b.Loop() {
		f := path.Fit(&need, &none, nil)
		if !f.OK {
			b.Fatal("it does not fit")
		}
		path.Hold(&f.Need)
		path.Reserve(&f.Need)
		path.Release(&f.Need)
		path.Settle(&f.Need, &need)
	}
}
