package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/kernel/ledger"
)

// The life of single calls where it is delicate. Time is the test's.

func money(n int64) abi.Usage { return abi.Usage{abi.Money: n} }

// idle waits until nothing moves, and holds what must hold then.
func (m *rig) idle() {
	m.t.Helper()
	synctest.Wait()
	if err := m.checks(nil); err != nil {
		m.t.Error(err)
	}
}

func (m *rig) waits(pid abi.Pid) string {
	i, _ := m.Info(pid)
	return strings.Join(i.Waits, " ")
}

func got(c <-chan abi.Result) (abi.Result, bool) {
	select {
	case r := <-c:
		return r, true
	default:
		return abi.Result{}, false
	}
}

func lived(t *testing.T, f func(t *testing.T, m *rig)) {
	synctest.Test(t, func(t *testing.T) {
		m := newRig(t, Config{})
		f(t, m)
	})
}

// TestSmallerPasses: a call that fits does not stand behind one that does not.
func TestSmallerPasses(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		m.start(pid, 1, "act", deed{Reserve: money(5), Use: new(abi.Usage), Gate: "one"})
		m.start(pid, 2, "act", deed{Reserve: money(3), Use: new(abi.Usage), Gate: "two"})
		m.start(pid, 9, "act", deed{Reserve: money(2), Use: new(abi.Usage), Gate: "long"})
		m.idle()
		large := m.start(pid, 3, "act", deed{Reserve: money(8)})
		m.idle()
		small := m.start(pid, 4, "act", deed{Reserve: money(3), Use: new(abi.Usage)})
		m.idle()
		if m.waits(pid) != "room room" {
			t.Fatal(m.waits(pid))
		}
		m.let("two")
		m.idle()
		if _, ok := got(large); ok {
			t.Error("the larger one ran")
		}
		if r, ok := got(small); !ok || r.Err != nil {
			t.Errorf("the smaller one: %+v %v", r, ok)
		}
		m.let("one")
		m.let("long")
		m.idle()
		if r, ok := got(large); !ok || r.Err != nil {
			t.Errorf("the larger one: %+v %v", r, ok)
		}
	})
}

// TestFirm: a call that may not wait for room is refused at once where another
// waits, and goes where there is room.
func TestFirm(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		m.start(pid, 1, "act", deed{Reserve: money(8), Use: new(abi.Usage), Gate: "open"})
		m.idle()
		if r := m.do(pid, 2, "act", deed{Reserve: money(3), Firm: true}); r.Outcome != abi.Refused || code(r) != abi.LimitMoney || m.effects(pid, 2) != 0 {
			t.Errorf("%+v", r)
		} else if want := "$0 is used, $0.000000008 is held by open calls, $0.000000002 is left and the call may use $0.000000003"; !strings.HasSuffix(r.Err.Message, want) {
			t.Errorf("%s, want %s", r.Err.Message, want)
		}
		if r := m.do(pid, 3, "act", deed{Reserve: money(2), Firm: true}); r.Err != nil {
			t.Errorf("%+v", r)
		}
		m.let("open")
		m.idle()
	})
}

// TestNoHope: a call that what is settled leaves no room for does not wait for
// another unit, of which others have reserved too much.
func TestNoHope(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10, abi.InputTokens, 3)))
		m.do(pid, 1, "act", deed{Reserve: abi.Usage{abi.InputTokens: 2}})
		m.start(pid, 2, "act", deed{Reserve: money(8), Gate: "open"})
		m.idle()
		hopeless := m.start(pid, 3, "act", deed{Reserve: abi.Usage{abi.Money: 5, abi.InputTokens: 2}})
		m.idle()
		if r, ok := got(hopeless); !ok || code(r) != abi.LimitInputTokens {
			t.Errorf("%+v %v", r.Err, ok)
		}
	})
}

