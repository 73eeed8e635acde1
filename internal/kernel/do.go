package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/schema"
)

// Why the waiting or running of a call is ended from outside.
var (
	errClosing = errors.New("the kernel is closing")
	errTerm    = errors.New("the process was asked to finish")
	errEnding  = errors.New("the process is ending")
)

// Do answers one call. It is the whole of the kernel's promise:
//
//   - a call already answered is answered again from the journal, not run again;
//   - nothing runs that [admit] does not allow, with its worst case reserved
//     on every account of its path;
//   - an effect is in the journal before it happens;
//   - an answer is in the journal before the agent sees it;
//   - a signal, a deadline or the end of ctx ends every wait on the way.
func (k *Kernel) Do(ctx context.Context, c abi.Call) abi.Result {
	return k.do(&op{call: c, ctx: ctx})
}

// DoVia is Do for a call that its caller carries out itself. The row finds via
// in [View.Via]; after a restart there is none.
func (k *Kernel) DoVia(ctx context.Context, c abi.Call, via any) abi.Result {
	return k.do(&op{call: c, ctx: ctx, via: via})
}

// do carries o, a call that has just come, to its answer.
func (k *Kernel) do(o *op) abi.Result {
	if found, ok := k.enter(o); ok { // 1 answered?
		return found
	}
	defer o.leave()
	for {
		j, bad := o.plan()
		if e := o.paper.huge; e != nil { // it cannot even be written down that it was refused
			return abi.Result{Outcome: abi.Refused, Err: e}
		}
		if e := o.take(j, bad); e != nil { // 2 admit
			return o.refuse(j, e)
		}
		release, e := o.turn(j) // 3 turn
		if e == heldBack {
			continue
		} else if e != nil {
			return o.refuse(j, e)
		}
		d, ok := o.began(j) // 4 began
		if ok {
			d = o.run(j) // 5 run
			release(&d)
		} else {
			release(nil)
		}
		if d.Err == heldBack {
			continue
		}
		res, again := o.settle(j, d) // 6 settle
		if !again {
			return res
		}
		if e := o.pause(pauseFor(j, d)); e != nil {
			return o.refuse(j, e)
		}
	}
}

// Batch answers several calls of one process at the same time, at most most of
// them at once (0: all). They are admitted in the order they stand in, so it
// is the last ones that a limit refuses.
func (k *Kernel) Batch(ctx context.Context, calls []abi.Call, most int) []abi.Result {
	if most <= 0 || most > len(calls) {
		most = len(calls)
	}
	results := make([]abi.Result, len(calls))
	slots := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i := range calls {
		slots <- struct{}{}
		first, finished := make(chan struct{}, 1), make(chan struct{})
		wg.Go(func() {
			results[i] = k.do(&op{call: calls[i], ctx: ctx, first: first})
			close(finished)
			<-slots
		})
		select {
		case <-first:
		case <-finished:
		}
	}
	wg.Wait()
	return results
}

// NestedFrom is the first number of calls that are made within other calls; a
// caller's own numbers are below it.
const NestedFrom = uint64(1) << 40

// Nested answers a call that this one makes, under a number that follows from
// its own: the first within call 7 is 7 + 1<<40, and so on.
func (j *Job) Nested(ctx context.Context, c abi.Call) abi.Result {
	c.Pid, c.Within = j.Call.Pid, j.Call.N
	c.N = j.Call.N%NestedFrom + j.op.within.Add(1)*NestedFrom
	return j.Kernel.Do(ctx, c)
}

