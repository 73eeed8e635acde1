// Package ledger books usage on accounts and decides what fits.
//
// It is pure: it reads no clock, starts no goroutine and writes nothing. The
// caller holds one lock around all accounts of a tree.
//
//   - ledger.go: an [Account] and what is booked on it;
//   - fit.go: whether a call fits, and how much of an [Elastic] part it gets;
//   - queue.go: in which order calls wait for room.
package ledger

import "github.com/kern-run/kern/abi"

// An Account is where usage is booked. Accounts form a tree. An amount that is
// booked on an account is booked on every account above it too, so for every
// account and unit
//
//	Settled + Reserved + Held <= limit
//
// as long as no call uses more than it reserved. An amount beyond the
// reservation is drift, and counts in Settled.
type Account struct {
	Name     string // of a named account
	Parent   *Account
	Limits   abi.Limits
	Settled  abi.Usage  // what calls used
	Reserved abi.Usage  // what begun calls may still use; Doubt is a part of it
	Doubt    abi.Usage  // reserved by calls in doubt: only a person releases it
	Held     abi.Usage  // what admitted calls may use that are not in the journal yet
	Period   abi.Period // what was settled before it does not count against Limits

	waiters *waiters // nil until a call waits for room on this path
}

// IsBelow reports whether a is b or below it.
func (a *Account) IsBelow(b *Account) bool {
	for ; a != nil; a = a.Parent {
		if a == b {
			return true
		}
	}
	return false
}

// Hold sets u aside until the intent of the call is recorded or the call is gone.
func (a *Account) Hold(u *abi.Usage) {
	for ; a != nil; a = a.Parent {
		a.Held.Add(u)
	}
}

// Within reports whether every account of the path is within its limits in the units of
// a hold.
func (a *Account) Within(held *abi.Usage) bool {
	for ; a != nil; a = a.Parent {
		for u := range abi.Units {
			if limit, set := a.Limits.Get(u); set && held[u] > 0 && a.Counted(u)+a.Reserved[u]+a.Held[u] > limit {
				return false
			}
		}
	}
	return true
}

// Release ends what Hold began.
func (a *Account) Release(u *abi.Usage) {
	for ; a != nil; a = a.Parent {
		a.Held.Sub(u)
	}
}

// Reserve books u as what a begun call may use.
func (a *Account) Reserve(u *abi.Usage) {
	for ; a != nil; a = a.Parent {
		a.Reserved.Add(u)
	}
}

// Settle replaces the reservation of a call by what the call used.
func (a *Account) Settle(reserved, used *abi.Usage) {
	for ; a != nil; a = a.Parent {
		a.Reserved.Sub(reserved)
		a.Settled.Add(used)
	}
}

// KeepInDoubt keeps the reservation u, because the end of its call is unknown.
func (a *Account) KeepInDoubt(u *abi.Usage) {
	for ; a != nil; a = a.Parent {
		a.Doubt.Add(u)
	}
}

// SettleDoubt replaces a reservation in doubt by what a person found that the call used.
func (a *Account) SettleDoubt(released, spent *abi.Usage) {
	for b := a; b != nil; b = b.Parent {
		b.Doubt.Sub(released)
	}
	a.Settle(released, spent)
}

// Left returns what the path of a still allows, for each unit that is limited
// on the path.
func (a *Account) Left() (left abi.Limits) {
	for ; a != nil; a = a.Parent {
		for u := range abi.Units {
			limit, set := a.Limits.Get(u)
			if !set {
				continue
			}
			// Drift can lead below zero.
			n := max(0, limit-a.Counted(u)-a.Reserved[u]-a.Held[u])
			if least, ok := left.Get(u); !ok || n < least {
				left.Set(u, n)
			}
		}
	}
	return left
}

// Unsettled returns what a alone has left of u when all reservations but those
// in doubt are released. Limited is false when a has no limit on u.
func (a *Account) Unsettled(u abi.Unit) (left int64, limited bool) {
	limit, limited := a.Limits.Get(u)
	return limit - a.Counted(u) - a.Doubt[u], limited
}

// Counted returns what was settled of u and counts against the limit.
func (a *Account) Counted(u abi.Unit) int64 { return a.Settled[u] - a.Period.Base[u] }

// Over returns the accounts from a to the root whose period is over.
func (a *Account) Over(now int64) (over []*Account) {
	for ; a != nil; a = a.Parent {
		if a.Period.Per != "" && now >= a.Period.Until {
			over = append(over, a)
		}
	}
	return over
}
