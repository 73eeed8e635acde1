package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// Spawned returns the first record of a process.
func Spawned(pid, parent abi.Pid) abi.Record {
	return abi.Record{Pid: pid, N: 1, Time: 1_790_000_000_000_000_000, Kind: abi.KindSpawned, Spawn: &abi.Spawn{Name: "p", Parent: parent}}
}

// claim claims trees, and fails the test if the store refuses.
func (p *place) claim(old journal.Lease, trees ...abi.Pid) journal.Lease {
	p.t.Helper()
	l, err := p.s.Claim(old, trees...)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// wantStale fails unless the store refuses the record because of its lease.
func (p *place) wantStale(l journal.Lease, r abi.Record) {
	p.t.Helper()
	if err := p.s.Append(l, []abi.Record{r}); !errors.Is(err, journal.ErrStale) {
		p.t.Errorf("record %d of process %d under lease %v: %v", r.N, r.Pid, l, err)
	}
}

// forest makes trees 1 (processes 1, 2, 5) and 3 (processes 3, 4), and settings.
func (p *place) forest() {
	p.append(Spawned(1, 0), Spawned(2, 1), Began(0, 1, 0))
	p.append(Spawned(3, 0), Spawned(4, 3), Spawned(5, 2))
}

// claims tests that a claimed tree belongs to the newer lease, with every process in
// it. All other trees must keep their lease.
func claims(t *testing.T, p *place) {
	p.forest()
	first := p.l
	b := p.claim(journal.Lease{}, 1)
	if b.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", b.Epoch, first.Epoch)
	}
	for _, pid := range []abi.Pid{1, 2, 5} {
		p.wantStale(first, Began(pid, 2, 2))
	}
	for _, pid := range []abi.Pid{3, 4, 0} {
		p.wantStale(b, Began(pid, 2, 2))
	}
	// A stale lease on one tree refuses the whole batch. The error names the record.
	err := p.s.Append(first, []abi.Record{Began(3, 2, 2), Began(5, 2, 2)})
	wantBad(t, err, 5, 2)
	p.append(Began(3, 2, 2), Began(0, 2, 2))
	if err := p.s.Append(b, []abi.Record{Began(5, 2, 2), Spawned(6, 5), Began(6, 2, 2)}); err != nil {
		t.Fatal(err)
	}
	// A child belongs to the tree of its parent, a new top process to its lease.
	p.wantStale(first, Began(6, 3, 3))
	p.wantStale(first, Spawned(7, 6))
	p.append(Spawned(8, 0))
	p.wantStale(b, Began(8, 2, 2))
	if err := p.s.Append(b, []abi.Record{Spawned(9, 0), Spawned(10, 9)}); err != nil {
		t.Fatal(err)
	}
	p.wantStale(first, Began(10, 2, 2))
	// The store refuses a claim of a process that is no top process, and changes
	// nothing.
	for _, pid := range []abi.Pid{2, 99} {
		if l, err := p.s.Claim(journal.Lease{}, pid); !errors.Is(err, journal.ErrUnknownTree) {
			t.Errorf("a claim of %d: %v, %v", pid, l, err)
		}
	}
	// A new claim brings the tree back, as often as needed.
	first = p.claim(first, 1)
	p.wantStale(b, Began(5, 3, 3))
	p.wantStale(p.l, Began(3, 3, 3)) // a replaced lease holds nothing
	p.l = first
	p.append(Began(5, 3, 3), Began(3, 3, 3))
	if err := p.s.Append(b, []abi.Record{Began(10, 2, 2)}); err != nil {
		t.Errorf("the tree that was not claimed back: %v", err)
	}
	// The next holder of the whole store holds every tree.
	p.reopen()
	p.wantStale(b, Began(10, 3, 3))
	p.wantStale(first, Began(3, 4, 4))
	p.append(Began(10, 3, 3), Began(3, 4, 4), Began(1, 2, 2), Began(0, 3, 3))
}

// renews tests that a renewed lease holds the trees of the old lease, and that the
// old lease then holds nothing.
func renews(t *testing.T, p *place) {
	p.forest()
	b := p.claim(journal.Lease{}, 3)
	c := p.claim(b)
	p.wantStale(b, Began(3, 2, 2))
	p.wantStale(b, Spawned(6, 0))
	if _, err := p.s.Claim(b, 1); !errors.Is(err, journal.ErrStale) {
		t.Errorf("a claim with a lease that was replaced: %v", err)
	}
	if err := p.s.Append(c, []abi.Record{Began(3, 2, 2), Began(4, 2, 2), Spawned(6, 0)}); err != nil {
		t.Error(err)
	}
	p.append(Began(1, 2, 2))
	p.wantStale(c, Began(1, 3, 3))
	p.l = p.claim(p.l)
	p.append(Began(1, 3, 3), Began(0, 2, 2))
	p.wantStale(p.l, Began(3, 3, 3))
	if _, err := p.s.Claim(journal.Lease{Epoch: p.l.Epoch + 1}, 1); !errors.Is(err, journal.ErrStale) {
		t.Errorf("a claim with a lease that nobody made: %v", err)
	}
}