// enter finds the answer to a call, or opens it. A call that is open already
// is waited for.
func (k *Kernel) enter(o *op) (res abi.Result, found bool) {
	c := &o.call
	k.mu.Lock()
	p := k.procs[c.Pid]
	if _, gone := k.gone[c.Pid]; gone {
		k.mu.Unlock()
		if res, found = k.answered(c); found {
			return res, true
		}
		k.mu.Lock()
	}
	for p != nil {
		if p.Calls.Done.Has(c.N) {
			k.mu.Unlock()
			if err := k.cfg.Log.Flush(o.ctx); err != nil {
				return abi.Result{Outcome: abi.Unknown, Err: k.broken()}, true
			}
			res, _ = k.answered(c)
			return res, true
		}
		busy := p.ops[c.N]
		if busy == nil {
			break
		}
		if busy.done == nil {
			busy.done = make(chan struct{})
		}
		done := busy.done
		k.mu.Unlock()
		select {
		case <-done:
		case <-o.ctx.Done():
			return abi.Result{Outcome: abi.Refused, Err: interrupted(o.ctx)}, true
		}
		k.mu.Lock()
	}
	defer k.mu.Unlock()
	if e := k.closedTo(p, c); e != nil {
		return abi.Result{Outcome: abi.Refused, Err: e}, true
	}
	o.p, o.row = p, k.cfg.Rows[c.Row]
	if o.row != nil && !o.row.Instant {
		o.ctx, o.cancel = context.WithCancelCause(o.ctx)
	}
	if p.ops == nil {
		p.ops = make(map[uint64]*op)
	}
	p.ops[c.N] = o
	if c.Within != 0 {
		p.inner++
		p.pokeBelow()
	}
	return res, false
}

// closedTo says why a call cannot even be considered. Nothing is recorded.
func (k *Kernel) closedTo(p *proc, c *abi.Call) *abi.Error {
	switch {
	case p == nil && k.absent(c.Pid).Code == abi.UnknownProcess:
		return unknown(c.Pid)
	case c.N == 0 || c.N >= NestedFrom && c.Within == 0:
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("call %d: expected a number from 1 to %d", c.N, NestedFrom-1)}
	case k.closed:
		return closing()
	case p == nil:
		return k.absent(c.Pid)
	case p.Ending != nil:
		return ended(&p.fold)
	case c.Row == exitRow: // what ends needs no room to do so
		return nil
	}
	return k.cfg.Log.Err()
}

// plan asks the row what the call will do and take at most.
func (o *op) plan() (*Job, *abi.Error) {
	k := o.p.k
	k.mu.Lock()
	p := o.p
	j, before := &o.job, o.job.Plan.Work
	*j = Job{Call: o.call, View: p.view(), Kernel: k, Attempt: 1, Since: k.cfg.Now().UnixNano(), op: o}
	j.View.Before, j.View.Via = before, o.via
	if q := p.Calls.Pending[o.call.N]; q != nil {
		j.Attempt, j.Since, j.away = q.Attempt+1, q.Since, q.Away
	}
	spawned := p.made[o.call.N] != 0
	k.mu.Unlock()
	e := o.row.plan(j)
	if j.Attempt > 1 {
		j.Plan.Reserve[abi.Steps] = 0 // another attempt is no new step
	}
	if j.Plan.Child && spawned {
		j.Plan.Child, j.Plan.Reserve[abi.Children] = false, 0 // it is booked already
	}
	if o.paper.intent.Row == "" {
		o.write(j)
	}
	return j, e
}

// plan asks the row for its plan.
func (r *Row) plan(j *Job) (e *abi.Error) {
	if r == nil {
		return nil
	}
	if r.Schema != nil {
		args := j.Call.Args
		if len(args) == 0 {
			args = schema.NoArgs
		}
		if v := r.Schema.Check(args); v != nil {
			return invalid(j.Call.Row, v)
		}
	}
	if r.Plan != nil {
		j.Plan, e = r.Plan(j.View, j.Call)
	}
	return e
}

// paper is what the journal says of a call, made once and without the lock:
// hashing a large payload takes longer than deciding.
type paper struct {
	intent abi.Intent // without what an attempt adds
	answer abi.Answer // of the first attempt
	blobs  []abi.Blob
	put    bool       // intent is in the journal
	lent   bool       // answer is
	huge   *abi.Error // why the journal does not take it

	scratch [128]byte // for canonical arguments
}

func (o *op) write(j *Job) {
	w := &o.paper
	w.intent = abi.Intent{Row: o.call.Row, Tool: j.Plan.Tool, Key: keyOfCall(&o.call, &j.Plan, w.scratch[:0]), Effect: j.Plan.effect(), Within: o.call.Within,
		For: o.call.For}
	w.intent.Args = w.data(o.call.Args)
	w.intent.Parts, w.blobs = j.Plan.Parts, append(w.blobs, j.Plan.Blobs...)
	if len(j.Plan.Say) > 0 {
		w.intent.Say, w.intent.SayTokens = w.data(j.Plan.Say), o.p.k.cfg.Count(j.Plan.Say)
	}
	w.huge = journal.Fits(&w.intent, w.blobs)
}

