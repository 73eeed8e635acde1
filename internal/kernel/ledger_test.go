package kernel

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal/storetest"
	"github.com/kern-run/kern/internal/kernel/ledger"
)

// P1: at every account on the way to the root, settled + reserved + held stays
// within the limit, whatever happens at the same time. The test plays random
// histories of a whole tree of processes against a kernel whose machine stops
// now and then.

// history is a random life of a machine.
type history struct {
	*rig
	excused  allowances
	excuse   sync.Mutex
	asked    map[callID]abi.Call
	waiting  map[callID]<-chan abi.Result
	answered map[callID]abi.Result
	next     map[abi.Pid]uint64
	names    []string
	watcher  chan struct{}
	lies     bool
	seen     error
}

func newHistory(t testing.TB) *history {
	h := &history{excused: allowances{}, asked: map[callID]abi.Call{}, waiting: map[callID]<-chan abi.Result{},
		answered: map[callID]abi.Result{}, next: map[abi.Pid]uint64{}, watcher: make(chan struct{}, 1)}
	h.rig = &rig{t: t, disk: storetest.NewMemory().Open, gates: map[string]chan struct{}{}, ran: map[callID]int{}}
	h.cfg.Rows = h.rows()
	h.onOpen = func(s *tap) { s.tick = h.look }
	h.open()
	return h
}

// look is the concurrent observer: it comes with every commit, while calls go
// on.
func (h *history) look() {
	h.excuse.Lock()
	defer h.excuse.Unlock()
	if k := h.Kernel; k != nil && !h.lies {
		if err := k.breach(h.excused); err != nil && h.seen == nil {
			h.seen = err
		}
	}
}

// units are drawn so that calls get in each other's way.
var units = rapid.SampledFrom([]abi.Unit{abi.Money, abi.Money, abi.Money, abi.Money, abi.Tokens, abi.Tokens, abi.OutputTokens, abi.InputTokens,
	abi.Steps, abi.ModelCalls, abi.ToolCalls, abi.CPU, abi.Children, abi.OutputBytes})

func usage(t *rapid.T, name string, most int64) (u abi.Usage) {
	for range rapid.IntRange(0, 3).Draw(t, name) {
		u[units.Draw(t, "unit")] = rapid.Int64Range(0, most).Draw(t, "amount")
	}
	u[abi.Children] = 0 // those are for spawn
	return u
}

func someLimits(t *rapid.T) (l abi.Limits) {
	for range rapid.IntRange(0, 4).Draw(t, "limits") {
		l.Set(units.Draw(t, "unit"), rapid.Int64Range(0, 40).Draw(t, "limit"))
	}
	return l
}

// only is the edit after which nothing but l is limited.
func only(l abi.Limits) abi.Edit {
	e := abi.Edit{Limits: l, By: "test"}
	for u := range abi.AllUnits {
		if _, set := l.Get(u); !set {
			e.Unset = append(e.Unset, u)
		}
	}
	return e
}

// alive draws a process that has not exited.
func (h *history) alive(t *rapid.T) abi.Pid {
	var pids []abi.Pid
	for _, i := range h.List() {
		if i.Exit == nil {
			pids = append(pids, i.Pid)
		}
	}
	if len(pids) == 0 {
		t.Skip("nobody is alive")
	}
	return rapid.SampledFrom(pids).Draw(t, "pid")
}

func (h *history) ask(c abi.Call) {
	id := callID{c.Pid, c.N}
	h.asked[id] = c
	h.waiting[id] = h.startCall(c)
}

func (h *history) number(pid abi.Pid) uint64 {
	h.next[pid]++
	return h.next[pid]
}

