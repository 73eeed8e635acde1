package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// Signal sends s to a process, in the name of by. It overtakes every call: what
// waits stops waiting, and what runs is stopped, except by stop, which holds
// back only what has not begun.
//
// What stops a process is done also while nothing can be written; the error
// then says that it is not on disk yet.
func (k *Kernel) Signal(ctx context.Context, pid abi.Pid, s abi.Signal, by string) error {
	k.mu.Lock()
	p, err := k.live(pid)
	full := k.cfg.Log.Err()
	if err == nil && full != nil {
		switch {
		case s == abi.Cont:
			err = full
		case p.Ending != nil, s == abi.Stop && p.Phase == abi.Paused, s == abi.Term && p.Term:
			err = unwritten(pid, s, full) // it has it already; there is no room to say so again
		}
	}
	if err != nil {
		k.mu.Unlock()
		return err
	}
	t := obey(p, s, by)
	k.mu.Unlock()
	var e *abi.Error
	if err = k.cfg.Log.Keep(ctx, t); errors.As(err, &e) {
		err = unwritten(pid, s, e)
	}
	return err
}

// unwritten says of a signal that it was obeyed and may be forgotten.
func unwritten(pid abi.Pid, s abi.Signal, e *abi.Error) *abi.Error {
	return &abi.Error{Code: e.Code, Message: fmt.Sprintf("process %d obeys %s, and that is not on disk: %s", pid, s, e.Message),
		Hint: e.Hint + " A daemon that is started anew before it is written does not know of it."}
}

// obey does to p what s says. k.mu is held.
func obey(p *proc, s abi.Signal, by string) journal.Ticket {
	again := p.Term
	t := p.record(&abi.Record{Kind: abi.KindSignaled, Note: &abi.Note{Signal: s, From: by}})
	switch s {
	case abi.Stop:
		p.pokeAll()
	case abi.Cont:
		p.pokeAll()
		p.start()
	case abi.Term:
		if again { // it is at its last words already
			p.pokeAll()
		} else {
			p.term()
		}
	case abi.Kill:
		p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: string(abi.Kill), Code: abi.ProcessKilled})
	}
	p.tellAll()
	return t
}

// live returns a process that can still be acted on. k.mu is held.
func (k *Kernel) live(pid abi.Pid) (*proc, error) {
	p := k.procs[pid]
	switch {
	case p == nil:
		return nil, k.absent(pid)
	case p.Exit != nil:
		return nil, ended(&p.fold)
	}
	return p, nil
}

// writable is live, and refuses while nothing can be written.
func (k *Kernel) writable(pid abi.Pid) (*proc, error) {
	p, err := k.live(pid)
	if full := k.cfg.Log.Err(); err == nil && full != nil {
		return nil, full
	}
	return p, err
}

func (p *proc) pokeAll() {
	for _, o := range p.ops {
		o.poke()
	}
}

// term stops what the process does and gives it a while for its last words.
func (p *proc) term() {
	for _, o := range p.ops {
		if o.call.Row == exitRow { // it may have waited for the process to go on
			o.poke()
		} else {
			o.stop(errTerm)
		}
	}
	p.start() // a loop that was never started has last words too
	p.watchTerm()
}

// watchTerm ends p when it takes too long over its last words. k.mu is held.
func (p *proc) watchTerm() {
	if p.last != nil || p.Ending != nil {
		return
	}
	p.last = after(p, p.k.cfg.Last, func() {
		p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: string(abi.Term), Code: abi.ProcessKilled})
	})
}

// after does f to p in a while, if p has not exited by then. f holds k.mu.
func after(p *proc, d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		p.k.mu.Lock()
		defer p.k.mu.Unlock()
		if p.Exit == nil && !p.k.closed {
			f()
		}
	})
}

// stop ends the waiting or running of a call.
func (o *op) stop(why error) {
	if o.cancel != nil {
		o.cancel(why)
	}
	o.poke()
}