func (w *paper) data(b []byte) abi.Data {
	d, blob := abi.NewData(b)
	if blob != nil {
		w.blobs = append(w.blobs, *blob)
	}
	return d
}

// Invalid is the refusal of arguments that do not match their schema.
func invalid(name string, v *schema.Violation) *abi.Error {
	return &abi.Error{Code: abi.InvalidArguments, Message: name + ": " + v.Message, Where: v.Where, Expected: v.Expected, Got: v.Got,
		Hint: "call it again with arguments that match the schema"}
}

// take admits the call and holds its worst case, waiting as long as admit says.
func (o *op) take(j *Job, bad *abi.Error) *abi.Error {
	k := o.p.k
	p := o.p
	for {
		k.mu.Lock()
		if k.closed {
			k.mu.Unlock()
			return closing()
		}
		claims := p.claimsBefore(&o.call)
		v := admit(&admission{state: &p.fold, call: &o.call, row: o.row, plan: &j.Plan, bad: bad, claims: claims, now: k.cfg.Now().UnixNano()})
		if v.wait != "" {
			o.makeWaiter()
		}
		if v.wait == waitRoom && !o.waiter.Join(&v.fit, j.Plan.least(), claims) {
			v = verdict{refused: p.over(&v.fit)}
		}
		if o.first != nil {
			o.first <- struct{}{}
			o.first = nil
		}
		if v.refused != nil || v.wait == "" {
			if v.refused == nil {
				if q := p.Calls.Pending[o.call.N]; q != nil && q.Ask != nil {
					j.Answer = string(q.Ask.Reason.Bytes)
				}
				o.held, j.Granted = v.fit.Need, v.fit.Granted
				p.acct.Hold(&o.held)
				if p.inner > 0 {
					p.pokeBelow()
				}
			}
			o.waits = ""
			o.leaveQueue() // room that is left is the next one's
			k.mu.Unlock()
			return v.refused
		}
		o.waits = v.wait
		if v.wait != waitRoom {
			o.leaveQueue()
		}
		if v.wait == waitApproval {
			o.ask(j)
		}
		k.mu.Unlock()
		if e := o.await(0); e != nil {
			return e
		}
	}
}

// await sleeps until somebody pokes the call, or until d has passed if d is not
// 0, or until its waiting is ended from outside.
func (o *op) await(d time.Duration) *abi.Error {
	var wake chan struct{}
	if o.waiter != nil {
		wake = o.waiter.Wake
	}
	var timer <-chan time.Time
	if d > 0 { // for nothing but the time
		t := time.NewTimer(d)
		defer t.Stop()
		timer, wake = t.C, nil
	}
	select {
	case <-wake:
		return nil
	case <-timer:
		return nil
	case <-o.ctx.Done():
	}
	return o.stopped()
}

// pause waits before the next attempt.
func (o *op) pause(d time.Duration) *abi.Error {
	k := o.p.k
	if d == 0 {
		return nil
	}
	k.mu.Lock()
	o.waits = waitBackoff
	k.mu.Unlock()
	e := o.await(d)
	k.mu.Lock()
	o.waits = ""
	k.mu.Unlock()
	return e
}

// stopped says why the context of a call ended.
func (o *op) stopped() *abi.Error {
	k := o.p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	o.waits = ""
	o.leaveQueue()
	switch cause := context.Cause(o.ctx); {
	case errors.Is(cause, errClosing):
		return closing()
	case o.p.Ending != nil:
		return ended(&o.p.fold)
	case errors.Is(cause, errTerm):
		return ending("the process was asked to finish")
	}
	return interrupted(o.ctx)
}

