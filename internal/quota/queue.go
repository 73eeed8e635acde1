package quota

import (
	"container/heap"
	"math/bits"
	"slices"
)

// A call waits for its turn, or has it.
type call struct {
	key      string
	owner    string
	pid      int64
	priority int
	weight   amount // what it may take at most
	guess    amount // what is counted of it while it runs

	bucket *bucket // of its model
	party  *party  // its process
	lane   *lane   // where it stands; nil when it does not wait
	level  int     // how urgent it was when last looked at
	seq    uint64
	asked  int64
	went   int64
	links
	seen  sight
	gone  bool          // it gave its turn back
	ready chan struct{} // closed when it has its turn, or will have none; nil when it never waited

	elsewhere bool   // it can go to another provider
	away      bool   // it is to go there: this one is away
	over      string // the limit that it is too large for
}

// links are the calls beside one that waits.
type links struct {
	prev, next   *call // in its lane
	older, newer *call // in its class
}

// keenLevel is where calls are so urgent that a little of each limit is kept
// for them.
const keenLevel = 5

// mostLevel is the least urgent level.
const mostLevel = 99

// ageStep is how long a call waits for its class to become as urgent as one a
// level above.
const ageStep = 5 * second

func (c *call) keen() bool { return c.level < keenLevel }

// cost is what a turn counts for when shares are compared.
func (c *call) cost() int64 { return c.weight[tokens] + 1 }

// A party shares turns with others of its kind: an owner with the owners at a
// key, a process with the processes of its owner. The one that had least goes
// first; who was away starts where the others stand, and saves nothing up.
type party struct {
	name   string
	pid    int64
	up     *party
	had    int64  // what it took
	turn   uint64 // its last turn
	now    int64  // what the member that went last had taken before: where others start
	high   int64  // the most that any member took
	busy   int    // calls that wait or run
	awake  int    // members that are busy
	kids   map[id]*party
	asleep []*party // those that may be forgotten when the others have caught up
	tired  bool     // it is in that list
	lanes  []*lane  // where calls of it wait
}

type id struct {
	name string
	pid  int64
}

// member finds a party below p, or adds it.
func (p *party) member(k id) *party {
	m := p.kids[k]
	if m == nil {
		m = &party{name: k.name, pid: k.pid, up: p}
		if p.kids == nil {
			p.kids = make(map[id]*party)
		}
		p.kids[k] = m
	}
	return m
}

// join counts a call of p in.
func (p *party) join() {
	for ; p.up != nil; p = p.up {
		if p.busy == 0 {
			p.had = max(p.had, p.up.now)
			p.up.awake++
		}
		p.busy++
	}
}

// start charges a call of p that goes, as the turn of that number.
func (p *party) start(turn uint64, cost int64) {
	for x := p; x.up != nil; x = x.up {
		x.up.now, x.turn = max(x.up.now, x.had), turn
	}
	p.charge(cost)
}

// charge adds to what p took, or takes away from it.
func (p *party) charge(n int64) {
	for ; p.up != nil; p = p.up {
		p.had += n
		p.up.high = max(p.up.high, p.had)
		for _, l := range p.lanes {
			heap.Fix(&l.up.kids, l.at)
		}
	}
}

// leave counts a call of p out. Who has nothing more to do here is forgotten
// when it makes no difference: when the others have caught up, or all are away.
func (p *party) leave() {
	for ; p.up != nil; p = p.up {
		if p.busy--; p.busy == 0 {
			if p.up.awake--; p.up.awake == 0 {
				p.up.now = p.up.high
			}
			if !p.tired {
				p.tired = true
				p.up.asleep = append(p.up.asleep, p)
			}
		}
		p.up.forget()
	}
}

// fewParties are kept though they could be forgotten.
const fewParties = 32

func (p *party) forget() {
	for range min(2, len(p.asleep)) {
		m := p.asleep[0]
		p.asleep = p.asleep[1:]
		switch {
		case m.busy > 0:
			m.tired = false
		case m.had <= p.now && len(p.kids) > fewParties:
			delete(p.kids, id{m.name, m.pid})
		default:
			p.asleep = append(p.asleep, m)
		}
	}
}

