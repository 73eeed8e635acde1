package ledger

import (
	"slices"

	"github.com/kern-run/kern/abi"
)

// Calls that wait for room stand in a queue at the account that has none, the
// most urgent first. When an amount is settled, the first waiter is woken and
// looks again. Whether it goes on or stays, it then wakes the next waiter that
// may have better luck. So no call waits for room that is there, and a large
// call that waits does not block a smaller one.
//
// Settled amounts at another account of its path can make a waiter's demand
// impossible, or shrink it. So these accounts know the waiter too: see wakeFull.

// waiters are the calls that wait for room on the path of an account.
type waiters struct {
	queue     []*Waiter            // calls that wait at this account, by priority
	elsewhere map[*Waiter]struct{} // calls that wait at another account of their path
	largest   abi.Usage            // no call in elsewhere asks for more
}

// A Waiter is a call that may have to wait for room.
type Waiter struct {
	Account  *Account // of the process that makes the call
	Priority int      // see [Waiter.Reorder]
	Least    abi.Usage
	Most     abi.Usage // all that the call asks for, claims included
	// Claims returns what calls hold that cannot settle before this one.
	Claims func() []Claim
	// Wake holds a token when the waiter must look again.
	Wake chan struct{}

	at      *Account // whose queue the call stands in; nil: none
	claimed bool     // there are claims
}

// Waits reports whether w stands in a queue.
func (w *Waiter) Waits() bool { return w.at != nil }

// Join puts w into the queue of the account that has no room, where w stays until
// it leaves. It wakes the next waiter, and gives up when w would wait for ever:
// then it returns false and w does not wait.
func (w *Waiter) Join(f *Fit, least abi.Usage, claims []Claim) bool {
	w.Least, w.Most, w.claimed = least, f.Need, len(claims) > 0
	for i := range claims {
		w.Most.Add(&claims[i].Use)
	}
	if w.isHopeless(f) {
		return false
	}
	for b := w.Account; b != nil; b = b.Parent {
		if b.waiters == nil {
			b.waiters = &waiters{elsewhere: make(map[*Waiter]struct{})}
		}
	}
	// A waiter that stays keeps its place. Joining again would put it behind calls that came later.
	if w.at != f.At {
		w.Leave()
		w.at = f.At
		w.enqueue()
	}
	for b := w.Account; b != nil; b = b.Parent {
		if b != w.at {
			b.waiters.elsewhere[w] = struct{}{}
			b.noteDemand(w)
		}
	}
	queue := w.at.waiters.queue
	for _, next := range queue[slices.Index(queue, w)+1:] {
		// Only a waiter that has claims, needs less, or can no longer fit at all may have better luck.
		if next.claimed || next.Least[f.Unit] < f.Need[f.Unit] || w.at.isFull(&next.Least) {
			next.Poke()
			break
		}
	}
	return true
}

// enqueue puts w into its queue, behind waiters that are as urgent.
func (w *Waiter) enqueue() {
	q := w.at.waiters
	i := len(q.queue)
	for i > 0 && q.queue[i-1].Priority > w.Priority {
		i--
	}
	q.queue = slices.Insert(q.queue, i, w)
}

// Reorder gives w a new priority, and its place in the queue.
func (w *Waiter) Reorder(priority int) {
	w.Priority = priority
	if w.at != nil {
		w.at.waiters.queue = slices.DeleteFunc(w.at.waiters.queue, func(o *Waiter) bool { return o == w })
		w.enqueue()
	}
}

// Leave takes w out of its queue and wakes the waiter behind it.
func (w *Waiter) Leave() {
	if w.at == nil {
		return
	}
	q := w.at.waiters
	w.at = nil
	i := slices.Index(q.queue, w)
	q.queue = slices.Delete(q.queue, i, i+1)
	for b := w.Account; b != nil; b = b.Parent {
		delete(b.waiters.elsewhere, w)
	}
	// The room that this waiter would have taken may be enough for the next one.
	if i < len(q.queue) {
		q.queue[i].Poke()
	}
}

// Poke makes a waiting call look again.
func (w *Waiter) Poke() {
	select {
	case w.Wake <- struct{}{}:
	// The token that is there already makes the waiter look.
	default:
	}
}

// WakeWaiters wakes the first call that waits at a and at each account above it.
// It is called after an amount on a was settled or released.
func (a *Account) WakeWaiters() {
	for ; a != nil; a = a.Parent {
		if a.waiters == nil {
			continue
		}
		if queue := a.waiters.queue; len(queue) > 0 {
			queue[0].Poke()
		}
		a.wakeFull()
	}
}

// wakeFull wakes the calls that wait elsewhere and ask for more than a has left.
func (a *Account) wakeFull() {
	// The largest demand is checked first, because this runs at every settlement.
	if len(a.waiters.elsewhere) == 0 || !a.isFull(&a.waiters.largest) {
		return
	}
	a.waiters.largest = abi.Usage{}
	for w := range a.waiters.elsewhere {
		if a.isFull(&w.Most) {
			w.Poke()
		} else {
			a.noteDemand(w)
		}
	}
}

// noteDemand records what a call that waits elsewhere asks for.
func (a *Account) noteDemand(w *Waiter) {
	for u := range w.Most {
		a.waiters.largest[u] = max(a.waiters.largest[u], w.Most[u])
	}
}

// isHopeless reports whether w, which has claims, would wait for ever at f.At:
// even if all other calls settled, the claims of all waiters there would leave
// too little for any of them. They block each other, so one must be refused.
func (w *Waiter) isHopeless(f *Fit) bool {
	if !w.claimed {
		return false
	}
	type call struct {
		pid abi.Pid
		n   uint64
	}
	left, _ := f.At.Unsettled(f.Unit)
	least := w.Least[f.Unit]
	seen := make(map[call]bool)
	count := func(o *Waiter) {
		least = min(least, o.Least[f.Unit])
		for _, c := range o.Claims() {
			// Several waiters may lie below the same call, whose claim counts once.
			if id := (call{c.Pid, c.Call}); !seen[id] && c.At.IsBelow(f.At) {
				seen[id] = true
				left -= c.Use[f.Unit]
			}
		}
	}
	count(w)
	if f.At.waiters != nil {
		for _, o := range f.At.waiters.queue {
			count(o)
		}
	}
	return left < least
}
