package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/storetest"
	"github.com/kern-run/kern/internal/leaktest"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	tickets are kept before Append returns                     TestWaitsForTheStore
//	a failed batch is dropped when the disk is full            TestFull
//	Err stays after there was room                             TestFull
//	records go on after the store broke                        TestBrokenForEver
//	a refused record takes its batch down                      TestRefused
//	what comes after a refused record is stored                TestRefused
//	after a refusal every record is a batch of its own         TestRefused
//	Close drops what is queued                                 TestClose
//	Changed is closed although nothing was stored              TestChanged
//	what came while a caller wrote is left to lie              TestHanded
//	what is handed and not waited for is left to lie           TestHanded
//	a caller goes on trying itself when the disk is full       TestHandedFails
//	who waited is told that all is well                        TestWhoWaitsHears
//	a wait that is not for room ends late, or with the wrong word   TestKeep
//	a part of a batch, a full disk or a broken one are not told     TestTold
//	a refusal is another record's, or forgotten by who writes  TestRefusedAmongRefused
//	Close forgets the committer while a caller writes          TestCloseWhileACallerWrites
//	Flush leaves to lie what was handed                        TestFlush

func TestMain(m *testing.M) { leaktest.Main(m) }

// gate is a store that lets a batch through when it is told to, and notes the
// size of each.
type gate struct {
	journal.Store
	mu      sync.Mutex
	batches []int
	let     chan struct{}
}

// before puts the gate before a store. It is called in the bubble, to which the
// channel belongs then.
func (g *gate) before(s journal.Store) journal.Store {
	g.Store, g.let = s, make(chan struct{})
	return g
}

func (g *gate) Append(l journal.Lease, batch []abi.Record) error {
	<-g.let
	g.mu.Lock()
	g.batches = append(g.batches, len(batch))
	g.mu.Unlock()
	return g.Store.Append(l, batch)
}

func (g *gate) sizes() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.batches)
}

// bubble runs fn with a log in front of a store that wrap may change.
func bubble(t *testing.T, wrap func(journal.Store) journal.Store, fn func(t *testing.T, log *journal.Log, mem journal.Store)) {
	synctest.Test(t, func(t *testing.T) {
		mem, l := storetest.Mem()
		s := mem
		if wrap != nil {
			s = wrap(mem)
		}
		log := journal.NewLog(s, l)
		fn(t, log, mem)
		log.Close()
	})
}

func put(log *journal.Log, pid abi.Pid, n uint64) journal.Pending {
	r := storetest.Began(pid, n, n)
	return log.Put(&r)
}

func wantStates(t *testing.T, tickets []journal.Pending, want ...string) {
	t.Helper()
	var got []string
	for _, k := range tickets {
		got = append(got, storetest.PendingState(k))
	}
	if !slices.Equal(got, want) {
		t.Errorf("tickets are %q, want %q", got, want)
	}
}

func wantHeld(t *testing.T, s journal.Store, want ...string) {
	t.Helper()
	var got []string
	if err := s.Scan(func(r *abi.Record) error { got = append(got, fmt.Sprintf("%d:%d", r.Pid, r.N)); return nil }); err != nil {
		t.Error(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the store holds %v, want %v", got, want)
	}
}

func TestWaitsForTheStore(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{put(log, 1, 1)}
		synctest.Wait()
		for n := uint64(2); n <= 5; n++ {
			tickets = append(tickets, put(log, 1, n))
		}
		synctest.Wait()
		wantStates(t, tickets, "waiting", "waiting", "waiting", "waiting", "waiting")
		g.let <- struct{}{}
		synctest.Wait()
		wantStates(t, tickets, "kept", "waiting", "waiting", "waiting", "waiting")
		g.let <- struct{}{}
		synctest.Wait()
		wantStates(t, tickets, "kept", "kept", "kept", "kept", "kept")
		if got := g.sizes(); !slices.Equal(got, []int{1, 4}) {
			t.Errorf("batches of %v, want 1 and then what came meanwhile", got)
		}
		wantStates(t, []journal.Pending{{}}, "kept")
	})
}

