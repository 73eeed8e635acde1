package kernel

import (
	"math"
	"math/bits"

	"github.com/kern-run/kern/abi"
)

// An account is where usage is booked. Accounts form a tree, and what is
// booked on one is booked on all above it, so for every account and unit
//
//	settled + reserved + held <= limit
//
// as long as no call takes more than it reserved; what one does take more is
// drift, and counts in settled.
type account struct {
	parent   *account
	limits   abi.Limits
	settled  abi.Usage // what calls took
	reserved abi.Usage // what begun calls may still take; stuck is a part of it
	stuck    abi.Usage // reserved by calls whose end nobody saw: it is never given back
	held     abi.Usage // what admitted calls may take that are not yet in the journal
	*crowd             // nil until somebody waits
}

// A crowd is the calls that wait for room on a path.
type crowd struct {
	queue  []*op            // here, by priority
	others map[*op]struct{} // at another account of their path
	tall   abi.Usage        // none of those asks for more
}

// fit says whether a call fits on an account and all above it.
type fit struct {
	ok     bool
	unit   abi.Unit // in the way, when not ok
	at     *account
	wait   bool  // room may come when others settle
	amount int64 // granted of the elastic unit
}

// least is how much of an elastic part is enough.
func (e *Elastic) least() int64 { return min(e.Min, e.Max) }

// cost is what n of an elastic unit cost, rounded up.
func (e *Elastic) cost(n int64) int64 {
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

// need is base with n of the elastic unit.
func (e *Elastic) need(base abi.Usage, n int64) abi.Usage {
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

// A claim is what calls reserve, on an account and all above it, that cannot
// settle before another call does.
type claim struct {
	at  *account
	use abi.Usage
}

// upTo adds to sum the claims on a. Claims are in order upwards.
func upTo(a *account, claims []claim, sum *abi.Usage) []claim {
	for len(claims) > 0 && claims[0].at == a {
		sum.Add(&claims[0].use)
		claims = claims[1:]
	}
	return claims
}

// most is how much of the elastic unit may be had on the path when nobody else
// were there: only what is settled, and what will never be given back, counts.
// claims are those of calls that wait for this one.
func (e *Elastic) most(a *account, base *abi.Usage, claims []claim) int64 {
	n := e.Max
	var waits abi.Usage
	for ; a != nil; a = a.parent {
		claims = upTo(a, claims, &waits)
		left := func(u abi.Unit) int64 {
			limit, set := a.limits.Get(u)
			if !set {
				return math.MaxInt64
			}
			return limit - a.settled[u] - a.stuck[u] - waits[u] - base[u]
		}
		n = min(n, left(e.Unit))
		if e.Tokens {
			n = min(n, left(abi.Tokens))
		}
		if money := left(abi.Money); e.Price > 0 && money < math.MaxInt64/1_000_000 {
			n = min(n, money*1_000_000/e.Price)
		}
	}
	return n
}

// room says whether need fits on a and above it. What is settled anywhere on
// the way refuses; a call that would fit but for the reservations of others
// waits, unless those wait for it.
func (a *account) room(need *abi.Usage, claims []claim) fit {
	var waits abi.Usage
	for b := a; b != nil; b = b.parent {
		claims = upTo(b, claims, &waits)
		if u, short := b.short(need, &waits); short {
			return fit{unit: u, at: b}
		}
	}
	for ; a != nil; a = a.parent {
		for u := range need {
			if limit, set := a.limits.Get(abi.Unit(u)); set && need[u] > 0 && a.settled[u]+a.reserved[u]+a.held[u] > limit-need[u] {
				return fit{unit: abi.Unit(u), at: a, wait: true}
			}
		}
	}
	return fit{ok: true}
}

// short says of what a itself has too little left for need, whatever settles
// except waits.
func (a *account) short(need, waits *abi.Usage) (abi.Unit, bool) {
	if a.limits.IsZero() {
		return 0, false
	}
	for u := range need {
		limit, set := a.limits.Get(abi.Unit(u))
		if set && limit == 0 && abi.Unit(u) == abi.Money && need[abi.ModelCalls] > 0 {
			return abi.Money, true // no money means no model, also one that is free
		}
		if set && need[u] > 0 && a.settled[u]+a.stuck[u]+waits[u] > limit-need[u] {
			return abi.Unit(u), true
		}
	}
	return 0, false
}

// full reports whether what is settled leaves no room for need on a itself.
func (a *account) full(need *abi.Usage) bool {
	_, short := a.short(need, &abi.Usage{})
	return short
}

// fits is room for a call with an elastic part: it gets as much as what is
// settled leaves, and waits for that rather than being content with less
// because others have reserved.
func (a *account) fits(base *abi.Usage, e *Elastic, claims []claim) (abi.Usage, fit) {
	n := int64(0)
	if e.Max > 0 {
		n = max(e.most(a, base, claims), e.least())
	}
	need := e.need(*base, n)
	f := a.room(&need, claims)
	f.amount = n
	return need, f
}

// under reports whether a is b or below it.
func (a *account) under(b *account) bool {
	for ; a != nil; a = a.parent {
		if a == b {
			return true
		}
	}
	return false
}

// hold takes u until the call is in the journal or gone.
func (a *account) hold(u *abi.Usage) {
	for ; a != nil; a = a.parent {
		a.held.Add(u)
	}
}

// unhold gives back what hold took.
func (a *account) unhold(u *abi.Usage) {
	for ; a != nil; a = a.parent {
		a.held.Sub(u)
	}
}

// reserve books u as what a begun call may take.
func (a *account) reserve(u *abi.Usage) {
	for ; a != nil; a = a.parent {
		a.reserved.Add(u)
	}
}

// settle replaces what a call had reserved by what it took.
func (a *account) settle(reserved, took *abi.Usage) {
	for ; a != nil; a = a.parent {
		a.reserved.Sub(reserved)
		a.settled.Add(took)
	}
}

// doubt keeps u reserved for ever: nobody saw how the call ended.
func (a *account) doubt(u *abi.Usage) {
	for ; a != nil; a = a.parent {
		a.stuck.Add(u)
	}
}

// left is what the path of a still allows of each unit that is limited
// anywhere on it.
func (a *account) left() (l abi.Limits) {
	for ; a != nil; a = a.parent {
		for u := range abi.Units {
			limit, set := a.limits.Get(u)
			if !set {
				continue
			}
			n := max(0, limit-a.settled[u]-a.reserved[u]-a.held[u])
			if was, ok := l.Get(u); !ok || n < was {
				l.Set(u, n)
			}
		}
	}
	return l
}
