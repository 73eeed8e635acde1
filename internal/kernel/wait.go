package kernel

import (
	"errors"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
)

// waiting is what a call waits for. It is guarded by the kernel's lock.
type waiting struct {
	on   string         // as lists show it; empty: the call runs
	room *ledger.Waiter // made when the call first waits

	attempt int    // the next attempt at a resource; 0: none failed
	cause   string // why the attempt before failed
}

// allow lets the call of o wait and be woken.
func (w *waiting) allow(o *op) {
	if w.room == nil {
		w.room = &ledger.Waiter{Account: o.p.state.Account, Priority: o.p.state.Priority, Wake: make(chan struct{}, 1),
			Claims: func() []ledger.Claim { return o.p.claimsBefore(&o.call) }}
	}
}

// item is the wait as the live channel carries it.
func (w *waiting) item(c *abi.Call) abi.LiveItem {
	return abi.LiveItem{Kind: abi.LiveWait, Pid: c.Pid, Call: c.N, For: w.on, Attempt: w.attempt, Cause: w.cause}
}

func (w *waiting) leaveQueue() {
	if w.room != nil {
		w.room.Leave()
	}
}

// poke makes a waiting call look again.
func (w *waiting) poke() {
	if w.room != nil {
		w.room.Poke()
	}
}

// forRoom reports whether the call stands in a queue.
func (w *waiting) forRoom() bool { return w.room != nil && w.room.Waits() }

// admit waits as long as [admit] says, and holds the bound of the call when it
// may run.
func (o *op) admit(j *Job, bad *abi.Error) *abi.Error {
	p, k := o.p, o.p.k
	for {
		k.procs.mu.Lock()
		if k.closed {
			k.procs.mu.Unlock()
			return closing()
		}
		k.accounts.renew(p.state.Account)
		claims := p.claimsBefore(&o.call)
		v := admit(&admission{state: p.state, call: &o.call, row: o.row, plan: &j.Plan, bad: bad, claims: claims, now: k.cfg.Now().UnixNano()})
		if v.wait != "" {
			o.waiting.allow(o)
		}
		// A call joins the queue unless it would wait for ever.
		if v.wait == waitRoom && !o.waiting.room.Join(&v.fit, j.Plan.least(), claims) {
			v = verdict{refused: overLimit(p.state, &j.Plan, &v.fit)}
		}
		// A batch goes on when this call had its first verdict.
		if o.first != nil {
			o.first <- struct{}{}
			o.first = nil
		}
		if v.refused != nil || v.wait == "" {
			if v.refused == nil {
				o.hold(j, &v.fit)
			}
			o.endWait()
			k.procs.mu.Unlock()
			return v.refused
		}
		o.setWait(v.wait)
		if v.wait != waitRoom {
			o.waiting.leaveQueue()
		}
		if v.wait == waitApproval {
			o.ask(j)
		}
		k.procs.mu.Unlock()
		if e := o.sleep(0); e != nil {
			return e
		}
	}
}

// hold sets the bound of an admitted call aside. The lock is held.
func (o *op) hold(j *Job, f *ledger.Fit) {
	p := o.p
	if q := p.state.Calls.Pending[o.call.N]; q != nil && q.Ask != nil {
		j.Answer = string(q.Ask.Reason.Bytes)
	}
	o.held, j.Granted, j.Lowered = f.Need, f.Granted, nil
	if e := &j.Plan.Elastic; e.Unit == abi.OutputTokens && f.Granted < e.Max {
		j.Lowered = &abi.Ceiling{Limit: f.By.String(), Granted: f.Granted, Asked: e.Max}
	}
	p.state.Account.Hold(&o.held)
	if p.inner > 0 { // what is held here may be in the way of calls within this one
		p.pokeBelow()
	}
}

// release ends the hold of a call that did not run.
func (o *op) release() {
	o.p.k.procs.mu.Lock()
	defer o.p.k.procs.mu.Unlock()
	o.unhold()
	o.p.state.Account.WakeWaiters()
}

// unhold ends the hold. The lock is held.
func (o *op) unhold() {
	o.p.state.Account.Release(&o.held)
	o.held = abi.Usage{}
}