// Exit ends the process of j by its own wish. What it says of the reason is
// believed as far as the journal bears it out.
func (j *Job) Exit(info abi.ExitInfo, output []byte) *abi.Error {
	k := j.op.p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := j.op.p
	if p.Ending != nil {
		return ended(&p.fold)
	}
	u, limit := abi.LimitOf(info.Code)
	switch {
	case p.Term:
		info.Exit, info.Reason, info.Code = abi.ExitKilled, string(abi.Term), abi.ProcessKilled
	case limit && p.Calls.Hits&(1<<u) != 0:
		info.Exit, info.Reason = abi.ExitLimit, u.String()
	case limit:
		return &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf("no call of this process was refused with %s", info.Code), Where: "/code"}
	case info.Err != nil:
		info.Exit, info.Code = abi.ExitFailed, info.Err.Code
	default:
		info.Exit = abi.ExitDone
	}
	r := &abi.Record{Kind: abi.KindEnding, Exit: &info}
	info.Output = data(r, output)
	p.ending(r, j.op)
	return nil
}

// finish ends p for a reason of the kernel's. It does nothing when p is ending
// already. k.mu is held.
func (p *proc) finish(info abi.ExitInfo) {
	if p.Ending == nil {
		p.ending(&abi.Record{Kind: abi.KindEnding, Exit: &info}, nil)
	}
}

// ending stops all that p does, and its children. When nothing is left of them
// the terminal record is written; see settleExit.
func (p *proc) ending(r *abi.Record, self *op) {
	k := p.k
	p.record(r)
	p.tellAll()
	p.stopTimers()
	for _, o := range p.ops {
		if o != self {
			o.stop(errEnding)
		}
	}
	p.last = after(p, k.cfg.Grace, p.abandon)
	p.finishKids()
	p.settleExit()
}

// finishKids ends the children of p, the oldest first.
func (p *proc) finishKids() {
	for _, pid := range slices.Sorted(maps.Keys(p.kids)) {
		p.kids[pid].finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: "parent", Code: abi.ProcessKilled})
	}
}

// abandon gives up on calls that did not stop in time: nobody saw their end.
func (p *proc) abandon() {
	for n, o := range p.ops {
		o.dropped = true
		o.leaveQueue()
		p.acct.Release(&o.held)
		o.held = abi.Usage{}
		if o.begun {
			p.record(&abi.Record{Kind: abi.KindEnded, Call: n, Answer: &abi.Answer{Outcome: abi.Unknown, Err: unseen(p)}})
		}
		delete(p.ops, n)
	}
	p.acct.WakeWaiters()
	p.settleExit()
}

// settleExit writes the terminal record of a process that is ending, once
// nothing it started is left. k.mu is held.
func (p *proc) settleExit() {
	k := p.k
	if p.Ending == nil || p.Exit != nil || len(p.ops) > 0 || k.closed || len(p.kids) > 0 {
		return
	}
	t := p.record(&abi.Record{Kind: abi.KindExited, Exit: p.Ending})
	k.exits(p)
	p.stopTimers()
	p.ops, p.claims = nil, nil
	p.acct.WakeWaiters()
	p.tellAll()
	k.lately = append(k.lately, end{p, t})
	k.letGo()
	if parent := k.procs[p.Spawn.Parent]; parent != nil {
		parent.tellAll()
		parent.settleExit()
	}
}

// Crash ends a process whose loop broke down.
func (k *Kernel) Crash(pid abi.Pid, why string) {
	_ = k.at(pid, func(p *proc) {
		if p.Exit == nil && !k.closed {
			p.finish(abi.ExitInfo{Exit: abi.ExitCrashed, Code: abi.Internal, Err: &abi.Error{Code: abi.Internal, Message: why}})
		}
	})
}

// watchWall ends p when its time is up. Time goes on while the kernel is down
// and while the process is paused. k.mu is held.
func (p *proc) watchWall() {
	if p.wall != nil {
		p.wall.Stop()
		p.wall = nil
	}
	limit, set := p.acct.Limits.Get(abi.Wall)
	if !set || p.Ending != nil {
		return
	}
	left := min(time.Duration(limit), time.Unix(0, p.Born).Add(time.Duration(limit)).Sub(p.k.cfg.Now()))
	p.wall = after(p, max(0, left), func() { p.finish(abi.ExitInfo{Exit: abi.ExitLimit, Reason: abi.Wall.String(), Code: abi.LimitWall}) })
}

