package kernel

import (
	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
)

// A call can be part of another call of its process, and a process can be the
// child of a call. The outer call cannot settle before the inner one, so the
// inner call must not wait for the reservation of the outer one.

// claimsBefore returns what calls hold that cannot settle before call c of p
// does: the calls that c is part of, and calls of ancestors of p that have inner
// calls, because one of these may wait for p. They are in order from p upwards.
func (p *proc) claimsBefore(c *abi.Call) (claims []ledger.Claim) {
	if c.Within == 0 && p.Spawn.Parent == 0 {
		return nil
	}
	add := func(p *proc, n uint64) {
		if u := p.holdOf(n); u != nil && *u != (abi.Usage{}) {
			claims = append(claims, ledger.Claim{Pid: p.Pid, Call: n, At: p.acct, Use: *u})
		}
	}
	for n := c.Within; n != 0; {
		add(p, n)
		outer := p.ops[n]
		if outer == nil || outer.call.Within >= n {
			break
		}
		n = outer.call.Within
	}
	for a := p.k.procs[p.Spawn.Parent]; a != nil; a = p.k.procs[a.Spawn.Parent] {
		if a.inner == 0 {
			continue
		}
		seen := make(map[uint64]bool)
		for _, o := range a.ops {
			if n := o.call.Within; n != 0 && !seen[n] {
				seen[n] = true
				add(a, n)
			}
		}
	}
	return claims
}

// holdOf returns what call n of p has reserved or holds; nil: nothing.
func (p *proc) holdOf(n uint64) *abi.Usage {
	if b := p.Calls.Open[n]; b != nil {
		return &b.Reserve
	}
	if o := p.ops[n]; o != nil {
		return &o.held
	}
	return nil
}

// pokeBelow makes the calls of p and its descendants look again that wait for
// room, because what they wait for may now wait for them.
func (p *proc) pokeBelow() {
	for _, o := range p.ops {
		if o.waitsForRoom() {
			o.poke()
		}
	}
	for _, child := range p.kids {
		child.pokeBelow()
	}
}
