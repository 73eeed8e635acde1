package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
)

// Bounds of one step of a feed.
const (
	maxStep   = 256  // records that one step reads
	maxChains = 4096 // chains that a reader keeps
)

// A feed is the position of one reader in the commit order. Between two steps it
// holds no connection and no lock, so a slow reader delays nobody.
type feed struct {
	s      *store
	at     uint64             // position of the last record read
	chains map[abi.Pid]*check // saves reading a run again to check its next record
}

// Feed implements [journal.Reader].
func (s *store) Feed(after journal.Cursor) journal.FeedReader {
	f := &feed{s: s, at: uint64(after), chains: map[abi.Pid]*check{}}
	if after == journal.Newest {
		f.at = s.end.Load()
	}
	return f
}

// Cursor implements [journal.FeedReader].
func (f *feed) Cursor() journal.Cursor { return journal.Cursor(f.at) }

// Next implements [journal.FeedReader].
func (f *feed) Next(wants func(abi.Pid) bool) ([]journal.Entry, error) {
	for {
		before := f.at
		list, err := f.step(wants)
		if len(list) > 0 || err != nil || f.at == before {
			return list, err
		}
	}
}

// step reads the next records, and skips the processes that wants refuses. At the end
// of the feed it changes nothing.
func (f *feed) step(wants func(abi.Pid) bool) ([]journal.Entry, error) {
	// The tail comes before the file: a batch that is settled in between is found in
	// the file then, and not missed.
	end := f.s.end.Load()
	batches, settled := f.s.tail.inOrder()
	if len(batches) == 0 {
		settled = end
	}
	switch {
	case f.at >= end:
		if f.s.readers.isClosed() {
			return nil, journal.ErrClosed
		}
		return nil, nil
	case f.at >= settled:
		return f.fromTail(batches, settled, wants)
	}
	return f.fromFile(settled, wants)
}

// fromTail reads records of the tail from memory. The position at is the last record
// before the batches.
func (f *feed) fromTail(batches [][]format.Entry, at uint64, wants func(abi.Pid) bool) (list []journal.Entry, err error) {
	for _, batch := range batches {
		if at+uint64(len(batch)) <= f.at {
			at += uint64(len(batch))
			continue
		}
		for i := range batch {
			e := &batch[i]
			if at++; at <= f.at {
				continue
			}
			f.at = at
			if c := f.chains[e.Pid]; c != nil {
				c.follow(e, f.chains)
			}
			if wants != nil && !wants(e.Pid) {
				continue
			}
			r, err := unchecked(*e)
			if err != nil {
				return list, err
			}
			list = append(list, journal.Entry{Cursor: journal.Cursor(at), Record: r})
		}
		if len(list) >= maxStep {
			break
		}
	}
	return list, nil
}

// follow extends a chain by an entry from memory.
func (c *check) follow(e *format.Entry, chains map[abi.Pid]*check) {
	if e.N != c.run.n+1 {
		delete(chains, e.Pid)
		return
	}
	plain := *e
	plain.Body = e.Body[:len(e.Body)-checkLen]
	c.run.extend(&plain)
}

// fromFile reads records up to position to from the table records. All of them are
// settled.
func (f *feed) fromFile(to uint64, wants func(abi.Pid) bool) (list []journal.Entry, err error) {
	err = f.s.readers.with(func(r *reader) error {
		if err := r.begin.exec(); err != nil {
			return err
		}
		list, err = f.read(r, to, wants)
		return errors.Join(err, r.end.exec())
	})
	return list, err
}

