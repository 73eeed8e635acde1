package quota

import "math"

// An estimate compares the usage of calls with their bounds. The bound of an
// input is often two or three times the provider's count, and the bound of an
// output without a stated maximum fifty times. Without estimates less than half
// of a limit is used.
type estimate struct {
	in, out ratio
	ahead   int64 // part of an output's bound, in thousandths, that the provider counts at the start
	whole   bool  // the provider counts the input from its cache; most do not
}

// amount returns what counts for a call while it runs beside others: its
// bounds, until more is known.
func (h *estimate) amount(most *amount, beside int) amount {
	in := portion(most[input], h.in.expected(beside))
	out := portion(most[output], h.ahead+(1000-h.ahead)*h.out.expected(beside)/1000)
	return amount{most[requests], in + out, in, out}
}

func portion(n, thousandths int64) int64 { return (n*thousandths + 999) / 1000 }

// learnUsage learns from the usage of a call.
func (h *estimate) learnUsage(c *call, f *report) {
	h.in.follow(f.in, c.bound[input])
	h.out.follow(f.out, c.bound[output])
}

// A ratio is the used part of recent bounds, in thousandths, and the distance
// of single calls from it. The first few calls weigh the same.
type ratio struct{ mean, off, seen float64 }

func (m *ratio) follow(took, most int64) {
	if most <= 0 {
		return
	}
	seen := min(1000, 1000*float64(took)/float64(most))
	// The bound on seen makes old calls fade, so the estimate follows a change of work.
	m.seen = min(16, m.seen+1)
	m.off += (math.Abs(seen-m.mean) - m.off) / m.seen
	m.mean += (seen - m.mean) / m.seen
}

// expected returns the part of its bound that one of the running calls is
// expected to use. One call alone may be as large as the larger ones were. Many
// calls together come nearer to the mean, by the root of their number.
func (m *ratio) expected(beside int) int64 {
	return int64(min(1000, math.Ceil(m.mean+3*m.off/math.Sqrt(float64(beside+1)))))
}

// learnCache learns whether the provider counts the input that it reads from
// its cache: from the use of its limit beyond the known use, unless the other
// running calls hide it.
func (h *estimate) learnCache(c *call, cached, other int64) {
	// While whole is set, the cached input is part of our own use already.
	if h.whole {
		other += cached
	}
	if beside := c.atStart.bound[input] - c.atStart.used[input] - c.bound[input] + c.counted[input]; other > cached/2 {
		h.whole = true
	} else if beside < cached/4 {
		h.whole = false
	}
}

// outputs sums the outputs of the running calls: the estimates and the bounds.
type outputs struct{ counted, bound int64 }

// A snapshot is the state of a model's bucket when a call started, that call
// included.
type snapshot struct {
	used    amount // estimates
	bound   amount // bounds
	total   amount
	outputs outputs
}

// remember keeps the state of the bucket in c.
func (b *bucket) remember(c *call) {
	most := b.window.sum
	most.add(&b.slack)
	c.atStart = snapshot{b.window.sum, most, b.total, b.outputs}
}

// learnAhead learns how much of the bound of an output the provider counts
// before the output is written, from the use of its limit while many calls run.
func (h *estimate) learnAhead(c *call, f *report) {
	u := output
	if f.levels[u].limit == 0 {
		u = tokens
	}
	l := f.levels[u]
	w := c.atStart.outputs
	if l.limit == 0 || w.bound*50 < l.limit { // too little to measure
		return
	}
	seen := max(0, min(1000, (l.limit-l.left-c.atStart.used[u]+w.counted)*1000/w.bound))
	// Upwards at once, because too low a value leads to refusals; downwards slowly.
	if seen > h.ahead {
		h.ahead = seen
	} else {
		h.ahead -= (h.ahead - seen) / 8
	}
}
