package kernel

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
)

// Nothing can be written, and what runs must stop all the same: first it is
// done, and recorded as soon as there is room. What is refused meanwhile stays
// refused.

// TestEndsOnFullDisk ends a process in every way that asks nobody while the disk
// is full, whether that was met with already or not.
func TestEndsOnFullDisk(t *testing.T) {
	send := func(s abi.Signal) func(*rig, abi.Pid) {
		return func(m *rig, pid abi.Pid) {
			err := m.Signal(m.t.Context(), pid, s, "test")
			if e, ok := err.(*abi.Error); !ok || e.Code != m.log.Err().Code || !strings.Contains(e.Message, "obeys "+string(s)) {
				m.t.Errorf("%s says %v", s, err)
			}
		}
	}
	for _, d := range []struct {
		name   string
		limits abi.Limits
		end    func(*rig, abi.Pid)
		exit   abi.Exit
		reason string
	}{
		{"kill", abi.Limits{}, send(abi.Kill), abi.ExitKilled, "kill"},
		{"term", abi.Limits{}, send(abi.Term), abi.ExitKilled, "term"},
		{"wall", limits(abi.Wall, 20*time.Second), func(*rig, abi.Pid) { time.Sleep(21 * time.Second) }, abi.ExitLimit, "wall"},
		{"exit", abi.Limits{}, func(m *rig, pid abi.Pid) { m.start(pid, 30, "exit", deed{}); synctest.Wait() }, abi.ExitDone, ""},
		{"crash", abi.Limits{}, func(m *rig, pid abi.Pid) { m.Crash(pid, "the loop broke") }, abi.ExitCrashed, ""},
	} {
		for name, known := range map[string]bool{"": false, ", and it is known": true} {
			t.Run(d.name+name, func(t *testing.T) {
				lived(t, func(t *testing.T, m *rig) {
					pid := m.spawn(under(d.limits))
					if r := m.do(pid, 1, "spawn", deed{Child: &abi.Spawn{}}); r.Err != nil {
						t.Fatal(r.Err)
					}
					kid := pid + 1
					runs := []<-chan abi.Result{m.start(pid, 2, "act", deed{Gate: "never"}), m.start(kid, 1, "act", deed{Gate: "never"})}
					m.idle()
					m.tap.fill(true)
					if known {
						runs = append(runs, m.start(pid, 3, "act", deed{})) // its intent finds no room
						synctest.Wait()
					}
					d.end(m, pid)
					if r := m.do(pid, 4, "act", deed{}); r.Outcome != abi.Refused {
						t.Errorf("a new call: %+v", r)
					}
					time.Sleep(15 * time.Second)
					synctest.Wait()
					for _, p := range []abi.Pid{pid, kid} {
						if i, err := m.Info(p); err != nil || i.Exit == nil || i.State != abi.Exited {
							t.Errorf("process %d on a full disk: %+v, %v", p, i, err)
						}
					}
					for s := range map[abi.Signal]bool{abi.Kill: true, abi.Term: true, abi.Stop: true} {
						if err := m.Signal(t.Context(), pid, s, "test"); err == nil {
							t.Errorf("%s of a process that has exited", s)
						}
					}
					m.tap.fill(false)
					time.Sleep(time.Second)
					m.idle() // which compares what lives with what is on disk
					for _, c := range runs {
						if r, ok := got(c); !ok || r.Err == nil {
							t.Errorf("a call that was stopped: %+v %v", r, ok)
						}
					}
					i, _ := m.Info(pid)
					if i.Exit.Exit != d.exit || i.Exit.Reason != d.reason || m.effects(pid, 2) != 1 || m.effects(kid, 1) != 1 || m.effects(pid, 3)+m.effects(pid, 4) != 0 {
						t.Errorf("%+v", i.Exit)
					}
					before := m.dump(pid)
					m.crash()
					if after := m.dump(pid); after != before {
						t.Errorf("recovered as\n%s, was\n%s", after, before)
					}
				})
			})
		}
	}
}