// turn waits for the resource the call needs.
func (o *op) turn(j *Job) (release func(*Done), e *abi.Error) {
	k := o.p.k
	if j.Plan.Resource == "" || k.cfg.Turn == nil {
		return func(*Done) {}, nil
	}
	k.mu.Lock()
	o.waits = waitTurn + " " + j.Plan.Resource
	o.p.rank.Store(int32(o.p.Priority))
	t := Turn{Resource: j.Plan.Resource, Owner: o.p.owner(), Pid: o.p.Pid, Priority: o.p.Priority, Now: func() int { return int(o.p.rank.Load()) },
		In: o.held[abi.InputTokens], Out: o.held[abi.OutputTokens], Other: j.Plan.Other}
	if j.Plan.Last {
		t.Priority, t.Now = 0, nil // their time is short
	}
	k.mu.Unlock()
	release, err := k.cfg.Turn(o.ctx, t)
	k.mu.Lock()
	o.waits = ""
	k.mu.Unlock()
	switch {
	case errors.Is(err, ErrElsewhere) && o.ctx.Err() == nil:
		o.giveBack()
		return nil, heldBack
	case err != nil:
		return nil, o.stopped()
	}
	return release, nil
}

// owner is whose share the turns of p are taken from: the named account it is
// booked on, else the process at the top.
func (p *proc) owner() string {
	for parent := p.k.procs[p.Spawn.Parent]; parent != nil; parent = p.k.procs[p.Spawn.Parent] {
		p = parent
	}
	if p.Spawn.Account != "" {
		return p.Spawn.Account
	}
	return fmt.Sprintf("process %d", p.Pid)
}

// began puts the intent of an effect on disk. When a signal came while the call
// waited for its turn, it says so in place of running.
func (o *op) began(j *Job) (d Done, ok bool) {
	k := o.p.k
	k.mu.Lock()
	p := o.p
	if e := halted(&p.fold, &o.call, &j.Plan); e != nil {
		k.mu.Unlock()
		return Done{Err: e}, false
	}
	if p.Phase == abi.Paused {
		k.mu.Unlock()
		o.giveBack()
		return Done{Err: heldBack}, false
	}
	if !j.Plan.Intent {
		k.mu.Unlock()
		return d, true
	}
	r := abi.Record{Kind: abi.KindBegan, Call: o.call.N}
	r.Intent = o.intent(&r, j)
	k.note(p, &r)
	t := k.cfg.Log.Hand(&r)
	p.acct.Release(&o.held)
	o.held = abi.Usage{}
	o.begun = true
	k.mu.Unlock()
	if err := t.Wait(o.ctx); err != nil {
		return Done{Err: o.stopped()}, false
	}
	return d, true
}

// heldBack is what a call comes to that had its turn and was stopped before it
// began: it is looked at again from the start.
var heldBack = &abi.Error{Code: abi.Interrupted, Message: "the process was stopped"}

// run makes one attempt. When the row breaks down, nobody knows what it did.
func (o *op) run(j *Job) (d Done) {
	defer func() {
		if r := recover(); r != nil {
			e := &abi.Error{Code: abi.Internal, Message: fmt.Sprintf("%s broke down: %v", o.call.Row, r)}
			if o.begun {
				e.Code = abi.OutcomeUnknown
			}
			d = Done{Err: e}
		}
	}()
	d = o.row.Run(o.ctx, j)
	for u := range d.Usage {
		d.Usage[u] = max(0, d.Usage[u]) // nothing gives back more than it took
	}
	return d
}

// intent is what the journal says of an attempt at an admitted call.
func (o *op) intent(r *abi.Record, j *Job) *abi.Intent {
	w := &o.paper
	in := &w.intent
	if w.put { // that one is the journal's now
		in = new(abi.Intent)
		*in = w.intent
	}
	w.put = true
	if j.Attempt > 1 { // it was said with the first
		in.Say, in.SayTokens = abi.Data{}, 0
	}
	in.Attempt, in.Reserve, in.Granted, in.Price = j.Attempt, o.held, j.Granted, j.Plan.Price
	r.Blobs, w.blobs = append(r.Blobs, w.blobs...), nil // another attempt names them again
	return in
}

