package kernel

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
)

// P5: every process ends in exactly one terminal record with a typed reason,
// whatever ended it and however deep it stood; its parent hears within a
// second; nothing it started outlives it; what it had done so far is kept.

// A demise is one way to end. It plays the process until it is bound to end.
type demise struct {
	name   string
	limits abi.Limits
	dog    abi.Watchdog
	play   func(m *rig, pid abi.Pid)
	exit   abi.Exit
	reason string
	code   abi.Code
}

// usedUp makes calls until one is refused, and ends as an agent does.
func usedUp(row string, d deed) func(m *rig, pid abi.Pid) {
	return func(m *rig, pid abi.Pid) {
		for n := uint64(10); n < 20; n++ {
			d.Nonce = int(n)
			if r := m.do(pid, n, row, d); r.Outcome == abi.Refused {
				m.do(pid, 30, "exit", deed{Code: r.Err.Code, Give: "what I have"})
				return
			}
		}
	}
}

// running leaves a call that goes on for ever.
func running(d deed) func(m *rig, pid abi.Pid) {
	return func(m *rig, pid abi.Pid) {
		d.Gate = "never"
		m.start(pid, 10, "act", d)
		synctest.Wait()
	}
}

func demises() (all []demise) {
	for u := range abi.Units {
		if u == abi.Children {
			continue
		}
		all = append(all, demise{u.String(), limits(u, 5), abi.Watchdog{}, usedUp("act", deed{Reserve: of(u, 2)}), abi.ExitLimit, u.String(), abi.LimitCode(u)})
	}
	signal := func(s abi.Signal) func(*rig, abi.Pid) {
		return func(m *rig, pid abi.Pid) {
			running(deed{})(m, pid)
			m.Signal(m.t.Context(), pid, s, "test")
		}
	}
	return append(all,
		demise{"children", limits(abi.Children, 3), abi.Watchdog{}, usedUp("spawn", deed{}), abi.ExitLimit, "children", abi.LimitChildren},
		demise{"depth", limits(abi.Depth, 0), abi.Watchdog{}, usedUp("spawn", deed{}), abi.ExitLimit, "depth", abi.LimitDepth},
		demise{"context", limits(abi.Context, 100), abi.Watchdog{}, usedUp("model", deed{Context: 101}), abi.ExitLimit, "context", abi.LimitContext},
		demise{"wall", limits(abi.Wall, 5*time.Second), abi.Watchdog{}, running(deed{}), abi.ExitLimit, "wall", abi.LimitWall},
		demise{"wall and deaf", limits(abi.Wall, 5*time.Second), abi.Watchdog{}, running(deed{Deaf: true}), abi.ExitLimit, "wall", abi.LimitWall},
		demise{"wall, deaf and pure", limits(abi.Wall, 5*time.Second), abi.Watchdog{}, running(deed{Deaf: true, Quiet: true}), abi.ExitLimit, "wall", abi.LimitWall},
		demise{"loop", abi.Limits{}, abi.Watchdog{Profile: "strict"}, func(m *rig, pid abi.Pid) {
			for n := uint64(10); n < 13; n++ {
				m.do(pid, n, "act", deed{})
			}
		}, abi.ExitLoop, "watchdog", abi.WatchdogLoop},
		demise{"kill", abi.Limits{}, abi.Watchdog{}, signal(abi.Kill), abi.ExitKilled, "kill", abi.ProcessKilled},
		demise{"term, and no last words", abi.Limits{}, abi.Watchdog{}, signal(abi.Term), abi.ExitKilled, "term", abi.ProcessKilled},
		demise{"crash", abi.Limits{}, abi.Watchdog{}, func(m *rig, pid abi.Pid) {
			running(deed{})(m, pid)
			m.Crash(pid, "the loop broke")
		}, abi.ExitCrashed, "", abi.Internal},
		demise{"done", abi.Limits{}, abi.Watchdog{}, func(m *rig, pid abi.Pid) {
			running(deed{})(m, pid)
			m.do(pid, 30, "exit", deed{Give: "what I have"})
		}, abi.ExitDone, "", ""},
		demise{"failed", abi.Limits{}, abi.Watchdog{}, func(m *rig, pid abi.Pid) { m.do(pid, 30, "exit", deed{Fail: abi.ToolFailed}) }, abi.ExitFailed, "", abi.ToolFailed},
	)
}

func TestEnds(t *testing.T) {
	for _, d := range demises() {
		for depth := 1; depth <= 8; depth++ {
			t.Run(fmt.Sprintf("%s/%d", d.name, depth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { d.at(t, depth) })
			})
		}
	}
}