// TestSpawnOnFullDisk: who wants a process is told at once that there is no room,
// also who is the first to meet with that, and what was made for them is gone.
func TestSpawnOnFullDisk(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		before := m.spawn(Spawning{})
		m.idle()
		m.tap.fill(true)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			_, err := m.Spawn(ctx, Spawning{})
			cancel()
			if e, ok := err.(*abi.Error); !ok || e.Code != abi.StorageFull {
				t.Errorf("a spawn says %v", err)
			}
		}
		m.tap.fill(false)
		time.Sleep(time.Second)
		m.idle()
		if i, err := m.Info(before + 1); err != nil || i.Exit == nil || i.Exit.Exit != abi.ExitKilled || i.Exit.Reason != "caller" {
			t.Errorf("%+v, %v", i, err)
		}
		if pid := m.spawn(Spawning{}); pid != before+2 {
			t.Errorf("process %d follows %d", pid, before)
		}
	})
}

// TestKillOnBrokenJournal: when nothing can be written for ever what runs stops
// too, and is there again when the machine is.
func TestKillOnBrokenJournal(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		run := m.start(pid, 1, "act", deed{Gate: "never"})
		m.idle()
		m.tap.breakNow()
		err := m.Signal(t.Context(), pid, abi.Kill, "test")
		if e, ok := err.(*abi.Error); !ok || e.Code != abi.StorageBroken || !strings.Contains(e.Message, "obeys kill") {
			t.Errorf("kill says %v", err)
		}
		synctest.Wait()
		if r, ok := got(run); !ok || r.Outcome != abi.Unknown {
			t.Errorf("the call that ran: %+v %v", r, ok)
		}
		if i, _ := m.Info(pid); i.Exit == nil {
			t.Errorf("%+v", i)
		}
		m.crash()
		if i, _ := m.Info(pid); i.Exit != nil || m.kinds(pid) != "spawned began(1) ended(1)" {
			t.Errorf("after a restart: %+v, %s", i, m.kinds(pid))
		}
	})
}

// TestStopOnFullDisk: a process is held back; it is not let go on, nor anything
// else changed, before there is room. What it has heard already is not queued again.
func TestStopOnFullDisk(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		run := m.start(pid, 1, "act", deed{Gate: "end"})
		m.idle()
		m.tap.fill(true)
		for range 3 {
			if err := m.Signal(t.Context(), pid, abi.Stop, "test"); err == nil || !strings.Contains(err.Error(), "obeys stop") {
				t.Errorf("stop says %v", err)
			}
		}
		if i, _ := m.Info(pid); i.Records != 3 || i.State != abi.Paused { // spawned, began, signaled
			t.Errorf("%+v", i)
		}
		urgent := 0
		for name, err := range map[string]error{
			"cont":   m.Signal(t.Context(), pid, abi.Cont, "test"),
			"change": m.Change(t.Context(), pid, abi.Edit{Priority: &urgent}),
			"decide": m.Decide(t.Context(), pid, 0, true, "test", ""),
		} {
			if e, ok := err.(*abi.Error); !ok || e.Code != abi.StorageFull || strings.Contains(e.Message, "obeys") {
				t.Errorf("%s says %v", name, err)
			}
		}
		m.let("end")
		synctest.Wait()
		if _, ok := got(run); ok {
			t.Error("an answer that is not on disk was given")
		}
		m.tap.fill(false)
		time.Sleep(time.Second)
		m.idle()
		if r, ok := got(run); !ok || r.Err != nil {
			t.Errorf("%+v %v", r, ok)
		}
		held := m.start(pid, 2, "act", deed{})
		m.idle()
		if m.waits(pid) != "cont" || m.effects(pid, 2) != 0 {
			t.Errorf("it waits for %q", m.waits(pid))
		}
		if err := m.Signal(t.Context(), pid, abi.Cont, "test"); err != nil {
			t.Error(err)
		}
		m.idle()
		if r, ok := got(held); !ok || r.Err != nil {
			t.Errorf("%+v %v", r, ok)
		}
	})
}