func hand(log *journal.Log, pid abi.Pid, n uint64) journal.Pending {
	r := storetest.Began(pid, n, n)
	return log.PutDeferred(&r)
}

// waited begins to wait for what is handed.
func waited(tickets ...journal.Pending) {
	for _, k := range tickets {
		go func() { _ = k.Wait(context.Background()) }()
		synctest.Wait()
	}
}

// TestHanded: what is handed is written when somebody waits for it, in the
// batches that put would have made.
func TestHanded(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{hand(log, 1, 1)}
		close(g.let)
		synctest.Wait()
		if got := g.sizes(); got != nil {
			t.Errorf("batches of %v before anybody waits", got)
		}
		g.let = make(chan struct{})
		waited(tickets[0])
		for n := uint64(2); n <= 4; n++ {
			tickets = append(tickets, hand(log, 1, n))
			waited(tickets[n-1])
		}
		wantStates(t, tickets, "waiting", "waiting", "waiting", "waiting")
		g.let <- struct{}{}
		synctest.Wait()
		wantStates(t, tickets, "kept", "waiting", "waiting", "waiting")
		tickets = append(tickets, hand(log, 1, 5)) // nobody waits for it, and then for nothing else either
		g.let <- struct{}{}
		synctest.Wait()
		g.let <- struct{}{}
		synctest.Wait()
		wantStates(t, tickets, "kept", "kept", "kept", "kept", "kept")
		tickets = append(tickets, hand(log, 1, 6), put(log, 1, 7)) // the committer takes both
		g.let <- struct{}{}
		synctest.Wait()
		tickets = append(tickets, hand(log, 1, 8))
		wantStates(t, tickets[7:], "waiting") // whose wait is over before it begins
		done := make(chan error)
		go func() { done <- log.Close() }()
		g.let <- struct{}{}
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantStates(t, append(tickets[5:], hand(log, 1, 9)), "kept", "kept", "kept", journal.ErrClosed.Error())
		if got := g.sizes(); !slices.Equal(got, []int{1, 3, 1, 2, 1}) {
			t.Errorf("batches of %v", got)
		}
		wantHeld(t, mem, "1:1", "1:2", "1:3", "1:4", "1:5", "1:6", "1:7", "1:8")
	})
}

// TestHandedFails: a caller that writes itself hears what a committer would have
// said, and when its time is up it does not wait for room.
func TestHandedFails(t *testing.T) {
	for mode, want := range map[storetest.Mode]string{
		storetest.Full(3): "kept", storetest.Full(1 << 30): "waiting", storetest.Before: "STORAGE_BROKEN",
	} {
		bubble(t, func(s journal.Store) journal.Store { return storetest.Faulty(s, 2, mode) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			tickets := []journal.Pending{hand(log, 1, 1)}
			_ = tickets[0].Wait(ctx)
			tickets = append(tickets, hand(log, 1, 2))
			_ = tickets[1].Wait(ctx)
			wantStates(t, tickets, "kept", want)
			if e := log.Err(); (e == nil) != (want == "kept") {
				t.Errorf("%s: the log says %v", want, e)
			}
		})
	}
	bubble(t, nil, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{hand(log, 1, 1), hand(log, 2, 5), hand(log, 1, 2), hand(log, 2, 6)}
		_ = tickets[0].Wait(t.Context())
		tickets = append(tickets, hand(log, 2, 7), hand(log, 1, 3))
		_ = tickets[4].Wait(t.Context())
		wantStates(t, tickets, "kept", "refused 2:5", "kept", "refused 2:5", "refused 2:5", "kept")
		wantHeld(t, mem, "1:1", "1:2", "1:3")
	})
}

