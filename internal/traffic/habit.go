package traffic

// A habit is how what calls take compares with what they may take at most, in
// thousandths. The bound of an input is often two or three times what the
// provider counts, and that of an output, where nobody said how long it may
// be, fifty times; a minute that is kept free for that stays unused.
type habit struct {
	in, out int64 // the largest shares that were taken lately
	ahead   int64 // of an output's bound, what the provider counts before it is written
}

// guess is what is counted of a call while it runs: its bounds, as long as
// nothing better is known.
func (h *habit) guess(most *amount) amount {
	in := share(most[input], h.in)
	out := share(most[output], h.ahead+(1000-h.ahead)*h.out/1000)
	return amount{most[requests], in + out, in, out}
}

func share(n, thousandths int64) int64 { return (n*thousandths + 999) / 1000 }

// took learns from what a call took.
func (h *habit) took(c *call, f *news) {
	follow(&h.in, f.in, c.weight[input])
	follow(&h.out, f.out, c.weight[output])
}

// follow goes up at once, and down slowly.
func follow(h *int64, took, most int64) {
	if most <= 0 {
		return
	}
	if seen := min(1000, share(took, 1000*1000/most)); seen > *h {
		*h = seen
	} else {
		*h -= (*h - seen) / 16
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
