package ledger

import (
	"math"
	"math/bits"

	"github.com/kern-run/kern/abi"
)

// Elastic is the part of a reservation that may shrink to what is left.
type Elastic struct {
	Unit     abi.Unit
	Min, Max int64 // Max 0: the reservation has no elastic part
	Floor    int64 // a limit that leaves less than this refuses the call; 0: Min alone counts
	Price    int64 // nano-dollars per million
	Tokens   bool  // the unit counts as tokens too
}

// Least returns the smallest amount of the elastic unit that is enough.
func (e *Elastic) Least() int64 { return min(max(e.Min, e.Floor), e.Max) }

// cost returns the price of n of the elastic unit, rounded up.
func (e *Elastic) cost(n int64) int64 {
	// The product of tokens and price may exceed 64 bits. An overflow would make a huge call free.
	hi, lo := bits.Mul64(uint64(n), uint64(e.Price))
	if hi >= 1_000_000 {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, 1_000_000)
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// Need returns base plus n of the elastic unit with its tokens and its cost.
func (e *Elastic) Need(base abi.Usage, n int64) abi.Usage {
	if e.Max == 0 {
		return base
	}
	var extra abi.Usage
	extra[e.Unit] = n
	if e.Tokens {
		extra[abi.Tokens] += n
	}
	extra[abi.Money] += e.cost(n)
	base.Add(&extra)
	return base
}

// most returns how much of the elastic unit the path of a would allow if no
// other call ran: only settled amounts, amounts in doubt and claims count. If that
// is less than e.Max, by is the limit that allows no more.
func (e *Elastic) most(a *Account, base *abi.Usage, claims []Claim) (n int64, by abi.Unit) {
	n = e.Max
	lower := func(to int64, u abi.Unit) {
		if to < n {
			n, by = to, u
		}
	}
	var claimed abi.Usage
	for ; a != nil; a = a.Parent {
		claims = addClaims(&claimed, a, claims)
		left := func(u abi.Unit) int64 {
			left, limited := a.Unsettled(u)
			if !limited {
				return math.MaxInt64
			}
			return left - claimed[u] - base[u]
		}
		lower(left(e.Unit), e.Unit)
		if e.Tokens {
			lower(left(abi.Tokens), abi.Tokens)
		}
		// More money than this buys any number of tokens, and the product below would overflow.
		if money := left(abi.Money); e.Price > 0 && money < math.MaxInt64/1_000_000 {
			lower(money*1_000_000/e.Price, abi.Money)
		}
	}
	return n, by
}

// A Claim is what an open call holds or has reserved, on At and every account
// above it. The claims of a call belong to calls that cannot settle before it.
type Claim struct {
	Pid  abi.Pid
	Call uint64
	At   *Account
	Use  abi.Usage
}

// addClaims adds the claims on a to sum and returns the rest. Claims are in the
// order of accounts from below to above.
func addClaims(sum *abi.Usage, a *Account, claims []Claim) []Claim {
	for len(claims) > 0 && claims[0].At == a {
		sum.Add(&claims[0].Use)
		claims = claims[1:]
	}
	return claims
}

// Fit says whether a call fits on an account and all accounts above it.
type Fit struct {
	OK      bool
	At      *Account // the account that has no room, and the unit; set when OK is false
	Unit    abi.Unit
	Wait    bool      // room may come when other calls settle
	Need    abi.Usage // what the call asks for
	Granted int64     // amount of the elastic unit in Need
	By      abi.Unit  // the limit that lowered Granted below the maximum, if it is lower
}

// Fit decides whether a call with an elastic part fits. The call gets as much
// of the elastic unit as settled amounts leave. It waits for that amount: it
// does not take less because other calls have reservations.
func (a *Account) Fit(base *abi.Usage, e *Elastic, claims []Claim) Fit {
	var f Fit
	if e.Max > 0 {
		most, by := e.most(a, base, claims)
		// Less than the least is useless, so the call asks for that much and is refused if it does not fit.
		f.Granted, f.By = max(most, e.Least()), by
	}
	f.Need = e.Need(*base, f.Granted)
	a.findRoom(&f, claims)
	return f
}

// findRoom decides whether f.Need fits on a and above it. Settled amounts
// anywhere on the path refuse the call. Reservations of other calls make it
// wait, unless these calls wait for it: then they are claims, and refuse it.
func (a *Account) findRoom(f *Fit, claims []Claim) {
	need := &f.Need
	var claimed abi.Usage
	// Both loops go to the root: a refusal far above counts more than a wait below.
	for b := a; b != nil; b = b.Parent {
		claims = addClaims(&claimed, b, claims)
		if u, short := b.lacks(need, &claimed); short {
			f.At, f.Unit = b, u
			return
		}
	}
	for ; a != nil; a = a.Parent {
		for u := range need {
			if limit, set := a.Limits.Get(abi.Unit(u)); set && need[u] > 0 && a.Counted(abi.Unit(u))+a.Reserved[u]+a.Held[u] > limit-need[u] {
				f.At, f.Unit, f.Wait = a, abi.Unit(u), true
				return
			}
		}
	}
	f.OK = true
}

// lacks returns a unit of which a itself has too little left for need, even
// after every call but the claimed ones has settled.
func (a *Account) lacks(need, claimed *abi.Usage) (abi.Unit, bool) {
	if a.Limits.IsZero() {
		return 0, false
	}
	for u := range need {
		limit, set := a.Limits.Get(abi.Unit(u))
		if set && limit == 0 && abi.Unit(u) == abi.Money && need[abi.ModelCalls] > 0 {
			return abi.Money, true // no money means no model call, even if the model is free
		}
		// Subtracting from the limit cannot overflow; adding the need to the sums could.
		if set && need[u] > 0 && a.Counted(abi.Unit(u))+a.Doubt[u]+claimed[u] > limit-need[u] {
			return abi.Unit(u), true
		}
	}
	return 0, false
}

// isFull reports whether settled amounts leave no room for need on a itself.
func (a *Account) isFull(need *abi.Usage) bool {
	_, short := a.lacks(need, &abi.Usage{})
	return short
}