// at plays a demise at a depth, with two grandchildren that work.
func (d demise) at(t *testing.T, depth int) {
	m := newRig(t, Config{Grace: 800 * time.Millisecond})
	pid := m.spawn(Spawning{})
	var heard []<-chan abi.Result
	for level := range depth {
		s := &abi.Spawn{}
		if level == depth-1 {
			s.Limits, s.Watchdog = d.limits, d.dog
		}
		if r := m.do(pid, 1, "spawn", deed{Child: s}); r.Err != nil {
			t.Fatal(r.Err)
		}
		heard = append(heard, m.start(pid, 2, "wait", deed{}))
		pid++
	}
	if r := m.do(pid, 1, "model", deed{Give: "half of it", Quiet: true}); r.Err != nil {
		t.Fatal(r.Err)
	}
	var orphans []abi.Pid
	if _, set := d.limits.Get(abi.Depth); !set {
		for n := uint64(2); n <= 3; n++ {
			r := m.do(pid, n, "spawn", deed{Nonce: int(n)})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			orphans = append(orphans, pid+abi.Pid(n)-1)
			m.start(orphans[len(orphans)-1], 1, "act", deed{Gate: "never"})
		}
	}
	d.play(m, pid)
	// The moment it is bound to end:
	switch {
	case d.reason == "wall":
		i, _ := m.Info(pid)
		time.Sleep(time.Until(time.Unix(0, i.Born).Add(5 * time.Second)))
	case strings.HasPrefix(d.name, "term"):
		time.Sleep(10 * time.Second)
	}
	bound := time.Now()
	for level := depth - 1; level >= 0; level-- { // each hears, and ends too
		r := <-heard[level]
		if late := time.Since(bound); late > time.Second || string(r.Value) != fmt.Sprint(level+2) {
			t.Errorf("the parent at level %d heard %s after %s: %+v", level, r.Value, late, r.Err)
		}
		m.do(abi.Pid(level+1), 3, "exit", deed{})
	}
	m.let("never") // what is deaf comes home at last; nobody listens
	m.idle()
	i, _ := m.Info(pid)
	if x := i.Exit; x == nil || x.Exit != d.exit || x.Reason != d.reason || x.Code != d.code {
		t.Fatalf("exit %+v", i.Exit)
	}
	records := m.records(pid)
	terminal := 0
	for _, r := range records {
		if r.Kind == abi.KindExited {
			terminal++
		}
	}
	if last := records[len(records)-1]; terminal != 1 || last.Kind != abi.KindExited {
		t.Errorf("%d terminal records, the last record is %s", terminal, last.Kind)
	}
	for _, kid := range orphans {
		// A deadline is theirs as well, and may strike first.
		if i, _ := m.Info(kid); i.Exit == nil || (i.Exit.Exit != abi.ExitKilled || i.Exit.Reason != "parent") && i.Exit.Reason != d.reason {
			t.Errorf("grandchild %d: %+v", kid, i.Exit)
		}
	}
	v, _ := m.View(pid)
	if len(v.Pages) == 0 {
		t.Error("what the model said is gone")
	}
	if d.exit == abi.ExitLimit && d.reason != "wall" || d.exit == abi.ExitDone {
		if out, err := m.Bytes(v.Exit.Output); string(out) != "what I have" || err != nil {
			t.Errorf("output %q %v", out, err)
		}
	}
	if strings.Contains(d.name, "deaf") {
		doubt := strings.Count(m.kinds(pid), "ended(10)")
		if pure := strings.Contains(d.name, "pure"); pure != (doubt == 0) {
			t.Errorf("%s: %s", d.name, m.kinds(pid))
		}
	}
	if _, err := m.Wait(t.Context(), pid); err != nil {
		t.Error(err)
	}
	before := m.dump(pid)
	m.crash()
	m.idle()
	if m.dump(pid) != before {
		t.Error("it is another process after a restart")
	}
}

// TestKillFromAbove kills the root of a tree that works at every level.
func TestKillFromAbove(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		root := m.spawn(Spawning{})
		pid := root
		for level := range 8 {
			m.do(pid, 1, "spawn", deed{})
			m.start(pid, 2, "act", deed{Gate: "never", Deaf: level%3 == 2})
			m.start(pid, 3, "wait", deed{})
			pid++
		}
		m.idle()
		killed := time.Now()
		if err := m.Signal(t.Context(), root, abi.Kill, "test"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Wait(t.Context(), root); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		m.let("never")
		m.idle()
		for _, i := range m.List() {
			if i.Exit == nil || i.Exit.Exit != abi.ExitKilled || i.Reserved != i.Doubt {
				t.Errorf("process %d: %+v %v %v", i.Pid, i.Exit, i.Reserved, i.Doubt)
			}
		}
	})
}

