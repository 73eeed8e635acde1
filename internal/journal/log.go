package journal

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/abi"
)

// fullPause is how long a stalled log waits before it looks for room again.
const fullPause = 250 * time.Millisecond

// maxSpare is the largest slice of records that is kept to be used again.
const maxSpare = 1 << 14

// A Log commits records in groups: whatever came while one group was being
// written is the next group. Records keep the order in which they were put.
//
// One goroutine writes. While the disk is full it keeps its group and tries
// again; after any other failure of the store nothing is written any more. A
// record that the store refuses fails alone, and with it every later record of
// its process, for those were made believing in it.
type Log struct {
	store Store
	lease Lease
	pause time.Duration
	none  bool // the store is Nowhere

	mu      sync.Mutex
	open    *round        // takes records
	latest  *round        // took the last one
	dead    *round        // set when no record is taken any more
	changed chan struct{} // somebody waits for the next commit
	closing bool

	wake    chan struct{} // open has its first record, or the log closes
	stop    chan struct{} // the log closes
	gone    chan struct{} // the committer has ended
	trouble atomic.Pointer[abi.Error]

	refused map[abi.Pid]error // of the committer
}

// A round is a group of records on its way to the disk.
type round struct {
	records []abi.Record
	done    chan struct{} // closed when err and refused are final
	err     error         // of every record
	refused map[int]error // of single records
}

// A Ticket is the promise of one record. The zero Ticket is kept.
type Ticket struct {
	r *round
	i int32
}

// NewLog starts a log in front of a store, which stays the caller's.
func NewLog(s Store, l Lease) *Log {
	log := &Log{store: s, lease: l, pause: fullPause, open: newRound(nil), wake: make(chan struct{}, 1),
		stop: make(chan struct{}), gone: make(chan struct{}), refused: map[abi.Pid]error{}}
	_, log.none = s.(nowhere)
	go log.run()
	return log
}

func newRound(records []abi.Record) *round {
	return &round{records: records, done: make(chan struct{})}
}

// Put queues a record, which nobody may change any more. It does not wait.
func (l *Log) Put(r *abi.Record) Ticket {
	if l.none {
		return Ticket{}
	}
	l.mu.Lock()
	if l.dead != nil {
		t := Ticket{r: l.dead}
		l.mu.Unlock()
		return t
	}
	t := Ticket{l.open, int32(len(l.open.records))}
	l.open.records = append(l.open.records, *r)
	l.latest = l.open
	l.mu.Unlock()
	if t.i == 0 {
		l.signal()
	}
	return t
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Wait returns nil when the record is durable, and an error when it will never
// be or when ctx ends first.
func (t Ticket) Wait(ctx context.Context) error {
	if t.r == nil {
		return nil
	}
	select {
	case <-t.r.done:
		return t.result()
	default:
	}
	select {
	case <-t.r.done:
		return t.result()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t Ticket) result() error {
	if t.r.err != nil {
		return t.r.err
	}
	return t.r.refused[int(t.i)]
}

// Err is nil while records can be written: STORAGE_FULL while the log waits for
// room, STORAGE_BROKEN for ever after another failure.
func (l *Log) Err() *abi.Error { return l.trouble.Load() }

// Changed returns a channel that is closed by the next commit.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// Flush waits until everything that was put before is on disk. A refused
// record is its own ticket's matter.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	r := l.latest
	l.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close commits what is queued, and takes no more. An error means that some of
// it could not be written; its tickets say so too.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closing {
		l.closing = true
		close(l.stop)
	}
	l.mu.Unlock()
	<-l.gone
	if e := l.Err(); e != nil {
		return e
	}
	return nil
}

// run is the committer.
func (l *Log) run() {
	defer close(l.gone)
	var spare []abi.Record
	for {
		select {
		case <-l.wake:
		case <-l.stop:
		}
		for r := l.take(spare); r != nil; r = l.take(spare) {
			spare = l.commit(r)
		}
		if l.ended() {
			return
		}
	}
}

