package sqlite

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
)

// The queries of records and runs, with the columns of a [rawRow] and of a [rawRun].
const (
	columns    = "SELECT id, time, kind, call, row, tool, body FROM records "
	runColumns = "SELECT id, n, sum, low, high FROM runs "
	lastRun    = runColumns + "WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1"
)

// chunk is the number of runs that Records reads at once. It holds no connection
// while its caller uses them, so a slow caller delays nobody.
const chunk = 4

// readers is a pool of connections that read. It opens a connection if none is idle.
type readers struct {
	path string

	mu     sync.Mutex
	idle   []*reader
	busy   sync.WaitGroup
	closed bool
}

// maxIdle is the number of idle connections that the pool keeps.
const maxIdle = 4

type reader struct {
	*conn
	begin, end, lastRun, run, runs, records, answers, named, blocks *stmt
}

func (p *readers) get() (*reader, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, journal.ErrClosed
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

func (p *readers) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
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
		&r.lastRun: lastRun,
		&r.run:     runColumns + "WHERE id = ?",
		&r.runs:    runColumns + "WHERE id BETWEEN ? AND ? ORDER BY id",
		&r.records: columns + "WHERE id BETWEEN ? AND ? ORDER BY id",
		&r.answers: runColumns + "WHERE id BETWEEN ? AND ? AND ? BETWEEN low AND high ORDER BY id DESC",
		&r.blocks:  "SELECT id, body FROM feed WHERE id >= (SELECT max(id) FROM feed WHERE id <= ?) AND id > 0 ORDER BY id",
		&r.named:   "SELECT body FROM names JOIN blobs ON blobs.id = names.blob WHERE key = ?",
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return r, nil
}

// with runs fn with a connection of the pool.
func (p *readers) with(fn func(*reader) error) error {
	r, err := p.get()
	if err != nil {
		return err
	}
	err = fn(r)
	return orDamage(errors.Join(err, p.put(r)))
}

// A rawRow is a row of the table records.
type rawRow [7]driver.Value

func (v *rawRow) id() (abi.Pid, uint64) {
	id, _ := v[0].(int64)
	return abi.Pid(id >> 32), uint64(uint32(id))
}

// entry reads a row, and the check behind its body. It reports false if a column has
// another type than expected.
func (v *rawRow) entry() (e format.Entry, check []byte, ok bool) {
	e.Pid, e.N = v.id()
	var kind, call int64
	_, ok = v[0].(int64)
	for i, p := range [...]*int64{1: &e.Time, 2: &kind, 3: &call} {
		if p != nil && ok {
			*p, ok = v[i].(int64)
		}
	}
	for i, p := range [...]*string{4: &e.Row, 5: &e.Tool} {
		if p != nil && ok && v[i] != nil {
			*p, ok = v[i].(string)
		}
	}
	body, isBlob := v[6].([]byte)
	split := len(body) - checkLen
	if !ok || !isBlob || split < 0 || kind < 0 || kind > 255 {
		return e, nil, false
	}
	e.Kind, e.Call = abi.Kind(kind), uint64(call)
	e.Body = body[:split:split]
	return e, body[split:], true
}

// A rawRun is a row of the table runs.
type rawRun [5]driver.Value

func (v *rawRun) run() (pid abi.Pid, r run, err error) {
	id, ok := v[0].(int64)
	n, ok1 := v[1].(int64)
	sum, ok2 := v[2].([]byte)
	pid, r.first, r.n = abi.Pid(id>>32), uint64(uint32(id)), uint64(n)
	r.low, r.answered = v[3].(int64)
	r.high, _ = v[4].(int64)
	if !ok || !ok1 || !ok2 || r.first%runLen != 1 || r.n < r.first || r.n >= r.first+runLen || len(sum) != len(r.sum) {
		return pid, r, &journal.Damage{Pid: pid, N: r.first, Why: "the row of the table runs that begins with it cannot be read"}
	}
	r.sum = format.Sum(sum)
	return pid, r, nil
}

func readEnd(last *stmt, pid abi.Pid) (run, error) {
	var v rawRun
	ok, err := last.row(v[:], rowID(pid, 0), rowID(pid+1, 0)-1)
	if !ok || err != nil {
		return run{}, err
	}
	_, r, err := v.run()
	return r, err
}

// A segment is a run in the file with the records up to its last one.
type segment struct {
	pid  abi.Pid
	run  run // zero for records after the last run, which are damage
	rows []rawRow
}

// segments calls emit with the runs in a range of rows, and their records. One
// transaction reads all of them, so they are of one moment.
func (r *reader) segments(from, to int64, emit func(segment) error) error {
	if err := r.begin.exec(); err != nil {
		return err
	}
	return errors.Join(r.walk(from, to, emit), r.end.exec())
}

