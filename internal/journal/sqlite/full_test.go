package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// A disk is one that can be made full and given room again.
type disk struct {
	dir        string
	full, free func(t *testing.T, s journal.Store)
}

// pages is a disk that ends where SQLite is told that it ends.
func pages(t *testing.T) disk {
	set := func(n int64) func(*testing.T, journal.Store) {
		return func(t *testing.T, s journal.Store) {
			if err := sqlite.LimitPages(s, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return disk{t.TempDir(), set(20), set(1 << 30)}
}

func TestFullPages(t *testing.T) { fullDisk(t, pages(t)) }

// TestFullWhileSettling fills the tail, and leaves room for one more row of it
// but not for bringing it to its place.
func TestFullWhileSettling(t *testing.T) {
	s, l := opened(t, t.TempDir())
	const procs = 32
	n := uint64(0)
	wide := func() error {
		var batch []abi.Record
		for pid := abi.Pid(1); pid <= procs; pid++ {
			batch = append(batch, storetest.Began(pid, n+1, n+1))
		}
		err := s.Append(l, batch)
		if err == nil {
			n++
		}
		return err
	}
	for n < sqlite.MaxTail/procs-1 {
		if err := wide(); err != nil {
			t.Fatal(err)
		}
	}
	count, err := sqlite.Pragma(s, "page_count")
	if err == nil {
		err = sqlite.LimitPages(s, count+4)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := wide(); err != nil || sqlite.Waiting(s) != sqlite.MaxTail {
		t.Fatalf("the last batch that fits: %v, %d records in the tail", err, sqlite.Waiting(s))
	}
	for range 3 {
		if err := wide(); !errors.Is(err, journal.ErrFull) {
			t.Fatalf("with a tail that cannot be settled: %v", err)
		}
	}
	for pid := abi.Pid(1); pid <= procs; pid += 10 {
		if got, err := journal.Verify(s, pid); uint64(got) != n || err != nil {
			t.Errorf("process %d on a full disk: %d records, %v; want %d", pid, got, err, n)
		}
	}
	if err := sqlite.LimitPages(s, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := wide(); err != nil || sqlite.Waiting(s) != procs {
		t.Errorf("when there is room: %v, %d records in the tail", err, sqlite.Waiting(s))
	}
	total := uint64(0)
	if err := s.Scan(func(*abi.Record) error { total++; return nil }); err != nil || total != n*procs {
		t.Errorf("%d records, %v; want %d", total, err, n*procs)
	}
}

// fullDisk runs records into a full disk and out of it again.
func fullDisk(t *testing.T, d disk) {
	s, l, err := sqlite.Open(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &fuller{t: t, log: journal.NewLog(s, l), last: map[abi.Pid]uint64{}}
	if err := w.put(1).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		d.full(t, s)
		// Now few processes at once and now many, so that both ways of storing meet it.
		waiting := w.untilFull(abi.Pid(1 + 9*(round%2)))
		if got := storetest.PendingState(waiting[len(waiting)-1]); got != "waiting" {
			t.Errorf("round %d: a record on a full disk is %s", round, got)
		}
		d.free(t, s)
		for i, k := range waiting {
			if err := k.Wait(t.Context()); err != nil {
				t.Fatalf("round %d: record %d of %d after there was room: %v", round, i, len(waiting), err)
			}
		}
		if e := w.log.Err(); e != nil {
			t.Errorf("round %d: after there was room: %v", round, e)
		}
	}
	acked := maps.Clone(w.last)
	// Close while it is full: what was acknowledged stays.
	d.full(t, s)
	waiting := w.untilFull(1)
	if err := w.log.Close(); err == nil {
		t.Error("a log that could not write everything was closed without an error")
	}
	for _, k := range waiting {
		if storetest.PendingState(k) == "kept" {
			acked[1]++
		}
	}
	if got := storetest.PendingState(waiting[len(waiting)-1]); got != string(abi.StorageFull) {
		t.Errorf("a record that was not written is %s", got)
	}
	d.free(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = opened(t, d.dir)
	for pid, n := range acked {
		got, err := journal.Verify(s, pid)
		if err != nil || uint64(got) < n {
			t.Errorf("process %d: %d records, %v; %d were acknowledged", pid, got, err, n)
		}
	}
}

// A fuller puts large records.
type fuller struct {
	t    *testing.T
	log  *journal.Log
	last map[abi.Pid]uint64
}

func (w *fuller) put(pid abi.Pid) journal.Pending {
	w.last[pid]++
	n := w.last[pid]
	var value []byte // does not pack
	for h := abi.HashOf(fmt.Append(nil, pid, n)); len(value) < 3000; h = abi.HashOf(h[:]) {
		value = append(value, h[:]...)
	}
	r := storetest.Ended(pid, n, n, value)
	return w.log.Put(&r)
}

// untilFull puts records of some processes until the log says that it is full.
// It waits for some of them in between.
func (w *fuller) untilFull(procs abi.Pid) (all []journal.Pending) {
	for w.log.Err() == nil {
		if len(all) > 100_000 {
			w.t.Fatal("the disk does not become full")
		}
		for pid := abi.Pid(1); pid <= procs; pid++ {
			all = append(all, w.put(pid))
		}
		if len(all)%20 == 0 {
			ctx, stop := context.WithTimeout(w.t.Context(), 50*time.Millisecond)
			all[len(all)-1].Wait(ctx) // kept, or the time is over: the loop looks which
			stop()
		}
	}
	if e := w.log.Err(); e.Code != abi.StorageFull {
		w.t.Fatal(e)
	}
	return all
}

// filler is the file that takes the room of a small disk.
func filler(dir string) (full, free func(*testing.T, journal.Store)) {
	name := filepath.Join(dir, "filler")
	full = func(t *testing.T, _ journal.Store) {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 64 << 10; size > 0; {
			if _, err := f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
		// Leave a little, so that it becomes full while records are written.
		info, err := f.Stat()
		if err == nil {
			err = f.Truncate(info.Size() - 96<<10)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	free = func(t *testing.T, _ journal.Store) {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	return full, free
}
