package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// NestedFrom is the first number of calls that are made within other calls. The
// numbers that a caller chooses are below it.
const NestedFrom = process.NestedFrom

// Causes that end the waiting or running of a call from outside.
var (
	errClosing = errors.New("the kernel is closing")
	errTerm    = errors.New("the process was asked to finish")
	errEnding  = errors.New("the process is ending")
)

// op is a call in the kernel, from Do to its answer.
type op struct {
	p      *proc
	call   abi.Call
	row    *Row // nil: there is no such row
	via    any  // see [Kernel.DoVia]
	ctx    context.Context
	cancel context.CancelCauseFunc // nil for an instant row

	job     Job
	draft   draft             // what the journal gets
	waiting waiting           // what the call waits for
	held    abi.Usage         // set aside on its accounts, and not in the journal
	begun   bool              // its intent is in the journal, its end is not
	confirm func(stands bool) // Done.Kept of the last attempt, until it was called
	inner   atomic.Uint64     // calls made within it
	first   chan<- struct{}   // gets a token at the first verdict; nil: nobody listens
	done    chan struct{}     // closed when answered; nil until a caller waits for it
	dropped bool              // the process ended without waiting for the call
}

// Do answers one call. This is the whole promise of the kernel:
//
//   - a call that has an answer gets the same answer from the journal, and does
//     not run again;
//   - nothing runs that [admit] does not allow, with its bound reserved on every
//     account of its path;
//   - the intent of an effect is in the journal before the effect happens;
//   - an answer is in the journal before the agent sees it;
//   - a signal, a deadline or the end of ctx ends every wait on the way.
func (k *Kernel) Do(ctx context.Context, c abi.Call) abi.Result {
	return k.do(&op{call: c, ctx: ctx})
}

// DoVia is Do for a call that its caller carries out itself. The row finds via
// in [View.Via]. After a restart there is none.
func (k *Kernel) DoVia(ctx context.Context, c abi.Call, via any) abi.Result {
	return k.do(&op{call: c, ctx: ctx, via: via})
}

// do carries a call to its answer. An attempt that must be made again starts at
// the plan, because the state has changed.
func (k *Kernel) do(o *op) abi.Result {
	if answer, ok := k.enter(o); ok { // 1 answered?
		return answer
	}
	defer o.leave()
	for {
		j, bad := o.plan()
		if e := o.draft.tooLarge; e != nil { // not even a refusal of it fits the journal
			return abi.Result{Outcome: abi.Refused, Err: e}
		}
		if e := o.admit(j, bad); e != nil { // 2 admit
			return o.refuse(j, e)
		}
		release, e := o.waitTurn(j) // 3 turn
		if e == errHeldBack {
			continue
		} else if e != nil {
			return o.refuse(j, e)
		}
		d, ok := o.begin(j) // 4 intent
		if ok {
			d = o.run(j) // 5 run
			release(&d)
		} else {
			release(nil)
		}
		if d.Err == errHeldBack {
			continue
		}
		res, again := o.settle(j, d) // 6 settle
		if !again {
			return res
		}
		if e := o.pause(j, d); e != nil {
			return o.refuse(j, e)
		}
	}
}

// errHeldBack ends an attempt that may not begin after its turn. The call starts again
// from the plan.
var errHeldBack = &abi.Error{Code: abi.Interrupted, Message: "the process was stopped"}

// Batch answers several calls of one process at the same time, at most limit of
// them at once (0: all). They are admitted in their order, so a limit refuses
// the last ones.
func (k *Kernel) Batch(ctx context.Context, calls []abi.Call, limit int) []abi.Result {
	if limit <= 0 || limit > len(calls) {
		limit = len(calls)
	}
	results := make([]abi.Result, len(calls))
	slots := make(chan struct{}, limit)
	var running sync.WaitGroup
	for i := range calls {
		slots <- struct{}{}
		first, finished := make(chan struct{}, 1), make(chan struct{})
		running.Go(func() {
			results[i] = k.do(&op{call: calls[i], ctx: ctx, first: first})
			close(finished)
			<-slots
		})
		// The next call starts when this one had its first verdict.
		select {
		case <-first:
		case <-finished:
		}
	}
	running.Wait()
	return results
}

// Nested answers a call that this one makes. Its number follows from the number
// of this call: the first within call 7 is 7 + 1<<40, and so on.
func (j *Job) Nested(ctx context.Context, c abi.Call) abi.Result {
	c.Pid, c.Within = j.Call.Pid, j.Call.N
	c.N = j.Call.N%NestedFrom + j.op.inner.Add(1)*NestedFrom
	return j.Kernel.Do(ctx, c)
}

