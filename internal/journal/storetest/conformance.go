package storetest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// Conformance tests the rules that every store must keep. open makes empty storage
// and returns a function that opens it, each time for a later owner.
func Conformance(t *testing.T, open func(t *testing.T) func() (journal.Store, journal.Lease, error)) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *place)
	}{
		{"everything comes back after reopening", roundTrip},
		{"records are read in order of pid and number", ordered},
		{"a batch is all or nothing", allOrNothing},
		{"the number must be the next", nextNumber},
		{"a stale lease is refused", fenced},
		{"a claimed tree has one holder", claims},
		{"a renewed lease holds the same trees", renews},
		{"holders of different trees", holders},
		{"a tree is read alone", scansTree},
		{"process numbers are given out once", newPids},
		{"the answer of a call", answers},
		{"a blob is what its name says", blobs},
		{"records after a number", after},
		{"reading while writing", concurrent},
		{"batches of many processes", wide},
		{"the feed has the order of commits", feedOrder},
		{"the feed goes on with what is new", feedNew},
		{"the feed while others append", feedConcurrent},
		{"removed processes are gone", removes},
		{"a closed store says so", closed},
		{"an error of the caller ends the scan", scanStops},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &place{t: t, open: open(t)}
			p.reopen()
			c.run(t, p)
			if err := p.s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// place is the storage under test, with its open store and lease.
type place struct {
	t    *testing.T
	open func() (journal.Store, journal.Lease, error)
	s    journal.Store
	l    journal.Lease
}

func (p *place) reopen() {
	p.t.Helper()
	if p.s != nil {
		if err := p.s.Close(); err != nil {
			p.t.Fatal(err)
		}
	}
	var err error
	if p.s, p.l, err = p.open(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) append(batch ...abi.Record) {
	p.t.Helper()
	if err := p.s.Append(p.l, batch); err != nil {
		p.t.Fatal(err)
	}
}

// scan returns all records of the store.
func (p *place) scan() []abi.Record {
	p.t.Helper()
	var all []abi.Record
	err := p.s.Scan(func(r *abi.Record) error {
		all = append(all, *r)
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// want fails unless the store holds exactly these records, without their blobs.
func (p *place) want(list ...abi.Record) {
	p.t.Helper()
	for i := range list {
		list[i].Blobs = nil
	}
	slices.SortStableFunc(list, func(a, b abi.Record) int { return int(a.Pid - b.Pid) })
	got := p.scan()
	if len(got) != len(list) {
		p.t.Fatalf("%d records, want %d", len(got), len(list))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], list[i]) {
			p.t.Fatalf("record %d:\n got %+v\nwant %+v", i, got[i], list[i])
		}
	}
}

// Began returns a small intent of a call, as the kernel writes it.
func Began(pid abi.Pid, n, call uint64) abi.Record {
	args, blob := abi.NewData(fmt.Appendf(nil, `{"text":"record %d of process %d"}`, n, pid))
	r := abi.Record{Pid: pid, N: n, Time: 1_790_000_000_000_000_000 + int64(n), Kind: abi.KindBegan, Call: call,
		Intent: &abi.Intent{Row: "tool", Tool: "echo", Args: args, Key: abi.Key{1, 2, byte(n)}, Effect: abi.Idempotent,
			Attempt: 1, Reserve: abi.Usage{abi.ToolCalls: 1}}}
	if blob != nil {
		r.Blobs = append(r.Blobs, *blob)
	}
	return r
}

// Ended returns the answer of the call of [Began].
func Ended(pid abi.Pid, n, call uint64, value []byte) abi.Record {
	d, blob := abi.NewData(value)
	r := abi.Record{Pid: pid, N: n, Time: 1_790_000_000_000_000_000 + int64(n), Kind: abi.KindEnded, Call: call,
		Answer: &abi.Answer{Outcome: abi.OK, Value: d, Attempt: 1, Usage: abi.Usage{abi.ToolCalls: 1, abi.OutputBytes: d.Size},
			Result: abi.Key{3, byte(n)}, Page: &abi.Page{Role: "tool", Tokens: 7, ID: "call_1"}}}
	if blob != nil {
		r.Blobs = append(r.Blobs, *blob)
	}
	return r
}

func roundTrip(t *testing.T, p *place) {
	var all []abi.Record
	for n := uint64(1); n <= 20; n += 2 {
		batch := []abi.Record{Began(1, n, n), Ended(1, n+1, n, fmt.Appendf(nil, "value %0*d", 20*n, n)),
			Began(2, n, n), Ended(2, n+1, n, []byte{})}
		p.append(batch...)
		all = append(all, batch...)
		p.want(slices.Clone(all)...)
	}
	p.reopen()
	p.want(slices.Clone(all)...)
	for i := range all {
		if d := all[i].Answer; d != nil && !d.Value.Hash.IsZero() {
			if b, err := p.s.Blob(d.Value.Hash); err != nil || abi.HashOf(b) != d.Value.Hash {
				t.Errorf("blob of record %d: %d bytes, %v", i, len(b), err)
			}
		}
	}
	for pid, want := range map[abi.Pid]int{1: 20, 2: 20, 3: 0} {
		if n, err := journal.Verify(p.s, pid); n != want || err != nil {
			t.Errorf("verify %d: %d records, %v; want %d", pid, n, err, want)
		}
	}
	// A reopened store continues after its last record.
	p.append(Began(1, 21, 21))
}

func ordered(t *testing.T, p *place) {
	for _, id := range [][2]uint64{{7, 1}, {0, 1}, {3, 1}, {7, 2}, {1 << 30, 1}, {3, 2}, {0, 2}, {7, 3}} {
		p.append(Began(abi.Pid(id[0]), id[1], 1))
	}
	var got []string
	for _, r := range p.scan() {
		got = append(got, fmt.Sprint(r.Pid, ":", r.N))
	}
	want := []string{"0:1", "0:2", "3:1", "3:2", "7:1", "7:2", "7:3", "1073741824:1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func allOrNothing(t *testing.T, p *place) {
	p.append(Began(1, 1, 1))
	batch := []abi.Record{Ended(1, 2, 1, make([]byte, 500)), Began(2, 1, 1), Began(1, 4, 2)}
	wantBad(t, p.s.Append(p.l, batch), 1, 4)
	p.want(Began(1, 1, 1))
	if _, err := p.s.Blob(batch[0].Answer.Value.Hash); !errors.Is(err, journal.ErrBlob) {
		t.Errorf("a blob of a refused batch: %v", err)
	}
	p.append(Ended(1, 2, 1, make([]byte, 500)))
	if err := p.s.Append(p.l, nil); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
}

func wantBad(t *testing.T, err error, pid abi.Pid, n uint64) {
	t.Helper()
	var bad *journal.BadRecord
	if !errors.As(err, &bad) || bad.Pid != pid || bad.N != n {
		t.Errorf("got %v, want a refusal of record %d of process %d", err, n, pid)
	}
}

func nextNumber(t *testing.T, p *place) {
	p.append(Began(1, 1, 1), Began(1, 2, 2))
	for _, n := range []uint64{0, 1, 2, 4, 1 << 40} {
		wantBad(t, p.s.Append(p.l, []abi.Record{Began(1, n, 3)}), 1, n)
	}
	wantBad(t, p.s.Append(p.l, []abi.Record{Began(2, 2, 1)}), 2, 2)
	wantBad(t, p.s.Append(p.l, []abi.Record{Began(-1, 1, 1)}), -1, 1)
	p.reopen()
	wantBad(t, p.s.Append(p.l, []abi.Record{Began(1, 2, 3)}), 1, 2)
	p.append(Began(1, 3, 3))
}

func fenced(t *testing.T, p *place) {
	p.append(Began(1, 1, 1))
	old := p.l
	p.reopen()
	if p.l.Epoch <= old.Epoch {
		t.Errorf("epoch %d after %d", p.l.Epoch, old.Epoch)
	}
	for _, l := range []journal.Lease{old, {}, {Epoch: p.l.Epoch + 1}} {
		if err := p.s.Append(l, []abi.Record{Began(1, 2, 2)}); !errors.Is(err, journal.ErrStale) {
			t.Errorf("lease %v: %v", l, err)
		}
	}
	p.want(Began(1, 1, 1))
	p.append(Began(1, 2, 2))
}

func answers(t *testing.T, p *place) {
	again := Ended(1, 2, 10, []byte("try"))
	again.Answer.Again = true
	final := Ended(1, 4, 10, []byte("done"))
	refused := Ended(1, 5, 1<<63+7, nil)
	refused.Kind, refused.Answer.Outcome = abi.KindRefused, abi.Refused
	p.append(Began(1, 1, 10), again)
	if r, err := p.s.Answer(1, 10); r != nil || err != nil {
		t.Errorf("before the last attempt: %v, %v", r, err)
	}
	p.append(Began(1, 3, 10), final, refused, Ended(2, 1, 10, []byte("other")), Began(1, 6, 11))
	for _, c := range []struct {
		pid  abi.Pid
		call uint64
		want *abi.Record
	}{{1, 10, &final}, {1, 1<<63 + 7, &refused}, {1, 11, nil}, {1, 0, nil}, {2, 11, nil}, {3, 10, nil}} {
		for range 2 {
			if r, err := p.s.Answer(c.pid, c.call); err != nil || !reflect.DeepEqual(r, c.want) {
				t.Errorf("answer of %d:%d: %+v, %v; want %+v", c.pid, c.call, r, err, c.want)
			}
		}
		p.reopen()
	}
}

func blobs(t *testing.T, p *place) {
	for _, b := range [][]byte{{}, {0}, make([]byte, 161), []byte("a text that is not very long"), noise(5000), make([]byte, 3<<20)} {
		r := Began(1, uint64(len(p.scan()))+1, 1)
		h := abi.HashOf(b)
		r.Blobs = []abi.Blob{{Hash: h, Bytes: b}, {Hash: h, Bytes: b}}
		p.append(r)
		for range 2 {
			if got, err := p.s.Blob(h); err != nil || !slices.Equal(got, b) {
				t.Errorf("blob of %d bytes: %d bytes, %v", len(b), len(got), err)
			}
			p.reopen()
		}
	}
	h := abi.HashOf([]byte("something else"))
	if _, err := p.s.Blob(h); !errors.Is(err, journal.ErrBlob) {
		t.Errorf("a blob that is not there: %v", err)
	}
	r := Began(2, 1, 1)
	r.Blobs = []abi.Blob{{Hash: h, Bytes: []byte("not that")}}
	wantBad(t, p.s.Append(p.l, []abi.Record{r}), 2, 1)
	r.Blobs[0].Bytes = []byte("something else")
	p.append(r)
}

// noise returns n bytes without a pattern, which do not compress.
func noise(n int) []byte {
	var b []byte
	for h := abi.HashOf(nil); len(b) < n; h = abi.HashOf(h[:]) {
		b = append(b, h[:]...)
	}
	return b[:n]
}

func after(t *testing.T, p *place) {
	const last = 700
	var batch []abi.Record
	for n := uint64(1); n <= last; n++ {
		batch = append(batch, Began(4, n, n), Began(5, n, n))
	}
	p.append(batch...)
	for _, from := range []uint64{0, 1, 255, 256, 257, 512, last - 1, last, last + 1, 1 << 40} {
		n := from
		for r, err := range p.s.Records(4, from) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; r.Pid != 4 || r.N != n {
				t.Fatalf("after %d: record %d of process %d, want %d of 4", from, r.N, r.Pid, n)
			}
		}
		if want := max(from, last); n != want {
			t.Errorf("after %d: ended at %d, want %d", from, n, want)
		}
	}
	for r := range p.s.Records(4, 0) {
		if r.N == 300 {
			break
		}
	}
}

func concurrent(t *testing.T, p *place) {
	const last = 300
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for n := uint64(0); n < last; {
				for r, err := range p.s.Records(1, n) {
					if err != nil || r.N != n+1 {
						t.Errorf("after %d: %v, %v", n, r, err)
						return
					}
					n = r.N
				}
				if _, err := p.s.Answer(1, n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := uint64(1); n <= last; n++ {
		p.append(Ended(1, n, n, noise(int(n))))
	}
	wg.Wait()
}

// wide appends batches of many processes between batches of few, and reads the store
// after each batch.
func wide(t *testing.T, p *place) {
	const procs = 20
	last := map[abi.Pid]uint64{}
	ended := func(pid abi.Pid) abi.Record {
		last[pid]++
		return Ended(pid, last[pid], 100+last[pid], fmt.Appendf(nil, "%0*d", 30*pid, last[pid]))
	}
	for round := range 170 {
		var batch []abi.Record
		for pid := abi.Pid(1); pid <= procs; pid++ {
			if round%5 != 0 || pid == 3 {
				batch = append(batch, ended(pid))
			}
			if pid == 5 {
				batch = append(batch, ended(5))
			}
		}
		p.append(batch...)
		pid := abi.Pid(round%procs + 1)
		from := last[pid] / 2
		n := from
		for r, err := range p.s.Records(pid, from) {
			if n++; err != nil || r.N != n {
				t.Fatalf("round %d, after %d: %v, %v", round, from, r, err)
			}
		}
		if n != last[pid] {
			t.Fatalf("round %d: process %d ends at %d, want %d", round, pid, n, last[pid])
		}
		if call := 100 + last[pid]; last[pid] > 0 {
			if r, err := p.s.Answer(pid, call); err != nil || r == nil || r.N != last[pid] {
				t.Fatalf("round %d: answer of %d:%d: %v, %v", round, pid, call, r, err)
			}
		}
		if round == 80 {
			p.reopen()
		}
	}
	for pid, want := range last {
		if n, err := journal.Verify(p.s, pid); uint64(n) != want || err != nil {
			t.Errorf("verify %d: %d, %v; want %d", pid, n, err, want)
		}
	}
	got := map[abi.Pid]uint64{}
	for _, r := range p.scan() {
		if got[r.Pid]++; got[r.Pid] != r.N {
			t.Fatalf("process %d: record %d is number %d", r.Pid, got[r.Pid], r.N)
		}
	}
	if !maps.Equal(got, last) {
		t.Errorf("got %v, want %v", got, last)
	}
}

func closed(t *testing.T, p *place) {
	p.append(Began(1, 1, 1))
	if err := p.s.Close(); err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error) {
		if !errors.Is(err, journal.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("append", p.s.Append(p.l, []abi.Record{Began(1, 2, 2)}))
	check("scan", p.s.Scan(func(*abi.Record) error { return nil }))
	for _, err := range p.s.Records(1, 0) {
		check("records", err)
	}
	_, err := p.s.Answer(1, 1)
	check("answer", err)
	_, err = p.s.Blob(abi.Hash{})
	check("blob", err)
}

func scanStops(t *testing.T, p *place) {
	p.append(Began(1, 1, 1), Began(1, 2, 2), Began(2, 1, 1))
	stop := errors.New("enough")
	n := 0
	err := p.s.Scan(func(*abi.Record) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 2 {
		t.Errorf("%d records, %v", n, err)
	}
	p.append(Began(1, 3, 3))
	if got := len(p.scan()); got != 4 {
		t.Errorf("%d records, want 4", got)
	}
}
