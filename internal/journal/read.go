package journal

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/kern-run/kern/abi"
)

// columns is what an Entry is read from, in the order of a [rawRow].
const columns = "SELECT id, time, kind, call, row, tool, body FROM records "

// chunk is how many records are read at once. No connection is held while
// their reader thinks about them, so a slow reader holds up nobody.
const chunk = 256

// readers are the connections that read; there are as many as there were
// readers at one time.
type readers struct {
	path string

	mu     sync.Mutex
	idle   []*reader
	busy   sync.WaitGroup
	closed bool
}

// maxIdle connections are kept.
const maxIdle = 4

type reader struct {
	*conn
	begin, end, getHead, heads, all, some, calls, named *stmt
}

func (p *readers) get() (*reader, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	p.busy.Add(1)
	if n := len(p.idle); n > 0 {
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return r, nil
	}
	r, err := openReader(p.path)
	if err != nil {
		p.busy.Done()
	}
	return r, err
}

func (p *readers) put(r *reader) error {
	defer p.busy.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) < maxIdle {
		p.idle = append(p.idle, r)
		return nil
	}
	return r.close()
}

func (p *readers) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.busy.Wait()
	var err error
	for _, r := range p.idle {
		err = errors.Join(err, r.close())
	}
	p.idle = nil
	return err
}

