package sqlite

import (
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
)

// maxTail is the number of records in the tail at which the store settles it.
const maxTail = 2048

// A tail holds batches that touched many processes, each as one row of the table
// tail. To settle it is to move its records to the table records. The rows are in
// memory too, so the store reads the table only when it opens after a crash.
type tail struct {
	seq   int64      // number of the last row
	sum   format.Sum // of the last row, and so of all rows before it
	count int        // records in the tail
	full  []fullRun  // runs that these records completed

	mu      sync.Mutex                 // guards the fields below, because readers use them too
	waiting map[abi.Pid][]format.Entry // the records in the tail, by process
	batches [][]format.Entry           // the same, in commit order
	after   uint64                     // position of the last record before them
}

// A frame is a row of the table tail.
type frame struct {
	seq  int64
	sum  format.Sum
	body []byte
}

// frame returns the row of a batch: its entries one after the other, each with its
// check.
func (t *tail) frame(entries []format.Entry) frame {
	var b []byte
	for i := range entries {
		b = entries[i].Append(b)
	}
	return frame{t.seq + 1, frameSum(t.sum, t.seq+1, b), b}
}

func frameSum(prev format.Sum, seq int64, body []byte) format.Sum {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(seq)))
	h.Write(body)
	return format.Sum(h.Sum(nil))
}

// add adds a batch that is stored in the table tail. The position end is the last
// record in the table feed.
func (t *tail) add(ld *load, end uint64) {
	t.seq, t.sum = ld.frame.seq, ld.frame.sum
	t.count += len(ld.entries)
	t.full = append(t.full, ld.full...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting, t.after = map[abi.Pid][]format.Entry{}, end
	}
	t.batches = append(t.batches, ld.entries)
	for _, e := range ld.entries {
		t.waiting[e.Pid] = append(t.waiting[e.Pid], e)
	}
}

// of returns the records of a process that are in the tail. The entries never change.
func (t *tail) of(pid abi.Pid) []format.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[pid]
}

// unchecked reads the record of an entry from the tail. It skips the check behind the
// body, because the entry never left memory.
func unchecked(e format.Entry) (*abi.Record, error) {
	e.Body = e.Body[: len(e.Body)-checkLen : len(e.Body)-checkLen]
	return e.Record()
}

// clear empties the tail after it was settled.
func (t *tail) clear() {
	t.count, t.full = 0, nil
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting, t.batches = nil, nil
}

// addOrder appends the records of the tail to the commit order.
func (t *tail) addOrder(o *order) {
	for _, batch := range t.batches {
		o.addEntries(batch)
	}
}

// inOrder returns the batches of the tail and the position of the last record before
// them. The batches never change.
func (t *tail) inOrder() (batches [][]format.Entry, after uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.batches, t.after
}

// settle moves the tail to the tables records and runs, in a transaction of the
// caller.
func (t *tail) settle(w *writer, ends map[abi.Pid]run) error {
	if t.count == 0 {
		return nil
	}
	// Records go in process by process, so that each page is written once.
	last := map[abi.Pid]run{}
	for _, pid := range slices.Sorted(maps.Keys(t.waiting)) {
		for i := range t.waiting[pid] {
			if err := w.placeEntry(&t.waiting[pid][i]); err != nil {
				return err
			}
		}
		last[pid] = ends[pid]
	}
	if err := w.place(nil, t.full, last); err != nil {
		return err
	}
	if err := w.setRun.exec(int64(tailRow), t.seq, t.sum[:], nil, nil); err != nil {
		return err
	}
	return w.cut.exec(t.seq)
}

// tailRow is the row of the table runs that holds the last settled row of the tail.
const tailRow = 0

// settle moves the tail to the tables records and runs.
func (s *store) settle() error {
	if s.tail.count == 0 {
		return nil
	}
	next := s.order
	s.tail.addOrder(&next)
	err := s.w.transaction(func(w *writer) error {
		if err := next.write(w); err != nil {
			return err
		}
		return s.tail.settle(w, s.ends)
	})
	if err == nil {
		s.order = next
		s.tail.clear()
		s.mark.write(s.end.Load(), s.total)
	}
	return err
}

// replay reads the rows that a crash left in the table tail, and checks them.
func (s *store) replay() error {
	if err := s.settled(); err != nil {
		return err
	}
	st, err := s.w.prepare("SELECT seq, sum, body FROM tail ORDER BY seq")
	if err != nil {
		return err
	}
	rows, err := st.query()
	if err != nil {
		return errors.Join(err, st.close())
	}
	for err == nil {
		var v [3]driver.Value
		var more bool
		if more, err = next(rows, v[:]); !more {
			break
		}
		err = s.replayRow(v[0], v[1], v[2])
	}
	return errors.Join(err, rows.Close(), st.close())
}

// settled reads the number and the sum of the last settled row of the tail.
func (s *store) settled() error {
	st, err := s.w.prepare("SELECT n, sum FROM runs WHERE id = ?")
	if err != nil {
		return err
	}
	var v [2]driver.Value
	ok, err := st.row(v[:], int64(tailRow))
	if err = errors.Join(err, st.close()); err != nil || !ok {
		return err
	}
	seq, ok1 := v[0].(int64)
	sum, ok2 := v[1].([]byte)
	if !ok1 || !ok2 || len(sum) != len(format.Sum{}) {
		return errors.New("the row of the table runs that speaks of the tail cannot be read")
	}
	s.tail.seq, s.tail.sum = seq, format.Sum(sum)
	return nil
}

func (s *store) replayRow(seq, sum, body driver.Value) error {
	n, _ := seq.(int64)
	stored, _ := sum.([]byte)
	b, _ := body.([]byte)
	entries, err := format.ReadEntries(b)
	ld := &load{entries: entries, ends: map[abi.Pid]run{}}
	if chainErr := s.rechain(ld); chainErr != nil {
		return chainErr
	}
	if want := frameSum(s.tail.sum, n, b); err == nil && (n != s.tail.seq+1 || string(stored) != string(want[:])) {
		err = errors.New("it is not what was written, or not after the row before it")
	}
	if err != nil {
		d := &journal.Damage{Why: fmt.Sprintf("row %d of the table tail: %s", n, err)}
		if len(entries) > 0 {
			d.Pid, d.N = entries[0].Pid, entries[0].N
		}
		return d
	}
	ld.frame = frame{n, format.Sum(stored), b}
	s.tail.add(ld, s.order.end)
	s.end.Add(uint64(len(entries)))
	s.remember(ld)
	return nil
}

// rechain computes the checks of a load again, and compares them with its stored
// checks.
func (s *store) rechain(ld *load) error {
	had := make([]string, len(ld.entries))
	for i := range ld.entries {
		e := &ld.entries[i]
		split := len(e.Body) - checkLen
		if split < 0 {
			return &journal.Damage{Pid: e.Pid, N: e.N, Why: "it has no check"}
		}
		had[i] = string(e.Body[split:])
		e.Body = e.Body[:split:split]
	}
	err := s.chain(ld)
	var bad *journal.BadRecord
	if errors.As(err, &bad) {
		return &journal.Damage{Pid: bad.Pid, N: bad.N, Why: "in the table tail: " + bad.Why}
	}
	if err != nil {
		return err
	}
	for i := range ld.entries {
		e := &ld.entries[i]
		if string(e.Body[len(e.Body)-checkLen:]) != had[i] {
			return &journal.Damage{Pid: e.Pid, N: e.N, Why: "it is not what was written"}
		}
	}
	return nil
}