func TestFull(t *testing.T) {
	bubble(t, func(s journal.Store) journal.Store { return storetest.Faulty(s, 2, storetest.Full(3)) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{put(log, 1, 1)}
		synctest.Wait()
		if e := log.Err(); e != nil {
			t.Fatal(e)
		}
		tickets = append(tickets, put(log, 1, 2))
		synctest.Wait()
		if e := log.Err(); e == nil || e.Code != abi.StorageFull || e.Hint == "" {
			t.Fatalf("got %v", e)
		}
		tickets = append(tickets, put(log, 2, 1)) // comes while there is no room
		start := time.Now()
		wantStates(t, tickets, "kept", "waiting", "waiting")
		for _, k := range tickets {
			if err := k.Wait(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(start); d <= 0 || d > 10*time.Second {
			t.Errorf("it took %v until there was room", d)
		}
		if e := log.Err(); e != nil {
			t.Errorf("after there was room: %v", e)
		}
		wantHeld(t, mem, "1:1", "1:2", "2:1")
	})
}

func TestFullForEver(t *testing.T) {
	bubble(t, func(s journal.Store) journal.Store { return storetest.Faulty(s, 2, storetest.Full(1<<30)) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{put(log, 1, 1)}
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 2))
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 3))
		<-time.After(time.Hour) // on the clock of the bubble
		wantStates(t, tickets, "kept", "waiting", "waiting")
		var e *abi.Error
		if err := log.Close(); !errors.As(err, &e) || e.Code != abi.StorageFull {
			t.Errorf("close: %v", err)
		}
		wantStates(t, append(tickets, put(log, 1, 4)), "kept", "STORAGE_FULL", "STORAGE_FULL", "STORAGE_FULL")
		wantHeld(t, mem, "1:1")
	})
}

func TestBroken(t *testing.T) {
	for mode, held := range map[storetest.Mode][]string{
		storetest.Before: {"1:1"},
		storetest.After:  {"1:1", "1:2"},
	} {
		bubble(t, func(s journal.Store) journal.Store { return storetest.Faulty(s, 2, mode) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
			tickets := []journal.Pending{put(log, 1, 1)}
			synctest.Wait()
			tickets = append(tickets, put(log, 1, 2))
			synctest.Wait()
			tickets = append(tickets, put(log, 1, 3), put(log, 2, 1))
			synctest.Wait()
			wantStates(t, tickets, "kept", "STORAGE_BROKEN", "STORAGE_BROKEN", "STORAGE_BROKEN")
			if e := log.Err(); e == nil || e.Code != abi.StorageBroken {
				t.Errorf("got %v", e)
			}
			if err := log.Flush(context.Background()); err == nil {
				t.Error("flush says that all is well")
			}
			wantHeld(t, mem, held...)
			if err := log.Close(); err == nil {
				t.Error("close says that all is well")
			}
		})
	}
}

// told is a store whose next Appends fail as it is told; nil is none that does.
type told struct {
	journal.Store
	errs []error
}

func (s *told) Append(l journal.Lease, batch []abi.Record) error {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		if err != nil {
			return err
		}
	}
	return s.Store.Append(l, batch)
}

// TestBrokenForEver: nothing is written after a failure, although it could be.
// What the failure left on the disk is not known.
func TestBrokenForEver(t *testing.T) {
	bubble(t, func(s journal.Store) journal.Store {
		return &told{Store: s, errs: []error{errors.New("input/output error")}}
	}, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{put(log, 1, 1)}
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 1), put(log, 2, 1))
		synctest.Wait()
		wantStates(t, tickets, "STORAGE_BROKEN", "STORAGE_BROKEN", "STORAGE_BROKEN")
		wantHeld(t, mem)
	})
}

// TestBrokenInTheMiddle breaks the store while others wait in the next round.
func TestBrokenInTheMiddle(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(storetest.Faulty(s, 1, storetest.Before)) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{put(log, 1, 1)}
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 2), put(log, 2, 1))
		close(g.let)
		synctest.Wait()
		wantStates(t, tickets, "STORAGE_BROKEN", "STORAGE_BROKEN", "STORAGE_BROKEN")
		wantHeld(t, mem)
	})
}

