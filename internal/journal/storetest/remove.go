package storetest

import (
	"errors"
	"reflect"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// Removal returns the record that removes processes; n is its number in process 0.
func Removal(n uint64, pids ...abi.Pid) abi.Record {
	return abi.Record{N: n, Time: int64(n), Kind: abi.KindRemoved, Removed: &abi.Removed{Pids: pids, By: "ann",
		Sums: []abi.Sum{{Account: "team", Used: abi.Usage{abi.Money: 7}}}}}
}

// removes: what was removed is gone, what others share stays, and a feed that stands
// anywhere goes on.
func removes(t *testing.T, p *place) {
	own, shared := []byte("only process 2 says this, at some length"), []byte("processes 2 and 3 say this, at some length")
	ended := func(pid abi.Pid, n uint64, b []byte) abi.Record {
		h := abi.HashOf(b)
		return abi.Record{Pid: pid, N: n, Time: 1, Kind: abi.KindEnded, Call: n, Blobs: []abi.Blob{{Hash: h, Bytes: b}},
			Answer: &abi.Answer{Attempt: 1, Outcome: abi.OK, Value: abi.Data{Hash: h, Size: int64(len(b))}}}
	}
	p.append(Began(1, 1, 1), Began(2, 1, 1))
	p.append(ended(2, 2, own), ended(2, 3, shared), Began(3, 1, 1), ended(3, 2, shared))
	p.append(Began(2, 4, 4), Began(4, 1, 1))
	half := p.s.Feed(0)
	if list, err := half.Next(func(pid abi.Pid) bool { return pid == 1 }); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p.append(Removal(1, 2, 4))
	p.append(Began(1, 2, 2))
	if err := p.s.(journal.Sweeper).Sweep(); err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		var got []recordID
		if err := p.s.Scan(func(r *abi.Record) error { got = append(got, recordID{r.Pid, r.N}); return nil }); err != nil {
			t.Fatal(err)
		}
		if want := []recordID{{0, 1}, {1, 1}, {1, 2}, {3, 1}, {3, 2}}; !reflect.DeepEqual(got, want) {
			t.Errorf("scan: %v, want %v", got, want)
		}
		var at []journal.Cursor
		got = nil
		f := p.s.Feed(0)
		for {
			list, err := f.Next(nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				break
			}
			for _, e := range list {
				at, got = append(at, e.Cursor), append(got, recordID{e.Pid, e.N})
			}
		}
		if want := []recordID{{1, 1}, {3, 1}, {3, 2}, {0, 1}, {1, 2}}; !reflect.DeepEqual(got, want) {
			t.Errorf("feed: %v, want %v", got, want)
		}
		if want := []journal.Cursor{1, 5, 6, 9, 10}; !reflect.DeepEqual(at, want) {
			t.Errorf("the feed's positions are %v, want %v", at, want)
		}
		if n, err := journal.Verify(p.s, 2); n != 0 || err != nil {
			t.Errorf("process 2 has %d records, %v", n, err)
		}
		if r, err := p.s.Answer(2, 2); r != nil || err != nil {
			t.Errorf("an answer of process 2: %v, %v", r, err)
		}
		if n, err := journal.Verify(p.s, 3); n != 2 || err != nil {
			t.Errorf("process 3 has %d records, %v", n, err)
		}
		if _, err := p.s.Blob(abi.HashOf(own)); !errors.Is(err, journal.ErrBlob) {
			t.Errorf("the blob of process 2: %v", err)
		}
	}
	look()
	if list, err := half.Next(nil); err != nil || len(list) != 2 {
		t.Errorf("a feed in the middle goes on with %d records, %v", len(list), err)
	}
	p.reopen()
	look()
	if pid, err := p.s.NewPid(); pid != 5 || err != nil {
		t.Errorf("the next process is %d, %v; want 5", pid, err)
	}
	p.append(ended(5, 1, own), Removal(2, 1, 3))
	if err := p.s.(journal.Sweeper).Sweep(); err != nil {
		t.Fatal(err)
	}
	p.reopen()
	if b, err := p.s.Blob(abi.HashOf(own)); err != nil || string(b) != string(own) {
		t.Errorf("what was said again: %q, %v", b, err)
	}
}