func (h *history) deed(t *rapid.T, n uint64) (d deed) {
	d.Nonce = int(n)
	d.Reserve = usage(t, "reserve", 12)
	if rapid.Bool().Draw(t, "less") {
		var u abi.Usage
		for i, v := range d.Reserve {
			if v > 0 {
				u[i] = rapid.Int64Range(0, v).Draw(t, "use")
			}
		}
		d.Use = &u
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		d.Quiet = true
	case 1:
		d.Effect, d.Attempts, d.Fail, d.Times = abi.Idempotent, 3, abi.ToolFailed, rapid.IntRange(1, 3).Draw(t, "times")
	case 2:
		d.Fail = abi.ToolFailed
	case 3:
		d.Ask = "may it?"
	case 4:
		d.Elastic = &ledger.Elastic{Unit: abi.OutputTokens, Min: rapid.Int64Range(1, 3).Draw(t, "min"), Max: rapid.Int64Range(3, 30).Draw(t, "max"),
			Price: rapid.SampledFrom([]int64{0, 1_000_000, 300_001}).Draw(t, "price"), Tokens: rapid.Bool().Draw(t, "tokens")}
		d.Used = rapid.Int64Range(0, 30).Draw(t, "used")
	}
	if d.Publish = rapid.IntRange(0, 3).Draw(t, "publish") == 0; d.Publish && !d.Quiet {
		d.State = byte(n)
		if d.Fail == "" && rapid.Bool().Draw(t, "transactional") {
			d.Effect = abi.Transactional
		}
		d.Rolled = d.Fail != "" && rapid.IntRange(0, 3).Draw(t, "rolled") == 0
	}
	d.Publish = d.Publish && !d.Quiet
	if rapid.Bool().Draw(t, "gated") {
		d.Gate = fmt.Sprintf("g%d", len(h.names))
		h.names = append(h.names, d.Gate)
	}
	return d
}

// collect takes the answers that came. One that was given before may not
// change.
func (h *history) collect() error {
	for id, c := range h.waiting {
		select {
		case r := <-c:
			delete(h.waiting, id)
			if r.Err != nil && (r.Err.Code.Momentary() && r.Outcome != abi.Failed || r.Err.Code == abi.ProcessEnding || r.Err.Code == abi.ProcessKilled ||
				r.Err.Code == abi.ProcessExited || r.Err.Code == abi.OutcomeUnknown || r.Outcome == abi.Unknown || r.Err.Code == abi.WatchdogLoop) {
				continue // of the moment, not of the call
			}
			if was, ok := h.answered[id]; ok && !reflect.DeepEqual(was, r) {
				return fmt.Errorf("call %v was answered %+v and then %+v", id, was, r)
			}
			h.answered[id] = r
		default:
		}
	}
	return nil
}

func (h *history) settle(t *rapid.T) {
	synctest.Wait()
	if err := h.collect(); err != nil {
		h.fail(t, err)
	}
	h.excuse.Lock()
	defer h.excuse.Unlock()
	if h.seen != nil {
		h.fail(t, fmt.Errorf("seen in between: %w", h.seen))
	}
	if h.log.Err() != nil {
		return // the disk broke: what is live is not on it, and will be forgotten
	}
	if err := h.checks(h.excused); err != nil {
		h.fail(t, err)
	}
}

// fail tells it twice: calls race each other, so a history may go well when it
// is played again to make it shorter, and then the first word is all there is.
func (h *history) fail(t *rapid.T, err error) {
	h.t.Helper()
	h.t.Log(err)
	t.Fatal(err)
}

// drain lets everything go on, and looks whether it does.
func (h *history) drain(t *rapid.T) {
	ctx := context.Background()
	h.reopen() // on a disk that holds
	for range 200 {
		for _, g := range h.names {
			h.let(g)
		}
		for _, i := range h.List() {
			if i.State == abi.Paused {
				h.Signal(ctx, i.Pid, abi.Cont, "test")
			}
			for _, a := range i.Asks {
				h.Decide(ctx, i.Pid, a.Call, true, "test", "")
			}
		}
		h.settle(t)
		if len(h.waiting) == 0 {
			return
		}
	}
	h.locked(func() {
		for id := range h.waiting {
			if p := h.procs.byPid[id.pid]; p != nil && p.ops[id.n] != nil {
				t.Errorf("call %v waits for ever for %s: %s", id, p.ops[id.n].waiting.on, h.asked[id].Args)
			}
		}
	})
	t.Fatal("it does not come to rest")
}

func (h *history) locked(f func()) {
	h.Kernel.procs.mu.Lock()
	defer h.Kernel.procs.mu.Unlock()
	f()
}

