package journal

import (
	"context"
	"errors"
	"sync"

	"github.com/kern-run/kern/abi"
)

// A Log commits records in groups: the records that come while one group is being
// written are the next group. Records keep the order in which they were put.
//
// One goroutine writes at a time. A caller that waits for a record writes its group
// itself if nobody else writes: to wake the committer for each record would be slow. While the disk is full the committer keeps its
// group and tries again. After any other failure of the store nothing is written any
// more. A record that the store refuses fails alone, and with it every later record
// of its process, because those assume that it was stored.
type Log struct {
	store    Store
	queue    queue
	appender appender
	keepsNot bool          // the store is Nowhere
	gone     chan struct{} // closed when the committer has ended
}

// Pending is a record on its way to the disk. The zero Pending is durable.
type Pending struct {
	log   *Log
	group *group
	i     int32
}

// NewLog starts a log in front of a store. The caller closes the store.
func NewLog(s Store, l Lease) *Log {
	log := &Log{store: s, gone: make(chan struct{})}
	log.appender = appender{store: s, lease: l, pause: fullPause, stop: make(chan struct{}), refused: map[abi.Pid]error{}}
	_, log.keepsNot = s.(nowhere)
	log.queue.wake = make(chan struct{}, 1)
	log.queue.open = log.queue.newGroup()
	go log.run()
	return log
}

// Put queues a record, which must not change any more. It does not wait.
func (l *Log) Put(r *abi.Record) Pending { return l.put(r, true) }

// PutDeferred is Put for a caller that calls [Pending.Wait] as soon as it has
// released its locks. Wait then writes the record itself if nobody else is writing.
func (l *Log) PutDeferred(r *abi.Record) Pending { return l.put(r, false) }

func (l *Log) put(r *abi.Record, wakeCommitter bool) Pending {
	if l.keepsNot {
		return Pending{}
	}
	g, i := l.queue.add(r, wakeCommitter)
	return Pending{l, g, i}
}

// Wait returns nil when the record is durable, and an error when it will never be
// or when ctx ends first. A caller that writes the record itself does not look at
// ctx until the write is done.
func (p Pending) Wait(ctx context.Context) error {
	if p.group == nil {
		return nil
	}
	if p.Done() {
		return p.result()
	}
	p.log.writeGroup(p.group, ctx.Err() == nil)
	select {
	case <-p.group.done:
		return p.result()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitUnlessFull is [Pending.Wait], but returns the error of [Log.Err] at once when nothing
// can be written.
func (l *Log) WaitUnlessFull(ctx context.Context, p Pending) error {
	for {
		changed := l.Changed()
		e := l.Err()
		switch {
		case p.group == nil || p.Done():
			return p.Wait(ctx)
		case e != nil:
			return e
		}
		select {
		case <-p.group.done:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Done reports whether the record is durable or will never be. It is false for a
// record that no store keeps.
func (p Pending) Done() bool {
	if p.group == nil {
		return false
	}
	select {
	case <-p.group.done:
		return true
	default:
		return false
	}
}

func (p Pending) result() error {
	if p.group.err != nil {
		return p.group.err
	}
	return p.group.refused[int(p.i)]
}

// Err is nil while records can be written. It is STORAGE_FULL while the log waits
// for room, and STORAGE_BROKEN for ever after another failure.
func (l *Log) Err() *abi.Error { return l.appender.trouble.Load() }

// Changed returns a channel that is closed by the next commit, and when nothing
// can be written for a time or any more.
func (l *Log) Changed() <-chan struct{} { return l.appender.changes.next() }

// Flush waits until all records that were put before are on disk. The refusal of a
// single record is no error here.
func (l *Log) Flush(ctx context.Context) error {
	g := l.queue.latestGroup()
	if g == nil {
		return nil
	}
	l.writeGroup(g, false)
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Claim makes the log the holder of more trees, see [Store.Claim]. Commits wait for
// it.
func (l *Log) Claim(trees ...abi.Pid) error { return l.appender.claim(trees) }

// Close commits the queued records and takes no more. It returns an error when
// some of them could not be written.
func (l *Log) Close() error {
	if l.queue.close() {
		close(l.appender.stop)
	}
	<-l.gone
	if e := l.Err(); e != nil {
		return e
	}
	return nil
}

// run is the committer.
func (l *Log) run() {
	defer close(l.gone)
	for stop := l.appender.stop; ; {
		select {
		case <-l.queue.wake:
		case <-stop:
			stop = nil
		}
		for g := l.queue.take(); g != nil; g = l.queue.take() {
			batch := g.records
			g.records = nil
			stored, err := l.appender.append(g, batch)
			l.finish(g, batch, stored, err)
		}
		if l.queue.hasEnded() {
			return
		}
	}
}

// writeGroup has a group written: by the caller if here is true and nobody else
// writes, otherwise by the committer. A group that cannot be written at once is left
// to the committer too.
func (l *Log) writeGroup(g *group, here bool) {
	if !l.queue.takeAlone(g, here) {
		return
	}
	if len(l.appender.refused) > 0 { // only the committer takes records out
		l.queue.leave(g)
		return
	}
	err := l.appender.appendOnce(g.records)
	if isBad(err) || errors.Is(err, ErrFull) {
		l.queue.leave(g)
		return
	}
	if err != nil { // a success has no trouble to end, because a log in trouble has its committer at work
		e := broken(err)
		l.appender.stall(e)
		err = e
	}
	batch := g.records
	g.records = nil
	if l.finish(g, batch, err == nil, err) {
		l.queue.wakeCommitter()
	}
}

// finish wakes the callers that wait for a group, and reports whether the
// committer has more to do.
func (l *Log) finish(g *group, batch []abi.Record, stored bool, err error) (more bool) {
	g.err = err
	more = l.queue.finish(batch, err)
	if stored {
		l.appender.changes.announce()
	}
	close(g.done)
	return more
}

// changes wakes any number of goroutines when something changes.
type changes struct {
	mu      sync.Mutex
	waiting chan struct{} // nil: nobody waits
}

// next returns a channel that is closed by the next announcement.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	return c.waiting
}

func (c *changes) announce() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	if waiting != nil {
		close(waiting)
	}
}