// TestHopeLost: while a call waits for room at one account of its path, another
// is used up, or its limit is lowered. The call is refused then, or content with
// what is left, and does not wait on.
func TestHopeLost(t *testing.T) {
	reserve := abi.Usage{abi.Money: 5, abi.ToolCalls: 8}
	out := &ledger.Elastic{Unit: abi.ToolCalls, Min: 1, Max: 30, Price: 1_000_000}
	for name, c := range map[string]struct {
		limit, use int64 // of the other account
		waits      deed
		above      bool // it waits at the account above, and the other is its process
		want       abi.Code
	}{
		"lowered":         {limit: 4, waits: deed{Reserve: reserve}, want: abi.LimitMoney},
		"used up":         {limit: 20, use: 16, waits: deed{Reserve: reserve}, want: abi.LimitMoney},
		"less is enough":  {limit: 20, use: 16, waits: deed{Elastic: out, Used: 30}},
		"lowered to less": {limit: 4, waits: deed{Elastic: out, Used: 30}},
		"less than that":  {limit: 0, waits: deed{Elastic: out, Used: 30}, want: abi.LimitMoney},
		"below, lowered":  {limit: 4, waits: deed{Reserve: reserve}, want: abi.LimitMoney, above: true},
		"below, used up":  {limit: 20, use: 16, waits: deed{Reserve: reserve}, want: abi.LimitMoney, above: true},
		"below, to less":  {limit: 4, waits: deed{Elastic: out, Used: 30}, above: true},
	} {
		t.Run(name, func(t *testing.T) {
			lived(t, func(t *testing.T, m *rig) {
				upper, lower := limits(abi.Money, 20), limits(abi.ToolCalls, 10)
				if c.above {
					upper, lower = lower, upper
				}
				team := func(l abi.Limits) {
					if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: l, By: "test"}); err != nil {
						t.Fatal(err)
					}
				}
				team(upper)
				s := under(lower)
				s.Account = "team"
				pid, other := m.spawn(s), m.spawn(s)
				m.start(pid, 1, "act", deed{Reserve: abi.Usage{abi.ToolCalls: 6}, Gate: "open"})
				m.idle()
				waiting := m.start(pid, 2, "act", c.waits)
				m.idle()
				if m.waits(pid) != "room" {
					t.Fatal(m.waits(pid))
				}
				if c.above {
					m.do(pid, 3, "act", deed{Reserve: money(c.use)})
					l := limits(abi.Money, int(c.limit))
					if err := m.Change(t.Context(), pid, abi.Edit{Limits: l}); err != nil {
						t.Fatal(err)
					}
				} else {
					m.do(other, 1, "act", deed{Reserve: money(c.use)})
					team(limits(abi.Money, int(c.limit)))
				}
				m.idle()
				if r, ok := got(waiting); !ok || code(r) != c.want {
					t.Errorf("%+v %v, want %q", r.Err, ok, c.want)
				}
				m.let("open")
				m.idle()
			})
		})
	}
}

// TestClaimsOnTheirAccount: what a call of the parent holds does not weigh on
// the account of the child.
func TestClaimsOnTheirAccount(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 100)))
		m.start(pid, 1, "act", deed{Reserve: money(8), Gate: "open"})
		m.idle()
		m.startCall(abi.Call{Pid: pid, N: 2, Row: "act", Within: 1, Args: deed{Gate: "open"}.json()})
		kid := m.do(pid, 3, "spawn", deed{Child: &abi.Spawn{Limits: limits(abi.Money, 10)}})
		if kid.Err != nil {
			t.Fatal(kid.Err)
		}
		if r := m.do(2, 1, "act", deed{Reserve: money(5)}); r.Err != nil {
			t.Errorf("the child has 10 and wants 5: %v", r.Err)
		}
		m.let("open")
		m.idle()
	})
}

// TestRoomForTwo: what the first of those that wait leaves over is the next
// one's, at once.
func TestRoomForTwo(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 6)))
		m.start(pid, 1, "act", deed{Reserve: money(6), Use: new(abi.Usage), Gate: "one"})
		m.idle()
		for n := uint64(2); n <= 5; n++ {
			m.start(pid, n, "act", deed{Reserve: money(3), Use: new(abi.Usage), Gate: "two", Nonce: int(n)})
		}
		m.idle()
		m.let("one")
		m.idle()
		if m.waits(pid) != "room room" {
			t.Error(m.waits(pid))
		}
		m.let("two")
		m.idle()
		if m.waits(pid) != "" {
			t.Error(m.waits(pid))
		}
	})
}

// TestNestedWaits: a child waits for room that a call of its parent holds. When
// a part of that call begins that may wait for the child, also one that has to
// wait itself, the child is told that there is no room.
func TestNestedWaits(t *testing.T) {
	for row, d := range map[string]deed{"wait": {Pid: 2}, "act": {Ask: "may it?"}} {
		lived(t, func(t *testing.T, m *rig) {
			pid := m.spawn(under(limits(abi.Money, 10)))
			m.start(pid, 1, "act", deed{Reserve: money(8), Gate: "open"})
			m.idle()
			m.do(pid, 2, "spawn", deed{})
			child := m.start(2, 1, "act", deed{Reserve: money(5)})
			m.idle()
			if m.waits(2) != "room" {
				t.Fatal(m.waits(2))
			}
			m.startCall(abi.Call{Pid: pid, N: 3, Row: row, Within: 1, Args: d.json()})
			m.idle()
			if r, ok := got(child); !ok || code(r) != abi.LimitMoney {
				t.Errorf("%s: the child: %+v %v", row, r, ok)
			}
			m.let("open")
		})
	}
}