// TestWhoWaitsHears: who began to wait before the record was written is told how
// that ended, and not only who asks afterwards.
func TestWhoWaitsHears(t *testing.T) {
	for want, c := range map[string]struct {
		n    uint64
		errs []error
	}{
		"kept":           {1, nil},
		"refused 1:9":    {9, nil},
		"STORAGE_BROKEN": {1, []error{errors.New("input/output error")}},
	} {
		for _, add := range []func(*journal.Log, abi.Pid, uint64) journal.Pending{put, hand} {
			g := new(gate)
			bubble(t, func(s journal.Store) journal.Store { return g.before(&told{Store: s, errs: c.errs}) }, func(t *testing.T, log *journal.Log, _ journal.Store) {
				heard := make(chan error, 2)
				k := add(log, 1, c.n)
				for range 2 {
					go func() { heard <- k.Wait(t.Context()) }()
				}
				synctest.Wait()
				close(g.let)
				for range 2 {
					if err := <-heard; storetest.OutcomeOf(err) != want {
						t.Errorf("heard %v, want %s", err, want)
					}
				}
			})
		}
	}
}

// TestKeep waits for the disk and not for room on it.
func TestKeep(t *testing.T) {
	full := fmt.Errorf("%w: in a test", journal.ErrFull)
	for _, c := range []struct {
		name, want string
		n          uint64
		errs       []error
		leave      bool // who waits does so only for a second, and the disk takes longer
	}{
		{"kept", "kept", 1, nil, false},
		{"refused", "refused 1:9", 9, nil, false},
		{"full", "STORAGE_FULL", 1, []error{full, full}, false},
		{"broken", "STORAGE_BROKEN", 1, []error{errors.New("input/output error")}, false},
		{"left", context.DeadlineExceeded.Error(), 1, nil, true},
	} {
		g := new(gate)
		bubble(t, func(s journal.Store) journal.Store { return g.before(&told{Store: s, errs: c.errs}) }, func(t *testing.T, log *journal.Log, _ journal.Store) {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if c.leave {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			defer cancel()
			heard := make(chan error)
			k := put(log, 1, c.n)
			go func() { heard <- log.WaitUnlessFull(ctx, k) }()
			synctest.Wait()
			start := time.Now()
			if !c.leave {
				close(g.let)
			}
			if got := storetest.OutcomeOf(<-heard); got != c.want {
				t.Errorf("%s: %s", c.name, got)
			}
			if d := time.Since(start); c.leave != (d > 0) {
				t.Errorf("%s: after %s", c.name, d)
			}
			if c.leave {
				close(g.let)
			}
			if err := log.WaitUnlessFull(t.Context(), journal.Pending{}); err != nil {
				t.Errorf("%s: nothing to wait for: %v", c.name, err)
			}
			// Whoever asks later is told the same, and while there is no room at once.
			if got := storetest.OutcomeOf(log.WaitUnlessFull(t.Context(), k)); !c.leave && got != c.want {
				t.Errorf("%s, asked again: %s", c.name, got)
			}
		})
	}
}

// TestTold: who watches the log hears of every commit, also of a part of a
// batch, and that nothing can be written, for a time or any more.
func TestTold(t *testing.T) {
	for _, c := range []struct {
		errs []error // nil: of the batch before
		put  []uint64
	}{
		{nil, []uint64{1}},
		{nil, []uint64{1, 9}}, // the second is refused
		{[]error{nil, journal.ErrFull}, []uint64{1}},
		{[]error{nil, errors.New("input/output error")}, []uint64{1}},
	} {
		g := new(gate)
		bubble(t, func(s journal.Store) journal.Store { return g.before(&told{Store: s, errs: c.errs}) }, func(t *testing.T, log *journal.Log, _ journal.Store) {
			put(log, 2, 1) // what follows waits for it, and comes in one batch
			synctest.Wait()
			for _, n := range c.put {
				put(log, 1, n)
			}
			g.let <- struct{}{}
			synctest.Wait()
			changed, start := log.Changed(), time.Now()
			close(g.let)
			<-changed
			if d := time.Since(start); d > 0 {
				t.Errorf("%v, %v: told after %s", c.errs, c.put, d)
			}
		})
	}
}

// TestRefusedAmongRefused: which record a refusal means is not lost where
// others were left out of the batch before, and a store that breaks in the
// middle breaks for all.
func TestRefusedAmongRefused(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		first := put(log, 1, 9) // refused
		synctest.Wait()
		g.let <- struct{}{} // with its batch, and alone
		g.let <- struct{}{}
		synctest.Wait()
		// The number would be right, and nobody else writes: it is refused all the same.
		early := hand(log, 1, 1)
		_ = early.Wait(t.Context())
		tickets := []journal.Pending{put(log, 3, 1)}
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 1), put(log, 2, 1), put(log, 4, 7), put(log, 2, 2), put(log, 1, 2), put(log, 4, 1))
		close(g.let)
		synctest.Wait()
		wantStates(t, append(tickets, first, early), "kept", "refused 1:9", "kept", "refused 4:7", "kept", "refused 1:9", "refused 4:7", "refused 1:9", "refused 1:9")
		wantHeld(t, mem, "2:1", "2:2", "3:1")
	})
	bad := &journal.BadRecord{Pid: 2, N: 1, Why: "in a test"}
	told := &told{errs: []error{bad, bad, nil, errors.New("input/output error")}} // a batch by who waits, by the committer, one by one
	bubble(t, func(s journal.Store) journal.Store { told.Store = s; return told }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{hand(log, 1, 1), hand(log, 2, 1), hand(log, 3, 1)}
		_ = tickets[0].Wait(t.Context())
		wantStates(t, tickets, "STORAGE_BROKEN", "STORAGE_BROKEN", "STORAGE_BROKEN")
		wantHeld(t, mem, "1:1")
	})
}

func TestStaleLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		s, l, err := m.Open()
		if err != nil {
			t.Fatal(err)
		}
		log := journal.NewLog(s, l)
		first := put(log, 1, 1)
		synctest.Wait()
		if _, _, err := m.Open(); err != nil {
			t.Fatal(err)
		}
		second := put(log, 1, 2)
		synctest.Wait()
		wantStates(t, []journal.Pending{first, second}, "kept", "STORAGE_BROKEN")
		if err := log.Close(); err == nil {
			t.Error("close says that all is well")
		}
	})
}

func TestRefused(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{put(log, 1, 1)}
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 2), put(log, 2, 1),
			put(log, 1, 9), // refused
			put(log, 3, 1),
			put(log, 1, 3), // its number would be right, but it was made after one that is not there
			put(log, 2, 2))
		close(g.let)
		synctest.Wait()
		wantStates(t, tickets, "kept", "kept", "kept", "refused 1:9", "kept", "refused 1:9", "kept")
		if e := log.Err(); e != nil {
			t.Errorf("got %v", e)
		}
		wantHeld(t, mem, "1:1", "1:2", "2:1", "2:2", "3:1")

		// Later rounds go on without that process, and in one batch.
		g.let = make(chan struct{})
		tickets = []journal.Pending{put(log, 4, 1)}
		synctest.Wait()
		before := len(g.sizes())
		tickets = append(tickets, put(log, 2, 3), put(log, 1, 3), put(log, 3, 2), put(log, 4, 2))
		close(g.let)
		synctest.Wait()
		wantStates(t, tickets, "kept", "kept", "refused 1:9", "kept", "kept")
		if got := g.sizes()[before:]; !slices.Equal(got, []int{1, 3}) {
			t.Errorf("batches of %v, want 1 and 3", got)
		}
		if err := log.Flush(context.Background()); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
}

