package quota

import "math"

// A habit is how what calls take compares with what they may take at most. The
// bound of an input is often two or three times what the provider counts, and
// that of an output, where nobody said how long it may be, fifty times; a minute
// that is kept free for that stays unused.
type habit struct {
	in, out measure
	ahead   int64 // of an output's bound, in thousandths, what the provider counts before it is written
	whole   bool  // it counts what it reads from its cache; most do not
}

// guess is what is counted of a call while it runs beside others: its bounds,
// as long as nothing better is known.
func (h *habit) guess(most *amount, beside int) amount {
	in := share(most[input], h.in.share(beside))
	out := share(most[output], h.ahead+(1000-h.ahead)*h.out.share(beside)/1000)
	return amount{most[requests], in + out, in, out}
}

func share(n, thousandths int64) int64 { return (n*thousandths + 999) / 1000 }

// took learns from what a call took.
func (h *habit) took(c *call, f *news) {
	h.in.follow(f.in, c.weight[input])
	h.out.follow(f.out, c.weight[output])
}

// A measure is the share of a bound that was taken lately, in thousandths, and
// how far from it single calls were. Of the first few each weighs the same.
type measure struct{ mean, off, seen float64 }

func (m *measure) follow(took, most int64) {
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
func (m *measure) share(beside int) int64 {
	return int64(min(1000, math.Ceil(m.mean+3*m.off/math.Sqrt(float64(beside+1)))))
}

// warm learns whether the provider counts what it reads from its cache, from how
// much more of its limit is used than we know of, where calls that run beside
// this one do not hide it.
func (h *habit) warm(c *call, cached, other int64) {
	if h.whole {
		other += cached
	}
	if beside := c.seen.most[input] - c.seen.used[input] - c.weight[input] + c.guess[input]; other > cached/2 {
		h.whole = true
	} else if beside < cached/4 {
		h.whole = false
	}
}

// A flight is the outputs of calls that run: what is counted of them, and what
// they may be at most.
type flight struct{ guess, bound int64 }

// A sight is how a model's bucket stood when a call went, that call included.
type sight struct {
	used   amount // as counted
	most   amount // as it would be if all that runs took all it may
	all    amount
	writes flight
}

func (b *bucket) look(c *call) {
	most := b.window.sum
	most.add(&b.open)
	c.seen = sight{b.window.sum, most, b.all, b.writes}
}

// heard learns whether the provider counts the bound of an output before it is
// written, from how much of its limit is used with so many calls under way.
func (h *habit) heard(c *call, f *news) {
	u := output
	if f.levels[u].limit == 0 {
		u = tokens
	}
	l := f.levels[u]
	w := c.seen.writes
	if l.limit == 0 || w.bound*50 < l.limit { // too little to see
		return
	}
	seen := max(0, min(1000, (l.limit-l.left-c.seen.used[u]+w.guess)*1000/w.bound))
	if seen > h.ahead {
		h.ahead = seen
	} else {
		h.ahead -= (h.ahead - seen) / 8
	}
}
