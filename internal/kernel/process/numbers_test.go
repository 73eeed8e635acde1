package process

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNumberSet holds a set against a map: what was added is in it and nothing else,
// and its runs are as few as can be.
func TestNumberSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s NumberSet
		want := map[uint64]bool{}
		for _, n := range rapid.SliceOf(rapid.Uint64Range(0, 40)).Draw(t, "numbers") {
			s.Add(n)
			want[n] = true
			for n := range uint64(42) {
				if s.Has(n) != want[n] {
					t.Fatalf("%v has %d: %v", s, n, s.Has(n))
				}
			}
			for i, e := range s {
				if e.From > e.To || i > 0 && s[i-1].To+1 >= e.From {
					t.Fatalf("%v is not in runs", s)
				}
			}
		}
	})
}

// TestNumberSetOfLarge: the largest number has none after it.
func TestNumberSetOfLarge(t *testing.T) {
	const top = ^uint64(0)
	var s NumberSet
	for _, n := range []uint64{top, top - 2, 0, top - 1} {
		s.Add(n)
	}
	if want := (NumberSet{{0, 0}, {top - 2, top}}); !slices.Equal(s, want) {
		t.Errorf("%v, want %v", s, want)
	}
}