func TestChanged(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *journal.Log, _ journal.Store) {
		closed := func(c <-chan struct{}) bool {
			synctest.Wait()
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		c := log.Changed()
		if closed(c) {
			t.Error("it changed and nothing was put")
		}
		put(log, 1, 7) // refused
		if closed(c) {
			t.Error("it changed by a record that was refused")
		}
		put(log, 2, 1)
		if !closed(c) || closed(log.Changed()) {
			t.Error("it is not closed by the next commit and only by that")
		}
	})
}

// TestCloseWhileACallerWrites: it is the committer that goes on with what came
// meanwhile, and Close waits for that.
func TestCloseWhileACallerWrites(t *testing.T) {
	for _, more := range []bool{true, false} {
		g := new(gate)
		bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
			tickets := []journal.Pending{hand(log, 1, 1)}
			waited(tickets[0])
			want := []string{"1:1"}
			if more {
				tickets, want = append(tickets, hand(log, 1, 2)), append(want, "1:2")
			}
			done := make(chan error)
			go func() { done <- log.Close() }()
			synctest.Wait()
			close(g.let)
			if err := <-done; err != nil {
				t.Error(err)
			}
			wantStates(t, tickets, []string{"kept", "kept"}[:len(tickets)]...)
			wantHeld(t, mem, want...)
		})
	}
}

func TestFlush(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, _ journal.Store) {
		if err := log.Flush(context.Background()); err != nil {
			t.Errorf("with nothing to do: %v", err)
		}
		k := put(log, 1, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := log.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the store waits: %v", err)
		}
		close(g.let)
		if err := log.Flush(context.Background()); err != nil || storetest.PendingState(k) != "kept" {
			t.Errorf("%v; the ticket is %s", err, storetest.PendingState(k))
		}
		// What was handed is nobody's until somebody waits: so it is flush's.
		k = hand(log, 1, 2)
		if err := log.Flush(context.Background()); err != nil || storetest.PendingState(k) != "kept" {
			t.Errorf("%v; the ticket of what was handed is %s", err, storetest.PendingState(k))
		}
	})
}

func TestClose(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Pending{put(log, 1, 1)}
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 2), put(log, 1, 3))
		done := make(chan error)
		go func() { done <- log.Close() }()
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 4)) // still in time
		close(g.let)
		if err := <-done; err != nil {
			t.Error(err)
		}
		tickets = append(tickets, put(log, 1, 5))
		wantStates(t, tickets, "kept", "kept", "kept", "kept", journal.ErrClosed.Error())
		wantHeld(t, mem, "1:1", "1:2", "1:3", "1:4")
		if err := log.Close(); err != nil {
			t.Errorf("a second time: %v", err)
		}
	})
}

// TestPutCost: Put stands under the lock of the kernel.
func TestPutCost(t *testing.T) {
	mem, l := storetest.Mem()
	log := journal.NewLog(mem, l)
	defer log.Close()
	n := uint64(0)
	r := storetest.Began(1, 0, 1)
	allocs := testing.AllocsPerRun(1000, func() {
		n++
		r.N = n
		log.Put(&r)
	})
	if allocs > 1 {
		t.Errorf("%.1f allocations, want at most one", allocs)
	}
}

