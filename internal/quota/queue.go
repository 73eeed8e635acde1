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
	bound    amount // what it may take at most
	counted  amount // what is counted of it while it runs

	bucket    *bucket // of its model
	share     *share  // its process
	queue     *queue  // where it stands; nil when it does not wait
	level     int     // how urgent it was when last looked at
	seq       uint64
	queuedAt  int64
	startedAt int64
	links
	atStart  snapshot
	released bool          // it gave its turn back
	ready    chan struct{} // closed when it has its turn, or will have none; nil when it never waited

	hasFallback bool   // it can go to another provider
	diverted    bool   // it is to go there: this one is away
	tooLarge    string // the limit that it is too large for
}

// links are the calls beside one that waits.
type links struct {
	prev, next   *call // in its queue
	older, newer *call // in its priorityClass
}

// urgentLevel is where calls are so urgent that a little of each limit is kept
// for them.
const urgentLevel = 5

// mostLevel is the least urgent level.
const mostLevel = 99

// ageStep is how long a call waits for its priorityClass to become as urgent as one a
// level above.
const ageStep = 5 * second

func (c *call) urgent() bool { return c.level < urgentLevel }

// cost is what a turn counts for when shares are compared.
func (c *call) cost() int64 { return c.bound[tokens] + 1 }

// A share shares turns with others of its kind: an owner with the owners at a
// key, a process with the processes of its owner. The one that had least goes
// first; who was away starts where the others stand, and saves nothing up.
type share struct {
	name     string
	pid      int64
	parent   *share
	used     int64  // what it took
	lastTurn uint64 // its last turn
	floor    int64  // what the member that went last had taken before: where others start
	highest  int64  // the most that any member took
	calls    int    // calls that wait or run
	active   int    // members that are busy
	children map[shareKey]*share
	idle     []*share // those that may be forgotten when the others have caught up
	listed   bool     // it is in that list
	queues   []*queue // where calls of it wait
}

type shareKey struct {
	name string
	pid  int64
}

// member finds a share below p, or adds it.
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

// join counts a call of p in.
func (p *share) join() {
	for ; p.parent != nil; p = p.parent {
		if p.calls == 0 {
			p.used = max(p.used, p.parent.floor)
			p.parent.active++
		}
		p.calls++
	}
}

// start charges a call of p that goes, as the turn of that number.
func (p *share) start(turn uint64, cost int64) {
	for x := p; x.parent != nil; x = x.parent {
		x.parent.floor, x.lastTurn = max(x.parent.floor, x.used), turn
	}
	p.charge(cost)
}

// charge adds to what p took, or takes away from it.
func (p *share) charge(n int64) {
	for ; p.parent != nil; p = p.parent {
		p.used += n
		p.parent.highest = max(p.parent.highest, p.used)
		for _, l := range p.queues {
			heap.Fix(&l.parent.children, l.at)
		}
	}
}

// leave counts a call of p out. Who has nothing more to do here is forgotten
// when it makes no difference: when the others have caught up, or all are away.
func (p *share) leave() {
	for ; p.parent != nil; p = p.parent {
		if p.calls--; p.calls == 0 {
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

// keptShares are kept though they could be forgotten.
const keptShares = 32

func (p *share) forget() {
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

// A queue holds what waits of a share at one level: those of its members, or of
// a process its calls, in the order they came.
type queue struct {
	share       *share
	parent      *queue
	children    queues
	at          int // among the queues of up
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

// A priorityClass is what waits with one priority. The longer the oldest call of it
// waits the more urgent all of it is: so it is not kept waiting for ever by
// those before it, and within it nobody is preferred for having asked more.
type priorityClass struct {
	queue
	oldest, newest *call
}

// level is how urgent a priorityClass is by now.
func (k *priorityClass) level(now int64) int {
	return max(0, k.oldest.priority-int((now-k.oldest.queuedAt)/ageStep))
}

// A waiters is everything that waits for one bucket: by priority, by owner, by
// process.
type waiters struct {
	classes [mostLevel + 1]*priorityClass
	some    [2]uint64 // where somebody waits
	waiting int
	free    int   // of those that wait, that can go elsewhere
	checkAt int64 // when to look again; never: when something changes
	why     string
	served  uint64 // the last turn
}

// enter puts c into its process's queue, behind those that came before it.
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

// queue is the queue of a share within l.
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

// leave takes c out.
func (l *waiters) leave(c *call) {
	k, at := l.classes[c.priority], c.queue
	unlink(&k.oldest, &k.newest, c, inClass)
	unlink(&at.first, &at.last, c, inQueue)
	c.queue = nil
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

// inClass and inQueue are where a call has its neighbours in a list.
func inClass(c *call) (before, after **call) { return &c.older, &c.newer }
func inQueue(c *call) (before, after **call) { return &c.prev, &c.next }

// link puts a call into a list, behind those that came before it.
func link(first, last **call, c *call, in func(*call) (before, after **call)) {
	before, after := in(c)
	for *before = *last; *before != nil && (*before).seq > c.seq; {
		*after = *before
		earlier, _ := in(*before)
		*before = *earlier
	}
	point(first, last, *before, *after, c, c, in)
}

// unlink takes a call out of a list.
func unlink(first, last **call, c *call, in func(*call) (before, after **call)) {
	before, after := in(c)
	point(first, last, *before, *after, *after, *before, in)
	*before, *after = nil, nil
}

// point makes two neighbours, or the ends of the list, see something else
// between them.
func point(first, last **call, before, after, next, prev *call, in func(*call) (before, after **call)) {
	if before != nil {
		_, first = in(before)
	}
	if after != nil {
		last, _ = in(after)
	}
	*first, *last = next, prev
}

// head is the call that is next; nil when none waits.
func (l *waiters) head(now int64) (best *call) {
	for i, m := range l.some {
		for ; m != 0; m &= m - 1 {
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

// before says which of the heads of two classes, or of two lines, is next.
func (c *call) before(d *call) bool {
	if c.level != d.level {
		return c.level < d.level
	}
	p, q := c.share, d.share
	if p.parent != q.parent {
		p, q = p.parent, q.parent
	}
	if p.parent == q.parent && p.used != q.used { // of one key, or of one owner
		return p.used < q.used
	}
	if a, b := c.bucket.waiters.served, d.bucket.waiters.served; a != b {
		return a < b
	}
	return c.seq < d.seq
}