func (f *feed) read(r *reader, to uint64, wants func(abi.Pid) bool) ([]journal.Entry, error) {
	spans, end, err := r.order(f.at+1, min(to, f.at+maxStep))
	if err != nil {
		return nil, err
	}
	// The records of a process are adjacent in the file, so one query reads all of
	// them.
	wanted := map[abi.Pid]*span{}
	for _, sp := range spans {
		if sp.n == 0 || wants != nil && !wants(sp.pid) { // 0: it was removed
			continue
		}
		if w := wanted[sp.pid]; w != nil {
			w.count = sp.n + sp.count - w.n
		} else {
			wanted[sp.pid] = &sp
		}
	}
	records := make(map[abi.Pid][]*abi.Record, len(wanted))
	for pid, sp := range wanted {
		if records[pid], err = f.process(r, sp); err != nil {
			return nil, err
		}
	}
	// The spans bring the records back into commit order.
	var list []journal.Entry
	for _, sp := range spans {
		if sp.n == 0 || wanted[sp.pid] == nil {
			f.at += sp.count
			continue
		}
		for n := sp.n; n < sp.n+sp.count; n++ {
			f.at++
			rest := records[sp.pid]
			if rest[0].N != n {
				return list, damagedOrder(f.at, fmt.Sprintf("record %d of process %d is not next", n, sp.pid))
			}
			list = append(list, journal.Entry{Cursor: journal.Cursor(f.at), Record: rest[0]})
			records[sp.pid] = rest[1:]
		}
	}
	f.at = end
	return list, nil
}

// process reads consecutive records of a process, and checks each against the
// one before it.
func (f *feed) process(r *reader, sp *span) (list []*abi.Record, err error) {
	c := f.chains[sp.pid]
	if c == nil || c.run.n+1 != sp.n {
		// Only the sum before a run is stored, so the check begins with the run.
		c = &check{pid: sp.pid, run: run{n: (sp.n - 1) / runLen * runLen}}
		if c.run.n > 0 {
			if ok, err := r.resume(c); !ok {
				return nil, errors.Join(err, c.damage(c.run.n, "the run that ends with it is missing"))
			}
		}
	}
	last := sp.n + sp.count - 1
	rows, err := r.records.query(rowID(sp.pid, c.run.n+1), rowID(sp.pid, last))
	if err != nil {
		return nil, err
	}
	for err == nil {
		var v rawRow
		var more bool
		if more, err = next(rows, v[:]); !more {
			break
		}
		var rec *abi.Record
		if rec, err = c.next(&v); err == nil && rec.N >= sp.n {
			list = append(list, rec)
		}
	}
	if err = errors.Join(err, rows.Close()); err == nil && c.run.n != last {
		err = c.damage(c.run.n+1, "it is missing; %d was written", last)
	}
	if err != nil {
		delete(f.chains, sp.pid)
		return nil, err
	}
	if len(f.chains) >= maxChains {
		clear(f.chains)
	}
	f.chains[sp.pid] = c
	return list, nil
}

// order reads the spans of the commit order between two positions. It returns the
// position of the last record that they cover.
func (r *reader) order(from, to uint64) (spans []span, end uint64, err error) {
	rows, err := r.blocks.query(int64(from))
	if err != nil {
		return nil, 0, err
	}
	end = from - 1
	var v [2]driver.Value
	for first := true; end < to && err == nil; first = false {
		var more bool
		if more, err = next(rows, v[:]); err != nil || !more {
			break
		}
		var b block
		if b, err = readBlock(v[:]); err != nil {
			break
		}
		if b.first != end+1 && !(first && b.first <= from) {
			err = damagedOrder(b.first, fmt.Sprintf("expected position %d", end+1))
			break
		}
		err = b.spans(func(at uint64, sp span) {
			skip := min(sp.count, max(end+1, at)-at)
			if sp.count -= skip; sp.n > 0 {
				sp.n += skip
			}
			if sp.count = min(sp.count, to-end); sp.count > 0 {
				spans = append(spans, sp)
				end += sp.count
			}
		})
	}
	if err = errors.Join(err, rows.Close()); err == nil && end < to {
		err = damagedOrder(end+1, "it is missing")
	}
	return spans, end, err
}
