package kernel

import (
	"context"
	"reflect"
	"slices"
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
			return Plan{Effect: abi.Irreversible, Intent: true, Source: Source{Resource: "p/m"}, Attempts: 2,
				Reserve: abi.Usage{abi.Steps: 1, abi.ModelCalls: 1, abi.InputTokens: 30, abi.OutputTokens: 12}}, nil
		},
		Run: func(_ context.Context, j *Job) Done {
			if times--; times >= 0 {
				took[abi.Steps] = j.Plan.Reserve[abi.Steps]
				return Done{Err: &abi.Error{Code: abi.ModelRateLimit, Message: "slow down"}, Away: true, Usage: took, Feedback: times}
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
		first := (*asked)[0]
		first.Now = nil
		if want := (Turn{Resource: "p/m", Owner: "process 1", Pid: pid, Priority: 7, In: 30, Out: 12}); !reflect.DeepEqual(first, want) {
			t.Errorf("asked for %+v, want %+v", first, want)
		}
		if d := (*back)[0]; d == nil || d.Feedback != 39 {
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

// TestElsewhere: a call whose resource is away is planned again for another one,
// and holds nothing for the first any more.
func TestElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []Turn
		var used *Done
		m := newRig(t, Config{Turn: func(_ context.Context, turn Turn) (func(*Done), error) {
			if asked = append(asked, turn); turn.Other {
				return nil, ErrElsewhere
			}
			return func(d *Done) { used = d }, nil
		}})
		plans := []Source{{Resource: "p/m", Other: true}, {Resource: "q/m"}}
		var before []any
		m.cfg.Rows["busy"] = &Row{Name: "busy",
			Plan: func(v View, _ abi.Call) (Plan, *abi.Error) {
				before = append(before, v.Before)
				from := plans[0]
				plans = plans[1:]
				return Plan{Effect: abi.Irreversible, Intent: true, Source: from, Price: abi.Price{Input: int64(len(before))}, Work: from.Resource,
					Reserve: abi.Usage{abi.Steps: 1, abi.ModelCalls: 1}}, nil
			},
			Run: func(_ context.Context, j *Job) Done { return Done{Value: []byte(`1`), Usage: j.Plan.Reserve} }}
		s := under(limits(abi.Steps, 1, abi.ModelCalls, 1))
		s.Rows = append(s.Rows, "busy")
		pid := m.spawn(s)
		if r := m.do(pid, 1, "busy", deed{}); r.Err != nil || r.Attempts != 1 {
			t.Fatalf("%+v", r)
		}
		if len(asked) != 2 || asked[0].Resource != "p/m" || asked[1].Resource != "q/m" || used == nil {
			t.Errorf("asked for %+v, used %+v", asked, used)
		}
		if len(before) != 2 || before[0] != nil || before[1] != "p/m" {
			t.Errorf("before the plans were %v", before)
		}
		for r, err := range m.store.Records(pid, 1) {
			if err != nil || r.Kind == abi.KindBegan && r.Intent.Price.Input != 2 {
				t.Errorf("%+v is recorded, %v", r.Intent, err)
			}
		}
		if i, _ := m.Info(pid); i.Used[abi.ModelCalls] != 1 || i.Reserved != (abi.Usage{}) {
			t.Errorf("used %v, reserved %v", i.Used, i.Reserved)
		}
		m.idle()
	})
}

// TestLastWordsOvertake: last words are as urgent as a call can be, for their time
// is short: behind bulk there would be silence.
func TestLastWordsOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []Turn
		m := newRig(t, Config{Turn: func(_ context.Context, turn Turn) (func(*Done), error) {
			asked = append(asked, turn)
			return func(*Done) {}, nil
		}})
		s := under(abi.Limits{})
		s.Priority = 10
		pid := m.spawn(s)
		m.do(pid, 1, "act", deed{Turn: "p/m"})
		m.do(pid, 2, "model", deed{Turn: "p/m", Last: true})
		if len(asked) != 2 || asked[0].Priority != 10 || asked[1].Priority != 0 {
			t.Errorf("%+v", asked)
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
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 10), By: "test"}); err != nil {
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
			if i, err := m.Info(pid); err != nil || len(i.Children) != 1 {
				t.Fatal(i, err)
			} else {
				child = i.Children[0]
			}
			m.do(child, 1, "act", deed{Turn: "p/m"})
		}
		if len(*asked) != 2 || (*asked)[0].Owner != "process 1" || (*asked)[1].Owner != "team" {
			t.Errorf("%+v", *asked)
		}
		m.idle()
	})
}