// ask puts the question of a call before a person. k.mu is held.
func (o *op) ask(j *Job) {
	if q := o.p.Calls.Pending[o.call.N]; q != nil && q.Ask != nil {
		return
	}
	r := &abi.Record{Kind: abi.KindAsked, Call: o.call.N, Note: &abi.Note{}}
	r.Note.Body = data(r, []byte(j.Plan.Ask))
	r.Intent = o.intent(r, j)
	o.p.record(r)
}

// Decide answers a question: yes or no, by whom, and in what words. Call 0 is
// the only open question of the process.
func (k *Kernel) Decide(ctx context.Context, pid abi.Pid, call uint64, yes bool, by, words string) error {
	k.mu.Lock()
	p, err := k.writable(pid)
	if err != nil {
		k.mu.Unlock()
		return err
	}
	var open []uint64
	for _, q := range p.info().Asks {
		open = append(open, q.Call)
	}
	if call == 0 && len(open) == 1 {
		call = open[0]
	}
	if !slices.Contains(open, call) {
		k.mu.Unlock()
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no such open question; open are calls %v", pid, open)}
	}
	r := &abi.Record{Kind: abi.KindDecided, Call: call, Note: &abi.Note{Yes: yes, From: by}}
	r.Note.Body = abi.Data{Bytes: []byte(words), Size: int64(len(words))}
	t := p.record(r)
	if o := p.ops[call]; o != nil {
		o.poke()
	}
	p.start()
	k.mu.Unlock()
	return t.Wait(ctx)
}

// Change edits the limits or the priority of a process as they stand.
func (k *Kernel) Change(ctx context.Context, pid abi.Pid, e abi.Edit) error {
	k.mu.Lock()
	p, err := k.writable(pid)
	var t journal.Ticket
	if err == nil {
		t, err = p.change(0, &e)
	}
	k.mu.Unlock()
	if err != nil {
		return err
	}
	return t.Wait(ctx)
}

// reorder gives the waiting calls of p the places that its new priority has.
func (p *proc) reorder() {
	p.rank.Store(int32(p.Priority))
	for _, o := range p.ops {
		if o.waiter != nil {
			o.waiter.Reorder(p.Priority)
		}
	}
	if p.k.cfg.Rank != nil {
		p.k.cfg.Rank(p.Pid, p.Priority)
	}
}

// change makes an edit, as a call or from outside. k.mu is held.
func (p *proc) change(call uint64, e *abi.Edit) (t journal.Ticket, err error) {
	c := abi.Change{Priority: e.Priority, By: e.By}
	if e.Limiting() {
		now, wider := e.Over(p.acct.Limits)
		if wider != nil {
			return t, wider
		}
		c.Limits = &now
	}
	t = p.record(&abi.Record{Kind: abi.KindChanged, Call: call, Change: &c})
	if c.Priority != nil {
		p.reorder()
	}
	p.watchWall()
	p.acct.WakeWaiters()
	return t, nil
}

// Send puts a message into the mailbox of a process. The same call sends once,
// also when it is asked again after a crash.
func (j *Job) Send(to abi.Pid, body []byte) *abi.Error {
	k := j.op.p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p, err := k.writable(to)
	if err != nil {
		return err.(*abi.Error)
	}
	from := fmt.Sprint(j.Call.Pid)
	if got := p.Got[from]; !got.Has(j.Call.N) {
		p.mail(from, j.Call.N, body)
	}
	return nil
}

// Receive takes the oldest message out of the mailbox of the caller, waiting for
// one up to d (0: as long as it takes; then no error, and no message). The
// message leaves the mailbox with the answer of the call: a call that is asked
// again after a crash finds it there.
func (j *Job) Receive(d time.Duration) (from string, body []byte, n uint64, e *abi.Error) {
	p := j.op.p
	var got mail
	e = j.until("message", d, func() bool {
		for _, m := range p.Mail {
			if p.claim(m.N, j.op) {
				got = m
				return true
			}
		}
		return false
	})
	if e != nil || got.N == 0 {
		return "", nil, 0, e
	}
	body, err := j.Kernel.Bytes(got.Body)
	if err != nil {
		return "", nil, 0, &abi.Error{Code: abi.StorageBroken, Message: err.Error()}
	}
	return got.From, body, got.N, nil
}