// enter returns the answer to a call that has one. Otherwise it opens the call.
func (k *Kernel) enter(o *op) (answer abi.Result, ok bool) {
	c := &o.call
	k.procs.mu.Lock()
	p := k.procs.byPid[c.Pid]
	if k.procs.isBuried(c.Pid) {
		k.procs.mu.Unlock()
		if answer, ok = k.answers.find(c); ok {
			return answer, true
		}
		k.procs.mu.Lock()
	}
	for p != nil {
		if p.state.Calls.Done.Has(c.N) {
			k.procs.mu.Unlock()
			if err := k.cfg.Log.Flush(o.ctx); err != nil {
				return abi.Result{Outcome: abi.Unknown, Err: k.answers.broken()}, true
			}
			answer, _ = k.answers.find(c)
			return answer, true
		}
		open := p.ops[c.N]
		if open == nil {
			break
		}
		// The same call is being made already: wait for it and look again.
		done := open.doneChan()
		k.procs.mu.Unlock()
		select {
		case <-done:
		case <-o.ctx.Done():
			return abi.Result{Outcome: abi.Refused, Err: interrupted(o.ctx)}, true
		}
		k.procs.mu.Lock()
	}
	defer k.procs.mu.Unlock()
	if e := k.turnAway(p, c); e != nil {
		return abi.Result{Outcome: abi.Refused, Err: e}, true
	}
	o.open(p, k.cfg.Rows[c.Row])
	return answer, false
}

// turnAway says why a call cannot even be considered. Nothing is recorded.
func (k *Kernel) turnAway(p *proc, c *abi.Call) *abi.Error {
	switch {
	case p == nil && !k.procs.isBuried(c.Pid):
		return process.Unknown(c.Pid)
	case c.N == 0 || c.N >= NestedFrom && c.Within == 0:
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("call %d: expected a number from 1 to %d", c.N, NestedFrom-1)}
	case k.closed:
		return closing()
	case p == nil:
		return k.procs.machine.Absent(c.Pid)
	case p.state.Ending != nil:
		return p.state.Refusal()
	case c.Row == process.ExitRow: // an exit needs no room on the disk to be admitted
		return nil
	}
	return k.cfg.Log.Err()
}

// open enters the call into its process. The lock is held.
func (o *op) open(p *proc, row *Row) {
	o.p, o.row = p, row
	if row != nil && !row.Instant {
		o.ctx, o.cancel = context.WithCancelCause(o.ctx)
	}
	if p.ops == nil {
		p.ops = make(map[uint64]*op)
	}
	p.ops[o.call.N] = o
	if o.call.Within != 0 {
		p.inner++
		p.pokeBelow()
	}
}

// leave takes the call out of its process.
func (o *op) leave() {
	p := o.p
	p.k.procs.mu.Lock()
	defer p.k.procs.mu.Unlock()
	if o.cancel != nil {
		o.cancel(nil)
	}
	if o.done != nil {
		close(o.done)
	}
	if o.waiting.attempt > 0 { // subscribers learn that no attempt follows
		o.waiting = waiting{room: o.waiting.room}
		p.k.cfg.Live.Publish(o.waiting.item(&o.call))
	}
	if p.claims.release(o) {
		defer p.news.ring() // another call may take what this one had claimed
	}
	if o.call.Within != 0 {
		p.inner--
	}
	if !o.dropped {
		delete(p.ops, o.call.N)
		p.settleExit()
	}
}

// doneChan returns a channel that is closed when the call is answered. The lock
// is held.
func (o *op) doneChan() chan struct{} {
	if o.done == nil {
		o.done = make(chan struct{})
	}
	return o.done
}

// stop ends the waiting or running of a call. The lock is held.
func (o *op) stop(cause error) {
	if o.cancel != nil {
		o.cancel(cause)
	}
	o.waiting.poke()
}

// stopped says why the context of a call ended.
func (o *op) stopped() *abi.Error {
	k := o.p.k
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	o.endWait()
	switch cause := context.Cause(o.ctx); {
	case errors.Is(cause, errClosing):
		return closing()
	case o.p.state.Ending != nil:
		return o.p.state.Refusal()
	case errors.Is(cause, errTerm):
		return ending("the process was asked to finish")
	}
	return interrupted(o.ctx)
}

func closing() *abi.Error {
	return &abi.Error{Code: abi.DaemonGone, Message: "the kernel is closing", Hint: "ask again when it is back"}
}

func interrupted(ctx context.Context) *abi.Error {
	return &abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("the call was stopped: %v", context.Cause(ctx))}
}

// unseen says that a process ended without waiting for the call.
func unseen(pid abi.Pid) *abi.Error {
	return &abi.Error{Code: abi.OutcomeUnknown, Message: fmt.Sprintf("process %d ended before the call did", pid)}
}
