package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/process"
)

// Send puts a message into the mailbox of a process. The same call sends once,
// also when it is made again after a crash. Ahead is by how much the message is more
// urgent than an ordinary one.
func (j *Job) Send(to abi.Pid, body []byte, ahead int) *abi.Error {
	k := j.op.p.k
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	p, err := k.writable(to)
	if err != nil {
		return err.(*abi.Error)
	}
	from := fmt.Sprint(j.Call.Pid)
	if got := p.state.Received[from]; !got.Has(j.Call.N) {
		p.mail(from, j.Call.N, body, ahead)
	}
	return nil
}

// mail records a message for p. The lock is held.
func (p *proc) mail(from string, call uint64, body []byte, ahead int) journal.Pending {
	r := &abi.Record{Kind: abi.KindMailed, Call: call, Note: &abi.Note{From: from, Ahead: ahead}}
	r.Note.Body = payload(r, body)
	t := p.record(r)
	p.news.ring()
	p.start()
	return t
}

// Receive takes the most urgent message out of the mailbox of the caller, and of
// several the oldest. It waits up
// to d for one (0: as long as it takes); after that it returns no message and no
// error. The message leaves the mailbox with the answer of the call, so a call
// that is made again after a crash finds it there.
func (j *Job) Receive(d time.Duration) (from string, body []byte, n uint64, e *abi.Error) {
	p := j.op.p
	var got process.Message
	e = j.waitFor("message", d, func() bool {
		for _, m := range p.state.Mail {
			if p.claims.take(m.N, j.op) {
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

// claims are messages and exited children that a call is about to deliver, so
// that two calls at the same time do not deliver the same one.
type claims map[uint64]*op

// childClaim marks a claim on a child; a claim on a message is its record.
const childClaim = 1 << 63

// take claims n for o. It returns false when another call has it.
func (c *claims) take(n uint64, o *op) bool {
	if by, taken := (*c)[n]; taken && by != o {
		return false
	}
	if *c == nil {
		*c = make(claims)
	}
	(*c)[n] = o
	return true
}

// release drops the claims of o, and reports whether there were any.
func (c claims) release(o *op) (any bool) {
	for n, by := range c {
		if by == o {
			delete(c, n)
			any = true
		}
	}
	return any
}

// Await waits for a child of the caller to exit. Child 0 is the oldest exited
// child that no call has reported.
func (j *Job) Await(child abi.Pid, d time.Duration) (exited abi.Pid, e *abi.Error) {
	p := j.op.p
	machine := p.k.procs.machine
	none := true
	e = j.waitFor(fmt.Sprintf("child %d", child), d, func() bool {
		none = true
		for _, pid := range machine.Tree.Children(p.state.Pid) {
			if child != 0 && pid != child || child == 0 && p.state.Calls.Reaped.Has(uint64(pid)) {
				continue
			}
			none = false
			if machine.HasExited(pid) && (child != 0 || p.claims.take(childClaim|uint64(pid), j.op)) {
				exited = pid
				return true
			}
		}
		return none // there is nothing to wait for
	})
	if e != nil || !none {
		return exited, e
	}
	what := fmt.Sprintf("no child %d", child)
	if child == 0 {
		what = "no child left to wait for"
	}
	return 0, &abi.Error{Code: abi.UnknownProcess, Message: fmt.Sprintf("process %d has %s", p.state.Pid, what), Where: "/pid"}
}

// Sleep waits until d after the call first began, across restarts.
func (j *Job) Sleep(d time.Duration) *abi.Error {
	if d <= 0 {
		return nil
	}
	return j.waitFor("timer", d, func() bool { return false })
}

// waitFor waits until ready returns true; news of the process makes it look
// again. It returns no error when d has passed since the call began (0: never).
func (j *Job) waitFor(what string, d time.Duration, ready func() bool) *abi.Error {
	o, ctx := j.op, j.op.ctx
	if d > 0 {
		// The clock may have been set back, so d itself is the longest wait.
		left := min(d, time.Unix(0, j.Since).Add(d).Sub(j.Kernel.cfg.Now()))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	err := j.Kernel.procs.until(ctx, o.p.state.Pid, func(*proc) bool {
		if ready() {
			o.setWait("")
			return true
		}
		o.setWait(what)
		return false
	})
	if err != nil && o.ctx.Err() != nil {
		return o.stopped()
	}
	o.showWait("")
	return nil
}
