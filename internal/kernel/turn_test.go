package kernel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
)

// turned is a row whose resource turns it away so many times, and a kernel that
// gives turns and keeps what it hears of them.
func turned(t *testing.T, times int, took abi.Usage) (m *rig, asked *[]Turn, back *[]*Done) {
	asked, back = new([]Turn), new([]*Done)
	m = newRig(t, Config{Turn: func(_ context.Context, turn Turn) (func(*Done), error) {
		*asked = append(*asked, turn)
		return func(d *Done) {
			if d != nil {
				c := *d
				d = &c
			}
			*back = append(*back, d)
		}, nil
	}})
	m.cfg.Rows["busy"] = &Row{Name: "busy",
		Plan: func(View, abi.Call) (Plan, *abi.Error) {
			return Plan{Effect: abi.Irreversible, Intent: true, Resource: "p/m", Attempts: 2,
				Reserve: abi.Usage{abi.Steps: 1, abi.ModelCalls: 1, abi.InputTokens: 30, abi.OutputTokens: 12}}, nil
		},
		Run: func(_ context.Context, j *Job) Done {
			if times--; times >= 0 {
				took[abi.Steps] = j.Plan.Reserve[abi.Steps]
				return Done{Err: &abi.Error{Code: abi.ModelRateLimit, Message: "slow down"}, Away: true, Usage: took, Heard: times}
			}
			return Done{Value: []byte(`1`), Usage: j.Plan.Reserve}
		}}
	return m, asked, back
}

// TestTurnedAway: a call that is turned away, however often, uses up neither
// its attempts nor a limit, and asks for another turn each time.
func TestTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, asked, back := turned(t, 40, abi.Usage{})
		s := under(limits(abi.Steps, 1, abi.ModelCalls, 1))
		s.Rows, s.Priority = append(s.Rows, "busy"), 7
		pid := m.spawn(s)
		start := time.Now()
		r := m.do(pid, 1, "busy", deed{})
		if r.Err != nil || r.Outcome != abi.OK || len(*asked) != 41 || len(*back) != 41 {
			t.Fatalf("%+v after %d turns, %d given back", r, len(*asked), len(*back))
		}
		if want := (Turn{Resource: "p/m", Owner: "process 1", Pid: pid, Priority: 7, In: 30, Out: 12}); (*asked)[0] != want {
			t.Errorf("asked for %+v, want %+v", (*asked)[0], want)
		}
		if d := (*back)[0]; d == nil || d.Heard != 39 {
			t.Errorf("heard %+v", d)
		}
		if d := time.Since(start); d > 3*time.Minute {
			t.Errorf("it took %s", d)
		}
		i, _ := m.Info(pid)
		if i.Used[abi.ModelCalls] != 1 || i.Used[abi.Steps] != 1 || i.Steps != 1 || i.Reserved != (abi.Usage{}) {
			t.Errorf("used %v, reserved %v, steps %d", i.Used, i.Reserved, i.Steps)
		}
		m.idle()
	})
}

// TestTurnedAwayAcrossRestarts: what waits for another turn when the machine
// stops goes on under its number, and has as many attempts as before.
func TestTurnedAwayAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := turned(t, 3, abi.Usage{})
		s := under(limits(abi.Steps, 1))
		s.Rows = append(s.Rows, "busy")
		pid := m.spawn(s)
		res := m.start(pid, 1, "busy", deed{})
		time.Sleep(100 * time.Millisecond)
		m.idle()
		if w := m.waits(pid); w != "back-off" {
			t.Fatalf("it waits for %q", w)
		}
		m.crash()
		<-res
		w, err := m.Where(pid)
		if err != nil || len(w.Unfinished) != 1 {
			t.Fatalf("%+v %v", w, err)
		}
		if r := m.Do(t.Context(), w.Unfinished[0]); r.Err != nil || r.Attempts != 4 {
			t.Errorf("%+v", r)
		}
		if i, _ := m.Info(pid); i.Used[abi.Steps] != 1 {
			t.Errorf("used %v", i.Used)
		}
		m.idle()
	})
}

// TestUnsent: the turn of a call that does not run is given back as unused.
func TestUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *rig
		var back []*Done
		turns := make(chan struct{})
		m = newRig(t, Config{Turn: func(context.Context, Turn) (func(*Done), error) {
			<-turns
			return func(d *Done) { back = append(back, d) }, nil
		}})
		pid := m.spawn(Spawning{})
		res := m.start(pid, 1, "act", deed{Turn: "p/m"})
		m.idle()
		m.Signal(t.Context(), pid, abi.Kill, "test")
		close(turns)
		m.idle()
		if r, ok := got(res); !ok || r.Err == nil || m.effects(pid, 1) != 0 || len(back) != 1 || back[0] != nil {
			t.Errorf("%+v %v, given back %v", r, ok, back)
		}
	})
}

// TestOwner: turns are taken from the share of the named account, or of the
// process at the top.
func TestOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, asked, _ := turned(t, 0, abi.Usage{})
		if err := m.SetAccount(t.Context(), "team", "test", limits(abi.Money, 10)); err != nil {
			t.Fatal(err)
		}
		for _, account := range []string{"", "team"} {
			s := Spawning{}
			s.Account, s.Rows = account, append(everyRow, "busy")
			pid := m.spawn(s)
			kid := m.do(pid, 1, "spawn", deed{Child: &abi.Spawn{}})
			if kid.Err != nil {
				t.Fatal(kid.Err)
			}
			var child abi.Pid
			if i, err := m.Info(pid); err != nil || len(i.Kids) != 1 {
				t.Fatal(i, err)
			} else {
				child = i.Kids[0]
			}
			m.do(child, 1, "act", deed{Turn: "p/m"})
		}
		if len(*asked) != 2 || (*asked)[0].Owner != "process 1" || (*asked)[1].Owner != "team" {
			t.Errorf("%+v", *asked)
		}
		m.idle()
	})
}
