package kernel

import (
	"slices"

	"github.com/kern-run/kern/abi"
)

// Calls that wait for room stand in a queue at the account that has none, the
// most urgent first. When something is settled the first is told to look
// again. Whether it goes or stays, it then lets the next one look that may do
// better, so nobody waits for room that is there: a smaller call is never kept
// waiting by a larger one that waits itself.
//
// What is settled at another account of its path can take a call that waits
// all hope, or some of what it waits for, so those know of it too: see curb.

// join puts o into the queue of v.at, where it stays until it passes, and lets
// the next one look.
func (o *op) join(v *verdict) {
	a := v.at
	for b := o.p.acct; b != nil; b = b.parent {
		if b.crowd == nil {
			b.crowd = &crowd{others: make(map[*op]struct{})}
		}
	}
	if o.at != a {
		o.pass()
		o.at = a
		o.stand()
	}
	for b := o.p.acct; b != nil; b = b.parent {
		if b != a {
			b.others[o] = struct{}{}
			b.cover(o.most)
		}
	}
	for _, w := range a.queue[slices.Index(a.queue, o)+1:] {
		if w.nested || w.least[v.unit] < v.need[v.unit] || a.full(&w.least) {
			w.poke()
			return
		}
	}
}

// stand puts o into its queue, behind those that are as urgent.
func (o *op) stand() {
	i := len(o.at.queue)
	for i > 0 && o.at.queue[i-1].p.Priority > o.p.Priority {
		i--
	}
	o.at.queue = slices.Insert(o.at.queue, i, o)
}

// ranked gives what waits of p the place that its new priority has.
func ranked(p *proc) {
	p.rank.Store(int32(p.Priority))
	for _, o := range p.ops {
		if a := o.at; a != nil {
			a.queue = slices.DeleteFunc(a.queue, func(w *op) bool { return w == o })
			o.stand()
		}
	}
	if p.k.cfg.Rank != nil {
		p.k.cfg.Rank(p.Pid, p.Priority)
	}
}

// pass takes o out of its queue and lets the next look.
func (o *op) pass() {
	a := o.at
	if a == nil {
		return
	}
	o.at = nil
	i := slices.Index(a.queue, o)
	a.queue = slices.Delete(a.queue, i, i+1)
	for b := o.p.acct; b != nil; b = b.parent {
		delete(b.others, o)
	}
	if i < len(a.queue) {
		a.queue[i].poke()
	}
}

// stir tells the first call that waits at a, or above it, to look again.
func stir(a *account) {
	for ; a != nil; a = a.parent {
		if a.crowd == nil {
			continue
		}
		if len(a.queue) > 0 {
			a.queue[0].poke()
		}
		a.curb()
	}
}

// curb makes the calls look again that wait elsewhere for more than a has left.
func (a *account) curb() {
	if len(a.others) == 0 || !a.full(&a.tall) {
		return
	}
	a.tall = abi.Usage{}
	for o := range a.others {
		if a.full(o.most) {
			o.poke()
		} else {
			a.cover(o.most)
		}
	}
}

// cover notes that a call that waits elsewhere asks for so much.
func (a *account) cover(most *abi.Usage) {
	for u := range most {
		a.tall[u] = max(a.tall[u], most[u])
	}
}

// rouse makes the calls of p and below it look again that wait for room: what
// they wait for may now be waiting for them.
func (p *proc) rouse() {
	for _, o := range p.ops {
		if o.at != nil {
			o.poke()
		}
	}
	for _, c := range p.kids {
		c.rouse()
	}
}

// poke makes a waiting call look again.
func (o *op) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// before calls f with every call that cannot settle before c of p does, from p
// upwards: the calls that c is part of, and those of the ancestors of p that
// other calls are part of, for one of these may be waiting for p.
func (p *proc) before(c *abi.Call, f func(p *proc, n uint64)) {
	for n := c.Within; n != 0; {
		f(p, n)
		next := p.ops[n]
		if next == nil || next.call.Within >= n {
			break
		}
		n = next.call.Within
	}
	for a := p.k.procs[p.Spawn.Parent]; a != nil; a = p.k.procs[a.Spawn.Parent] {
		if a.inner == 0 {
			continue
		}
		seen := make(map[uint64]bool)
		for _, w := range a.ops {
			if n := w.call.Within; n != 0 && !seen[n] {
				seen[n] = true
				f(a, n)
			}
		}
	}
}

// reserves is what a call of p has reserved.
func reserves(p *proc, n uint64) *abi.Usage {
	if b := p.Calls.Open[n]; b != nil {
		return &b.Reserve
	}
	if w := p.ops[n]; w != nil {
		return &w.held
	}
	return &abi.Usage{}
}

// waitedFor is what is reserved by calls that cannot settle before c does.
func (p *proc) waitedFor(c *abi.Call) (all []claim) {
	if c.Within == 0 && p.Spawn.Parent == 0 {
		return nil
	}
	p.before(c, func(p *proc, n uint64) {
		u := reserves(p, n)
		if k := len(all); k > 0 && all[k-1].at == p.acct {
			all[k-1].use.Add(u)
		} else if *u != (abi.Usage{}) {
			all = append(all, claim{p.acct, *u})
		}
	})
	return all
}

// hopeless reports whether o, which is part of a call, would wait for ever at
// an account: even if all else settled and gave back all it had, the calls that
// those who wait there are part of would hold too much for any of them to go
// on. They are in each other's way, and one of them must be told.
func (v *verdict) hopeless(o *op) bool {
	if !o.nested {
		return false
	}
	a, u := v.at, v.unit
	limit, _ := a.limits.Get(u)
	left, least := limit-a.settled[u]-a.stuck[u], o.least[u]
	type call struct {
		p *proc
		n uint64
	}
	seen := make(map[call]bool)
	count := func(w *op) {
		least = min(least, w.least[u])
		w.p.before(&w.call, func(p *proc, n uint64) {
			if c := (call{p, n}); !seen[c] && p.acct.under(a) {
				seen[c] = true
				left -= reserves(p, n)[u]
			}
		})
	}
	count(o)
	if a.crowd != nil {
		for _, w := range a.queue {
			count(w)
		}
	}
	return left < least
}