// claim reserves a message, or an exited child, for this call, so that two that receive at the same
// time do not take the same one.
func (p *proc) claim(n uint64, o *op) bool {
	if by, taken := p.claims[n]; taken && by != o {
		return false
	}
	if p.claims == nil {
		p.claims = make(map[uint64]*op)
	}
	p.claims[n] = o
	return true
}

// kidClaim tells a claim on a child from one on a message.
const kidClaim = 1 << 63

// Await waits for a child of the caller to exit; 0 means any one that no call
// has been told of, the oldest first.
func (j *Job) Await(child abi.Pid, d time.Duration) (exited abi.Pid, e *abi.Error) {
	p := j.op.p
	k := p.k
	none := true
	e = j.until(fmt.Sprintf("child %d", child), d, func() bool {
		none = true
		for _, pid := range k.tree.Children(p.Pid) {
			if child != 0 && pid != child || child == 0 && p.Calls.Reaped.Has(uint64(pid)) {
				continue
			}
			none = false
			if k.exited(pid) && (child != 0 || p.claim(kidClaim|uint64(pid), j.op)) {
				exited = pid
				return true
			}
		}
		return none
	})
	if e != nil || !none {
		return exited, e
	}
	what := fmt.Sprintf("no child %d", child)
	if child == 0 {
		what = "no child left to wait for"
	}
	return 0, &abi.Error{Code: abi.UnknownProcess, Message: fmt.Sprintf("process %d has %s", p.Pid, what), Where: "/pid"}
}

// Sleep waits until d after the call first began, also across restarts.
func (j *Job) Sleep(d time.Duration) *abi.Error {
	if d <= 0 {
		return nil
	}
	return j.until("timer", d, func() bool { return false })
}

// until waits for a condition that mail or the exit of a child may bring about.
// It ends without error when d has passed since the call began (0: never).
func (j *Job) until(what string, d time.Duration, cond func() bool) *abi.Error {
	o, ctx := j.op, j.op.ctx
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, min(d, time.Unix(0, j.Since).Add(d).Sub(j.Kernel.cfg.Now()))) // the clock may have been set back
		defer cancel()
	}
	err := j.Kernel.until(ctx, o.p.Pid, func(*proc) bool {
		if o.waits = what; cond() {
			o.waits = ""
			return true
		}
		return false
	})
	if err != nil && o.ctx.Err() != nil {
		return o.stopped()
	}
	j.Kernel.mu.Lock()
	o.waits = ""
	j.Kernel.mu.Unlock()
	return nil
}

// told is closed by tellAll.
func told(p *proc) chan struct{} {
	if p.tell == nil {
		p.tell = make(chan struct{})
	}
	return p.tell
}

// tellAll wakes what waits for mail, for a child or for an order.
func (p *proc) tellAll() {
	if p.tell != nil {
		close(p.tell)
		p.tell = nil
	}
}

// mail records a message for p. k.mu is held.
func (p *proc) mail(from string, call uint64, body []byte) journal.Ticket {
	r := &abi.Record{Kind: abi.KindMailed, Call: call, Note: &abi.Note{From: from}}
	r.Note.Body = data(r, body)
	t := p.record(r)
	p.tellAll()
	p.start()
	return t
}

// start tells the joiner that p can run. k.mu is held.
func (p *proc) start() {
	if p.Exit == nil && !p.started && p.Phase != abi.Paused && p.k.cfg.Start != nil {
		p.started = true
		p.k.cfg.Start(p.Pid)
	}
}

// Raise sets the limits that l names for the process of j, as policy or a
// person allowed. The accounts above it bind as before.
func (j *Job) Raise(l abi.Limits) (now abi.Limits) {
	p := j.op.p
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if p.Exit == nil { // else the call came too late, and nobody hears of it
		_, _ = p.change(j.Call.N, &abi.Edit{Limits: l, By: "yield"}) // what is not narrow is not refused
	}
	return p.acct.Limits
}