// holders tests that holders of different trees append at the same time. While a tree
// moves between leases, the store must accept each of its records from one holder
// only.
func holders(t *testing.T, p *place) {
	const last = 60
	p.forest()
	p.append(Spawned(7, 0))
	b := p.claim(journal.Lease{}, 3)
	var group sync.WaitGroup
	appendAll := func(l journal.Lease, pids ...abi.Pid) {
		for n := uint64(2); n <= last; n++ {
			var batch []abi.Record
			for _, pid := range pids {
				batch = append(batch, Began(pid, n, n))
			}
			if err := p.s.Append(l, batch); err != nil {
				t.Errorf("record %d of %v: %v", n, pids, err)
			}
		}
	}
	group.Go(func() { appendAll(p.l, 1, 2, 5) })
	group.Go(func() { appendAll(b, 3, 4) })
	group.Wait()
	if got, want := len(p.scan()), 2+3*(last-1)+2*(last-1)+5; got != want {
		t.Errorf("%d records, want %d", got, want)
	}

	// Two holders claim tree 7 in turn, while both append to it.
	leases, mu := []journal.Lease{p.l, b}, sync.Mutex{}
	next, stale := uint64(2), 0
	for i := range leases {
		group.Go(func() {
			for range last {
				mu.Lock()
				n, l := next, leases[i]
				mu.Unlock()
				var bad *journal.BadRecord
				err := p.s.Append(l, []abi.Record{Began(7, n, n)})
				mu.Lock()
				switch {
				case err == nil:
					next = n + 1
				case errors.Is(err, journal.ErrStale):
					stale++
					l, err := p.s.Claim(l, 7)
					if leases[i] = l; err != nil {
						t.Error(err)
					}
				case !errors.As(err, &bad): // else another holder appended this number first
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if stale == 0 {
		t.Error("no claim took the tree from the other holder")
	}
	if n, err := journal.Verify(p.s, 7); err != nil || uint64(n) != next-1 {
		t.Errorf("process 7 has %d records, %v; %d were accepted", n, err, next-1)
	}
}

// scansTree tests that a scan of trees reads only their records.
func scansTree(t *testing.T, p *place) {
	p.forest()
	p.append(Began(1, 2, 2), Began(3, 2, 2), Began(5, 2, 2))
	for range 2 {
		for _, c := range []struct {
			trees []abi.Pid
			want  []string
		}{
			{[]abi.Pid{1}, []string{"1:1", "1:2", "2:1", "5:1", "5:2"}},
			{[]abi.Pid{3}, []string{"3:1", "3:2", "4:1"}},
			{[]abi.Pid{0}, []string{"0:1"}},
			{[]abi.Pid{3, 0}, []string{"0:1", "3:1", "3:2", "4:1"}},
			{[]abi.Pid{2}, nil},
			{nil, []string{"0:1", "1:1", "1:2", "2:1", "3:1", "3:2", "4:1", "5:1", "5:2"}},
		} {
			var got []string
			err := p.s.Scan(func(r *abi.Record) error { got = append(got, fmt.Sprint(r.Pid, ":", r.N)); return nil }, c.trees...)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("trees %v: %v, %v; want %v", c.trees, got, err, c.want)
			}
		}
		p.reopen()
	}
}

// newPids tests that NewPid never returns a pid twice, nor a stored pid.
func newPids(t *testing.T, p *place) {
	want := func(want abi.Pid) {
		t.Helper()
		if pid, err := p.s.NewPid(); pid != want || err != nil {
			t.Errorf("the new process is %d, %v; want %d", pid, err, want)
		}
	}
	want(1)
	want(2)
	p.append(Spawned(1, 0), Spawned(20, 0))
	want(21)
	p.append(Spawned(22, 0))
	want(23)
	p.reopen()
	want(23) // a reopened store gives out an unused pid again
	p.append(Spawned(1<<31-1, 0))
	if pid, err := p.s.NewPid(); err == nil {
		t.Errorf("a number that cannot be stored: %d", pid)
	}
}