// TestInEachOthersWay: two programs hold what the other's next call needs. One
// of those calls is told, and both programs end.
func TestInEachOthersWay(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.ToolCalls, 3)))
		one := abi.Usage{abi.ToolCalls: 1}
		for n := uint64(1); n <= 2; n++ {
			m.start(pid, n, "act", deed{Reserve: one, Gate: string(rune('a' + n))})
		}
		third := m.start(pid, 5, "act", deed{Reserve: one, Gate: "third"})
		m.idle()
		nested := func(n, within uint64) <-chan abi.Result {
			return m.startCall(abi.Call{Pid: pid, N: n, Row: "act", Within: within, Args: deed{Reserve: one, Nonce: int(n)}.json()})
		}
		a := nested(10, 1)
		m.idle()
		b := nested(20, 2)
		m.idle()
		if m.waits(pid) != "room room" {
			t.Fatal(m.waits(pid)) // the third may give its room back
		}
		m.let("third")
		m.idle()
		<-third
		_, aDone := got(a)
		_, bDone := got(b)
		if !aDone && !bDone {
			t.Error("both wait for each other")
		}
		m.let("b")
		m.let("c")
		m.idle()
	})
}

// TestStopHoldsBack: a call that was stopped while it waited for its turn does
// not begin, and goes on with cont. Meanwhile it holds neither room nor turn.
func TestStopHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := make(chan func(*Done))
		released := 0
		m := newRig(t, Config{Turn: func(ctx context.Context, _ Turn) (func(*Done), error) {
			select {
			case f := <-turns:
				return f, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		pid := m.spawn(under(limits(abi.Money, 10)))
		res := m.start(pid, 1, "act", deed{Reserve: money(8), Turn: "model"})
		m.idle()
		m.Signal(t.Context(), pid, abi.Stop, "test")
		turns <- func(*Done) { released++ }
		m.idle()
		if i, _ := m.Info(pid); m.effects(pid, 1) != 0 || released != 1 || m.waits(pid) != "cont" || i.Reserved != (abi.Usage{}) {
			t.Errorf("ran %d, released %d, waits %s, reserved %v", m.effects(pid, 1), released, m.waits(pid), i.Reserved)
		}
		m.Signal(t.Context(), pid, abi.Cont, "test")
		turns <- func(*Done) { released++ }
		m.idle()
		if r, ok := got(res); !ok || r.Err != nil || m.effects(pid, 1) != 1 || released != 2 {
			t.Errorf("%+v %v", r, ok)
		}
		if k := m.kinds(pid); k != "spawned signaled signaled began(1) ended(1)" {
			t.Error(k)
		}
	})
}

// TestLimitLoweredInTurn: a call that was admitted and waits for its turn does not
// begin past a limit that was lowered meanwhile, or that drift of another call used up.
func TestLimitLoweredInTurn(t *testing.T) {
	for _, how := range []string{"lowered", "lowered above it", "drift"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := make(chan func(*Done))
				m := newRig(t, Config{Turn: func(ctx context.Context, _ Turn) (func(*Done), error) {
					select {
					case f := <-turns:
						return f, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}})
				if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 10), By: "test"}); err != nil {
					t.Fatal(err)
				}
				pid := m.spawn(Spawning{Spawn: abi.Spawn{Account: "team", Limits: limits(abi.Money, 10)}})
				res := m.start(pid, 1, "act", deed{Reserve: money(8), Turn: "model"})
				m.idle()
				switch how {
				case "lowered":
					if err := m.Change(t.Context(), pid, abi.Edit{Limits: limits(abi.Money, 5), By: "test"}); err != nil {
						t.Fatal(err)
					}
				case "lowered above it":
					if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 5), By: "test"}); err != nil {
						t.Fatal(err)
					}
				case "drift":
					use := money(3)
					m.do(pid, 2, "act", deed{Reserve: money(1), Use: &use})
				}
				turns <- func(*Done) {}
				m.idle()
				r, ok := got(res)
				if !ok || r.Err == nil || r.Err.Code != abi.LimitMoney || m.effects(pid, 1) != 0 {
					t.Errorf("answered %v: %+v; %d effects", ok, r.Err, m.effects(pid, 1))
				}
				if i, _ := m.Info(pid); i.Reserved != (abi.Usage{}) {
					t.Errorf("%v is still reserved", i.Reserved)
				}
			})
		})
	}
}

// TestSleepAcrossRestarts: a sleep ends when it would have ended.
func TestSleepAcrossRestarts(t *testing.T) {
	for _, how := range []string{"crash", "close"} {
		lived(t, func(t *testing.T, m *rig) {
			pid := m.spawn(Spawning{})
			start := time.Now()
			m.start(pid, 1, "sleep", deed{For: "1m"})
			time.Sleep(20 * time.Second)
			m.idle()
			if how == "close" {
				m.Close(t.Context())
			}
			m.crash()
			w, err := m.Where(pid)
			if err != nil || len(w.Unfinished) != 1 || w.Unfinished[0].N != 1 {
				t.Fatalf("%s: %+v %v", how, w, err)
			}
			r := m.Do(t.Context(), w.Unfinished[0])
			if d := time.Since(start); r.Err != nil || d != time.Minute {
				t.Errorf("%s: %v after %s", how, r.Err, d)
			}
			m.idle()
		})
	}
}