// sleep waits for a poke, or for d to pass if d is not 0. It returns an error when
// the waiting is ended from outside.
func (o *op) sleep(d time.Duration) *abi.Error {
	var poked chan struct{}
	var timer <-chan time.Time
	if d > 0 { // no poke makes the time pass
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	} else if o.waiting.room != nil {
		poked = o.waiting.room.Wake
	}
	select {
	case <-poked:
		return nil
	case <-timer:
		return nil
	case <-o.ctx.Done():
	}
	return o.stopped()
}

// pause waits before the next attempt.
func (o *op) pause(j *Job, d Done) *abi.Error {
	if j.Plan.Source.Resource != "" && d.Err != nil {
		o.p.k.procs.mu.Lock()
		o.waiting.attempt, o.waiting.cause = j.Attempt+1, string(d.Err.Code)
		if d.Status != 0 {
			o.waiting.cause = strconv.Itoa(d.Status)
		}
		o.p.k.procs.mu.Unlock()
	}
	wait := backoff(j, d)
	if wait == 0 {
		return nil
	}
	o.showWait(waitBackoff)
	defer o.showWait("")
	return o.sleep(wait)
}

// showWait is setWait for a caller without the lock.
func (o *op) showWait(on string) {
	o.p.k.procs.mu.Lock()
	o.setWait(on)
	o.p.k.procs.mu.Unlock()
}

// setWait sets what lists show of the call, and publishes it. The lock is held.
func (o *op) setWait(on string) {
	if o.waiting.on == on {
		return
	}
	o.waiting.on = on
	o.p.k.cfg.Live.Publish(o.waiting.item(&o.call))
}

// endWait ends all waiting. Room that is left is for the next call in the queue.
// The lock is held.
func (o *op) endWait() {
	o.setWait("")
	o.waiting.leaveQueue()
}

// waitTurn waits for the resource that the call needs.
func (o *op) waitTurn(j *Job) (release func(*Done), e *abi.Error) {
	p, k := o.p, o.p.k
	source := j.Plan.Source
	if source.Resource == "" || k.cfg.Turn == nil {
		return func(*Done) {}, nil
	}
	k.procs.mu.Lock()
	o.setWait(waitTurn + " " + source.Resource)
	p.priority.Store(int32(p.state.Priority))
	t := Turn{Resource: source.Resource, Owner: k.procs.machine.Owner(p.state), Pid: p.state.Pid, Priority: p.state.Priority,
		Now: func() int { return int(p.priority.Load()) },
		In:  o.held[abi.InputTokens], Out: o.held[abi.OutputTokens], Other: source.Other}
	if j.Plan.Last { // last words have a short deadline
		t.Priority, t.Now = 0, nil
	}
	k.procs.mu.Unlock()
	release, err := k.cfg.Turn(o.ctx, t)
	o.showWait("")
	switch {
	case errors.Is(err, ErrElsewhere) && o.ctx.Err() == nil:
		o.release()
		return nil, errHeldBack
	case err != nil:
		return nil, o.stopped()
	}
	return release, nil
}

// claimsBefore returns what calls hold that cannot settle before call c of p
// does. A call can be part of another call of its process, and a process can be
// the child of a call: the outer call settles last. So c must not wait for the
// outer calls of its own process. It must not wait for outer calls of ancestors
// either, because their inner calls may wait for p. Claims are in order from p
// upwards.
func (p *proc) claimsBefore(c *abi.Call) (claims []ledger.Claim) {
	if c.Within == 0 && p.state.Spawn.Parent == 0 {
		return nil
	}
	add := func(p *proc, n uint64) {
		var use abi.Usage
		if open := p.state.Calls.Open[n]; open != nil {
			use = open.Reserve
		} else if o := p.ops[n]; o != nil {
			use = o.held
		}
		if use != (abi.Usage{}) {
			claims = append(claims, ledger.Claim{Pid: p.state.Pid, Call: n, At: p.state.Account, Use: use})
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
	byPid := p.k.procs.byPid
	for a := byPid[p.state.Spawn.Parent]; a != nil; a = byPid[a.state.Spawn.Parent] {
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

// pokeBelow makes calls of p and its descendants look again that wait for room,
// because what they wait for may now wait for them.
func (p *proc) pokeBelow() {
	for _, o := range p.ops {
		if o.waiting.forRoom() {
			o.waiting.poke()
		}
	}
	for pid := range p.state.Living {
		p.k.procs.byPid[pid].pokeBelow()
	}
}
