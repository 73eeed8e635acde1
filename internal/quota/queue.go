package quota

import (
	"container/heap"
	"math/bits"
	"slices"
)

// A call waits for its turn, or has it.
type call struct {
	resource string
	owner    string
	pid      int64
	priority int
	bound    amount // the most that it can use
	counted  amount // the estimate that counts while it runs

	bucket    *bucket // of its model
	share     *share  // its process
	queue     *queue  // its queue; nil if it does not wait
	level     int     // its level at the last look
	seq       uint64
	queuedAt  int64
	startedAt int64
	links
	atStart  snapshot
	released bool          // its turn ended
	ready    chan struct{} // closed when its wait ends; nil if it never waited

	hasFallback bool   // another provider can serve it
	diverted    bool   // its wait ended because of a backoff
	tooLarge    string // the limit that it exceeds on its own
}

// links are the neighbours of a waiting call.
type links struct {
	prev, next   *call // in its queue
	older, newer *call // in its priority class
}

// Calls of a level below urgentLevel may use the part of each limit that is
// kept for urgent calls.
const urgentLevel = 5

// mostLevel is the least urgent level.
const mostLevel = 99

// ageStep is the wait after which a priority class rises by one level.
const ageStep = 5 * second

func (c *call) urgent() bool { return c.level < urgentLevel }

// cost is the weight of a call in the comparison of shares.
func (c *call) cost() int64 { return c.bound[tokens] + 1 }

// A share is the part of a quota that one owner gets at a key, or one process
// within its owner. The share with the least usage goes first. A share that
// comes back starts at the level of the others and has saved nothing.
type share struct {
	name     string
	pid      int64
	parent   *share
	used     int64  // what it took
	lastTurn uint64 // number of its last turn
	floor    int64  // usage of the child that went last: new children start there
	highest  int64  // the highest usage of a child
	calls    int    // waiting and running calls
	active   int    // children with calls
	children map[shareKey]*share
	idle     []*share // children without calls, to be forgotten
	listed   bool     // it is in the idle list of its parent
	queues   []*queue // queues with its calls
}

type shareKey struct {
	name string
	pid  int64
}

// child returns a share below p, and adds it if it is new.
func (p *share) child(k shareKey) *share {
	m := p.children[k]
	if m == nil {
		m = &share{name: k.name, pid: k.pid, parent: p}
		if p.children == nil {
			p.children = make(map[shareKey]*share)
		}
		p.children[k] = m
	}
	return m
}

// join counts a new call of p.
func (p *share) join() {
	for ; p.parent != nil; p = p.parent {
		// A share that was idle has saved nothing, or it could take everything for a while.
		if p.calls == 0 {
			p.used = max(p.used, p.parent.floor)
			p.parent.active++
		}
		p.calls++
	}
}

// start charges p for a call that goes with the given turn.
func (p *share) start(turn uint64, cost int64) {
	for x := p; x.parent != nil; x = x.parent {
		x.parent.floor, x.lastTurn = max(x.parent.floor, x.used), turn
	}
	p.charge(cost)
}

// charge adds to the usage of p. n may be negative.
func (p *share) charge(n int64) {
	for ; p.parent != nil; p = p.parent {
		p.used += n
		p.parent.highest = max(p.parent.highest, p.used)
		// The order of the heaps depends on usage, so each heap with this share is repaired.
		for _, l := range p.queues {
			heap.Fix(&l.parent.children, l.at)
		}
	}
}

// leave removes a call of p. A share without calls is forgotten once that
// changes nothing: when the others have caught up, or when no share is active.
func (p *share) leave() {
	for ; p.parent != nil; p = p.parent {
		if p.calls--; p.calls == 0 {
			// No share is left to compare with, so later ones start level with all that went before.
			if p.parent.active--; p.parent.active == 0 {
				p.parent.floor = p.parent.highest
			}
			if !p.listed {
				p.listed = true
				p.parent.idle = append(p.parent.idle, p)
			}
		}
		p.parent.forget()
	}
}

// keptShares is the number of idle shares that are always kept.
const keptShares = 32

func (p *share) forget() {
	// A few per call keep the list short without a pause for a long scan.
	for range min(2, len(p.idle)) {
		m := p.idle[0]
		p.idle = p.idle[1:]
		switch {
		case m.calls > 0:
			m.listed = false
		case m.used <= p.floor && len(p.children) > keptShares:
			delete(p.children, shareKey{m.name, m.pid})
		default:
			p.idle = append(p.idle, m)
		}
	}
}

// A queue holds the waiting calls of a share at one priority: the queues of its
// children, or the calls of a process in their order.
type queue struct {
	share       *share
	parent      *queue
	children    queues
	at          int // index in children of the parent
	seq         uint64
	first, last *call
}

type queues []*queue

func (l queues) Len() int { return len(l) }
func (l queues) Less(i, j int) bool {
	p, q := l[i].share, l[j].share
	return p.used < q.used || p.used == q.used && (p.lastTurn < q.lastTurn || p.lastTurn == q.lastTurn && l[i].seq < l[j].seq)
}
func (l queues) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].at, l[j].at = i, j
}
func (l *queues) Push(x any) {
	x.(*queue).at = len(*l)
	*l = append(*l, x.(*queue))
}
func (l *queues) Pop() any {
	old := *l
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*l = old[:len(old)-1]
	return x
}

