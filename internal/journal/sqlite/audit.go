package sqlite

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
)

// An audit compares the records of a journal that was just opened with its mark.
type audit struct {
	m       *mark
	w       *writer
	readers *readers
	tail    *tail
	last    map[abi.Pid]run // of the processes in the tail
	unswept *pending        // a removal that a crash interrupted, or nil
	settled uint64          // position of the last record before the tail
	end     uint64          // position of the last record
}

// run returns the total of the records, and the damage if it is not that of the mark.
func (a *audit) run() (total, error) {
	all, ends, err := a.totals()
	if err != nil {
		return all, err
	}
	if a.m.exists {
		err = a.compare(all, ends)
	}
	return all, err
}

func (a *audit) compare(all total, ends map[abi.Pid]format.Sum) error {
	m := a.m
	if a.end < m.end {
		return a.lost(fmt.Sprintf("it has %d records, and %d were acknowledged", a.end, m.end))
	}
	// A kill may come between a commit and its mark. The records behind the mark are
	// taken out of the total then.
	ahead, err := a.ahead(m.end)
	if err != nil {
		return err
	}
	if a.unswept != nil && a.unswept.at > m.end {
		for i, carry := len(all)-1, uint64(0); i >= 0; i-- { // the mark counts what was removed
			all[i], carry = bits.Add64(all[i], a.unswept.gone[i], carry)
		}
	}
	for pid, n := range ahead {
		all.remove(ends[pid])
		sum, err := a.sumAt(pid, n-1)
		if err != nil {
			return err
		}
		all.add(sum)
	}
	if all != m.total {
		return a.lost(fmt.Sprintf("its %d records are not those that were acknowledged", m.end))
	}
	return nil
}

// lost is the damage of a journal that is not what the mark says.
func (a *audit) lost(why string) error {
	if a.m.noLog {
		why += fmt.Sprintf("; %s-wal, which may have the others, is missing or empty", file)
	}
	return &journal.Damage{Why: "in " + file + ": " + why}
}

// totals returns the last sum of each process and the total of them. Records in the
// tail count.
func (a *audit) totals() (all total, ends map[abi.Pid]format.Sum, err error) {
	ends = map[abi.Pid]format.Sum{}
	err = a.w.runs(func(pid abi.Pid, r run) error {
		ends[pid] = r.sum // the rows of a process come in order
		return nil
	})
	if err != nil {
		return all, nil, err
	}
	for pid := range a.tail.waiting {
		ends[pid] = a.last[pid].sum
	}
	for _, sum := range ends {
		all.add(sum)
	}
	return all, ends, nil
}

// ahead returns the processes that have records behind a position, with the number of
// the first of them.
func (a *audit) ahead(end uint64) (first map[abi.Pid]uint64, err error) {
	first = map[abi.Pid]uint64{}
	note := func(pid abi.Pid, n uint64) {
		if _, ok := first[pid]; !ok && n > 0 { // 0: it was removed
			first[pid] = n
		}
	}
	if end < a.settled {
		err = a.readers.with(func(r *reader) error {
			spans, _, err := r.order(end+1, a.settled)
			for _, sp := range spans {
				note(sp.pid, sp.n)
			}
			return err
		})
	}
	at := a.settled
	for _, batch := range a.tail.batches {
		for i := range batch {
			if at++; at > end {
				note(batch[i].Pid, batch[i].N)
			}
		}
	}
	return first, err
}

// sumAt computes the sum of a record from the records of its run.
func (a *audit) sumAt(pid abi.Pid, n uint64) (format.Sum, error) {
	if n == 0 {
		return format.Sum{}, nil
	}
	c := &check{pid: pid, run: run{n: (n - 1) / runLen * runLen}}
	err := a.readers.with(func(r *reader) error {
		if c.run.n > 0 {
			if ok, err := r.resume(c); !ok {
				return errors.Join(err, c.damage(c.run.n, "the run that ends with it is missing"))
			}
		}
		rows, err := r.records.query(rowID(pid, c.run.n+1), rowID(pid, n))
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			var v rawRow
			if more, err = next(rows, v[:]); more {
				_, err = c.next(&v)
			}
		}
		return errors.Join(err, rows.Close())
	})
	for _, e := range a.tail.waiting[pid] {
		if e.N == c.run.n+1 && e.N <= n {
			e.Body = e.Body[:len(e.Body)-checkLen]
			c.run.extend(&e)
		}
	}
	if err == nil && c.run.n != n {
		err = c.damage(c.run.n+1, "it is missing; %d was written", n)
	}
	return c.run.sum, err
}
