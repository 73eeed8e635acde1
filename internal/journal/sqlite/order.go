package sqlite

import (
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
)

// A span is a range of consecutive records of one process that are adjacent in the
// commit order.
type span struct {
	pid      abi.Pid
	n, count uint64
}

func (sp *span) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(sp.pid))
	b = binary.AppendUvarint(b, sp.n)
	return binary.AppendUvarint(b, sp.count)
}

// maxBlock bounds the body of a row of the table feed. The last row is written
// again with every batch, so it must be much smaller than a page.
const maxBlock = 1 << 10

// An order is the end of the commit order: the last row of the table feed and the
// rows before it that are not written yet. The store extends a copy, and drops the
// copy if the transaction fails.
type order struct {
	first uint64 // position of the first record of the last block
	end   uint64 // position of the last record
	body  []byte // the spans of the last block, without last
	last  span
	full  []block // complete blocks that are not written yet
}

// A block is a row of the table feed: the position of its first record and its
// spans.
type block struct {
	first uint64
	body  []byte
}

// add appends count records of a process, from number n on.
func (o *order) add(pid abi.Pid, n, count uint64) {
	if o.last.count > 0 && o.last.pid == pid && o.last.n+o.last.count == n {
		o.last.count += count
		o.end += count
		return
	}
	if o.last.count > 0 {
		o.body = o.last.append(o.body)
	}
	if len(o.body) >= maxBlock || o.first == 0 {
		if o.first != 0 {
			o.full = append(o.full, block{o.first, o.body})
		}
		o.first, o.body = o.end+1, nil
	}
	o.last = span{pid, n, count}
	o.end += count
}

func (o *order) addEntries(entries []format.Entry) {
	for i := range entries {
		o.add(entries[i].Pid, entries[i].N, 1)
	}
}

// write stores the new blocks in the table feed, in a transaction of the caller.
func (o *order) write(w *writer) error {
	for _, b := range o.full {
		if err := w.setBlock.exec(int64(b.first), b.body); err != nil {
			return err
		}
	}
	o.full = nil
	// Appending to the body is safe, because no other slice uses the room behind it.
	return w.setBlock.exec(int64(o.first), o.last.append(o.body))
}

// spans calls fn with each span of the block and the position of its first record.
func (b *block) spans(fn func(at uint64, sp span)) error {
	at, body := b.first, b.body
	for len(body) > 0 {
		var v [3]uint64
		for i := range v {
			n, size := binary.Uvarint(body)
			if size <= 0 {
				return damagedOrder(b.first, "it cannot be read")
			}
			v[i], body = n, body[size:]
		}
		if v[0] > math.MaxInt32 || v[2] == 0 || v[2] > math.MaxUint32 {
			return damagedOrder(b.first, "it cannot be read")
		}
		fn(at, span{abi.Pid(v[0]), v[1], v[2]})
		at += v[2]
	}
	return nil
}

func damagedOrder(first uint64, why string) error {
	return &journal.Damage{Why: fmt.Sprintf("row %d of the table feed: %s", first, why)}
}

// readBlock reads a row of the table feed.
func readBlock(v []driver.Value) (block, error) {
	first, ok1 := v[0].(int64)
	body, ok2 := v[1].([]byte)
	if !ok1 || !ok2 {
		return block{}, damagedOrder(uint64(first), "it cannot be read")
	}
	return block{uint64(first), body}, nil
}

// setBlock writes a row of the table feed.
const setBlock = "INSERT OR REPLACE INTO feed(id, body) VALUES(?, ?)"

// keepOrder makes the table feed complete for the new owner. Older versions of Kern
// can open the journal too, and do not know the table. They raise the epoch and
// leave row 0 as it is, so a difference shows that records may be missing.
func (w *writer) keepOrder(epoch int64) error {
	if err := w.run("CREATE TABLE IF NOT EXISTS feed(id INTEGER PRIMARY KEY, body BLOB NOT NULL)"); err != nil {
		return err
	}
	kept, err := w.number("SELECT coalesce((SELECT body FROM feed WHERE id = 0), -1)")
	if err == nil && kept != epoch {
		err = w.completeOrder()
	}
	return err
}