// A priorityClass holds the waiting calls of one priority. All of it grows more
// urgent with the wait of its oldest call, so it does not wait forever, and an
// owner gains nothing by asking more often.
type priorityClass struct {
	queue
	oldest, newest *call
}

// level returns how urgent the class is now.
func (k *priorityClass) level(now int64) int {
	return max(0, k.oldest.priority-int((now-k.oldest.queuedAt)/ageStep))
}

// waiters are all waiting calls of one bucket: by priority, by owner, by
// process.
type waiters struct {
	classes [mostLevel + 1]*priorityClass
	some    [2]uint64 // bit set of the priorities with calls
	waiting int
	free    int   // waiting calls with a fallback
	checkAt int64 // time of the next check; never: only after a change
	why     string
	served  uint64 // number of the last turn
}

// enter adds c to the queue of its process, behind the calls that came earlier.
func (l *waiters) enter(c *call) {
	k := l.classes[c.priority]
	if k == nil {
		k = &priorityClass{queue: queue{share: c.share.parent.parent}}
		l.classes[c.priority] = k
	}
	l.some[c.priority/64] |= 1 << (c.priority % 64)
	link(&k.oldest, &k.newest, c, inClass)
	c.queue = k.queue.subqueue(c.share.parent, c.seq).subqueue(c.share, c.seq)
	link(&c.queue.first, &c.queue.last, c, inQueue)
	l.count(c, 1)
}

func (l *waiters) count(c *call, n int) {
	if l.waiting += n; c.hasFallback {
		l.free += n
	}
}

// subqueue returns the queue of a share within l.
func (l *queue) subqueue(p *share, seq uint64) *queue {
	for _, m := range p.queues {
		if m.parent == l {
			return m
		}
	}
	m := &queue{share: p, parent: l, seq: seq}
	p.queues = append(p.queues, m)
	heap.Push(&l.children, m)
	return m
}

// leave removes c.
func (l *waiters) leave(c *call) {
	k, at := l.classes[c.priority], c.queue
	unlink(&k.oldest, &k.newest, c, inClass)
	unlink(&at.first, &at.last, c, inQueue)
	c.queue = nil
	// Empty queues go at once, because head expects a call in each queue.
	for ; at.parent != nil && at.first == nil && len(at.children) == 0; at = at.parent {
		heap.Remove(&at.parent.children, at.at)
		i := slices.Index(at.share.queues, at)
		at.share.queues = slices.Delete(at.share.queues, i, i+1)
	}
	if k.oldest == nil {
		l.some[c.priority/64] &^= 1 << (c.priority % 64)
	}
	l.count(c, -1)
}

// inClass and inQueue return the neighbours of a call in a list.
func inClass(c *call) (before, after **call) { return &c.older, &c.newer }
func inQueue(c *call) (before, after **call) { return &c.prev, &c.next }

// link adds a call to a list, behind the calls that came earlier.
func link(first, last **call, c *call, in func(*call) (before, after **call)) {
	before, after := in(c)
	// Only a call that changes its priority is not the newest, so the search from the end is short.
	for *before = *last; *before != nil && (*before).seq > c.seq; {
		*after = *before
		earlier, _ := in(*before)
		*before = *earlier
	}
	point(first, last, *before, *after, c, c, in)
}

// unlink removes a call from a list.
func unlink(first, last **call, c *call, in func(*call) (before, after **call)) {
	before, after := in(c)
	point(first, last, *before, *after, *after, *before, in)
	*before, *after = nil, nil
}

// point links the neighbours before and after, or the ends of the list, to next and
// prev.
func point(first, last **call, before, after, next, prev *call, in func(*call) (before, after **call)) {
	if before != nil {
		_, first = in(before)
	}
	if after != nil {
		last, _ = in(after)
	}
	*first, *last = next, prev
}

// head returns the next call; nil if none waits.
func (l *waiters) head(now int64) (best *call) {
	for i, m := range l.some {
		for ; m != 0; m &= m - 1 {
			// Each class has one candidate: the first call of the process with the least usage.
			k := l.classes[i*64+bits.TrailingZeros64(m)]
			c := k.children[0].children[0].first
			c.level = k.level(now)
			if best == nil || c.before(best) {
				best = c
			}
		}
	}
	return best
}

// before compares the first calls of two classes or of two buckets.
func (c *call) before(d *call) bool {
	if c.level != d.level {
		return c.level < d.level
	}
	// Owners are compared first, then processes of one owner: more processes earn no larger share.
	p, q := c.share, d.share
	if p.parent != q.parent {
		p, q = p.parent, q.parent
	}
	if p.parent == q.parent && p.used != q.used { // same key, or same owner
		return p.used < q.used
	}
	if a, b := c.bucket.waiters.served, d.bucket.waiters.served; a != b {
		return a < b
	}
	return c.seq < d.seq
}
