package model

import (
	"math"
	"math/bits"
)

// A Price is the price of tokens, in nano-dollars per million tokens. Three dollars
// are 3_000_000_000.
type Price struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

const million = 1_000_000

// Cost returns the cost of u in nano-dollars. It rounds up the sum, and returns
// math.MaxInt64 for any larger sum. More tokens never cost less. Negative numbers
// count as zero.
func (p Price) Cost(u Usage) int64 {
	var whole, rest int64
	for _, part := range [...]struct{ price, tokens int64 }{
		{p.Input, u.Input}, {p.Output, u.Output}, {p.CacheRead, u.CacheRead}, {p.CacheWrite, u.CacheWrite},
	} {
		w, r := timesMillionth(part.price, part.tokens)
		if w > math.MaxInt64-whole-4 {
			return math.MaxInt64
		}
		whole, rest = whole+w, rest+r
	}
	return whole + (rest+million-1)/million
}

// timesMillionth returns a*b/1e6 as quotient and remainder. A quotient that does not
// fit becomes math.MaxInt64.
func timesMillionth(a, b int64) (whole, rest int64) {
	if a <= 0 || b <= 0 {
		return 0, 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= million {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(hi, lo, million)
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return int64(q), int64(r)
}