// reopen stops the machine and starts it again. The programs ask again what
// they were not told.
func (h *history) reopen() {
	h.tap.breakNow()
	h.halt()
	h.waiting = map[callID]<-chan abi.Result{}
	h.excuse.Lock()
	h.open()
	h.excuse.Unlock()
	ids := make([]callID, 0, len(h.asked))
	for id := range h.asked {
		if _, ok := h.answered[id]; !ok {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b callID) int { return int(a.pid-b.pid)*1000 + int(a.n) - int(b.n) })
	for _, id := range ids {
		if h.exists(id.pid) {
			h.ask(h.asked[id])
		} else {
			delete(h.asked, id) // the process was never on disk
		}
	}
}

func (h *history) exists(pid abi.Pid) bool {
	_, err := h.Info(pid)
	return err == nil
}

func (h *history) actions() map[string]func(*rapid.T) {
	ctx := context.Background()
	return map[string]func(*rapid.T){
		"": h.settle,
		"root": func(t *rapid.T) {
			s := under(someLimits(t))
			s.Rows = everyRow
			s.Watchdog.Profile = "off"
			s.Account = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "account")
			if s.Account != "" && len(h.Accounts()) == 0 {
				s.Account = ""
			} else if s.Account != "" {
				s.Account = h.Accounts()[0].Name
			}
			h.Spawn(ctx, s)
		},
		"child": func(t *rapid.T) {
			pid := h.alive(t)
			if i, _ := h.Info(pid); i.Depth >= 4 {
				t.Skip("deep enough")
			}
			s := &abi.Spawn{Limits: someLimits(t)}
			s.Watchdog.Profile = "off"
			n := h.number(pid)
			h.ask(abi.Call{Pid: pid, N: n, Row: "spawn", Args: deed{Child: s, Nonce: int(n)}.json()})
		},
		"call": func(t *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(t, "calls") {
				pid := h.alive(t)
				n := h.number(pid)
				h.ask(abi.Call{Pid: pid, N: n, Row: "act", Args: h.deed(t, n).json()})
			}
		},
		"nested": func(t *rapid.T) {
			pid := h.alive(t)
			var open []uint64
			h.locked(func() {
				for n, o := range h.procs.byPid[pid].ops {
					if o.begun && o.waiting.on == "" {
						open = append(open, n)
					}
				}
			})
			if len(open) == 0 {
				t.Skip("no open call")
			}
			slices.Sort(open)
			within := rapid.SampledFrom(open).Draw(t, "within")
			n := h.number(pid)
			h.ask(abi.Call{Pid: pid, N: n, Row: "act", Within: within, Args: h.deed(t, n).json()})
		},
		"again": func(t *rapid.T) {
			if len(h.answered) == 0 {
				t.Skip("no answers yet")
			}
			ids := make([]callID, 0, len(h.answered))
			for id := range h.answered {
				ids = append(ids, id)
			}
			slices.SortFunc(ids, func(a, b callID) int { return int(a.pid-b.pid)*1000 + int(a.n) - int(b.n) })
			id := rapid.SampledFrom(ids).Draw(t, "answered")
			if h.exists(id.pid) && h.waiting[id] == nil {
				h.ask(h.asked[id])
			}
		},
		"gate": func(t *rapid.T) {
			if len(h.names) == 0 {
				t.Skip("no gates")
			}
			h.let(rapid.SampledFrom(h.names).Draw(t, "gate"))
		},
		"signal": func(t *rapid.T) {
			s := rapid.SampledFrom([]abi.Signal{abi.Stop, abi.Cont, abi.Stop, abi.Cont, abi.Term, abi.Kill}).Draw(t, "signal")
			h.Signal(ctx, h.alive(t), s, "test")
		},
		"limits": func(t *rapid.T) {
			pid, l := h.alive(t), someLimits(t)
			if h.log.Err() != nil {
				t.Skip("what is booked now is not what the disk knows")
			}
			h.excuse.Lock()
			h.locked(func() { h.excused.note(fmt.Sprint(pid), h.procs.byPid[pid].state.Account) })
			h.excuse.Unlock()
			h.Change(ctx, pid, only(l))
		},
		"account": func(t *rapid.T) {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "account")
			l := someLimits(t)
			if h.log.Err() != nil {
				t.Skip("what is booked now is not what the disk knows")
			}
			h.excuse.Lock()
			h.locked(func() {
				if a := h.procs.machine.Accounts[name]; a != nil {
					h.excused.note(name, a)
				}
			})
			h.excuse.Unlock()
			h.SetAccount(ctx, name, only(l))
		},
		"decide": func(t *rapid.T) {
			pid := h.alive(t)
			i, _ := h.Info(pid)
			if len(i.Asks) == 0 {
				t.Skip("no question")
			}
			h.Decide(ctx, pid, i.Asks[0].Call, rapid.Bool().Draw(t, "yes"), "test", "words")
		},
		"exit": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
				t.Skip()
			}
			pid := h.alive(t)
			n := h.number(pid)
			h.ask(abi.Call{Pid: pid, N: n, Row: "exit", Args: deed{Give: "bye", Nonce: int(n)}.json()})
		},
		"crash": func(t *rapid.T) { h.reopen() },
		"tear": func(t *rapid.T) {
			h.tap.mu.Lock()
			defer h.tap.mu.Unlock()
			h.tap.left, h.tap.after = rapid.IntRange(1, 6).Draw(t, "appends"), rapid.Bool().Draw(t, "after")
		},
	}
}