// TestNiceAndRoom: a call that was told to look for room, and is moved behind
// others before it does, does not keep them from looking.
//
// Mutant that dies here: who edits a priority tells nobody to look.
func TestNiceAndRoom(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 10)}); err != nil {
			t.Fatal(err)
		}
		s := Spawning{}
		s.Account, s.Priority = "team", 10
		busy, large, small := m.spawn(s), m.spawn(s), m.spawn(s)
		m.start(busy, 1, "act", deed{Reserve: money(9), Use: new(abi.Usage), Gate: "end"})
		m.idle()
		m.start(large, 1, "act", deed{Reserve: money(8)})
		m.idle()
		m.start(small, 1, "act", deed{Reserve: money(3), Use: new(abi.Usage)})
		m.idle()
		later := 20
		m.Kernel.procs.mu.Lock() // nobody looks between the two edits
		_, e := m.accounts.edit("team", &abi.Edit{Limits: limits(abi.Money, 12)})
		_, err := m.procs.byPid[large].change(0, &abi.Edit{Priority: &later})
		m.Kernel.procs.mu.Unlock()
		if e != nil || err != nil {
			t.Fatal(e, err)
		}
		m.idle()
		if m.effects(small, 1) != 1 || m.waits(large) != "room" {
			t.Errorf("the small one ran %d times and waits for %q, the large one for %q", m.effects(small, 1), m.waits(small), m.waits(large))
		}
		m.let("end")
		m.idle()
	})
}

// TestNice: a call that waits goes by the new priority of its process, for room
// at an account and for a turn.
func TestNice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan Turn, 1)
		var ranked []int
		m := newRig(t, Config{
			Turn: func(ctx context.Context, turn Turn) (func(*Done), error) {
				asked <- turn
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Rank: func(pid abi.Pid, priority int) { ranked = append(ranked, int(pid), priority) },
		})
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 10)}); err != nil {
			t.Fatal(err)
		}
		s := Spawning{}
		s.Account, s.Priority = "team", 10
		first, then, last := m.spawn(s), m.spawn(s), m.spawn(s)
		m.start(first, 1, "act", deed{Reserve: money(10), Use: new(abi.Usage), Gate: "room"})
		m.idle()
		slow := m.start(then, 1, "act", deed{Reserve: money(8), Use: new(abi.Usage), Gate: "end"})
		m.idle()
		m.start(last, 1, "act", deed{Reserve: money(8), Use: new(abi.Usage), Gate: "end"})
		m.start(last, 2, "act", deed{Turn: "p/m"})
		m.idle()
		turn := <-asked
		urgent := 0
		if err := m.Change(t.Context(), last, abi.Edit{Priority: &urgent}); err != nil {
			t.Fatal(err)
		}
		if turn.Priority != 10 || turn.Now() != 0 || !slices.Equal(ranked, []int{int(last), 0}) {
			t.Errorf("the turn is asked with %d, is by now %d, and told was %v", turn.Priority, turn.Now(), ranked)
		}
		m.let("room")
		m.idle()
		if m.effects(last, 1) != 1 || m.effects(then, 1) != 0 || m.waits(then) != "room" {
			t.Errorf("the urgent one ran %d times, the other %d and waits for %q", m.effects(last, 1), m.effects(then, 1), m.waits(then))
		}
		m.let("end")
		m.idle()
		if r, ok := got(slow); !ok || r.Err != nil {
			t.Errorf("the other one: %+v %v", r, ok)
		}
		m.Signal(t.Context(), last, abi.Kill, "test")
		m.idle()
	})
}