// walk reads the runs and the records of a range side by side, and calls emit with
// each run.
func (r *reader) walk(from, to int64, emit func(segment) error) (err error) {
	runs, err := r.runs.query(from, to)
	if err != nil {
		return err
	}
	defer runs.Close()
	rows, err := r.records.query(from, to)
	if err != nil {
		return err
	}
	defer rows.Close()
	seg := segment{pid: abi.Pid(from >> 32)}
	var ahead rawRow
	more, err := next(rows, ahead[:])
	if err != nil {
		return seg.unreadable(err)
	}
	for {
		var v rawRun
		ok, err := next(runs, v[:])
		if err != nil {
			return seg.unreadable(err)
		}
		seg = segment{pid: seg.pid}
		if ok {
			if seg.pid, seg.run, err = v.run(); err != nil {
				return err
			}
		}
		// The run takes every record up to its end. Without a run, one record is enough
		// to show the damage.
		for more && (!ok || ahead[0].(int64) <= rowID(seg.pid, seg.run.n)) {
			seg.rows = append(seg.rows, ahead)
			if more, err = next(rows, ahead[:]); err != nil {
				return seg.unreadable(err)
			}
			if !ok {
				break
			}
		}
		if ok || len(seg.rows) > 0 {
			if err := emit(seg); err != nil {
				return err
			}
		}
		if !ok {
			return nil
		}
	}
}

// unreadable returns the damage for an error of SQLite. It names the record after the
// last readable one.
func (s *segment) unreadable(err error) error {
	n := s.run.first
	if len(s.rows) > 0 {
		s.pid, n = s.rows[len(s.rows)-1].id()
		n++
	}
	return &journal.Damage{Pid: s.pid, N: n, Why: "it, or what is near it, cannot be read: " + err.Error()}
}