// settle replaces what was reserved by what was taken, journals the end of the
// attempt, and only then gives the answer.
func (o *op) settle(j *Job, d Done) (res abi.Result, again bool) {
	a := o.paper.room()
	a.Outcome, a.Err, a.Attempt, a.Usage, a.First, a.Took = abi.OK, d.Err, j.Attempt, d.Usage, int64(d.First), d.Took
	a.Commit, a.Digest, a.Rolled, o.kept = d.Commit, d.Digest, d.Rolled, d.Kept
	if d.Err != nil {
		a.Outcome = abi.Failed
		if d.Err.Code == abi.OutcomeUnknown && o.begun {
			a.Outcome = abi.Unknown
		}
		tries := j.Attempt - j.away
		a.Again = o.ctx.Err() == nil && tries < j.Plan.Attempts && (d.Err.Retry() || j.Plan.effect().Repeatable() && d.Err.Code.Tiring())
		if d.Away && o.ctx.Err() == nil {
			a.Outcome, a.Again = abi.Refused, true
		}
	}
	if o.row.Watch && !a.Again && (d.Err == nil || d.Err.Code != abi.Interrupted) {
		a.Result = process.KeyOf(string(a.Outcome), resultKey(d))
	}
	res = o.end(j, a, d.Value)
	return res, a.Again
}

// refuse records a refusal and returns it. What says nothing of the process,
// only of the moment, is not recorded: the call may be asked again.
func (o *op) refuse(j *Job, e *abi.Error) abi.Result {
	if e.Code.Momentary() {
		o.giveBack()
		return abi.Result{Outcome: abi.Refused, Err: e}
	}
	a := o.paper.room()
	a.Outcome, a.Err = abi.Refused, e
	if o.row != nil && o.row.Watch && e.Code.Circling() {
		a.Result = process.KeyOf(string(abi.Refused), []byte(e.Code))
	}
	return o.end(j, a, nil)
}

// room is where an answer goes.
func (w *paper) room() *abi.Answer {
	if w.lent {
		return new(abi.Answer)
	}
	w.lent = true
	return &w.answer
}

// giveBack frees what is held for a call that did not run.
func (o *op) giveBack() {
	k := o.p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	o.p.acct.Release(&o.held)
	o.held = abi.Usage{}
	o.p.acct.WakeWaiters()
}

// end journals the end of an attempt, or a refusal, and waits until it is on
// disk.
func (o *op) end(j *Job, a *abi.Answer, value []byte) abi.Result {
	k := o.p.k
	r := abi.Record{Kind: abi.KindEnded, Call: o.call.N, Answer: a}
	if a.Outcome == abi.Refused && !a.Again {
		r.Kind = abi.KindRefused
	}
	page := value
	if a.Err == nil {
		a.Value = data(&r, value)
	}
	if a.Page = pageOf(&o.call, a); a.Page != nil {
		if a.Err != nil {
			page, _ = json.Marshal(a.Err)
		}
		a.Page.Only = j.Plan.Held
		a.Page.Tokens = k.cfg.Count(page)
	}
	k.mu.Lock()
	if o.dropped { // the process ended without waiting for this call
		k.mu.Unlock()
		o.keep(false)
		return abi.Result{Outcome: abi.Unknown, Err: unseen(o.p)}
	}
	t := o.book(j, &r)
	k.mu.Unlock()
	if t.Wait(context.Background()) != nil {
		return abi.Result{Outcome: abi.Unknown, Err: k.broken()}
	}
	o.keep(true)
	res := abi.Result{Outcome: a.Outcome, Err: a.Err, Warning: a.Warning, Usage: a.Usage, Attempts: a.Attempt}
	if a.Err == nil {
		res.Value = value
	}
	return res
}

// keep tells the row what the journal says of what it published.
func (o *op) keep(stands bool) {
	if o.kept != nil {
		o.kept(stands)
		o.kept = nil
	}
}

