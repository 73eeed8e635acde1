package quota

import "math"

// A estimate is how what calls take compares with what they may take at most. The
// bound of an input is often two or three times what the provider counts, and
// that of an output, where nobody said how long it may be, fifty times; a minute
// that is kept free for that stays unused.
type estimate struct {
	in, out ratio
	ahead   int64 // of an output's bound, in thousandths, what the provider counts before it is written
	whole   bool  // it counts what it reads from its cache; most do not
}

// guess is what is counted of a call while it runs beside others: its bounds,
// as long as nothing better is known.
func (h *estimate) amount(most *amount, beside int) amount {
	in := portion(most[input], h.in.expected(beside))
	out := portion(most[output], h.ahead+(1000-h.ahead)*h.out.expected(beside)/1000)
	return amount{most[requests], in + out, in, out}
}

func portion(n, thousandths int64) int64 { return (n*thousandths + 999) / 1000 }

// took learns from what a call took.
func (h *estimate) learnUsage(c *call, f *report) {
	h.in.follow(f.in, c.bound[input])
	h.out.follow(f.out, c.bound[output])
}

// A ratio is the share of a bound that was taken lately, in thousandths, and
// how far from it single calls were. Of the first few each weighs the same.
type ratio struct{ mean, off, seen float64 }

func (m *ratio) follow(took, most int64) {
	if most <= 0 {
		return
	}
	seen := min(1000, 1000*float64(took)/float64(most))
	m.seen = min(16, m.seen+1)
	m.off += (math.Abs(seen-m.mean) - m.off) / m.seen
	m.mean += (seen - m.mean) / m.seen
}

// share is what one of the calls that run together is taken to need. One alone
// may be as large as the larger ones were; the more there are, the nearer to
// the mean they come together, by the root of their number.
func (m *ratio) expected(beside int) int64 {
	return int64(min(1000, math.Ceil(m.mean+3*m.off/math.Sqrt(float64(beside+1)))))
}

// warm learns whether the provider counts what it reads from its cache, from how
// much more of its limit is used than we know of, where calls that run beside
// this one do not hide it.
func (h *estimate) learnCache(c *call, cached, other int64) {
	if h.whole {
		other += cached
	}
	if beside := c.atStart.bound[input] - c.atStart.used[input] - c.bound[input] + c.counted[input]; other > cached/2 {
		h.whole = true
	} else if beside < cached/4 {
		h.whole = false
	}
}

// A outputs is the outputs of calls that run: what is counted of them, and what
// they may be at most.
type outputs struct{ counted, bound int64 }

// A snapshot is how a model's bucket stood when a call went, that call included.
type snapshot struct {
	used    amount // as counted
	bound   amount // as it would be if all that runs took all it may
	total   amount
	outputs outputs
}

func (b *bucket) remember(c *call) {
	most := b.window.sum
	most.add(&b.slack)
	c.atStart = snapshot{b.window.sum, most, b.total, b.outputs}
}

// heard learns whether the provider counts the bound of an output before it is
// written, from how much of its limit is used with so many calls under way.
func (h *estimate) learnAhead(c *call, f *report) {
	u := output
	if f.levels[u].limit == 0 {
		u = tokens
	}
	l := f.levels[u]
	w := c.atStart.outputs
	if l.limit == 0 || w.bound*50 < l.limit { // too little to see
		return
	}
	seen := max(0, min(1000, (l.limit-l.left-c.atStart.used[u]+w.counted)*1000/w.bound))
	if seen > h.ahead {
		h.ahead = seen
	} else {
		h.ahead -= (h.ahead - seen) / 8
	}
}