func TestLedger(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			h := newHistory(t)
			defer h.halt()
			rt.Repeat(h.actions())
			h.drain(rt)
			h.drain(rt)
			h.unrepeated(rt)
		})
	})
}

// unrepeated looks for an effect that happened more often than it may.
func (h *history) unrepeated(t *rapid.T) {
	for id, n := range h.ran {
		c := h.asked[id]
		if d := read(c); n > 1 && !d.Effect.Repeatable() && !d.Quiet {
			t.Errorf("the effect of call %v happened %d times: %s", id, n, c.Args)
		}
	}
}

// TestDrift: a row that takes more than it reserved pushes its account over the
// limit by exactly that, which is shown, and nothing more is admitted.
func TestDrift(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		took := money(13)
		m.do(pid, 1, "act", deed{Reserve: money(6), Use: &took})
		if r := m.do(pid, 2, "act", deed{Reserve: money(1)}); code(r) != abi.LimitMoney {
			t.Errorf("%+v", r)
		}
		i, _ := m.Info(pid)
		if i.Beyond.Drift != 7 || i.Used[abi.Money] != 13 {
			t.Errorf("drift %d, used %d", i.Beyond.Drift, i.Used[abi.Money])
		}
		if err := m.breach(nil); err == nil {
			t.Error("the test for breaches sees none")
		}
	})
}

// TestManyCallers: ten thousand callers at once, room for k. Exactly k run, on
// a named account above many processes, and nobody is left waiting.
func TestManyCallers(t *testing.T) {
	const callers, room, procs = 10_000, 137, 20
	for _, use := range []int64{1, 0} {
		m := newRig(t, Config{})
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, room, abi.ToolCalls, 5*room), By: "test"}); err != nil {
			t.Fatal(err)
		}
		stop, watched := make(chan struct{}), make(chan error, 1)
		go func() {
			var err error
			for n := 0; err == nil; n++ {
				select {
				case <-stop:
					watched <- nil
					return
				default:
					err = m.breach(nil)
				}
			}
			watched <- err
		}()
		var pids []abi.Pid
		for range procs {
			s := Spawning{}
			s.Account = "team"
			pids = append(pids, m.spawn(s))
		}
		took := money(use)
		var ok, refused atomic.Int64
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				d := deed{Reserve: money(1), Use: &took, Nonce: n}
				switch r := m.do(pids[n%procs], uint64(n/procs)+1, "act", d); {
				case r.Err == nil:
					ok.Add(1)
				case code(r) == abi.LimitMoney:
					refused.Add(1)
				default:
					t.Errorf("%+v", r.Err)
				}
			})
		}
		all.Wait()
		close(stop)
		if err := <-watched; err != nil {
			t.Error(err)
		}
		want := int64(room)
		if use == 0 { // room comes back: everybody gets a turn
			want = callers
		}
		if ok.Load() != want || ok.Load()+refused.Load() != callers {
			t.Errorf("use %d: %d ran and %d were refused, want %d", use, ok.Load(), refused.Load(), want)
		}
		m.log.Flush(t.Context())
		if err := m.checks(nil); err != nil {
			t.Error(err)
		}
		m.halt()
	}
}