func openReader(path string) (*reader, error) {
	c, err := dial(path, readerPragmas)
	if err != nil {
		return nil, err
	}
	r := &reader{conn: c}
	err = c.prepareAll(map[**stmt]string{
		&r.begin:   "BEGIN",
		&r.end:     "COMMIT",
		&r.getHead: "SELECT n, sum FROM heads WHERE pid = ?",
		&r.heads:   "SELECT pid, n, sum FROM heads ORDER BY pid",
		&r.all:     columns + "ORDER BY id",
		&r.some:    columns + "WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
		&r.calls: columns + "INDEXED BY answers WHERE call = ? AND kind IN (3, 4) AND id BETWEEN ? AND ? " +
			"ORDER BY id DESC",
		&r.named: "SELECT body FROM names JOIN blobs ON blobs.id = names.blob WHERE key = ?",
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return r, nil
}

// with lends a connection to fn.
func (s *sqliteStore) with(fn func(*reader) error) error {
	r, err := s.readers.get()
	if err != nil {
		return err
	}
	err = fn(r)
	return errors.Join(err, s.readers.put(r))
}

// A rawRow is a row of the table records.
type rawRow [7]driver.Value

// entry reads a row, and the sum that stands behind its body.
func (v *rawRow) entry() (Entry, Sum, error) {
	id, ok := v[0].(int64)
	e := Entry{Pid: abi.Pid(id >> 32), N: uint64(uint32(id))}
	var kind, call int64
	for i, p := range []*int64{1: &e.Time, 2: &kind, 3: &call} {
		if p != nil && ok {
			*p, ok = v[i].(int64)
		}
	}
	for i, p := range []*string{4: &e.Row, 5: &e.Tool} {
		if p != nil && ok && v[i] != nil {
			*p, ok = v[i].(string)
		}
	}
	body, isBlob := v[6].([]byte)
	split := len(body) - len(Sum{})
	if !ok || !isBlob || split < 0 || kind < 0 || kind > 255 {
		return e, Sum{}, &Damage{Pid: e.Pid, N: e.N, Why: "its columns are not of their types"}
	}
	e.Kind, e.Call = abi.Kind(kind), uint64(call)
	e.Body = body[:split:split]
	return e, Sum(body[split:]), nil
}

// A check follows the chain of one process after the other.
type check struct {
	pid  abi.Pid
	last head
}

// next checks a row against the record before it.
func (c *check) next(v *rawRow) (*abi.Record, error) {
	e, sum, err := v.entry()
	if err != nil {
		return nil, err
	}
	damage := func(n uint64, why string) error { return &Damage{Pid: c.pid, N: n, Why: why} }
	switch {
	case e.Pid != c.pid:
		return nil, damage(c.last.n+1, "another process's record is in its place")
	case e.N != c.last.n+1:
		return nil, damage(c.last.n+1, fmt.Sprintf("it is missing; the next one is %d", e.N))
	case e.Sum(c.last.sum) != sum:
		return nil, damage(e.N, "it is not what was written, or not after the record before it")
	}
	r, err := e.Record()
	if err != nil {
		return nil, damage(e.N, err.Error())
	}
	c.last = head{e.N, sum}
	return r, nil
}

// end checks that the last record was the last that was written.
func (c *check) end(h head) error {
	switch {
	case h.n > c.last.n:
		return &Damage{Pid: c.pid, N: c.last.n + 1, Why: fmt.Sprintf("it is missing; the last one was %d", h.n)}
	case h != c.last:
		return &Damage{Pid: c.pid, N: c.last.n, Why: fmt.Sprintf("the table heads says that the last one was %d", h.n)}
	}
	return nil
}

// Scan implements [Reader].
func (s *sqliteStore) Scan(fn func(*abi.Record) error) error {
	return s.with(func(r *reader) error {
		if err := r.begin.exec(); err != nil {
			return err
		}
		return errors.Join(r.scan(fn), r.end.exec())
	})
}

// scan walks the records and the heads side by side: both are in order of pid.
func (r *reader) scan(fn func(*abi.Record) error) error {
	heads, err := r.heads.query()
	if err != nil {
		return err
	}
	defer heads.Close()
	rows, err := r.all.query()
	if err != nil {
		return err
	}
	defer rows.Close()
	var c check
	var h head
	more, err := c.process(heads, &h)
	if err != nil {
		return err
	}
	var v rawRow
	for {
		err := rows.Next(v[:])
		if err == io.EOF {
			break
		}
		if err != nil {
			return &Damage{Pid: c.pid, N: c.last.n + 1, Why: err.Error()}
		}
		id, _ := v[0].(int64)
		for more && abi.Pid(id>>32) > c.pid {
			if err := c.end(h); err != nil {
				return err
			}
			if more, err = c.process(heads, &h); err != nil {
				return err
			}
		}
		if !more || abi.Pid(id>>32) < c.pid {
			return &Damage{Pid: abi.Pid(id >> 32), N: uint64(uint32(id)), Why: "its process is not in the table heads"}
		}
		rec, err := c.next(&v)
		if err != nil {
			return err
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
	for more {
		if err := c.end(h); err != nil {
			return err
		}
		if more, err = c.process(heads, &h); err != nil {
			return err
		}
	}
	return nil
}

// process begins the next process, with its head.
func (c *check) process(heads driver.Rows, h *head) (bool, error) {
	var v [3]driver.Value
	err := heads.Next(v[:])
	if err == io.EOF {
		return false, nil
	}
	if err != nil {
		return false, &Damage{Pid: c.pid, N: c.last.n, Why: "the process after it: " + err.Error()}
	}
	pid, ok := v[0].(int64)
	if !ok {
		return false, &Damage{Pid: c.pid, N: c.last.n, Why: "the process after it has no pid"}
	}
	*c = check{pid: abi.Pid(pid)}
	*h, err = asHead(c.pid, v[1], v[2])
	return err == nil, err
}

// Records implements [Reader].
func (s *sqliteStore) Records(pid abi.Pid, after uint64) iter.Seq2[*abi.Record, error] {
	return func(yield func(*abi.Record, error) bool) {
		c := check{pid: pid}
		var last head
		var list []*abi.Record
		for first := true; first || c.last.n < last.n; first = false {
			list = list[:0]
			err := s.with(func(r *reader) (err error) {
				if first {
					if last, err = r.start(&c, after); err != nil || last.n <= after {
						return err
					}
				}
				return r.chunk(&c, last, func(r *abi.Record) { list = append(list, r) })
			})
			for _, r := range list {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if last.n <= after {
				return
			}
		}
	}
}

// start finds the end of a process and, where reading begins behind its first
// record, the sum to go on from.
func (r *reader) start(c *check, after uint64) (head, error) {
	last, err := readHead(r.getHead, c.pid)
	if err != nil || after == 0 || last.n <= after {
		return last, err
	}
	var v rawRow
	id := rowID(c.pid, after)
	ok, err := r.some.row(v[:], id, id, int64(1))
	if err != nil {
		return last, err
	}
	if !ok {
		return last, &Damage{Pid: c.pid, N: after, Why: "it is missing"}
	}
	_, sum, err := v.entry()
	c.last = head{after, sum}
	return last, err
}

// chunk reads the next records, and at the last one looks whether it is.
func (r *reader) chunk(c *check, last head, fn func(*abi.Record)) error {
	rows, err := r.some.query(rowID(c.pid, c.last.n+1), rowID(c.pid, last.n), int64(chunk))
	if err != nil {
		return err
	}
	defer rows.Close()
	var v rawRow
	n := 0
	for ; ; n++ {
		err := rows.Next(v[:])
		if err == io.EOF {
			break
		}
		if err != nil {
			return &Damage{Pid: c.pid, N: c.last.n + 1, Why: err.Error()}
		}
		rec, err := c.next(&v)
		if err != nil {
			return err
		}
		fn(rec)
	}
	if c.last.n == last.n || n < chunk {
		return c.end(last)
	}
	return nil
}

// Answer implements [Reader].
func (s *sqliteStore) Answer(pid abi.Pid, call uint64) (rec *abi.Record, err error) {
	err = s.with(func(r *reader) (err error) {
		rec, err = r.answer(pid, call)
		return err
	})
	return rec, err
}

func (r *reader) answer(pid abi.Pid, call uint64) (*abi.Record, error) {
	rows, err := r.calls.query(int64(call), rowID(pid, 0), rowID(pid+1, 0)-1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for {
		var v rawRow
		err := rows.Next(v[:])
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		rec, err := r.single(pid, &v)
		if err != nil {
			return nil, err
		}
		if rec.Answer != nil && !rec.Answer.Again {
			return rec, nil
		}
	}
}

// single checks a record by the sum of the one before it.
func (r *reader) single(pid abi.Pid, v *rawRow) (*abi.Record, error) {
	c := check{pid: pid}
	id, _ := v[0].(int64)
	if n := uint64(uint32(id)); n > 1 {
		if _, err := r.start(&c, n-1); err != nil {
			return nil, err
		}
	}
	return c.next(v)
}

// Blob implements [Reader].
func (s *sqliteStore) Blob(h abi.Hash) (b []byte, err error) {
	err = s.with(func(r *reader) (err error) {
		b, err = findBlob(r.named, h)
		return err
	})
	if err == nil && b == nil {
		err = fmt.Errorf("%w: %s: there is none", ErrBlob, h)
	}
	return b, err
}