// TestCloseWaits: what waited when the kernel closed is no failure; it is gone
// on with.
func TestCloseWaits(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		kid := m.do(pid, 1, "spawn", deed{})
		if kid.Err != nil {
			t.Fatal(kid.Err)
		}
		m.start(pid, 2, "wait", deed{})
		m.start(pid, 3, "recv", deed{})
		m.idle()
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.crash()
		w, _ := m.Where(pid)
		if len(w.Unfinished) != 2 {
			t.Fatalf("unfinished: %+v\n%s", w.Unfinished, m.kinds(pid))
		}
		m.do(2, 1, "exit", deed{Give: "bye"})
		m.do(2, 1, "send", deed{})
		if r := m.Do(t.Context(), w.Unfinished[0]); string(r.Value) != "2" {
			t.Errorf("%+v", r)
		}
		m.idle()
	})
}

// TestWaitForAny: each child is reported once to calls that wait for any.
func TestWaitForAny(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		for n := uint64(1); n <= 3; n++ {
			m.do(pid, n, "spawn", deed{Nonce: int(n)})
		}
		a, b := m.start(pid, 11, "wait", deed{}), m.start(pid, 12, "wait", deed{})
		m.idle()
		m.do(3, 1, "exit", deed{})
		m.idle()
		ra, oka := got(a)
		rb, okb := got(b)
		if oka == okb || string(ra.Value)+string(rb.Value) != "3" {
			t.Errorf("one exited: %+v %v, %+v %v", ra, oka, rb, okb)
		}
		m.crash()
		m.do(2, 1, "exit", deed{})
		if r := m.do(pid, 12+uint64(len(rb.Value)), "wait", deed{}); string(r.Value) != "2" {
			t.Errorf("the next: %+v", r)
		}
		if r := m.do(pid, 20, "wait", deed{Pid: 3}); string(r.Value) != "3" {
			t.Errorf("by name: %+v", r)
		}
		m.do(4, 1, "exit", deed{})
		if r := m.do(pid, 21, "wait", deed{}); string(r.Value) != "4" {
			t.Errorf("the last: %+v", r)
		}
		if r := m.do(pid, 22, "wait", deed{}); code(r) != abi.UnknownProcess {
			t.Errorf("none is left: %+v", r)
		}
		m.idle()
	})
}

// TestLastWords: they are spoken once, may be tried again, and are not cut off
// by being asked for twice.
func TestLastWords(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		m.Signal(t.Context(), pid, abi.Term, "test")
		if r := m.do(pid, 1, "act", deed{}); code(r) != abi.ProcessEnding {
			t.Errorf("%+v", r)
		}
		last := m.start(pid, 2, "model", deed{Last: true, Reserve: abi.Usage{abi.ModelCalls: 1}, Fail: abi.ModelRateLimit, Times: 1, Attempts: 3, Gate: "words"})
		m.idle()
		also := m.start(pid, 3, "model", deed{Last: true, Nonce: 1})
		m.idle()
		m.Signal(t.Context(), pid, abi.Term, "test")
		m.idle()
		if _, ok := got(last); ok {
			t.Error("the second term cut the last words off")
		}
		m.let("words")
		m.idle()
		x, _ := got(last)
		y, _ := got(also)
		if code(x) != "" || x.Attempts != 2 || code(y) != abi.ProcessEnding {
			t.Errorf("%+v\n%+v", x, y)
		}
		m.do(pid, 4, "exit", deed{})
		m.idle()
		if i, _ := m.Info(pid); i.Exit.Exit != abi.ExitKilled {
			t.Errorf("%+v", i.Exit)
		}
	})
}

// TestRowBreaks: nobody knows what a row did that broke down; the kernel goes on.
func TestRowBreaks(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		if r := m.do(pid, 1, "act", deed{Reserve: money(4), Panic: true}); r.Outcome != abi.Unknown || code(r) != abi.OutcomeUnknown {
			t.Errorf("%+v", r)
		}
		if i, _ := m.Info(pid); i.Doubt[abi.Money] != 4 || i.Used[abi.Money] != 0 {
			t.Errorf("%+v", i)
		}
		if r := m.do(pid, 2, "act", deed{Panic: true, Quiet: true}); r.Outcome != abi.Failed || code(r) != abi.Internal {
			t.Errorf("%+v", r)
		}
		m.idle()
	})
}

