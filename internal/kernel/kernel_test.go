package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/journaltest"
)

// rig is a kernel over a journal that outlives it.
type rig struct {
	*Kernel
	t   testing.TB
	mem *journaltest.Memory
	log *journal.Log
	cfg Config
}

func newRig(t testing.TB, cfg Config) *rig {
	m := &rig{t: t, mem: journaltest.NewMemory(), cfg: cfg}
	m.open()
	t.Cleanup(func() { m.log.Close() })
	return m
}

// open opens a kernel on the journal as it is.
func (m *rig) open() {
	m.t.Helper()
	store, lease, err := m.mem.Open()
	if err != nil {
		m.t.Fatal(err)
	}
	m.log = journal.NewLog(store, lease)
	m.cfg.Store, m.cfg.Log = store, m.log
	if m.Kernel, err = New(m.cfg); err != nil {
		m.t.Fatal(err)
	}
}

// crash throws away all that is not in the journal, and opens it again.
func (m *rig) crash() {
	m.t.Helper()
	m.log.Close()
	m.Kernel.mu.Lock()
	m.Kernel.closed = true
	for _, p := range m.Kernel.procs {
		p.stopTimers()
	}
	m.Kernel.mu.Unlock()
	m.open()
}

func (m *rig) spawn(s Spawning) abi.Pid {
	m.t.Helper()
	if s.Rows == nil {
		s.Rows = []string{"act", "exit", "model"}
	}
	pid, err := m.Spawn(m.t.Context(), s)
	if err != nil {
		m.t.Fatal(err)
	}
	return pid
}

func (m *rig) do(pid abi.Pid, n uint64, row, args string) abi.Result {
	return m.Do(context.Background(), abi.Call{Pid: pid, N: n, Row: row, Args: json.RawMessage(args)})
}

func limits(pairs ...int64) (l abi.Limits) {
	for i := 0; i < len(pairs); i += 2 {
		l.Set(abi.Unit(pairs[i]), pairs[i+1])
	}
	return l
}

// act is a row that counts how often it ran, and costs a dollar and a tool call.
func act(ran *atomic.Int64) *Row {
	use := abi.Usage{abi.Money: 1, abi.ToolCalls: 1}
	return &Row{Name: "act", Watch: true,
		Plan: func(View, abi.Call) (Plan, *abi.Error) {
			return Plan{Effect: abi.Irreversible, Intent: true, Reserve: use}, nil
		},
		Run: func(_ context.Context, j *Job) Done {
			return Done{Value: json.RawMessage(fmt.Sprint(ran.Add(1))), Usage: use}
		}}
}

func TestOnce(t *testing.T) {
	var ran atomic.Int64
	m := newRig(t, Config{Rows: Table{"act": act(&ran)}})
	pid := m.spawn(Spawning{})
	first := m.do(pid, 1, "act", `{"a":1}`)
	again := m.do(pid, 1, "act", ` { "a" : 1.0 } `)
	m.crash()
	after := m.do(pid, 1, "act", `{"a":1}`)
	if string(first.Value) != "1" || string(again.Value) != "1" || string(after.Value) != "1" || ran.Load() != 1 {
		t.Errorf("answers %s %s %s, ran %d times", first.Value, again.Value, after.Value, ran.Load())
	}
	if r := m.do(pid, 1, "act", `{"a":2}`); r.Err == nil || r.Err.Code != abi.Diverged {
		t.Errorf("other content: %+v", r)
	}
}

func TestMoneyLimit(t *testing.T) {
	var ran atomic.Int64
	m := newRig(t, Config{Rows: Table{"act": act(&ran)}})
	pid := m.spawn(Spawning{Spawn: abi.Spawn{Limits: limits(int64(abi.Money), 3)}})
	for n := uint64(1); n <= 5; n++ {
		r := m.do(pid, n, "act", fmt.Sprintf(`{"n":%d}`, n))
		if refused := r.Err != nil && r.Err.Code == abi.LimitMoney; refused != (n > 3) {
			t.Errorf("call %d: %+v", n, r)
		}
	}
	if ran.Load() != 3 {
		t.Errorf("ran %d times", ran.Load())
	}
}

func TestKillStopsRunning(t *testing.T) {
	started := make(chan struct{})
	block := &Row{Name: "act", Plan: func(View, abi.Call) (Plan, *abi.Error) { return Plan{Effect: abi.Irreversible, Intent: true}, nil },
		Run: func(ctx context.Context, j *Job) Done {
			close(started)
			<-ctx.Done()
			return Done{Err: &abi.Error{Code: abi.Interrupted, Message: "stopped"}}
		}}
	m := newRig(t, Config{Rows: Table{"act": block}})
	pid := m.spawn(Spawning{})
	res := make(chan abi.Result, 1)
	go func() { res <- m.do(pid, 1, "act", `{}`) }()
	<-started
	if err := m.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
		t.Fatal(err)
	}
	r := <-res
	i, err := m.Wait(t.Context(), pid)
	if err != nil || i.Exit.Exit != abi.ExitKilled || r.Outcome != abi.Failed {
		t.Errorf("%+v %+v %v", r, i.Exit, err)
	}
	a, _ := m.Dump(pid)
	m.crash()
	b, _ := m.Dump(pid)
	if string(a) != string(b) {
		t.Errorf("live\n%s\nrecovered\n%s", a, b)
	}
}

func BenchmarkDoNoop(b *testing.B) {
	noop := &Row{Name: "act", Watch: true, Instant: true, Run: func(context.Context, *Job) Done { return Done{Value: json.RawMessage(`1`)} }}
	m := newRig(b, Config{Rows: Table{"act": noop}})
	pid := m.spawn(Spawning{Spawn: abi.Spawn{Watchdog: abi.Watchdog{Profile: "off"}}})
	b.ReportAllocs()
	n := uint64(0)
	start := time.Now()
	for b.Loop() {
		n++
		if r := m.do(pid, n, "act", `{}`); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	_ = start
}