// epochBlock is the row of the table feed that holds an epoch: the epoch of the last
// owner that added its records to the table.
const epochBlock = 0

// completeOrder adds the records that are missing from the table feed, because a
// version of Kern that does not know the table wrote them. They are added process by
// process, because their commit order is lost.
func (w *writer) completeOrder() error {
	var o order
	ends := map[abi.Pid]uint64{}
	err := w.each("SELECT id, body FROM feed WHERE id > 0 ORDER BY id", func(v []driver.Value) error {
		b, err := readBlock(v)
		if err == nil && b.first != o.end+1 {
			err = damagedOrder(b.first, fmt.Sprintf("expected position %d", o.end+1))
		}
		if err != nil {
			return err
		}
		return b.spans(func(_ uint64, sp span) {
			o.add(sp.pid, sp.n, sp.count)
			ends[sp.pid] = sp.n + sp.count - 1
		})
	})
	if err != nil {
		return err
	}
	// The last run of each process says how many records it has.
	known := o.end
	missing := func(pid abi.Pid, end uint64) {
		if n := ends[pid]; end > n {
			o.add(pid, n+1, end-n)
		}
	}
	var at span
	err = w.each("SELECT id, n FROM runs WHERE id > 0 ORDER BY id", func(v []driver.Value) error {
		id, ok1 := v[0].(int64)
		n, ok2 := v[1].(int64)
		if !ok1 || !ok2 || n < 0 || n > math.MaxUint32 {
			return nil // the reader of this run reports the damage
		}
		if pid := abi.Pid(id >> 32); pid != at.pid {
			missing(at.pid, at.n)
			at.pid = pid
		}
		at.n = uint64(n)
		return nil
	})
	if missing(at.pid, at.n); err != nil || o.end == known {
		return err
	}
	// Adding spans may have joined rows of the feed, so all rows are written again.
	if err := w.run("DELETE FROM feed WHERE id > 0"); err != nil {
		return err
	}
	set, err := w.prepare(setBlock)
	if err != nil {
		return err
	}
	w.setBlock = set
	err = o.write(w)
	w.setBlock = nil
	return errors.Join(err, set.close())
}

// runs calls fn with every run, in the order of processes.
func (w *writer) runs(fn func(abi.Pid, run) error) error {
	return w.rows(runColumns+"WHERE id > 0 ORDER BY id", 5, func(v []driver.Value) error {
		pid, r, err := (*rawRun)(v).run()
		if err != nil {
			return err
		}
		return fn(pid, r)
	})
}

// each calls fn with every row of a query of two columns.
func (w *writer) each(sql string, fn func([]driver.Value) error) error { return w.rows(sql, 2, fn) }

// rows calls fn with every row of a query.
func (w *writer) rows(sql string, columns int, fn func([]driver.Value) error) error {
	st, err := w.prepare(sql)
	if err != nil {
		return err
	}
	rows, err := st.query()
	if err != nil {
		return errors.Join(err, st.close())
	}
	v := make([]driver.Value, columns)
	for err == nil {
		var more bool
		if more, err = next(rows, v); !more {
			break
		}
		err = fn(v)
	}
	return errors.Join(err, rows.Close(), st.close())
}

// readOrder reads the last block of the commit order.
func (w *writer) readOrder() (o order, err error) {
	err = w.each("SELECT id, body FROM feed WHERE id > 0 ORDER BY id DESC LIMIT 1", func(v []driver.Value) error {
		b, err := readBlock(v)
		if err != nil {
			return err
		}
		o.end = b.first - 1
		return b.spans(func(_ uint64, sp span) { o.add(sp.pid, sp.n, sp.count) })
	})
	return o, err
}