// TestNoRefund: a row cannot give back more than it took.
func TestNoRefund(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		m.do(pid, 1, "act", deed{Reserve: money(6)})
		refund := &Row{Name: "act", Plan: planDeed, Run: func(context.Context, *Job) Done { return Done{Value: []byte(`1`), Usage: money(-5)} }}
		m.cfg.Rows["act"] = refund
		m.do(pid, 2, "act", deed{Reserve: money(1)})
		if i, _ := m.Info(pid); i.Used[abi.Money] != 6 {
			t.Errorf("used %v", i.Used)
		}
		m.idle()
	})
}

// TestAbandonedOnce: what a call held that is given up on is given back once.
func TestAbandonedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan error)
		m := newRig(t, Config{Turn: func(context.Context, Turn) (func(*Done), error) { return nil, <-turn }})
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 10), By: "test"}); err != nil {
			t.Fatal(err)
		}
		s := Spawning{}
		s.Account = "team"
		pid := m.spawn(s)
		res := m.start(pid, 1, "act", deed{Reserve: money(8), Turn: "deaf"})
		m.idle()
		m.Signal(t.Context(), pid, abi.Kill, "test")
		if _, err := m.Wait(t.Context(), pid); err != nil {
			t.Fatal(err)
		}
		turn <- errors.New("late")
		if r := <-res; r.Outcome != abi.Unknown && r.Outcome != abi.Refused {
			t.Errorf("%+v", r)
		}
		m.idle()
	})
}

// TestAbandonedPublished: a call that is given up on has its change taken back,
// for the journal says that nobody saw its end.
func TestAbandonedPublished(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		res := m.start(pid, 1, "act", deed{Publish: true, Gate: "g", Deaf: true})
		m.idle()
		m.Signal(t.Context(), pid, abi.Kill, "test")
		if _, err := m.Wait(t.Context(), pid); err != nil {
			t.Fatal(err)
		}
		m.let("g")
		if r := <-res; r.Outcome != abi.Unknown {
			t.Errorf("%+v", r)
		}
		if len(m.pubs) != 1 || m.pubs[0].kept != "undone" {
			t.Errorf("%+v", m.pubs)
		}
	})
}

// TestContinueAbandoned: a call that did not stop when its process was killed has no
// page. A process that continues has one answer to it, so it is not made again.
func TestContinueAbandoned(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		res := m.startCall(abi.Call{Pid: pid, N: 1, Row: "act", For: "c1", Args: deed{Gate: "g", Deaf: true}.json()})
		m.idle()
		m.Signal(t.Context(), pid, abi.Kill, "test")
		if _, err := m.Wait(t.Context(), pid); err != nil {
			t.Fatal(err)
		}
		m.let("g")
		<-res
		next, err := m.Fork(t.Context(), pid, Forking{Continue: &abi.ContinueOptions{}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := m.View(next)
		if err != nil {
			t.Fatal(err)
		}
		answers := slices.DeleteFunc(slices.Clone(v.Pages), func(p process.Page) bool { return p.ID != "c1" })
		if len(answers) != 1 || answers[0].Pid != pid || answers[0].Role != process.RoleTool {
			t.Errorf("the answers to the call are %+v", answers)
		}
	})
}

// TestCommitAt: the fold knows the last commit, and the registers show it with
// the digest, and where the calls began that are open.
func TestCommitAt(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		for n, d := range []deed{{Nonce: 1}, {Publish: true, State: 1}, {Nonce: 3}, {Publish: true, State: 2}, {Nonce: 5}} {
			m.do(pid, uint64(n+1), "act", d)
		}
		var want abi.Hash
		for _, r := range m.records(pid) {
			if r.Answer != nil && !r.Answer.Commit.IsZero() {
				want = r.Answer.Commit
			}
		}
		m.start(pid, 6, "act", deed{Gate: "g"})
		m.idle()
		regs, err := m.Registers(pid)
		if err != nil {
			t.Fatal(err)
		}
		r6 := regs.Transaction
		if regs.Workspace != (abi.Key{2}) || r6.Commit != want || want.IsZero() || !slices.Equal(r6.Open, []uint64{12}) {
			t.Errorf("%+v", regs)
		}
		m.let("g")
	})
}