// take returns the round that was being filled, and opens another. When the
// log closes, the one that would stay empty takes no records.
func (l *Log) take(spare []abi.Record) *round {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.open
	switch {
	case l.dead != nil:
		return nil
	case len(r.records) > 0:
		l.open = newRound(spare)
		return r
	case l.closing:
		l.die(ErrClosed)
	}
	return nil
}

// die ends the open round with err, and with it everything that is put later.
// The caller holds the lock.
func (l *Log) die(err error) {
	l.dead, l.open = l.open, nil
	l.dead.records, l.dead.err = nil, err
	close(l.dead.done)
}

func (l *Log) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead != nil
}

// commit brings a round to its end, and returns its slice to be used again.
func (l *Log) commit(r *round) []abi.Record {
	batch := r.records
	r.records = nil
	stored, err := l.append(r, batch)
	if err != nil {
		r.err = err
	}
	l.mu.Lock()
	if err != nil {
		l.die(err)
	}
	if stored && l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	l.mu.Unlock()
	close(r.done)
	if cap(batch) > maxSpare {
		return nil
	}
	clear(batch)
	return batch[:0]
}

// append stores what can be stored of a batch, and reports whether that is
// anything. An error means that nothing more can be written. A batch in which
// the store refuses a record is stored one by one, so that the record takes no
// other down but those of its process that come after it.
func (l *Log) append(r *round, batch []abi.Record) (stored bool, err error) {
	at := l.sift(r, batch)
	if at != nil {
		batch = pick(batch, at)
	}
	if len(batch) == 0 {
		return false, nil
	}
	if err := l.try(batch); !isBad(err) {
		return err == nil, err
	}
	for i := range batch {
		rec := &batch[i]
		if l.refused[rec.Pid] == nil {
			switch err := l.try(batch[i : i+1]); {
			case isBad(err):
				l.refused[rec.Pid] = err
			case err != nil:
				return stored, err
			default:
				stored = true
				continue
			}
		}
		n := i
		if at != nil {
			n = at[i]
		}
		r.refuse(n, l.refused[rec.Pid])
	}
	return stored, nil
}

// sift refuses the records of processes that had one refused before, and
// returns where the others are, or nil when that is everywhere.
func (l *Log) sift(r *round, batch []abi.Record) []int {
	if len(l.refused) == 0 {
		return nil
	}
	at := make([]int, 0, len(batch))
	for i := range batch {
		if err := l.refused[batch[i].Pid]; err != nil {
			r.refuse(i, err)
		} else {
			at = append(at, i)
		}
	}
	return at
}

func pick(batch []abi.Record, at []int) []abi.Record {
	out := make([]abi.Record, len(at))
	for i, n := range at {
		out[i] = batch[n]
	}
	return out
}

func (r *round) refuse(i int, err error) {
	if r.refused == nil {
		r.refused = map[int]error{}
	}
	r.refused[i] = err
}

func isBad(err error) bool {
	var bad *BadRecord
	return errors.As(err, &bad)
}

// try appends a batch, waiting for room as long as it takes or until the log
// closes. A *[BadRecord] leaves the log as it is; any other error ends it.
func (l *Log) try(batch []abi.Record) error {
	for last := false; ; {
		err := l.store.Append(l.lease, batch)
		switch {
		case err == nil || isBad(err):
			l.trouble.Store(nil)
			return err
		case !errors.Is(err, ErrFull):
			e := &abi.Error{Code: abi.StorageBroken, Message: "the journal cannot be written: " + err.Error(),
				Hint: "Start the daemon again. What was acknowledged is safe."}
			l.trouble.Store(e)
			return e
		}
		full := &abi.Error{Code: abi.StorageFull, Message: "the journal cannot be written: " + err.Error(),
			Hint: "Make room on the disk of the data directory. Work goes on by itself then."}
		l.trouble.Store(full)
		if last {
			return full
		}
		last = !l.rest()
	}
}

// rest pauses, and reports whether the log is still open.
func (l *Log) rest() bool {
	t := time.NewTimer(l.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.stop:
		return false
	}
}
