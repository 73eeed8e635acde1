package kernel

import (
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
)

// The watchdog and the circuit breaker as a process meets them. The verdicts
// themselves are a table in internal/watch.

func (m *rig) exit(pid abi.Pid) abi.Exit {
	if i, err := m.Info(pid); err == nil && i.Exit != nil {
		return i.Exit.Exit
	}
	return ""
}

// TestWarnedOnce: the first verdict is a warning, the model may go wrong once more,
// and then it is the end. A restart between them gives no second warning.
func TestWarnedOnce(t *testing.T) {
	for _, restart := range []bool{false, true} {
		lived(t, func(t *testing.T, m *rig) {
			pid := m.spawn(Spawning{})
			for n := uint64(1); n <= 5; n++ {
				if restart {
					m.crash()
				}
				r := m.do(pid, n, "act", deed{Give: "x"})
				if (r.Warning != nil) != (n == 3) || r.Err != nil {
					t.Errorf("call %d: warning %v, error %v", n, r.Warning, r.Err)
				}
			}
			m.idle()
			v, _ := m.View(pid)
			if v.Exit == nil || v.Exit.Exit != abi.ExitLoop || v.Exit.Code != abi.WatchdogLoop || v.Exit.Err == nil || v.Exit.Err.Message == "" {
				t.Errorf("%+v", v.Exit)
			}
		})
	}
}

func TestStrictAndOff(t *testing.T) {
	for profile, want := range map[string]int{"strict": 3, "off": 0, "smart": 5, "": 5} {
		lived(t, func(t *testing.T, m *rig) {
			s := Spawning{}
			s.Watchdog.Profile = profile
			pid := m.spawn(s)
			for n := uint64(1); n <= 10 && m.exit(pid) == ""; n++ {
				if r := m.do(pid, n, "act", deed{}); r.Warning != nil && profile == "strict" {
					t.Error("strict warns")
				}
				m.idle()
				if (m.exit(pid) == abi.ExitLoop) != (int(n) == want) {
					t.Errorf("%q: exit %q after call %d", profile, m.exit(pid), n)
				}
			}
		})
	}
}

// TestCirclingRefusals: the same bad call over and over is a loop; to ask for
// more than a limit allows is not.
func TestCirclingRefusals(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		s := under(limits(abi.Money, 0))
		s.Watchdog.Profile = "strict"
		pid := m.spawn(s)
		for n := uint64(1); n <= 10; n++ {
			if r := m.do(pid, n, "act", deed{Reserve: money(1)}); code(r) != abi.LimitMoney {
				t.Fatalf("%+v", r)
			}
		}
		if m.exit(pid) != "" {
			t.Error("a limit is no loop")
		}
		s.Rows = []string{"model"}
		pid = m.spawn(s)
		for n := uint64(1); n <= 3; n++ {
			if r := m.do(pid, n, "act", deed{}); code(r) != abi.NotGranted {
				t.Errorf("%+v", r)
			}
		}
		m.idle()
		if m.exit(pid) != abi.ExitLoop {
			t.Errorf("exit %q", m.exit(pid))
		}
	})
}

// TestAttemptsAreOneCall: attempts at one call are no repetition.
func TestAttemptsAreOneCall(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		r := m.do(pid, 1, "act", deed{Effect: abi.Idempotent, Fail: abi.ToolFailed, Attempts: 9, Tool: "x"})
		if r.Attempts != 9 || m.effects(pid, 1) != 9 || r.Warning != nil {
			t.Errorf("%+v, ran %d times", r, m.effects(pid, 1))
		}
		if r := m.do(pid, 2, "act", deed{Tool: "x", Nonce: 2}); r.Err != nil {
			t.Errorf("one failed call and the tool rests: %v", r.Err)
		}
	})
}

// TestScenario18Breaker: after three failures in a row a tool rests; others do
// not; it is tried again after its time; another process starts fresh; a
// restart does not wake it.
func TestScenario18Breaker(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		fail := func(n uint64, tool string) abi.Code {
			return code(m.do(pid, n, "act", deed{Tool: tool, Fail: abi.ToolFailed, Nonce: int(n)}))
		}
		for n := uint64(1); n <= 3; n++ {
			if c := fail(n, "x"); c != abi.ToolFailed {
				t.Errorf("call %d: %s", n, c)
			}
		}
		if c := fail(4, "x"); c != abi.ToolBlocked || m.effects(pid, 4) != 0 {
			t.Errorf("the fourth: %s, ran %d times", c, m.effects(pid, 4))
		}
		if r := m.do(pid, 5, "act", deed{Tool: "y"}); r.Err != nil {
			t.Errorf("another tool: %v", r.Err)
		}
		if r := m.do(m.spawn(Spawning{}), 1, "act", deed{Tool: "x"}); r.Err != nil {
			t.Errorf("another process: %v", r.Err)
		}
		m.crash()
		if c := fail(6, "x"); c != abi.ToolBlocked {
			t.Errorf("after a restart: %s", c)
		}
		time.Sleep(30 * time.Second)
		if c := fail(7, "x"); c != abi.ToolFailed {
			t.Errorf("after its rest: %s", c)
		}
		if c := fail(8, "x"); c != abi.ToolBlocked {
			t.Errorf("it failed again: %s", c)
		}
		time.Sleep(30 * time.Second)
		if r := m.do(pid, 9, "act", deed{Tool: "x", Nonce: 9}); r.Err != nil {
			t.Errorf("it works again: %v", r.Err)
		}
		for n := uint64(10); n <= 12; n++ {
			if c := fail(n, "x"); c != abi.ToolFailed {
				t.Errorf("a success begins anew: call %d: %s", n, c)
			}
		}
		m.idle()
	})
}

