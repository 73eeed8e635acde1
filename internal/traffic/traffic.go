// Package traffic gives turns at a resource that only so many may use at once,
// such as a provider of models.
//
// Who is more urgent goes first; who waits grows more urgent with time, so
// nobody waits for ever. A wait ends with its context, at once.
package traffic

import (
	"cmp"
	"container/heap"
	"context"
	"strings"
	"sync"
	"time"
)

// DefaultCap is how many calls may be at one provider at a time when nothing
// else is said.
const DefaultCap = 32

// ageStep is how long a call waits to grow as urgent as one a level above it.
const ageStep = 5 * time.Second

// Turns hands out turns. The zero Turns is ready, with DefaultCap everywhere.
type Turns struct {
	Caps map[string]int // by resource, or by what stands before its @; not changed after first use

	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	free  int
	queue waiters
	seq   uint64
}

type waiter struct {
	key   time.Duration // arrival plus urgency: the smallest is next
	seq   uint64
	at    int // in the heap; -1 when it has its turn
	ready chan struct{}
}

var epoch = time.Now()

// Acquire waits for a turn at a resource. Priority 0 is the most urgent. The
// turn lasts until release is called, once.
func (t *Turns) Acquire(ctx context.Context, resource string, priority int) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	l := t.line(resource)
	if l.free > 0 {
		l.free--
		t.mu.Unlock()
		return func() { t.release(l) }, nil
	}
	l.seq++
	w := &waiter{key: time.Since(epoch) + time.Duration(priority)*ageStep, seq: l.seq, ready: make(chan struct{})}
	heap.Push(&l.queue, w)
	t.mu.Unlock()
	select {
	case <-w.ready:
		return func() { t.release(l) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	waiting := w.at >= 0
	if waiting {
		heap.Remove(&l.queue, w.at)
	}
	t.mu.Unlock()
	if !waiting { // the turn came at the same moment: it is the next one's
		t.release(l)
	}
	return nil, ctx.Err()
}

// Waiting says how many calls wait at a resource.
func (t *Turns) Waiting(resource string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.line(resource).queue)
}

func (t *Turns) line(resource string) *line {
	l := t.lines[resource]
	if l == nil {
		kind, _, _ := strings.Cut(resource, "@") // a provider at another address is still one of its kind
		n := cmp.Or(t.Caps[resource], t.Caps[kind])
		if n <= 0 {
			n = DefaultCap
		}
		l = &line{free: n}
		if t.lines == nil {
			t.lines = make(map[string]*line)
		}
		t.lines[resource] = l
	}
	return l
}

func (t *Turns) release(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(l.queue) == 0 {
		l.free++
		return
	}
	w := heap.Pop(&l.queue).(*waiter)
	close(w.ready)
}

type waiters []*waiter

func (q waiters) Len() int { return len(q) }
func (q waiters) Less(i, j int) bool {
	return q[i].key < q[j].key || q[i].key == q[j].key && q[i].seq < q[j].seq
}
func (q waiters) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}
func (q *waiters) Push(x any) {
	w := x.(*waiter)
	w.at = len(*q)
	*q = append(*q, w)
}
func (q *waiters) Pop() any {
	old := *q
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	w.at = -1
	return w
}
