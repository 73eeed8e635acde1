package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/journaltest"
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
		mem, l := journaltest.Mem()
		s := mem
		if wrap != nil {
			s = wrap(mem)
		}
		log := journal.NewLog(s, l)
		fn(t, log, mem)
		log.Close()
	})
}

func put(log *journal.Log, pid abi.Pid, n uint64) journal.Ticket {
	r := journaltest.Began(pid, n, n)
	return log.Put(&r)
}

// state is what can be said of a ticket at once.
func state(t journal.Ticket) string {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := t.Wait(ctx)
	var e *abi.Error
	var bad *journal.BadRecord
	switch {
	case err == nil:
		return "kept"
	case errors.Is(err, context.Canceled):
		return "waiting"
	case errors.As(err, &e):
		return string(e.Code)
	case errors.As(err, &bad):
		return fmt.Sprintf("refused %d:%d", bad.Pid, bad.N)
	}
	return err.Error()
}

func wantStates(t *testing.T, tickets []journal.Ticket, want ...string) {
	t.Helper()
	var got []string
	for _, k := range tickets {
		got = append(got, state(k))
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
		tickets := []journal.Ticket{put(log, 1, 1)}
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
		wantStates(t, []journal.Ticket{{}}, "kept")
	})
}

func TestFull(t *testing.T) {
	bubble(t, func(s journal.Store) journal.Store { return journaltest.Faulty(s, 2, journaltest.Full(3)) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Ticket{put(log, 1, 1)}
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
	bubble(t, func(s journal.Store) journal.Store { return journaltest.Faulty(s, 2, journaltest.Full(1<<30)) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Ticket{put(log, 1, 1)}
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
	for mode, held := range map[journaltest.Mode][]string{
		journaltest.Before: {"1:1"},
		journaltest.After:  {"1:1", "1:2"},
	} {
		bubble(t, func(s journal.Store) journal.Store { return journaltest.Faulty(s, 2, mode) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
			tickets := []journal.Ticket{put(log, 1, 1)}
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

// once is a store that fails once, for a reason that nobody knows.
type once struct {
	journal.Store
	failed bool
}

func (o *once) Append(l journal.Lease, batch []abi.Record) error {
	if !o.failed {
		o.failed = true
		return errors.New("input/output error")
	}
	return o.Store.Append(l, batch)
}

// TestBrokenForEver: nothing is written after a failure, although it could be.
// What the failure left on the disk is not known.
func TestBrokenForEver(t *testing.T) {
	bubble(t, func(s journal.Store) journal.Store { return &once{Store: s} }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Ticket{put(log, 1, 1)}
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
	bubble(t, func(s journal.Store) journal.Store { return g.before(journaltest.Faulty(s, 1, journaltest.Before)) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Ticket{put(log, 1, 1)}
		synctest.Wait()
		tickets = append(tickets, put(log, 1, 2), put(log, 2, 1))
		close(g.let)
		synctest.Wait()
		wantStates(t, tickets, "STORAGE_BROKEN", "STORAGE_BROKEN", "STORAGE_BROKEN")
		wantHeld(t, mem)
	})
}

func TestStaleLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := journaltest.NewMemory()
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
		wantStates(t, []journal.Ticket{first, second}, "kept", "STORAGE_BROKEN")
		if err := log.Close(); err == nil {
			t.Error("close says that all is well")
		}
	})
}

func TestRefused(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Ticket{put(log, 1, 1)}
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
		tickets = []journal.Ticket{put(log, 4, 1)}
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
		if err := log.Flush(context.Background()); err != nil || state(k) != "kept" {
			t.Errorf("%v; the ticket is %s", err, state(k))
		}
	})
}

func TestClose(t *testing.T) {
	g := new(gate)
	bubble(t, func(s journal.Store) journal.Store { return g.before(s) }, func(t *testing.T, log *journal.Log, mem journal.Store) {
		tickets := []journal.Ticket{put(log, 1, 1)}
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

// TestManyCallers puts from many goroutines into the real store, closes in the
// middle of it, and compares what was promised with what is there.
func TestManyCallers(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	log := journal.NewLog(s, l)
	const procs = 50
	kept := make([]uint64, procs)
	var wg sync.WaitGroup
	for pid := range abi.Pid(procs) {
		wg.Go(func() {
			for n := uint64(1); ; n++ {
				err := put(log, pid, n).Wait(context.Background())
				if err != nil {
					if !errors.Is(err, journal.ErrClosed) {
						t.Error(err)
					}
					return
				}
				kept[pid] = n
			}
		})
	}
	for seen := 0; seen < 20; seen++ {
		<-log.Changed()
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	last := make([]uint64, procs)
	if err := s.Scan(func(r *abi.Record) error { last[r.Pid] = r.N; return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kept, last) {
		t.Errorf("promised %v\n    there %v", kept, last)
	}
}

// TestPutCost: Put stands under the lock of the kernel.
func TestPutCost(t *testing.T) {
	mem, l := journaltest.Mem()
	log := journal.NewLog(mem, l)
	defer log.Close()
	n := uint64(0)
	r := journaltest.Began(1, 0, 1)
	allocs := testing.AllocsPerRun(1000, func() {
		n++
		r.N = n
		log.Put(&r)
	})
	if allocs > 1 {
		t.Errorf("%.1f allocations, want at most one", allocs)
	}
}

// TestScenario36Journal: a conversation of 209,000 tokens with about a thousand
// tool calls takes less than 1.2 times the bytes of its messages.
func TestScenario36Journal(t *testing.T) {
	for _, words := range []string{journaltest.Prose, journaltest.Hex} {
		dir := t.TempDir()
		s, l := opened(t, dir)
		talk := journaltest.Talk{Pid: 1, Words: words}
		for talk.Tokens < 209_000 {
			// As it is written live: record by record. The syncs are left out
			// by storing a round at once, which changes nothing of the file.
			mustAppend(t, s, l, talk.Round()...)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "journal.db"))
		if err != nil {
			t.Fatal(err)
		}
		ratio := float64(info.Size()) / float64(talk.Unique)
		t.Logf("%d calls of tools: %d bytes, %.2f of %d", talk.Calls, info.Size(), ratio, talk.Unique)
		if ratio >= 1.2 {
			t.Errorf("%.2f times the bytes of the messages, want less than 1.2", ratio)
		}
	}
}