// TestSpawnNarrows: what a child may start is what is left after itself, and a
// call that made its child before a crash finds it, also when there is no room
// for another.
func TestSpawnNarrows(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Children, 1, abi.Money, 10, abi.Depth, 2)))
		m.do(pid, 1, "act", deed{Reserve: money(4)})
		ask := abi.Call{Pid: pid, N: 2, Row: "spawn", Args: deed{Child: &abi.Spawn{Limits: limits(abi.Children, 5, abi.Money, 9, abi.Depth, 9)}}.json()}
		// The child's record gets to the disk, the answer does not.
		m.tap.mu.Lock()
		m.tap.left, m.tap.after = 2, false
		m.tap.mu.Unlock()
		hold := make(chan struct{})
		m.Kernel.cfg.Start = func(abi.Pid) {}
		run := m.cfg.Rows["spawn"].Run
		m.cfg.Rows["spawn"].Run = func(ctx context.Context, j *Job) Done {
			d := run(ctx, j)
			<-hold
			return d
		}
		res := m.startCall(ask)
		synctest.Wait()
		close(hold)
		if r := <-res; r.Outcome != abi.Unknown {
			t.Fatalf("%+v", r)
		}
		m.crash()
		i, err := m.Info(2)
		if err != nil {
			t.Fatal(err)
		}
		if want := limits(abi.Children, 0, abi.Money, 6, abi.Depth, 1); i.Limits != want {
			a, _ := json.Marshal(i.Limits)
			t.Errorf("the child's limits: %s", a)
		}
		if r := m.Do(t.Context(), ask); string(r.Value) != "2" {
			t.Errorf("asked again: %+v", r)
		}
		if r := m.do(pid, 3, "spawn", deed{Nonce: 1}); code(r) != abi.LimitChildren {
			t.Errorf("another: %+v", r)
		}
		m.idle()
	})
}

// TestSpawnUnheard: a process whose caller went away before it was on disk does
// not run behind everybody's back.
func TestSpawnUnheard(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		left := make(chan struct{})
		m.tap.tick = func() { <-left } // its record is not on disk before its caller is gone
		if pid, err := m.Spawn(ctx, Spawning{}); !errors.Is(err, context.Canceled) {
			t.Errorf("process %d, %v", pid, err)
		}
		close(left)
		m.idle()
		for _, i := range m.List() {
			if i.Exit == nil {
				t.Errorf("process %d lives", i.Pid)
			}
		}
	})
}

// TestAccountLimits: an account refuses limits that it cannot keep.
func TestAccountLimits(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		for _, u := range []abi.Unit{abi.Wall, abi.Depth, abi.Context} {
			if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(u, 1), By: "test"}); err == nil || !strings.Contains(err.Error(), u.String()) {
				t.Errorf("%s: %v", u, err)
			}
		}
		if err := m.SetAccount(t.Context(), "", abi.Edit{Limits: limits(abi.Money, 1), By: "test"}); err == nil {
			t.Error("an account without a name")
		}
		if len(m.Accounts()) != 0 {
			t.Error(m.Accounts())
		}
	})
}

// TestWallAcrossRestarts: time goes on while the machine is down.
func TestWallAcrossRestarts(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Wall, time.Minute)))
		m.start(pid, 1, "act", deed{Gate: "never"})
		time.Sleep(50 * time.Second)
		m.crash()
		start := time.Now()
		i, err := m.Wait(t.Context(), pid)
		if err != nil || i.Exit.Code != abi.LimitWall || time.Since(start) != 10*time.Second {
			t.Errorf("%+v %v after %s", i.Exit, err, time.Since(start))
		}
		m.idle()
	})
}

// TestClockSetBack: a clock that is set back while the kernel is down makes nobody
// wait for longer than was asked, and no process live for longer than its limit
// from then on; a tool that rested may be used.
//
// Mutants that die here: the time since the beginning is believed whatever it is.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var behind time.Duration
		m := newRig(t, Config{Now: func() time.Time { return time.Now().Add(-behind) }})
		sleeper, limited := m.spawn(Spawning{}), m.spawn(under(limits(abi.Wall, time.Minute)))
		m.start(sleeper, 4, "sleep", deed{For: "1m"})
		m.start(limited, 1, "act", deed{Gate: "never"})
		for n := range uint64(3) {
			m.do(sleeper, n+1, "act", deed{Tool: "tired", Fail: abi.ToolFailed, Nonce: int(n)})
		}
		m.idle()
		behind = 1000 * time.Hour
		m.crash()
		start := time.Now()
		if r := m.do(sleeper, 5, "act", deed{Tool: "tired"}); r.Err != nil {
			t.Errorf("a tool that rested: %v", r.Err)
		}
		if r := m.do(sleeper, 4, "sleep", deed{For: "1m"}); r.Err != nil || time.Since(start) != time.Minute {
			t.Errorf("a sleep of a minute: %v after %s", r.Err, time.Since(start))
		}
		m.idle()
		if i, err := m.Info(limited); err != nil || i.Exit == nil || i.Exit.Code != abi.LimitWall {
			t.Errorf("a limit of a minute: %+v %v after %s", i, err, time.Since(start))
		}
	})
}

