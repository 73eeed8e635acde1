package tokens

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// A class is the set of properties of a character that the split rules test.
type class uint8

const (
	opens  class = 1 << iota // may stand at the beginning of a word: \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}
	closes                   // may stand at the end of a word: \p{Ll}\p{Lm}\p{Lo}\p{M}
	letter                   // \p{L}
	number                   // \p{N}
	space                    // \s
	line                     // \r and \n, which are space too
)

// classes holds the class of each character. The array has a megabyte, but the
// system gives memory only to the parts that are used.
type classes [unicode.MaxRune + 1]class

var classesOnce = sync.OnceValue(func() *classes {
	c := new(classes)
	for _, t := range []*unicode.RangeTable{unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M} {
		c.mark(t, opens)
	}
	for _, t := range []*unicode.RangeTable{unicode.Ll, unicode.Lm, unicode.Lo, unicode.M} {
		c.mark(t, closes)
	}
	c.mark(unicode.L, letter)
	c.mark(unicode.N, number)
	c.mark(unicode.White_Space, space)
	c['\r'] |= line
	c['\n'] |= line
	return c
})

func (c *classes) mark(t *unicode.RangeTable, as class) {
	for _, r := range t.R16 {
		for i := uint32(r.Lo); i <= uint32(r.Hi); i += uint32(r.Stride) {
			c[i] |= as
		}
	}
	for _, r := range t.R32 {
		for i := r.Lo; i <= r.Hi; i += r.Stride {
			c[i] |= as
		}
	}
}

// at returns the class of the character at i, and its size in bytes. At the end of
// s both are 0.
func (c *classes) at(s string, i int) (class, int) {
	if i < len(s) && s[i] < utf8.RuneSelf {
		return c[s[i]], 1
	}
	return c.wide(s[i:])
}

func (c *classes) wide(s string) (class, int) {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return 0, 0
	}
	return c[r], n
}