// TestFeed: readers of the log read everything in the order in which it was put,
// until the log is closed.
func TestFeed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *journal.Log, _ journal.Store) {
		put(log, 1, 1)
		var readers sync.WaitGroup
		read := make([][]string, 4)
		for i := range read {
			readers.Go(func() {
				var wants func(abi.Pid) bool
				if i == 1 {
					wants = func(pid abi.Pid) bool { return pid == 2 }
				}
				for e, err := range log.Feed(t.Context(), 0, wants) {
					if err != nil {
						read[i] = append(read[i], err.Error())
						continue
					}
					if read[i] = append(read[i], fmt.Sprint(e.Pid, ":", e.N)); i == 2 && len(read[i]) == 2 {
						break
					}
				}
			})
		}
		synctest.Wait()
		put(log, 2, 1)
		put(log, 1, 2)
		synctest.Wait()
		put(log, 2, 7) // refused
		put(log, 2, 2)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		readers.Wait()
		all := []string{"1:1", "2:1", "1:2", journal.ErrClosed.Error()}
		for i, want := range [][]string{all, {"2:1", journal.ErrClosed.Error()}, {"1:1", "2:1"}, all} {
			if !slices.Equal(read[i], want) {
				t.Errorf("reader %d: %q, want %q", i, read[i], want)
			}
		}
	})
}

// TestFeedEnds: the end of its context ends a reader that waits.
func TestFeedEnds(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *journal.Log, _ journal.Store) {
		put(log, 1, 1)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() {
			for _, err := range log.Feed(ctx, log.End(), nil) {
				ended <- err
			}
		}()
		go func() {
			for r, err := range log.Records(ctx, 1, 0) {
				if r == nil {
					ended <- err
				}
			}
		}()
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// TestSlowReader: a reader that stands still delays no commit, and misses none.
func TestSlowReader(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *journal.Log, _ journal.Store) {
		const last = 2000
		stands, goOn := make(chan struct{}), make(chan struct{})
		read := make(chan uint64)
		go func() {
			n := uint64(0)
			for e, err := range log.Feed(t.Context(), 0, nil) {
				if n++; err != nil || e.N != n {
					t.Errorf("record %d: %+v, %v", n, e, err)
				}
				if n == 1 {
					close(stands)
					<-goOn
				}
				if n == last {
					break
				}
			}
			read <- n
		}()
		put(log, 1, 1)
		<-stands
		for n := uint64(2); n <= last; n++ {
			if err := put(log, 1, n).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(goOn)
		if n := <-read; n != last {
			t.Errorf("it read %d records", n)
		}
	})
}

// TestRecords: the records of a process are read once each, from the store and
// then from the feed, until its exit.
func TestRecords(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *journal.Log, _ journal.Store) {
		const last = 400
		var readers sync.WaitGroup
		for from := range uint64(6) {
			readers.Go(func() {
				n := from * 70
				time.Sleep(time.Duration(from) * time.Millisecond) // the bubble's clock: they start at different moments
				for r, err := range log.Records(t.Context(), 1, n) {
					if n++; err != nil || r.Pid != 1 || r.N != n {
						t.Errorf("from %d: %v, %v; want record %d", from, r, err, n)
					}
				}
				if n != last {
					t.Errorf("from %d: it ended at %d", from, n)
				}
			})
		}
		for n := uint64(1); n <= last; n++ {
			r := storetest.Began(1, n, n)
			if n == last {
				r = abi.Record{Pid: 1, N: n, Kind: abi.KindExited, Exit: &abi.ExitInfo{Exit: abi.ExitDone}}
			}
			put(log, 2, n)
			log.Put(&r)
			if n%40 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		readers.Wait()
	})
}

// TestStaleTree: a tree that another holder claimed ends for this log, and all
// other trees go on.
func TestStaleTree(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *journal.Log, s journal.Store) {
		for pid := range abi.Pid(3) {
			put(log, pid+1, 1)
		}
		synctest.Wait()
		if _, err := s.Claim(journal.Lease{}, 2); err != nil {
			t.Fatal(err)
		}
		tickets := []journal.Pending{put(log, 1, 2), put(log, 2, 2), put(log, 3, 2)}
		synctest.Wait()
		wantStates(t, tickets, "kept", "refused 2:2", "kept")
		if err := put(log, 2, 3).Wait(t.Context()); !errors.Is(err, journal.ErrStale) {
			t.Errorf("the next record of the tree: %v", err)
		}
		if e := log.Err(); e != nil {
			t.Error(e)
		}
	})
}