// TestScenario07Attempts: a tool that may be repeated fails twice and then
// works: three calls, each admitted and booked, and one answer.
func TestScenario07Attempts(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		use := abi.Usage{abi.Money: 2, abi.ToolCalls: 1}
		d := deed{Effect: abi.Idempotent, Fail: abi.ToolFailed, Times: 2, Attempts: 3, Reserve: use, Tool: "shaky"}
		pid := m.spawn(Spawning{})
		r := m.do(pid, 1, "act", d)
		i, _ := m.Info(pid)
		if r.Err != nil || r.Attempts != 3 || m.effects(pid, 1) != 3 || i.Used != (abi.Usage{abi.Money: 6, abi.ToolCalls: 3}) {
			t.Errorf("%+v, used %v", r, i.Used)
		}
		if k := m.kinds(pid); k != "spawned began(1) ended(1) began(1) ended(1) began(1) ended(1)" {
			t.Error(k)
		}
		pid = m.spawn(under(limits(abi.ToolCalls, 2)))
		if r := m.do(pid, 1, "act", d); code(r) != abi.LimitToolCalls || m.effects(pid, 1) != 2 {
			t.Errorf("the third attempt under a limit of two: %+v, ran %d times", r, m.effects(pid, 1))
		}
		m.idle()
	})
}

// TestExitUnderTerm: the exit of a stopped process waits for cont; term is one.
func TestExitUnderTerm(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		m.do(pid, 1, "act", deed{})
		m.Signal(t.Context(), pid, abi.Stop, "test")
		exit := m.start(pid, 2, "exit", deed{Give: "bye"})
		m.idle()
		m.Signal(t.Context(), pid, abi.Term, "test")
		m.idle()
		if r, ok := got(exit); !ok || r.Err != nil || m.exit(pid) != abi.ExitKilled {
			t.Errorf("%+v %v, exit %q", r, ok, m.exit(pid))
		}
	})
}

// TestSentOnce: a message arrives once, though its sender was never told.
func TestSentOnce(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		to, from := m.spawn(Spawning{}), m.spawn(Spawning{})
		run := m.cfg.Rows["send"].Run
		hold := make(chan struct{})
		m.cfg.Rows["send"].Run = func(ctx context.Context, j *Job) Done {
			d := run(ctx, j)
			<-hold
			return d
		}
		m.start(from, 1, "send", deed{Pid: to, Give: "hello"})
		synctest.Wait() // the message is on disk, the answer is not
		m.tap.breakNow()
		close(hold)
		m.crash()
		if r := m.do(from, 1, "send", deed{Pid: to, Give: "hello"}); r.Err != nil {
			t.Error(r.Err)
		}
		m.idle()
		if r := m.do(to, 1, "recv", deed{}); string(r.Value) != `["2","hello"]` {
			t.Errorf("%+v", r)
		}
		if r := m.do(to, 2, "recv", deed{For: "1s"}); string(r.Value) != `["",""]` {
			t.Errorf("it came again: %s", r.Value)
		}
	})
}

// TestTermAgain: a second term lets a stopped process go on, as the first does.
func TestTermAgain(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		m.do(pid, 1, "act", deed{})
		m.Signal(t.Context(), pid, abi.Term, "test")
		m.Signal(t.Context(), pid, abi.Stop, "test")
		last := m.start(pid, 2, "model", deed{Last: true, Give: "words"})
		m.idle()
		if m.waits(pid) != "cont" {
			t.Error(m.waits(pid))
		}
		m.Signal(t.Context(), pid, abi.Term, "test")
		m.idle()
		if r, ok := got(last); !ok || r.Err != nil {
			t.Errorf("%+v %v", r, ok)
		}
	})
}

