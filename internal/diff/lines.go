package diff

import "slices"

// maxEdits is the most edits for which shortest searches. The work grows with the
// square of it.
const maxEdits = 1200

// runsOf returns the runs in which a and b differ, in order.
func runsOf(a, b []string) []run {
	ids := make(map[string]int, len(a))
	intern := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			id, ok := ids[l]
			if !ok {
				id = len(ids)
				ids[l] = id
			}
			out[i] = id
		}
		return out
	}
	c := &comparison{a: intern(a), b: intern(b)}
	c.compare(run{0, len(a), 0, len(b)}, true)
	return c.runs
}

// A comparison collects the runs in which two texts differ. Equal lines have equal
// numbers.
type comparison struct {
	a, b []int
	runs []run
}

// differs adds a run. It joins the run to the last one if they are adjacent.
func (c *comparison) differs(r run) {
	if r.a0 == r.a1 && r.b0 == r.b1 {
		return
	}
	if n := len(c.runs); n > 0 && c.runs[n-1].a1 == r.a0 && c.runs[n-1].b1 == r.b0 {
		c.runs[n-1].a1, c.runs[n-1].b1 = r.a1, r.b1
		return
	}
	c.runs = append(c.runs, r)
}

// compare adds the runs that differ within r. It takes the shortest edit, if shortest
// finds it. Otherwise it compares the parts between anchors. Without anchors all of r
// differs. With split false, compare looks for no anchors.
func (c *comparison) compare(r run, split bool) {
	// Most edits are small, so equal ends are cut off before the search, whose cost grows with its square.
	for r.a0 < r.a1 && r.b0 < r.b1 && c.a[r.a0] == c.b[r.b0] {
		r.a0, r.b0 = r.a0+1, r.b0+1
	}
	for r.a0 < r.a1 && r.b0 < r.b1 && c.a[r.a1-1] == c.b[r.b1-1] {
		r.a1, r.b1 = r.a1-1, r.b1-1
	}
	if r.a0 == r.a1 || r.b0 == r.b1 {
		c.differs(r)
		return
	}
	// Everything between two pairs of equal lines differs.
	if pairs, ok := shortest(c.a[r.a0:r.a1], c.b[r.b0:r.b1]); ok {
		at := r
		for _, p := range pairs {
			c.differs(run{at.a0, r.a0 + p[0], at.b0, r.b0 + p[1]})
			at.a0, at.b0 = r.a0+p[0]+1, r.b0+p[1]+1
		}
		c.differs(at)
		return
	}
	var anchors [][2]int
	// Anchors are looked for once. Between them the parts are small, or differ as a whole.
	if split {
		anchors = c.anchors(r)
	}
	if len(anchors) == 0 {
		c.differs(r)
		return
	}
	at := r
	for _, p := range anchors {
		c.compare(run{at.a0, p[0], at.b0, p[1]}, false)
		at.a0, at.b0 = p[0]+1, p[1]+1
	}
	c.compare(at, false)
}

// shortest returns the pairs of equal lines that the shortest edit from a to b keeps.
// It uses the algorithm of Myers; ok is false if more than maxEdits edits are needed.
func shortest(a, b []int) (pairs [][2]int, ok bool) {
	n, m := len(a), len(b)
	most := min(n+m, maxEdits)
	far := make([]int, 2*most+3) // for each diagonal, the furthest line of a that d edits reach
	at := func(k int) int { return k + most + 1 }
	var trace [][]int
	for d := 0; d <= most; d++ {
		// Only the diagonals of this round are kept, so memory grows with the edits and not with the files.
		trace = append(trace, slices.Clone(far[at(-d)-1:at(d)+2]))
		for k := -d; k <= d; k += 2 {
			x := far[at(k-1)] + 1
			if k == -d || k != d && far[at(k-1)] < far[at(k+1)] {
				x = far[at(k+1)]
			}
			for x < n && x-k < m && a[x] == b[x-k] {
				x++
			}
			far[at(k)] = x
			if x >= n && x-k >= m {
				return backtrack(trace, n, m), true
			}
		}
	}
	return nil, false
}

// backtrack follows the shortest edit from its end and returns its pairs. trace[d] is
// the array far before round d, from diagonal -d-1 on.
func backtrack(trace [][]int, x, y int) (pairs [][2]int) {
	for d := len(trace) - 1; d >= 0; d-- {
		k := x - y
		far := func(k int) int { return trace[d][k+d+1] }
		from := k - 1
		if k == -d || k != d && far(k-1) < far(k+1) {
			from = k + 1
		}
		px := far(from)
		py := px - from
		// Round 0 has no edit: only equal lines lead back to the beginning.
		if d == 0 {
			px, py = 0, 0
		}
		for x > px && y > py {
			x, y = x-1, y-1
			pairs = append(pairs, [2]int{x, y})
		}
		x, y = px, py
	}
	slices.Reverse(pairs)
	return pairs
}

// anchors returns pairs of equal lines that occur once in each part of r. It returns
// the longest list of pairs in which both line numbers rise.
func (c *comparison) anchors(r run) [][2]int {
	type place struct{ a, b, na, nb int }
	seen := make(map[int]*place)
	for i := r.a0; i < r.a1; i++ {
		p := seen[c.a[i]]
		if p == nil {
			p = &place{}
			seen[c.a[i]] = p
		}
		p.a, p.na = i, p.na+1
	}
	for i := r.b0; i < r.b1; i++ {
		if p := seen[c.b[i]]; p != nil {
			p.b, p.nb = i, p.nb+1
		}
	}
	var both [][2]int
	for _, p := range seen {
		// A line that occurs once on each side is most likely the same line. A closing bracket occurs often.
		if p.na == 1 && p.nb == 1 {
			both = append(both, [2]int{p.a, p.b})
		}
	}
	slices.SortFunc(both, func(x, y [2]int) int { return x[0] - y[0] })
	return rising(both)
}

// rising returns the longest subsequence of pairs whose second numbers rise.
func rising(pairs [][2]int) [][2]int {
	var tops []int // tops[n] is the last pair of the best subsequence of length n+1
	before := make([]int, len(pairs))
	for i, p := range pairs {
		// The smallest end of each length leaves the most room for what follows.
		n, _ := slices.BinarySearchFunc(tops, p[1], func(t, b int) int { return pairs[t][1] - b })
		before[i] = -1
		if n > 0 {
			before[i] = tops[n-1]
		}
		if n == len(tops) {
			tops = append(tops, i)
		} else {
			tops[n] = i
		}
	}
	if len(tops) == 0 {
		return nil
	}
	out := make([][2]int, len(tops))
	for i, n := tops[len(tops)-1], len(tops)-1; n >= 0; i, n = before[i], n-1 {
		out[n] = pairs[i]
	}
	return out
}
