package journal

import (
	"sync"

	"github.com/kern-run/kern/abi"
)

// maxSpare bounds the slice of records that is kept to be used again.
const maxSpare = 1 << 14

// A group is records that are committed together.
type group struct {
	records []abi.Record
	waking  bool          // the committer was told to write it
	done    chan struct{} // closed when err and refused are final
	err     error         // of every record
	refused map[int]error // of single records
}

func (g *group) refuse(i int, err error) {
	if g.refused == nil {
		g.refused = map[int]error{}
	}
	g.refused[i] = err
}

// A queue is the groups of a log that are not on disk yet: the open one, which
// takes records, and at most one that is being written.
type queue struct {
	mu      sync.Mutex
	open    *group // takes records; nil: the log has ended
	latest  *group // took the last record
	ended   *group // set when no record is taken any more
	closing bool
	busy    bool         // a group is being written
	left    *group       // the group that is being written, when the committer must continue it
	spare   []abi.Record // an empty slice to be used again

	wake chan struct{} // has a token when the committer has work
}

// newGroup is an empty group. The caller holds the lock.
func (q *queue) newGroup() *group {
	g := &group{records: q.spare, done: make(chan struct{})}
	q.spare = nil
	return g
}

// add puts a record into the open group, and returns the group and the index.
func (q *queue) add(r *abi.Record, wakeCommitter bool) (*group, int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended != nil {
		return q.ended, 0
	}
	g := q.open
	g.records = append(g.records, *r)
	q.latest = g
	if wakeCommitter {
		q.callCommitter()
	}
	return g, int32(len(g.records)) - 1
}

// callCommitter has the committer write the open group. The caller holds the lock.
func (q *queue) callCommitter() {
	if !q.open.waking {
		q.open.waking = true
		q.wakeCommitter()
	}
}

func (q *queue) wakeCommitter() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// latestGroup is the group of the last record.
func (q *queue) latestGroup() *group {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.latest
}

// close has the committer end when all groups are written. It reports whether the
// queue was open.
func (q *queue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.closing
	q.closing = true
	return !was
}

// take returns the next group for the committer. When the log closes and no record
// waits, the queue ends.
func (q *queue) take() (g *group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.left != nil:
		g, q.left = q.left, nil
	case q.ended != nil || q.busy:
	case len(q.open.records) > 0:
		g = q.takeOpen()
	case q.closing:
		q.end(ErrClosed)
	}
	return g
}

// takeOpen takes the open group, and opens another. The caller holds the lock.
func (q *queue) takeOpen() *group {
	g := q.open
	q.busy, q.open = true, q.newGroup()
	return g
}

// takeAlone takes g for a caller that writes it itself. If that is not wanted or
// somebody writes already, the committer gets the group in its turn.
func (q *queue) takeAlone(g *group, wanted bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open != g {
		return false // it is being written, or it is done
	}
	if q.busy || g.waking || !wanted {
		q.callCommitter()
		return false
	}
	q.takeOpen()
	return true
}

// leave gives a group that is being written to the committer.
func (q *queue) leave(g *group) {
	q.mu.Lock()
	q.left = g
	q.mu.Unlock()
	q.wakeCommitter()
}

// finish ends the writing of a group. After an error the queue ends. It reports
// whether the committer has more to do.
func (q *queue) finish(batch []abi.Record, err error) (more bool) {
	if cap(batch) <= maxSpare {
		clear(batch)
	} else {
		batch = nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy, q.spare = false, batch[:0]
	more = q.closing || err != nil || len(q.open.records) > 0
	if err != nil {
		q.end(err)
	}
	return more
}

// end fails the open group and every record that is put later. The caller holds
// the lock.
func (q *queue) end(err error) {
	q.ended, q.open = q.open, nil
	q.ended.records, q.ended.err = nil, err
	close(q.ended.done)
}

func (q *queue) hasEnded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ended != nil
}