// TestNoMoneyNoModel: under a money limit of nothing also a model that is free
// is not asked; what costs nothing and is no model runs.
func TestNoMoneyNoModel(t *testing.T) {
	m := newRig(t, Config{})
	pid := m.spawn(under(limits(abi.Money, 0)))
	if r := m.do(pid, 1, "model", deed{Reserve: abi.Usage{abi.ModelCalls: 1}}); code(r) != abi.LimitMoney || m.effects(pid, 1) != 0 {
		t.Errorf("a free model: %+v", r)
	}
	if r := m.do(pid, 2, "act", deed{Reserve: abi.Usage{abi.ToolCalls: 1}}); r.Err != nil {
		t.Errorf("a tool: %+v", r)
	}
}

// TestTermAcrossRestarts: the time for last words goes on after a restart.
func TestTermAcrossRestarts(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		if err := m.Signal(t.Context(), pid, abi.Term, "test"); err != nil {
			t.Fatal(err)
		}
		m.crash()
		time.Sleep(20 * time.Second)
		m.idle()
		if i, _ := m.Info(pid); i.Exit == nil || i.Exit.Exit != abi.ExitKilled || i.Exit.Reason != "term" {
			t.Errorf("%+v", i.Exit)
		}
	})
}

// TestForkOfDoubt: what nobody saw the end of is not given to a fork.
func TestForkOfDoubt(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		m.do(pid, 1, "act", deed{Reserve: money(1)})
		m.start(pid, 2, "act", deed{Reserve: money(4), Gate: "never"})
		m.idle()
		m.crash()
		fork, err := m.Fork(t.Context(), pid, Forking{})
		if err != nil {
			t.Fatal(err)
		}
		i, _ := m.Info(fork)
		if n, _ := i.Limits.Get(abi.Money); n != 5 {
			t.Errorf("the fork may take %d, and 5 of 10 are left", n)
		}
	})
}

// TestManyChildren: that a child ends costs the same, however many others there
// are. What was allocated stands for what was done.
//
// Mutant that dies here: the end of a child looks at every child of its parent.
func TestManyChildren(t *testing.T) {
	each := func(n int) (bytes uint64) {
		synctest.Test(t, func(t *testing.T) {
			m := newRig(t, Config{})
			parent := m.spawn(Spawning{})
			for i := range n {
				if r := m.do(parent, uint64(i+1), "spawn", deed{Nonce: i}); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := m.Signal(t.Context(), parent, abi.Kill, "test"); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Wait(t.Context(), parent); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			bytes = (after.TotalAlloc - before.TotalAlloc) / uint64(n)
		})
		return bytes
	}
	if few, many := each(200), each(3200); many > 3*few {
		t.Errorf("%d bytes for each of 3200 children, and %d for each of 200", many, few)
	}
}

// TestLate: a call that does not hear that its process has ended changes nothing
// of it any more. A record behind the last one could not be read again.
//
// Mutant that dies here: Raise does not look whether there is still a process.
func TestLate(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		gate := make(chan struct{})
		m.cfg.Rows["late"] = &Row{Name: "late", Run: func(_ context.Context, j *Job) Done {
			<-gate
			j.Raise(limits(abi.Steps, 100))
			return Done{}
		}}
		s := under(limits(abi.Steps, 10))
		s.Rows = append(s.Rows, "late")
		pid := m.spawn(s)
		res := m.startCall(call(pid, 1, "late", deed{}))
		m.idle()
		if err := m.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Wait(t.Context(), pid); err != nil {
			t.Fatal(err)
		}
		close(gate)
		if r := <-res; r.Outcome != abi.Unknown {
			t.Errorf("%+v", r)
		}
		m.idle()
		m.crash()
		if i, err := m.Info(pid); err != nil || i.Exit == nil || m.kinds(pid) != "spawned signaled ending exited" {
			t.Errorf("%+v %v: %s", i.Exit, err, m.kinds(pid))
		}
	})
}