// TestEdits changes limits of one process, and of one account, from several
// sides at once. Each change keeps what it does not name, and none that narrows
// raises anything: the records say what stood before each.
func TestEdits(t *testing.T) {
	m := newRig(t, Config{})
	const rounds = 300
	if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 1000)}); err != nil {
		t.Fatal(err)
	}
	pid := m.spawn(under(limits(abi.Money, 1000)))
	var all sync.WaitGroup
	for who, edit := range map[string]func(i int) abi.Edit{
		"steps":  func(i int) abi.Edit { return abi.Edit{Limits: limits(abi.Steps, i)} },
		"tokens": func(i int) abi.Edit { return abi.Edit{Limits: limits(abi.Tokens, i), Unset: []abi.Unit{abi.ToolCalls}} },
		"widen":  func(i int) abi.Edit { return abi.Edit{Limits: limits(abi.Money, 500+7*i%400)} },
		"narrow": func(i int) abi.Edit { return abi.Edit{Limits: limits(abi.Money, 300+37*i%600), Narrow: true} },
	} {
		all.Go(func() {
			for i := range rounds {
				e := edit(i)
				e.By = who
				for _, err := range []error{m.Change(t.Context(), pid, e), m.SetAccount(t.Context(), "team", e)} {
					if bad := new(abi.Error); err != nil && !(e.Narrow && errors.As(err, &bad) && bad.Code == abi.InvalidArguments && bad.Where == "/limits/money") {
						t.Error(who, err)
					}
				}
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // whoever takes the lock twice for one change finds others there in between
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				m.Kernel.procs.mu.Lock()
				runtime.Gosched()
				m.Kernel.procs.mu.Unlock()
			}
		}
	}()
	all.Wait()
	close(stop)
	<-stopped
	if err := m.log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, of := range []abi.Pid{0, pid} {
		last, narrowed := limits(abi.Money, 1000), 0
		for r, err := range m.store.Records(of, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Change == nil || r.Change.By == "" {
				continue
			}
			named := map[string]abi.Unit{"steps": abi.Steps, "tokens": abi.Tokens, "widen": abi.Money, "narrow": abi.Money}[r.Change.By]
			for u := range abi.AllUnits {
				was, before := last.Get(u)
				n, set := r.Change.Limits.Get(u)
				if u != named && (was != n || before != set) {
					t.Fatalf("process %d record %d: a change of %s by %s makes %d of the %d that %s was", of, r.N, named, r.Change.By, n, was, u)
				}
				if r.Change.By == "narrow" && n > was {
					t.Fatalf("process %d record %d: narrowed from %d to %d", of, r.N, was, n)
				}
			}
			if r.Change.By == "narrow" {
				narrowed++
			}
			last = *r.Change.Limits
		}
		steps, _ := last.Get(abi.Steps)
		tokens, _ := last.Get(abi.Tokens)
		if steps != rounds-1 || tokens != rounds-1 || narrowed == 0 {
			t.Errorf("process %d ends with %d steps and %d tokens, after %d narrowings", of, steps, tokens, narrowed)
		}
	}
	if err := m.Change(t.Context(), pid, abi.Edit{Unset: []abi.Unit{abi.Steps}, Narrow: true}); err == nil || !strings.Contains(err.Error(), "steps") {
		t.Errorf("a limit was removed by narrowing: %v", err)
	}
	if err := m.Change(t.Context(), pid, abi.Edit{Limits: limits(abi.Depth, 2), Narrow: true}); err != nil {
		t.Errorf("what was not limited cannot be limited by narrowing: %v", err)
	}
}

// TestTooLargeForTheJournal: a call that no record can hold is refused before
// anything is held or written, and its process goes on. One that just fits is
// answered like any other, also when it is refused.
//
// Mutant that dies here: nobody asks the journal.
func TestTooLargeForTheJournal(t *testing.T) {
	dir := t.TempDir()
	m := newRigOn(t, Config{}, func() (journal.Store, journal.Lease, error) { return sqlite.Open(dir) })
	pid := m.spawn(under(limits(abi.Money, 10)))
	do := func(n uint64, row string, parts, name int) abi.Result {
		return m.Do(t.Context(), abi.Call{Pid: pid, N: n, Row: row, For: strings.Repeat("f", name), Args: deed{Reserve: money(1), Parts: parts, Nonce: int(n)}.json()})
	}
	for i, c := range []struct {
		what, row   string
		parts, name int
		want        abi.Code
	}{
		{"more parts than a record holds", "act", 600_000, 0, abi.InvalidCall},
		{"as many as may be", "act", 8<<20/32 - 10, 0, ""},
		{"a name like none", "act", 0, 9 << 20, abi.InvalidCall},
		{"the longest", "act", 0, 1<<20 - 100, ""},
		{"a row like none", strings.Repeat("\x00", 4<<20), 0, 0, abi.InvalidCall},
		{"the longest unknown one", strings.Repeat("\x00", 1<<20-100), 0, 0, abi.UnknownRow},
	} {
		n, name := uint64(i+1), c.what
		before := len(m.records(pid))
		r := do(n, c.row, c.parts, c.name)
		if code(r) != c.want {
			t.Fatalf("%s: %s", name, code(r))
		}
		i, err := m.Info(pid)
		if err != nil || i.Reserved != (abi.Usage{}) || i.Waits != nil {
			t.Errorf("%s: held %v %v", name, i.Reserved, err)
		}
		if c.want != abi.InvalidCall {
			continue
		}
		if r.Outcome != abi.Refused || !strings.Contains(r.Err.Message, " bytes in the journal, and a call may take 8388608") || len(m.records(pid)) != before {
			t.Errorf("%s: %.200s, %d records more", name, r.Err.Message, len(m.records(pid))-before)
		}
		if r := do(n, "act", 0, 0); r.Err != nil {
			t.Errorf("%s, and then less under its number: %+v", name, r.Err)
		}
	}
	if err := m.checks(nil); err != nil {
		t.Error(err)
	}
}
