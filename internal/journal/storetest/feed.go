package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// idsOf names records as pid:number.
func idsOf(batch []abi.Record) (list []string) {
	for i := range batch {
		list = append(list, fmt.Sprint(batch[i].Pid, ":", batch[i].N))
	}
	return list
}

// readFeed reads a feed to its end, and fails the test if a position does not rise.
func readFeed(t *testing.T, f journal.FeedReader, wants func(abi.Pid) bool) (list []string, cursors []journal.Cursor) {
	t.Helper()
	for {
		before := f.Cursor()
		entries, err := f.Next(wants)
		if err != nil {
			t.Fatalf("after %d: %v", before, err)
		}
		if len(entries) == 0 {
			return list, cursors
		}
		for _, e := range entries {
			if e.Cursor <= before || e.Cursor > f.Cursor() {
				t.Fatalf("record %d:%d is at %d, after %d and not above %d", e.Pid, e.N, e.Cursor, before, f.Cursor())
			}
			before = e.Cursor
			list, cursors = append(list, fmt.Sprint(e.Pid, ":", e.N)), append(cursors, e.Cursor)
		}
	}
}

// feedBatches returns batches of few and of many processes.
func feedBatches(rounds int) (batches [][]abi.Record) {
	last := map[abi.Pid]uint64{}
	rnd := rand.New(rand.NewPCG(1, uint64(rounds)))
	for round := range rounds {
		var batch []abi.Record
		for range []int{1, 2, 40, 1, 7}[round%5] {
			pid := abi.Pid(rnd.IntN(30))
			last[pid]++
			batch = append(batch, Ended(pid, last[pid], last[pid], fmt.Appendf(nil, "%0*d", 3*round, pid)))
		}
		batches = append(batches, batch)
	}
	return batches
}

// feedOrder tests that a feed has the order of commits, and that a cursor always
// leads to the same position.
func feedOrder(t *testing.T, p *place) {
	var all []string
	live := p.s.Feed(0)
	var seen []string
	for round, batch := range feedBatches(150) {
		p.append(batch...)
		all = append(all, idsOf(batch)...)
		if round%3 == 0 {
			list, _ := readFeed(t, live, nil)
			seen = append(seen, list...)
		}
		if round%40 == 17 {
			at := live.Cursor()
			p.reopen()
			live = p.s.Feed(at)
		}
	}
	list, _ := readFeed(t, live, nil)
	if seen = append(seen, list...); !slices.Equal(seen, all) {
		t.Errorf("read live: %d records, want %d in their order", len(seen), len(all))
	}
	for range 2 {
		list, cursors := readFeed(t, p.s.Feed(0), nil)
		if !slices.Equal(list, all) {
			t.Fatalf("read at once: %d records, want %d in their order", len(list), len(all))
		}
		for i := 0; i < len(all); i += 41 {
			if list, _ := readFeed(t, p.s.Feed(cursors[i]), nil); !slices.Equal(list, all[i+1:]) {
				t.Fatalf("after cursor %d: %d records, want %d in their order", cursors[i], len(list), len(all)-i-1)
			}
		}
		some := func(pid abi.Pid) bool { return pid%7 == 3 }
		want := slices.DeleteFunc(slices.Clone(all), func(id string) bool {
			var pid abi.Pid
			fmt.Sscan(id, &pid)
			return !some(pid)
		})
		f := p.s.Feed(0)
		if list, _ := readFeed(t, f, some); !slices.Equal(list, want) {
			t.Errorf("of some processes: %d records, want %d in their order", len(list), len(want))
		}
		if end := p.s.Feed(journal.Newest).Cursor(); f.Cursor() != end || cursors[len(cursors)-1] != end {
			t.Errorf("the end is %d; read up to %d and to %d", end, f.Cursor(), cursors[len(cursors)-1])
		}
		p.reopen()
	}
}

// feedNew tests that a feed from the end yields the records that are appended later.
func feedNew(t *testing.T, p *place) {
	p.append(Began(1, 1, 1))
	f := p.s.Feed(journal.Newest)
	for n := uint64(2); n < 300; n++ {
		if list, _ := readFeed(t, f, nil); list != nil {
			t.Fatalf("before record %d: %v", n, list)
		}
		p.append(Began(1, n, n))
		if list, _ := readFeed(t, f, nil); !slices.Equal(list, []string{fmt.Sprint("1:", n)}) {
			t.Fatalf("record %d: %v", n, list)
		}
	}
	wantBad(t, p.s.Append(p.l, []abi.Record{Began(2, 1, 1), Began(1, 7, 1)}), 1, 7)
	if list, _ := readFeed(t, f, nil); list != nil {
		t.Errorf("of a batch that was refused: %v", list)
	}
	if err := p.s.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := f.Next(nil); list != nil || !errors.Is(err, journal.ErrClosed) {
		t.Errorf("of a closed store: %v, %v", list, err)
	}
}

// feedConcurrent tests readers that start anywhere while others append. Each must see
// every record after its cursor once and in the same order.
func feedConcurrent(t *testing.T, p *place) {
	const writers, readers, last = 6, 4, 150
	var appending, reading sync.WaitGroup
	done := make(chan struct{})
	seen, starts := make([][]string, readers), make([]journal.Cursor, readers)
	for i := range readers {
		reading.Go(func() {
			f := p.s.Feed([]journal.Cursor{0, 0, journal.Newest, journal.Newest}[i])
			starts[i] = f.Cursor()
			for over := false; ; {
				list, err := f.Next(nil)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range list {
					seen[i] = append(seen[i], fmt.Sprint(e.Pid, ":", e.N))
				}
				if i%2 == 1 { // this reader opens a feed again at its cursor
					f = p.s.Feed(f.Cursor())
				}
				if len(list) > 0 {
					continue
				}
				if over {
					return
				}
				select {
				case <-done:
					over = true
				default:
				}
			}
		})
	}
	for w := range writers {
		appending.Go(func() {
			for n := uint64(1); n <= last; n++ {
				var batch []abi.Record
				for pid := range w + 1 { // batches of one process and of more
					batch = append(batch, Began(abi.Pid(10*w+pid+1), n, n))
				}
				if err := p.s.Append(p.l, batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	appending.Wait()
	close(done)
	reading.Wait()
	all, _ := readFeed(t, p.s.Feed(0), nil)
	if want := last * writers * (writers + 1) / 2; len(all) != want {
		t.Fatalf("%d records, want %d", len(all), want)
	}
	of := map[string][]string{}
	for _, id := range all {
		var pid, n int
		if fmt.Sscanf(id, "%d:%d", &pid, &n); len(of[fmt.Sprint(pid)]) != n-1 {
			t.Fatalf("record %s is not the next of its process", id)
		}
		of[fmt.Sprint(pid)] = append(of[fmt.Sprint(pid)], id)
	}
	for i := range readers {
		if from := len(all) - len(seen[i]); from < 0 || !slices.Equal(seen[i], all[from:]) {
			t.Errorf("reader %d, from %d: %d records, not the last %d", i, starts[i], len(seen[i]), len(seen[i]))
		}
	}
	if len(seen[0]) != len(all) || len(seen[1]) != len(all) {
		t.Errorf("readers from the beginning saw %d and %d records of %d", len(seen[0]), len(seen[1]), len(all))
	}
}
