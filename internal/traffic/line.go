package traffic

import (
	"container/heap"
	"math/bits"
)

// A call waits for its turn, or has it.
type call struct {
	key      string
	owner    string
	pid      int64
	priority int
	weight   amount

	bucket *bucket // of its model
	party  *party  // its process
	lane   *lane   // where it stands; nil when it does not wait
	level  int     // how urgent it is by now
	rises  int64   // when it becomes more urgent by one
	rise   int     // its place among those that will
	asked  int64
	seq    uint64
	went   int64
	next   *call
	prev   *call
	gone   bool          // it gave its turn back
	ready  chan struct{} // closed when it has its turn; nil when it never waited
}

// keenLevel is where calls are so urgent that a little of each limit is kept
// for them.
const keenLevel = 5

// mostLevel is the least urgent level.
const mostLevel = 99

// ageStep is how long a call waits to become as urgent as one a level above.
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
	busy   int    // calls that wait or run
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
		m = &party{name: k.name, pid: k.pid, up: p, had: p.now}
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
		for _, l := range p.lanes {
			heap.Fix(&l.up.kids, l.at)
		}
	}
}

// leave counts a call of p out. Who has nothing more to do here is forgotten
// when it makes no difference.
func (p *party) leave() {
	for ; p.up != nil; p = p.up {
		if p.busy--; p.busy == 0 && !p.tired {
			p.tired = true
			p.up.asleep = append(p.up.asleep, p)
		}
		p.up.forget()
	}
}

func (p *party) forget() {
	for range min(2, len(p.asleep)) {
		m := p.asleep[0]
		p.asleep = p.asleep[1:]
		switch {
		case m.busy > 0:
			m.tired = false
		case m.had <= p.now:
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
	first, last *call
}

type lanes []*lane

func (l lanes) Len() int { return len(l) }
func (l lanes) Less(i, j int) bool {
	p, q := l[i].party, l[j].party
	return p.had < q.had || p.had == q.had && p.turn < q.turn
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

// A line is everything that waits for one bucket: by level, by owner, by
// process. The most urgent level goes first.
type line struct {
	levels  [mostLevel + 1]*lane
	some    [2]uint64 // levels where somebody waits
	rising  rising
	waiting int
	look    int64 // when to look again; never: when something changes
	why     string
	served  int64 // when a call of it went last
}

// enter puts c at the end of its process's lane.
func (l *line) enter(now int64, c *call) {
	c.rises = now + ageStep
	l.put(c)
	l.waiting++
	if c.level > 0 {
		heap.Push(&l.rising, c)
	}
}

func (l *line) put(c *call) {
	root := l.levels[c.level]
	if root == nil {
		root = &lane{party: c.party.up.up}
		l.levels[c.level] = root
	}
	l.some[c.level/64] |= 1 << (c.level % 64)
	at := root.lane(c.party.up).lane(c.party)
	c.lane, c.prev, c.next = at, at.last, nil
	if at.last == nil {
		at.first = c
	} else {
		at.last.next = c
	}
	at.last = c
}

// lane is the lane of a party within l.
func (l *lane) lane(p *party) *lane {
	for _, m := range p.lanes {
		if m.up == l {
			return m
		}
	}
	m := &lane{party: p, up: l}
	p.lanes = append(p.lanes, m)
	heap.Push(&l.kids, m)
	return m
}

// leave takes c out.
func (l *line) leave(c *call) {
	l.pick(c)
	l.waiting--
	if c.level > 0 {
		heap.Remove(&l.rising, c.rise)
	}
}

func (l *line) pick(c *call) {
	at := c.lane
	if c.prev == nil {
		at.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		at.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.lane, c.prev, c.next = nil, nil, nil
	for ; at.up != nil && at.first == nil && len(at.kids) == 0; at = at.up {
		heap.Remove(&at.up.kids, at.at)
		p := at.party
		for i, x := range p.lanes {
			if x == at {
				p.lanes[i] = p.lanes[len(p.lanes)-1]
				p.lanes[len(p.lanes)-1] = nil
				p.lanes = p.lanes[:len(p.lanes)-1]
				break
			}
		}
	}
	if at.up == nil && len(at.kids) == 0 {
		l.some[c.level/64] &^= 1 << (c.level % 64)
	}
}

// head is the call that is next; nil when none waits.
func (l *line) head(now int64) *call {
	l.age(now)
	for i, m := range l.some {
		if m != 0 {
			return l.levels[i*64+bits.TrailingZeros64(m)].kids[0].kids[0].first
		}
	}
	return nil
}

// age makes those more urgent that have waited.
func (l *line) age(now int64) {
	for len(l.rising) > 0 && l.rising[0].rises <= now {
		c := l.rising[0]
		steps := int(min((now-c.rises)/ageStep+1, mostLevel))
		l.pick(c)
		c.level = max(0, c.level-steps)
		c.rises += int64(steps) * ageStep
		l.put(c)
		if c.level == 0 {
			heap.Pop(&l.rising)
		} else {
			heap.Fix(&l.rising, 0)
		}
	}
}

// rising are the calls that become more urgent, the next first.
type rising []*call

func (r rising) Len() int { return len(r) }
func (r rising) Less(i, j int) bool {
	return r[i].rises < r[j].rises || r[i].rises == r[j].rises && r[i].seq < r[j].seq
}
func (r rising) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rise, r[j].rise = i, j
}
func (r *rising) Push(x any) {
	x.(*call).rise = len(*r)
	*r = append(*r, x.(*call))
}
func (r *rising) Pop() any {
	old := *r
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	return x
}
