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
// One goroutine writes at a time: whoever waits for a record and finds nobody at
// it, so that a lone caller is not woken twice for each of its records; else the
// committer. While the disk is full it keeps its group and tries again; after any
// other failure of the store nothing is written any more. A record that the
// store refuses fails alone, and with it every later record of its process, for
// those were made believing in it.
type Log struct {
	store Store

	leaseMu sync.RWMutex // held for writing while the lease is replaced
	lease   Lease
	pause   time.Duration
	none    bool // the store is Nowhere

	mu      sync.Mutex
	open    *round        // takes records
	latest  *round        // took the last one
	dead    *round        // set when no record is taken any more
	changed chan struct{} // somebody waits for the next commit
	closing bool
	busy    bool         // a round is being committed
	stuck   *round       // it is this one, and the committer is to go on with it
	spare   []abi.Record // to be used again

	wake    chan struct{} // open has its first record, or the log closes
	stop    chan struct{} // the log closes
	gone    chan struct{} // the committer has ended
	trouble atomic.Pointer[abi.Error]

	refused map[abi.Pid]error // of whoever commits
}

// A round is a group of records on its way to the disk.
type round struct {
	log     *Log
	called  bool // the committer will see to it
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
	log := &Log{store: s, lease: l, pause: fullPause, wake: make(chan struct{}, 1),
		stop: make(chan struct{}), gone: make(chan struct{}), refused: map[abi.Pid]error{}}
	_, log.none = s.(nowhere)
	log.open = log.newRound()
	go log.run()
	return log
}

// newRound is an empty one. The caller holds the lock.
func (l *Log) newRound() *round {
	r := &round{log: l, records: l.spare, done: make(chan struct{})}
	l.spare = nil
	return r
}

// Put queues a record, which nobody may change any more. It does not wait.
func (l *Log) Put(r *abi.Record) Ticket { return l.queue(r, true) }

// Hand is Put for a caller who waits for the ticket at once, without the locks
// that others need: it is then that the record is written, and by the caller
// itself when nobody else is writing.
func (l *Log) Hand(r *abi.Record) Ticket { return l.queue(r, false) }