// TestExitByALimit: a process does not say that a limit ended it when none of its
// calls was refused by that.
func TestExitByALimit(t *testing.T) {
	m := newRig(t, Config{})
	pid := m.spawn(under(limits(abi.ToolCalls, 0, abi.Money, 5)))
	if r := m.do(pid, 1, "act", deed{Reserve: abi.Usage{abi.ToolCalls: 1}}); code(r) != abi.LimitToolCalls {
		t.Fatalf("%+v", r)
	}
	if r := m.do(pid, 2, "exit", deed{Code: abi.LimitMoney}); code(r) != abi.InvalidArguments || r.Err.Where != "/code" {
		t.Errorf("by a limit it did not meet: %+v", r)
	}
	if r := m.do(pid, 3, "exit", deed{Code: abi.LimitToolCalls}); r.Err != nil {
		t.Errorf("by the one it met: %+v", r)
	}
	if i, _ := m.Info(pid); i.Exit == nil || i.Exit.Exit != abi.ExitLimit || i.Exit.Reason != "tool_calls" {
		t.Errorf("%+v", i.Exit)
	}
}

// TestAskedAgain: a wait that its caller gave up is no answer. The call is not in
// the journal, and runs when it is asked again.
func TestAskedAgain(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		m.start(pid, 1, "act", deed{Reserve: money(8), Use: new(abi.Usage), Gate: "open"})
		m.idle()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan abi.Result, 1)
		go func() {
			gone <- m.Do(ctx, abi.Call{Pid: pid, N: 2, Row: "act", Args: deed{Reserve: money(5)}.json()})
		}()
		m.idle()
		cancel()
		if r := <-gone; code(r) != abi.Interrupted || r.Outcome != abi.Refused {
			t.Errorf("given up: %+v", r)
		}
		m.let("open")
		m.idle()
		if k := m.kinds(pid); k != "spawned began(1) ended(1)" {
			t.Errorf("the journal has %s", k)
		}
		if r := m.do(pid, 2, "act", deed{Reserve: money(5)}); r.Err != nil || m.effects(pid, 2) != 1 {
			t.Errorf("asked again: %+v", r)
		}
	})
}

// TestExitLetsGo: of what only served the life of a process nothing stays with it,
// and of those that ended only the last stay whole.
//
// Mutants that die here: a timer is stopped and kept, the calls' table is kept,
// nobody is let go.
func TestExitLetsGo(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Wall, time.Hour)))
		m.do(pid, 1, "act", deed{Give: "x"})
		if err := m.Signal(t.Context(), pid, abi.Term, "test"); err != nil { // its last words have a time too
			t.Fatal(err)
		}
		if err := m.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
			t.Fatal(err)
		}
		if p := m.procs.byPid[pid]; p.state.Exit == nil || p.timers != (timers{}) || p.ops != nil || p.claims != nil {
			t.Errorf("exit %v, timers %v, calls %v, claims %v", p.state.Exit, p.timers, p.ops, p.claims)
		}
		m.keep(keepWhole)
		for range 3 * keepWhole {
			if err := m.Signal(t.Context(), m.spawn(Spawning{}), abi.Kill, "test"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if whole, gone := len(m.procs.byPid), len(m.procs.machine.Buried); whole > keepWhole+1 || gone != 3*keepWhole+1-whole {
			t.Errorf("%d are whole, %d let go", whole, gone)
		}
		m.keep(0)
		m.idle()
	})
}

// TestDeadlineAtRecovery: a deadline that passed while nobody was there ends its
// process as soon as the kernel is back, and not while the rest is recovered.
//
// Mutant that dies here: recovery does not hold the lock.
func TestDeadlineAtRecovery(t *testing.T) {
	m := newRig(t, Config{})
	runs := make(chan struct{}, 2)
	m.onRun = func(*Job) { runs <- struct{}{} }
	parent := m.spawn(under(limits(abi.Wall, time.Hour)))
	for n := uint64(1); n <= 2; n++ {
		if r := m.do(parent, n, "spawn", deed{Child: &abi.Spawn{Rows: everyRow}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		m.start(parent+abi.Pid(n), 1, "act", deed{Gate: "never"})
		<-runs // its intent is on disk
	}
	var inside, most atomic.Int32
	m.cfg.Now = func() time.Time { // stays a moment, so that somebody else may come
		most.Store(max(most.Load(), inside.Add(1)))
		for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end) && most.Load() == 1; {
			runtime.Gosched()
		}
		inside.Add(-1)
		return time.Now().Add(2 * time.Hour)
	}
	m.crash()
	i, err := m.Wait(t.Context(), parent)
	if err != nil || i.Exit.Exit != abi.ExitLimit || i.Exit.Reason != "wall" {
		t.Errorf("%+v %v", i.Exit, err)
	}
	if most.Load() > 1 {
		t.Error("two changed the state at the same time")
	}
}
