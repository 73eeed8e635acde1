package process

import "slices"

// NumberSet is a set of numbers, kept as ascending ranges with a gap between any
// two. Callers count upwards, so the numbers of a million calls are one range. The
// zero NumberSet is empty.
type NumberSet []NumberRange

// NumberRange is the numbers from From to To, both included.
type NumberRange struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Has reports whether n is in s.
func (s NumberSet) Has(n uint64) bool {
	i := s.find(n)
	return i < len(s) && s[i].From <= n
}

// find returns the first range that ends at n or later.
func (s NumberSet) find(n uint64) int {
	// Callers count upwards, so nearly every number is behind the last range.
	if k := len(s); k > 0 && n > s[k-1].To {
		return k
	}
	i, _ := slices.BinarySearchFunc(s, n, func(e NumberRange, n uint64) int {
		if e.To < n {
			return -1
		}
		return 1
	})
	return i
}

// Add puts n into s.
func (s *NumberSet) Add(n uint64) {
	t, i := *s, s.find(n)
	if i < len(t) && t[i].From <= n {
		return
	}
	// Ranges that touch become one, so the set stays small.
	left := i > 0 && t[i-1].To+1 == n
	right := i < len(t) && t[i].From == n+1
	switch {
	case left && right:
		t[i-1].To = t[i].To
		*s = slices.Delete(t, i, i+1)
	case left:
		t[i-1].To = n
	case right:
		t[i].From = n
	default:
		*s = slices.Insert(t, i, NumberRange{n, n})
	}
}