func (l *Log) queue(r *abi.Record, call bool) Ticket {
	if l.none {
		return Ticket{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return Ticket{r: l.dead}
	}
	t := Ticket{l.open, int32(len(l.open.records))}
	l.open.records = append(l.open.records, *r)
	l.latest = l.open
	if call {
		l.call()
	}
	return t
}

// call has the committer write the open round. The caller holds the lock.
func (l *Log) call() {
	if !l.open.called {
		l.open.called = true
		l.signal()
	}
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Wait returns nil when the record is durable, and an error when it will never
// be or when ctx ends first. Who writes does not look at ctx before that is done.
func (t Ticket) Wait(ctx context.Context) error {
	if t.r == nil {
		return nil
	}
	if t.Ended() {
		return t.result()
	}
	t.r.log.lead(t.r, ctx.Err() == nil)
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

// Keep waits for a record like its ticket, but not for room: while nothing can
// be written it says so at once.
func (l *Log) Keep(ctx context.Context, t Ticket) error {
	for {
		changed := l.Changed()
		e := l.Err()
		switch {
		case t.r == nil || t.Ended():
			return t.Wait(ctx)
		case e != nil:
			return e
		}
		select {
		case <-t.r.done:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Ended reports whether it is decided that the record is durable, or that it will
// never be: then Wait does not wait. Of what is stored nowhere it is never decided.
func (t Ticket) Ended() bool {
	if t.r == nil {
		return false
	}
	select {
	case <-t.r.done:
		return true
	default:
		return false
	}
}

// Changed returns a channel that is closed by the next commit, and when nothing
// can be written any more or for a time.
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
	l.lead(r, false)
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
	for stop := l.stop; ; {
		select {
		case <-l.wake:
		case <-stop:
			stop = nil
		}
		for r := l.take(); r != nil; r = l.take() {
			l.commit(r)
		}
		if l.ended() {
			return
		}
	}
}

// take returns the round that was being filled, and opens another. When the
// log closes, the one that would stay empty takes no records.
func (l *Log) take() (r *round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stuck != nil:
		r, l.stuck = l.stuck, nil
	case l.dead != nil || l.busy:
	case len(l.open.records) > 0:
		r = l.shut()
	case l.closing:
		l.die(ErrClosed)
	}
	return r
}

// shut returns the open round, to be committed, and opens another. The caller
// holds the lock.
func (l *Log) shut() *round {
	r := l.open
	l.busy, l.open = true, l.newRound()
	return r
}

// lead sees to it that r is committed: here and now where that is wanted and
// nobody else does it, else by the committer. What does not go well at once is
// the committer's.
func (l *Log) lead(r *round, here bool) {
	l.mu.Lock()
	if l.open != r || l.busy || r.called || !here || len(l.refused) > 0 {
		if l.open == r {
			l.call()
		}
		l.mu.Unlock()
		return
	}
	l.shut()
	l.mu.Unlock()
	err := l.appendToStore(r.records)
	if isBad(err) || errors.Is(err, ErrFull) {
		l.mu.Lock()
		l.stuck = r
		l.mu.Unlock()
		l.signal()
		return
	}
	if err != nil { // else there is no trouble to end: in trouble nobody leads
		e := broken(err)
		l.stall(e)
		err = e
	}
	batch := r.records
	r.records = nil
	if l.finish(r, batch, err == nil, err) {
		l.signal()
	}
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

// commit brings a round to its end.
func (l *Log) commit(r *round) {
	batch := r.records
	r.records = nil
	stored, err := l.append(r, batch)
	l.finish(r, batch, stored, err)
}

// finish tells those who wait how a round ended, and says whether there is
// more for the committer to do.
func (l *Log) finish(r *round, batch []abi.Record, stored bool, err error) (more bool) {
	r.err = err
	if cap(batch) <= maxSpare {
		clear(batch)
	} else {
		batch = nil
	}
	l.mu.Lock()
	l.busy, l.spare = false, batch[:0]
	more = l.closing || err != nil || len(l.open.records) > 0
	if err != nil {
		l.die(err)
	}
	if stored {
		l.stir()
	}
	l.mu.Unlock()
	close(r.done)
	return more
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
		err := l.appendToStore(batch)
		switch {
		case err == nil || isBad(err):
			l.trouble.Store(nil)
			return err
		case !errors.Is(err, ErrFull):
			e := broken(err)
			l.stall(e)
			return e
		}
		full := &abi.Error{Code: abi.StorageFull, Message: "the journal cannot be written: " + err.Error(),
			Hint: "Make room on the disk of the data directory. Work goes on by itself then."}
		l.stall(full)
		if last {
			return full
		}
		last = !l.rest()
	}
}

// appendToStore appends a batch under the current lease.
func (l *Log) appendToStore(batch []abi.Record) error {
	l.leaseMu.RLock()
	defer l.leaseMu.RUnlock()
	return l.store.Append(l.lease, batch)
}

// Claim makes the log the holder of more trees, see [Store.Claim]. Commits wait for
// it.
func (l *Log) Claim(trees ...abi.Pid) error {
	l.leaseMu.Lock()
	defer l.leaseMu.Unlock()
	lease, err := l.store.Claim(l.lease, trees...)
	if err == nil {
		l.lease = lease
	}
	return err
}

// broken says that nothing can be written any more.
func broken(err error) *abi.Error {
	return &abi.Error{Code: abi.StorageBroken, Message: "the journal cannot be written: " + err.Error(),
		Hint: "Start the daemon again. What was acknowledged is safe."}
}

// stall remembers that nothing can be written, and tells those who watch the log.
func (l *Log) stall(e *abi.Error) {
	if l.trouble.Swap(e) == nil {
		l.mu.Lock()
		l.stir()
		l.mu.Unlock()
	}
}

// stir ends the waiting for a change. The caller holds the lock.
func (l *Log) stir() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
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
