package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/process"
)

// begin puts the intent of an effect on disk. It looks at signals and limits again,
// because they may have changed while the call waited for its turn.
func (o *op) begin(j *Job) (d Done, ok bool) {
	p, k := o.p, o.p.k
	k.procs.mu.Lock()
	if e := halted(p.state, &o.call, &j.Plan); e != nil {
		k.procs.mu.Unlock()
		return Done{Err: e}, false
	}
	// Since the call was admitted, a person may have lowered a limit, and another call
	// may have used more than it reserved.
	if p.state.Phase == abi.Paused || !p.state.Account.Within(&o.held) {
		k.procs.mu.Unlock()
		o.release()
		return Done{Err: errHeldBack}, false
	}
	if !j.Plan.Intent {
		k.procs.mu.Unlock()
		return d, true
	}
	r := abi.Record{Kind: abi.KindBegan, Call: o.call.N}
	r.Intent = o.draft.intentFor(&r, j, o.held)
	p.apply(&r) // reserves what was held until now
	t := k.cfg.Log.PutDeferred(&r)
	o.unhold()
	o.begun = true
	k.procs.mu.Unlock()
	if err := t.Wait(o.ctx); err != nil {
		return Done{Err: o.stopped()}, false
	}
	return d, true
}

// run makes one attempt. When the row panics after its intent was recorded, the
// outcome is unknown.
func (o *op) run(j *Job) (d Done) {
	defer func() {
		if r := recover(); r != nil {
			e := &abi.Error{Code: abi.Internal, Message: fmt.Sprintf("%s panicked: %v", o.call.Row, r)}
			if o.begun {
				e.Code = abi.OutcomeUnknown
			}
			d = Done{Err: e}
		}
	}()
	d = o.row.Run(o.ctx, j)
	for u := range d.Usage {
		d.Usage[u] = max(0, d.Usage[u]) // no call gives usage back
	}
	return d
}

// settle replaces the reservation by the usage, journals the end of the attempt,
// and only then returns the answer. Again says that another attempt follows.
func (o *op) settle(j *Job, d Done) (res abi.Result, again bool) {
	a := o.draft.newAnswer()
	a.Outcome, a.Err, a.Attempt, a.Usage, a.First, a.Took = abi.OK, d.Err, j.Attempt, d.Usage, int64(d.First), d.Took
	a.Commit, a.Digest, a.Rolled, o.confirm = d.Commit, d.Digest, d.Rolled, d.Kept
	a.Claim = d.Claim
	if d.Cut {
		a.Cut = j.Lowered
	}
	if d.Err != nil {
		a.Outcome = abi.Failed
		if d.Err.Code == abi.OutcomeUnknown && o.begun {
			a.Outcome = abi.Unknown
		}
		// Attempts that the provider turned away do not count.
		tries := j.Attempt - j.away
		a.Again = o.ctx.Err() == nil && tries < j.Plan.Attempts && (d.Err.Retry() || j.Plan.effect().Repeatable() && (d.Err.Code.ToolFault() || d.Err.Code == abi.InvalidResult))
		if d.Away && o.ctx.Err() == nil {
			a.Outcome, a.Again = abi.Refused, true
		}
	}
	// The watchdog judges answers, not attempts. A call that was stopped, or that lost
	// a race for the workspace, says nothing about the process that made it.
	if o.row.Watch && !a.Again && (d.Err == nil || d.Err.Code != abi.Interrupted && !d.Err.Code.Contention()) {
		a.Result = process.KeyOf(string(a.Outcome), resultKey(d))
	}
	if d.Said != nil && a.Outcome == abi.OK {
		a.Result = process.KeyOf(process.ModelRow, d.Said)
	}
	res = o.recordEnd(j, a, d.Value, d.Whole)
	return res, a.Again
}

// refuse records a refusal and returns it. A refusal that depends on the moment
// is not recorded, so that the same call may be made again.
func (o *op) refuse(j *Job, e *abi.Error) abi.Result {
	if e.Code.Momentary() {
		o.release()
		return abi.Result{Outcome: abi.Refused, Err: e}
	}
	if r, ok := j.Plan.Work.(Refusable); ok {
		o.draft.shorten(r)
	}
	a := o.draft.newAnswer()
	a.Outcome, a.Err = abi.Refused, e
	if o.row != nil && o.row.Watch && e.Code.Watched() {
		a.Result = process.KeyOf(string(abi.Refused), []byte(e.Code))
	}
	return o.recordEnd(j, a, nil, nil)
}

