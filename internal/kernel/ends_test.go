package kernel

import (
	"fmt"
	"strings"
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
	if v, _ := m.View(pid); len(v.Pages) == 0 {
		t.Error("what the model said is gone")
	}
	if d.exit == abi.ExitLimit && d.reason != "wall" || d.exit == abi.ExitDone {
		if out, err := m.Bytes(i.Exit.Output); string(out) != "what I have" || err != nil {
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

// TestMoves holds that no state is left that cannot be left, but the last.
func TestMoves(t *testing.T) {
	for s, to := range moves {
		ends := s == abi.Exited
		for _, next := range to {
			ends = ends || next == abi.Exited || moves[next][evExit] == abi.Exited
			if moves[next] == nil {
				t.Errorf("%s leads to %s, which is no state", s, next)
			}
		}
		if !ends {
			t.Errorf("%s does not lead to the end", s)
		}
	}
	if len(moves[abi.Exited]) != 0 {
		t.Error("exited is left again")
	}
}