// book applies the end of an attempt, and what the watchdog says of it. k.mu is
// held.
func (o *op) book(j *Job, r *abi.Record) journal.Ticket {
	p, a := o.p, r.Answer
	if p.k.closed && a.Err != nil && (a.Err.Code == abi.Interrupted || a.Err.Code == abi.DaemonGone) && j.Plan.effect().Repeatable() {
		a.Again = true // it is gone on with when the kernel is back
		a.Page, a.Result = nil, abi.Key{}
	}
	if !o.begun {
		p.acct.Release(&o.held)
		r.Intent = o.intent(r, j)
		o.held = abi.Usage{}
	}
	var verdict *abi.Error
	if !a.Result.IsZero() {
		s := p.sighting(o.call.N, &o.paper.intent, a)
		if verdict = p.Watch.Judge(p.Spawn.Watchdog, &s); verdict != nil && !p.Watch.Warned && p.Spawn.Watchdog.Profile != "strict" {
			a.Warning, verdict = verdict, nil
		}
		if e := p.Watch.JudgeRollbacks(p.Spawn.Watchdog, &s); e != nil {
			verdict = e
		}
	}
	p.k.note(p, r)
	t := p.k.cfg.Log.Hand(r)
	o.begun = false
	p.acct.WakeWaiters()
	if verdict != nil {
		p.finish(abi.ExitInfo{Exit: abi.ExitLoop, Reason: "watchdog", Code: verdict.Code, Err: verdict})
	}
	return t
}

// leave closes the call.
func (o *op) leave() {
	k := o.p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.cancel != nil {
		o.cancel(nil)
	}
	if o.done != nil {
		close(o.done)
	}
	for n, by := range o.p.claims {
		if by == o {
			delete(o.p.claims, n)
			defer o.p.tellAll() // who waits may have counted on it
		}
	}
	if o.call.Within != 0 {
		o.p.inner--
	}
	if !o.dropped {
		delete(o.p.ops, o.call.N)
		o.p.settleExit()
	}
}

// pageOf is what the memory of the process gains by an answer: what the model
// said, and the answer to what the model asked for.
func pageOf(c *abi.Call, a *abi.Answer) *abi.Page {
	switch {
	case a.Again:
	case c.For != "":
		return &abi.Page{Role: "tool", ID: c.For}
	case c.Row == lastRow && a.Outcome == abi.OK:
		return &abi.Page{Role: "assistant"}
	}
	return nil
}

// keyOfCall is a short hash of what is called: of the arguments, or of what the
// row found the call to stand for.
func keyOfCall(c *abi.Call, plan *Plan, scratch []byte) abi.Key {
	if plan.Subject != nil {
		return process.KeyOf(c.Row, plan.Subject)
	}
	return process.KeyOf(c.Row, schema.Spelling(scratch, c.Args))
}

// makeWaiter lets the call wait and be woken. k.mu is held.
func (o *op) makeWaiter() {
	if o.waiter == nil {
		o.waiter = &ledger.Waiter{Account: o.p.acct, Priority: o.p.Priority, Wake: make(chan struct{}, 1),
			Claims: func() []ledger.Claim { return o.p.claimsBefore(&o.call) }}
	}
}

// leaveQueue ends the waiting for room. k.mu is held.
func (o *op) leaveQueue() {
	if o.waiter != nil {
		o.waiter.Leave()
	}
}

// poke makes a waiting call look again. k.mu is held.
func (o *op) poke() {
	if o.waiter != nil {
		o.waiter.Poke()
	}
}

// waitsForRoom reports whether the call stands in a queue. k.mu is held.
func (o *op) waitsForRoom() bool { return o.waiter != nil && o.waiter.Waits() }

func (pl *Plan) effect() abi.Effect { return cmp.Or(pl.Effect, abi.Pure) }

// pauseFor is how long to wait before the next attempt: as long as the provider
// said, else twice as long each time. Who was turned away waits a little, for
// the resource itself rests as long as it must; and to ask another resource there
// is nothing to wait for.
func pauseFor(j *Job, d Done) time.Duration {
	switch {
	case j.Plan.Resource == "", d.Fresh:
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

func closing() *abi.Error {
	return &abi.Error{Code: abi.DaemonGone, Message: "the kernel is closing", Hint: "ask again when it is back"}
}

func interrupted(ctx context.Context) *abi.Error {
	return &abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("the call was stopped: %v", context.Cause(ctx))}
}

func unseen(p *proc) *abi.Error {
	return &abi.Error{Code: abi.OutcomeUnknown, Message: fmt.Sprintf("process %d ended before the call did", p.Pid)}
}