// recordEnd journals the end of an attempt, or a refusal, and waits until it is
// on disk.
func (o *op) recordEnd(j *Job, a *abi.Answer, value, whole []byte) abi.Result {
	k := o.p.k
	r := abi.Record{Kind: abi.KindEnded, Call: o.call.N, Answer: a}
	if a.Outcome == abi.Refused && !a.Again {
		r.Kind = abi.KindRefused
	}
	page := value
	if a.Err == nil {
		a.Value = payload(&r, value)
	}
	a.Whole = payload(&r, whole)
	if a.Page = pageOf(&o.call, a); a.Page != nil {
		if a.Err != nil {
			page, _ = json.Marshal(a.Err)
		}
		a.Page.Only = j.Plan.Held
		a.Page.Tokens = k.cfg.Count(page)
	}
	k.procs.mu.Lock()
	if o.dropped { // the process ended without waiting, and answered for this call
		k.procs.mu.Unlock()
		o.confirmCommit(false)
		return abi.Result{Outcome: abi.Unknown, Err: unseen(o.p.state.Pid)}
	}
	t := o.applyEnd(j, &r)
	k.procs.mu.Unlock()
	if t.Wait(context.Background()) != nil {
		return abi.Result{Outcome: abi.Unknown, Err: k.answers.broken()}
	}
	o.confirmCommit(true)
	res := abi.Result{Outcome: a.Outcome, Err: a.Err, Warning: a.Warning, Usage: a.Usage, Attempts: a.Attempt, Cut: a.Cut}
	if a.Err == nil {
		res.Value = value
	}
	return res
}

// confirmCommit tells the row whether the journal has what it published.
func (o *op) confirmCommit(stands bool) {
	if o.confirm != nil {
		o.confirm(stands)
		o.confirm = nil
	}
}

// applyEnd applies the end of an attempt, and ends the process when the watchdog
// finds a loop. The lock is held.
func (o *op) applyEnd(j *Job, r *abi.Record) journal.Pending {
	p, a := o.p, r.Answer
	// A repeatable call that a closing kernel stopped continues at the next start.
	if p.k.closed && a.Err != nil && (a.Err.Code == abi.Interrupted || a.Err.Code == abi.DaemonGone) && j.Plan.effect().Repeatable() {
		a.Again = true
		a.Page, a.Result = nil, abi.Key{}
	}
	// Without an earlier intent, the record of the end carries it.
	if !o.begun {
		held := o.held
		o.unhold()
		r.Intent = o.draft.intentFor(r, j, held)
	}
	var loop *abi.Error
	if !a.Result.IsZero() {
		loop = o.judge(a)
	}
	p.apply(r)
	t := p.k.cfg.Log.PutDeferred(r)
	o.begun = false
	p.state.Account.WakeWaiters()
	if loop != nil {
		p.finish(abi.ExitInfo{Exit: abi.ExitLoop, Reason: "watchdog", Code: loop.Code, Err: loop})
	}
	return t
}

// judge asks the watchdog about an answer. A warning goes into the answer; a loop
// ends the process.
func (o *op) judge(a *abi.Answer) (loop *abi.Error) {
	s := o.p.state
	call := s.Watched(o.call.N, &o.draft.intent, a)
	a.Warning, loop = s.Watchdog.Judge(s.Spawn.Watchdog, &call)
	return loop
}

// pageOf returns the page that an answer adds to the memory of the process: what
// the model said, or the answer to a tool call of the model.
func pageOf(c *abi.Call, a *abi.Answer) *abi.Page {
	switch {
	case a.Again:
	case c.For != "":
		return &abi.Page{Role: "tool", ID: c.For}
	case c.Row == process.ModelRow && a.Outcome == abi.OK:
		return &abi.Page{Role: "assistant"}
	}
	return nil
}

// backoff returns how long to wait before the next attempt: as long as the
// provider asked, or twice as long each time. An attempt that was turned away
// waits only a little, because the resource keeps its own backoff. An attempt at
// a fresh resource does not wait.
func backoff(j *Job, d Done) time.Duration {
	switch {
	case j.Plan.Source.Resource == "", d.Fresh:
		return 0
	case d.Away:
		return cmp.Or(d.After, 250*time.Millisecond<<min(j.away, 4))
	}
	return max(d.After, min(250*time.Millisecond<<(j.Attempt-j.away-1), 30*time.Second))
}

func resultKey(d Done) []byte {
	if d.Err != nil {
		return []byte(d.Err.Code)
	}
	return d.Value
}
