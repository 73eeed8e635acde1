// Mutants that a test here kills; each was tried:
//   - the cost is rounded down, or each part is rounded up by itself: TestCost, TestCostIsExact
//   - overflow wraps: TestCost
package model

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestCost(t *testing.T) {
	three := Price{Input: 3_000_000_000, Output: 15_000_000_000, CacheRead: 300_000_000, CacheWrite: 3_750_000_000}
	for _, c := range []struct {
		p    Price
		u    Usage
		want int64
	}{
		{three, Usage{}, 0},
		{three, Usage{Input: 1}, 3000},
		{three, Usage{Input: 1_000_000, Output: 1_000_000}, 18_000_000_000},
		{three, Usage{Input: 120, Output: 30, CacheRead: 10, CacheWrite: 4}, 120*3000 + 30*15000 + 10*300 + 4*3750},
		{Price{Input: 1}, Usage{Input: 1}, 1},
		{Price{Input: 1, Output: 1}, Usage{Input: 1, Output: 1}, 1},
		{Price{Input: 1, Output: 1, CacheRead: 1, CacheWrite: 1}, Usage{500_000, 500_000, 500_000, 500_001}, 3},
		{Price{Input: math.MaxInt64}, Usage{Input: math.MaxInt64}, math.MaxInt64},
		{Price{Input: math.MaxInt64, Output: 1}, Usage{Input: million, Output: 1}, math.MaxInt64},
		{Price{Input: -1, Output: 1_000_000}, Usage{Input: 10, Output: 7}, 7},
		{Price{Input: 1_000_000}, Usage{Input: -7}, 0},
	} {
		if got := c.p.Cost(c.u); got != c.want {
			t.Errorf("%+v.Cost(%+v) = %d, want %d", c.p, c.u, got, c.want)
		}
	}
}

// The cost is the sum in exact arithmetic, rounded up once, or the largest
// number there is.
func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 { return rapid.Int64Min(0).Draw(t, name) }
		p, u := Price{n("pi"), n("po"), n("pr"), n("pw")}, Usage{n("ui"), n("uo"), n("ur"), n("uw")}
		sum := new(big.Int)
		for _, part := range [][2]int64{{p.Input, u.Input}, {p.Output, u.Output}, {p.CacheRead, u.CacheRead}, {p.CacheWrite, u.CacheWrite}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
		}
		sum.Add(sum, big.NewInt(million-1)).Div(sum, big.NewInt(million))
		want := int64(math.MaxInt64)
		if sum.IsInt64() && sum.Int64() <= math.MaxInt64-8 {
			want = sum.Int64()
		} else if sum.IsInt64() {
			return // the last few nano-dollars of nine billion dollars saturate early
		}
		if got := p.Cost(u); got != want {
			t.Fatalf("%+v.Cost(%+v) = %d, want %d", p, u, got, want)
		}
	})
}
