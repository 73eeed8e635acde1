package kernel

import (
	"slices"

	"github.com/kern-run/kern/abi"
)

// Calls that wait for room stand in a queue at the account that has none, the
// most urgent first. When something is settled the first is told to look
// again; what it leaves over is the next one's. A call that comes later and
// fits does not stand in line: a smaller call is never kept waiting by a
// larger one that waits itself.

// join puts o into the queue of a, where it stays until it passes.
func (o *op) join(a *account) {
	if o.at == a {
		return
	}
	o.pass()
	o.at = a
	i := len(a.queue)
	for i > 0 && a.queue[i-1].p.Priority > o.p.Priority {
		i--
	}
	a.queue = slices.Insert(a.queue, i, o)
}

// pass takes o out of its queue and lets the next look.
func (o *op) pass() {
	a := o.at
	if a == nil {
		return
	}
	o.at = nil
	if i := slices.Index(a.queue, o); i >= 0 {
		a.queue = slices.Delete(a.queue, i, i+1)
	}
	if len(a.queue) > 0 {
		a.queue[0].poke()
	}
}

// stir tells the first call that waits at a, or above it, to look again.
func stir(a *account) {
	for ; a != nil; a = a.parent {
		if len(a.queue) > 0 {
			a.queue[0].poke()
		}
	}
}

// poke makes a waiting call look again.
func (o *op) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// waitedFor is what is reserved by calls that cannot settle before o does: the
// calls that o is part of, and those of its ancestors that other calls are
// part of, for one of these may be waiting for this process.
func (o *op) waitedFor() (u abi.Usage) {
	add := func(p *proc, n uint64) {
		if b := p.Calls.Open[n]; b != nil {
			u.Add(&b.Reserve)
		} else if w := p.ops[n]; w != nil {
			u.Add(&w.held)
		}
	}
	for n := o.call.Within; n != 0; {
		add(o.p, n)
		next := o.p.ops[n]
		if next == nil || next.call.Within >= n {
			break
		}
		n = next.call.Within
	}
	if o.p.Spawn == nil || o.p.Spawn.Parent == 0 {
		return u
	}
	k := o.p.k
	for a := k.procs[o.p.Spawn.Parent]; a != nil; a = k.procs[a.Spawn.Parent] {
		counted := map[uint64]bool{}
		for _, w := range a.ops {
			if n := w.call.Within; n != 0 && !counted[n] {
				counted[n] = true
				add(a, n)
			}
		}
	}
	return u
}
