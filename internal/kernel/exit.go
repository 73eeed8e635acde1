package kernel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// Exit ends the process of j at its own request. It may name a limit as the
// reason only if the journal has a refusal by that limit, or an answer that the
// limit cut. A process whose answer was cut is never done.
func (j *Job) Exit(info abi.ExitInfo, output []byte) *abi.Error {
	p := j.op.p
	p.k.procs.mu.Lock()
	defer p.k.procs.mu.Unlock()
	if p.state.Ending != nil {
		return p.state.Refusal()
	}
	cut := p.state.Calls.Cut
	if cut != nil && info.Code == "" && info.Err == nil {
		info.Code = cut.Code()
	}
	u, limit := abi.LimitOf(info.Code)
	if cut != nil && info.Code == cut.Code() && info.Err == nil {
		info.Err = cut.Err(cut.Call)
	}
	switch {
	case p.state.Term:
		info.Exit, info.Reason, info.Code = abi.ExitKilled, string(abi.Term), abi.ProcessKilled
	case limit && p.state.Calls.Hits&(1<<u) != 0:
		info.Exit, info.Reason = abi.ExitLimit, u.String()
	case limit:
		return &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf("no call of this process was refused with %s", info.Code), Where: "/code"}
	case info.Err != nil:
		info.Exit, info.Code = abi.ExitFailed, info.Err.Code
	default:
		info.Exit = abi.ExitDone
	}
	r := &abi.Record{Kind: abi.KindEnding, Exit: &info}
	info.Output = payload(r, output)
	p.beginExit(r, j.op)
	return nil
}

// Crash ends a process because its loop failed.
func (k *Kernel) Crash(pid abi.Pid, why string) {
	_ = k.procs.inspect(pid, func(p *proc) {
		if p.state.Exit == nil && !k.closed {
			p.finish(abi.ExitInfo{Exit: abi.ExitCrashed, Code: abi.Internal, Err: &abi.Error{Code: abi.Internal, Message: why}})
		}
	})
}

// finish ends p for a reason of the kernel, unless p is ending already. The lock
// is held.
func (p *proc) finish(info abi.ExitInfo) {
	if p.state.Ending == nil {
		p.beginExit(&abi.Record{Kind: abi.KindEnding, Exit: &info}, nil)
	}
}

// beginExit stops the calls of p but self, and its children. The terminal record
// is written when none of them is left: see settleExit.
func (p *proc) beginExit(r *abi.Record, self *op) {
	p.record(r)
	p.news.ring()
	p.timers.stop()
	for _, o := range p.ops {
		if o != self {
			o.stop(errEnding)
		}
	}
	p.timers.last = p.afterFunc(p.k.cfg.Grace, p.abandonCalls)
	p.finishChildren()
	p.settleExit()
}

// finishChildren ends the children of p, the oldest first.
func (p *proc) finishChildren() {
	for _, pid := range slices.Sorted(maps.Keys(p.state.Living)) {
		p.k.procs.byPid[pid].finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: "parent", Code: abi.ProcessKilled})
	}
}

// abandonCalls gives up on calls that did not stop in time. The outcome of those
// that had begun is unknown.
func (p *proc) abandonCalls() {
	for n, o := range p.ops {
		o.dropped = true
		o.waiting.leaveQueue()
		o.unhold()
		if o.begun {
			p.record(&abi.Record{Kind: abi.KindEnded, Call: n, Answer: &abi.Answer{Outcome: abi.Unknown, Err: unseen(p.state.Pid)}})
		}
		delete(p.ops, n)
	}
	p.state.Account.WakeWaiters()
	p.settleExit()
}

// settleExit writes the terminal record of a process that is ending, once no
// call and no child of it is left. The lock is held.
func (p *proc) settleExit() {
	k := p.k
	if p.state.Ending == nil || p.state.Exit != nil || len(p.ops) > 0 || k.closed || len(p.state.Living) > 0 {
		return
	}
	t := p.record(&abi.Record{Kind: abi.KindExited, Exit: p.state.Ending})
	k.procs.machine.Exit(p.state)
	p.timers.stop()
	p.ops, p.claims = nil, nil
	p.state.Account.WakeWaiters()
	p.news.ring()
	k.exits.queue = append(k.exits.queue, writtenExit{p, t})
	k.exits.bury(k.procs)
	if parent := k.procs.byPid[p.state.Spawn.Parent]; parent != nil {
		parent.news.ring()
		parent.settleExit()
	}
}

// watchWall ends p when its wall time is over. Time passes while the kernel is
// down and while the process is paused. The lock is held.
func (p *proc) watchWall() {
	stopTimer(&p.timers.wall)
	limit, set := p.state.Account.Limits.Get(abi.Wall)
	if !set || p.state.Ending != nil {
		return
	}
	// The clock may have been set back, so the limit itself is the longest wait.
	left := min(time.Duration(limit), time.Unix(0, p.state.Born).Add(time.Duration(limit)).Sub(p.k.cfg.Now()))
	p.timers.wall = p.afterFunc(max(0, left), func() {
		p.finish(abi.ExitInfo{Exit: abi.ExitLimit, Reason: abi.Wall.String(), Code: abi.LimitWall})
	})
}

// afterFunc calls f under the lock after d, unless p has exited by then.
func (p *proc) afterFunc(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		p.k.procs.mu.Lock()
		defer p.k.procs.mu.Unlock()
		if p.state.Exit == nil && !p.k.closed {
			f()
		}
	})
}

// The number of processes that have exited grows without end. So the kernel
// buries them: it drops the state and keeps the place in the tree and a summary.
// Everything else is folded again from the records when it is asked for: see
// [Processes.inspect].

// keepWhole is how many of the last exits are not buried, because their parents
// and clients ask about them soon.
const keepWhole = 32

// exitQueue holds the processes that exited last and are not buried, the oldest
// first. It is guarded by the kernel's lock.
type exitQueue struct {
	queue []writtenExit
	keep  int // how many are kept
}

// writtenExit is an exit, and its terminal record on the way to the disk.
type writtenExit struct {
	p       *proc
	pending journal.Pending
}

// bury buries the oldest exits that are on disk. A record that the journal did not
// take stays in memory, because it cannot be read again. The lock is held.
func (q *exitQueue) bury(ps *Processes) {
	for len(q.queue) > q.keep && q.queue[0].pending.Done() {
		e := q.queue[0]
		q.queue = slices.Delete(q.queue, 0, 1)
		if e.pending.Wait(context.Background()) == nil {
			ps.bury(e.p)
		}
	}
}