// TestThreeRollbacks: the third rollback of a tool in a row is the end, without
// a warning, also when a restart came between. What goes well starts anew.
func TestThreeRollbacks(t *testing.T) {
	bad := deed{Tool: "edit", Fail: abi.InvariantFailed, Rolled: true, State: 1}
	for _, c := range []struct {
		name    string
		restart bool
		profile string
		calls   []deed
		end     int // the call that ends it; 0: none does
	}{
		{"in a row", false, "", []deed{bad, bad, bad}, 3},
		{"with a restart", true, "", []deed{bad, bad, bad}, 3},
		{"with others between", false, "", []deed{bad, {Tool: "look"}, bad, {Tool: "edit", Fail: abi.EditNoMatch}, bad}, 5},
		{"with one that went well", false, "", []deed{bad, bad, {Tool: "edit"}, bad, bad}, 0},
		{"of two tools", false, "", []deed{bad, bad, {Tool: "put", Fail: abi.InvariantFailed, Rolled: true}}, 0},
		{"nobody watches", false, "off", []deed{bad, bad, bad}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			lived(t, func(t *testing.T, m *rig) {
				s := Spawning{}
				s.Watchdog.Profile = c.profile
				pid := m.spawn(s)
				for i, d := range c.calls {
					if c.restart {
						m.crash()
					}
					d.Nonce = i
					m.do(pid, uint64(i+1), "act", d)
					m.idle()
					if (m.exit(pid) == abi.ExitLoop) != (i+1 == c.end) {
						t.Errorf("after call %d: exit %q, want it at %d", i+1, m.exit(pid), c.end)
					}
				}
			})
		})
	}
}

// TestLostRaces: a conflict that somebody else caused is no evidence against the
// process or its tool, however often it happens.
func TestLostRaces(t *testing.T) {
	for _, c := range []abi.Code{abi.WorkspaceConflict, abi.WorkspaceLocked} {
		lived(t, func(t *testing.T, m *rig) {
			s := Spawning{}
			s.Watchdog.Profile = "strict"
			pid := m.spawn(s)
			for n := uint64(1); n <= 10; n++ {
				if r := m.do(pid, n, "act", deed{Tool: "edit", Fail: c, Rolled: true, State: 1}); code(r) != c {
					t.Errorf("call %d: %v", n, r.Err)
				}
			}
			m.idle()
			if e := m.exit(pid); e != "" {
				t.Errorf("exit %q", e)
			}
		})
	}
}

// TestChangedWorkspace: the same call with the same result is progress while it
// changes the workspace, and a circle when it does not.
func TestChangedWorkspace(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		for n := uint64(1); n <= 10; n++ {
			if r := m.do(pid, n, "act", deed{Give: "x", Publish: true, Tool: "add"}); r.Warning != nil && n < 3 {
				t.Errorf("call %d: %v", n, r.Warning)
			}
			m.idle()
		}
		if m.exit(pid) != abi.ExitLoop {
			t.Error("it went in circles and was let")
		}
		pid = m.spawn(Spawning{})
		for n := uint64(1); n <= 10; n++ {
			c := abi.Call{Pid: pid, N: n, Row: "changes", Args: deed{Give: "x"}.json()}
			if r := m.Do(t.Context(), c); r.Warning != nil || r.Err != nil {
				t.Errorf("call %d: %v %v", n, r.Warning, r.Err)
			}
		}
	})
}

// TestStoppedIsNoCircle: a call that was stopped says nothing of what the
// process does, however often that happens.
//
// Mutant that dies here: it is counted as a failure.
func TestStoppedIsNoCircle(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		s := Spawning{}
		s.Watchdog.Profile = "strict"
		pid := m.spawn(s)
		for n := uint64(1); n <= 10; n++ {
			if r := m.do(pid, n, "act", deed{Fail: abi.Interrupted}); code(r) != abi.Interrupted {
				t.Errorf("call %d: %v", n, r.Err)
			}
		}
		m.idle()
		if e := m.exit(pid); e != "" {
			t.Errorf("exit %q", e)
		}
	})
}