// A lane holds what waits of a party at one level: those of its members, or of
// a process its calls, in the order they came.
type lane struct {
	party       *party
	up          *lane
	kids        lanes
	at          int // among the lanes of up
	seq         uint64
	first, last *call
}

type lanes []*lane

func (l lanes) Len() int { return len(l) }
func (l lanes) Less(i, j int) bool {
	p, q := l[i].party, l[j].party
	return p.had < q.had || p.had == q.had && (p.turn < q.turn || p.turn == q.turn && l[i].seq < l[j].seq)
}
func (l lanes) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].at, l[j].at = i, j
}
func (l *lanes) Push(x any) {
	x.(*lane).at = len(*l)
	*l = append(*l, x.(*lane))
}
func (l *lanes) Pop() any {
	old := *l
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*l = old[:len(old)-1]
	return x
}

// A class is what waits with one priority. The longer the oldest call of it
// waits the more urgent all of it is: so it is not kept waiting for ever by
// those before it, and within it nobody is preferred for having asked more.
type class struct {
	lane
	oldest, newest *call
}

// level is how urgent a class is by now.
func (k *class) level(now int64) int {
	return max(0, k.oldest.priority-int((now-k.oldest.asked)/ageStep))
}

// A line is everything that waits for one bucket: by priority, by owner, by
// process.
type line struct {
	classes [mostLevel + 1]*class
	some    [2]uint64 // where somebody waits
	waiting int
	free    int   // of those that wait, that can go elsewhere
	look    int64 // when to look again; never: when something changes
	why     string
	served  uint64 // the last turn
}

// enter puts c into its process's lane, behind those that came before it.
func (l *line) enter(c *call) {
	k := l.classes[c.priority]
	if k == nil {
		k = &class{lane: lane{party: c.party.up.up}}
		l.classes[c.priority] = k
	}
	l.some[c.priority/64] |= 1 << (c.priority % 64)
	link(&k.oldest, &k.newest, c, inClass)
	c.lane = k.lane.lane(c.party.up, c.seq).lane(c.party, c.seq)
	link(&c.lane.first, &c.lane.last, c, inLane)
	l.count(c, 1)
}

func (l *line) count(c *call, n int) {
	if l.waiting += n; c.elsewhere {
		l.free += n
	}
}

// lane is the lane of a party within l.
func (l *lane) lane(p *party, seq uint64) *lane {
	for _, m := range p.lanes {
		if m.up == l {
			return m
		}
	}
	m := &lane{party: p, up: l, seq: seq}
	p.lanes = append(p.lanes, m)
	heap.Push(&l.kids, m)
	return m
}

// leave takes c out.
func (l *line) leave(c *call) {
	k, at := l.classes[c.priority], c.lane
	unlink(&k.oldest, &k.newest, c, inClass)
	unlink(&at.first, &at.last, c, inLane)
	c.lane = nil
	for ; at.up != nil && at.first == nil && len(at.kids) == 0; at = at.up {
		heap.Remove(&at.up.kids, at.at)
		i := slices.Index(at.party.lanes, at)
		at.party.lanes = slices.Delete(at.party.lanes, i, i+1)
	}
	if k.oldest == nil {
		l.some[c.priority/64] &^= 1 << (c.priority % 64)
	}
	l.count(c, -1)
}

// inClass and inLane are where a call has its neighbours in a list.
func inClass(c *call) (before, after **call) { return &c.older, &c.newer }
func inLane(c *call) (before, after **call)  { return &c.prev, &c.next }

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
func (l *line) head(now int64) (best *call) {
	for i, m := range l.some {
		for ; m != 0; m &= m - 1 {
			k := l.classes[i*64+bits.TrailingZeros64(m)]
			c := k.kids[0].kids[0].first
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
	p, q := c.party, d.party
	if p.up != q.up {
		p, q = p.up, q.up
	}
	if p.up == q.up && p.had != q.had { // of one key, or of one owner
		return p.had < q.had
	}
	if a, b := c.bucket.line.served, d.bucket.line.served; a != b {
		return a < b
	}
	return c.seq < d.seq
}