func next(rows driver.Rows, dest []driver.Value) (bool, error) {
	err := rows.Next(dest)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

// A check computes the chain of sums of a process again, to find damage.
type check struct {
	pid abi.Pid
	run run
}

func (c *check) damage(n uint64, why string, args ...any) error {
	return &journal.Damage{Pid: c.pid, N: n, Why: fmt.Sprintf(why, args...)}
}

// segment checks a run and its records, and calls fn with each record.
func (c *check) segment(s *segment, fn func(*abi.Record) error) error {
	if s.run.n == 0 {
		pid, n := s.rows[0].id()
		return &journal.Damage{Pid: pid, N: n, Why: "it stands where nothing was written"}
	}
	if s.pid != c.pid {
		*c = check{pid: s.pid}
	}
	if s.run.first != c.run.n+1 {
		return c.damage(c.run.n+1, "it is missing; the next run begins with %d", s.run.first)
	}
	for i := range s.rows {
		r, err := c.next(&s.rows[i])
		if err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	// The computed run must equal the stored one, its sum included.
	switch {
	case c.run.n < s.run.n:
		return c.damage(c.run.n+1, "it is missing; %d was written", s.run.n)
	case c.run != s.run:
		return c.damage(s.run.n, "it, one of the %d before it or the row of their run is not what was written", s.run.n-s.run.first)
	}
	return nil
}

// next checks a row against the record before it.
func (c *check) next(v *rawRow) (*abi.Record, error) {
	e, stored, ok := v.entry()
	switch {
	case e.Pid != c.pid:
		return nil, &journal.Damage{Pid: e.Pid, N: e.N, Why: "it stands where nothing was written"}
	case e.N != c.run.n+1:
		return nil, c.damage(c.run.n+1, "it is missing; the next one is %d", e.N)
	case !ok:
		return nil, c.damage(e.N, "its columns are not of their types")
	}
	c.run.extend(&e)
	if !bytes.Equal(c.run.sum[:checkLen], stored) {
		return nil, c.damage(e.N, "it is not what was written")
	}
	r, err := e.Record()
	if err != nil {
		return nil, c.damage(e.N, "%s", err)
	}
	return r, nil
}

// errStop ends the reading goroutine of a scan.
var errStop = errors.New("stop")

// scanAll calls fn with every settled record. One goroutine reads while another
// checks.
func (p *readers) scanAll(fn func(*abi.Record) error) error {
	return p.with(func(r *reader) error {
		segs := make(chan segment, 16)
		stop := make(chan struct{})
		var readErr error
		go func() {
			defer close(segs)
			readErr = r.segments(tailRow+1, math.MaxInt64, func(s segment) error {
				select {
				case segs <- s:
					return nil
				case <-stop:
					return errStop
				}
			})
		}()
		c := check{pid: -1}
		for seg := range segs {
			if err := c.segment(&seg, fn); err != nil {
				close(stop)
				for range segs { // waits for the reading goroutine
				}
				return err
			}
		}
		return readErr
	})
}

// Records implements [journal.Reader]. It takes entries of the tail from memory. It
// takes them before it reads the file, because a batch that is settled in between is
// found in the file then.
func (s *store) Records(pid abi.Pid, after uint64) iter.Seq2[*abi.Record, error] {
	return func(yield func(*abi.Record, error) bool) {
		waiting := s.tail.of(pid)
		end := uint64(math.MaxUint64)
		if len(waiting) > 0 {
			end = waiting[0].N
		}
		// The check begins with a whole run, so it may read records before after.
		c := check{pid: pid, run: run{n: after / runLen * runLen}}
		for more := true; more && max(after, c.run.n)+1 < end; {
			list, err := s.chunk(&c)
			for _, r := range list {
				if r.N > after && r.N < end && !yield(r, nil) {
					return
				}
			}
			// A short chunk is the end of the file. It must reach the first waiting entry.
			if err == nil && len(list) < chunk*runLen {
				more = false
				if len(waiting) > 0 && c.run.n+1 < end {
					err = c.damage(c.run.n+1, "it is missing; %d was written", end)
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
		for i := range waiting {
			if waiting[i].N <= after {
				continue
			}
			r, err := unchecked(waiting[i])
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// chunk reads the next runs of a process after c, and checks them.
func (s *store) chunk(c *check) (list []*abi.Record, err error) {
	if c.run.n >= math.MaxUint32-chunk*runLen {
		return nil, nil
	}
	var segs []segment
	err = s.readers.with(func(r *reader) error {
		if c.run.first == 0 && c.run.n > 0 {
			if ok, err := r.resume(c); !ok {
				return err
			}
		}
		return r.segments(rowID(c.pid, c.run.n+1), rowID(c.pid, c.run.n+chunk*runLen), func(s segment) error {
			segs = append(segs, s)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range segs {
		if err := c.segment(&segs[i], func(r *abi.Record) error { list = append(list, r); return nil }); err != nil {
			return list, err
		}
	}
	return list, nil
}

// resume sets c to the run that ends with record c.run.n, so that c can check the
// next one. It reports false if that run does not exist.
func (r *reader) resume(c *check) (bool, error) {
	n := c.run.n
	var v rawRun
	ok, err := r.run.row(v[:], rowID(c.pid, n-runLen+1))
	if err != nil {
		return false, err
	}
	if ok {
		_, c.run, err = v.run()
	}
	if err == nil && c.run.n == n && ok {
		return true, nil
	}
	end, endErr := readEnd(r.lastRun, c.pid)
	if err == nil && endErr == nil && end.n > n {
		err = c.damage(n, "it is missing; %d was written", end.n)
	}
	c.run = run{n: n}
	return false, errors.Join(err, endErr)
}

// Answer implements [journal.Reader]. It reads the runs whose range of answered calls
// has the call, the last run first, and checks each run whole.
func (s *store) Answer(pid abi.Pid, call uint64) (found *abi.Record, err error) {
	for _, e := range slices.Backward(s.tail.of(pid)) {
		if e.Call != call {
			continue
		}
		r, err := unchecked(e)
		if err != nil || answers(r, call) {
			return r, err
		}
	}
	err = s.readers.with(func(r *reader) error {
		runs, err := r.answers.query(rowID(pid, 0), rowID(pid+1, 0)-1, int64(call))
		if err != nil {
			return err
		}
		defer runs.Close()
		for found == nil {
			var v rawRun
			if ok, err := next(runs, v[:]); !ok || err != nil {
				return err
			}
			if found, err = r.answer(&v, call); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// answer looks for the answer of a call in a run. It returns nil if the run has none.
func (r *reader) answer(raw *rawRun, call uint64) (found *abi.Record, err error) {
	pid, v, err := raw.run()
	if err != nil {
		return nil, err
	}
	c := check{pid: pid}
	if c.run.n = v.first - 1; c.run.n > 0 {
		if ok, err := r.resume(&c); !ok {
			return nil, errors.Join(err, c.damage(v.first, "the run before it is missing"))
		}
	}
	err = r.walk(rowID(pid, v.first), rowID(pid, v.first+runLen-1), func(s segment) error {
		return c.segment(&s, func(r *abi.Record) error {
			if answers(r, call) {
				found = r
			}
			return nil
		})
	})
	return found, err
}

func answers(r *abi.Record, call uint64) bool {
	return r.Call == call && (r.Kind == abi.KindEnded || r.Kind == abi.KindRefused) && r.Answer != nil && !r.Answer.Again
}

// Blob implements [journal.Reader].
func (s *store) Blob(h abi.Hash) (b []byte, err error) {
	err = s.readers.with(func(r *reader) (err error) {
		b, err = findBlob(r.named, h)
		return err
	})
	if err == nil && b == nil {
		err = fmt.Errorf("%w: %s: there is none", journal.ErrBlob, h)
	}
	if errors.Is(err, journal.ErrBlob) {
		err = &journal.Damage{Why: err.Error(), Err: journal.ErrBlob}
	}
	return b, err
}
