package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/process"
)

// Spawning is a request for a process.
type Spawning struct {
	abi.Spawn        // the kernel fills in Task, Program, Depth and Fork
	Program   []byte // the definition of the agent
	Task      []byte
}

// Spawn makes a process and waits until it is on disk. It does not start it.
func (k *Kernel) Spawn(ctx context.Context, s Spawning) (abi.Pid, error) {
	s.Parent, s.ParentCall, s.Depth, s.TaskTokens = 0, 0, 0, k.cfg.Count(s.Task)
	k.procs.mu.Lock()
	p, t, err := k.spawn(&s, nil)
	k.procs.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err := k.cfg.Log.WaitUnlessFull(ctx, t); err != nil {
		var e *abi.Error
		if ctx.Err() == nil && !(errors.As(err, &e) && e.Code == abi.StorageFull) {
			return 0, k.answers.broken()
		}
		// The caller does not get the pid, so nobody could ever use the process.
		k.procs.mu.Lock()
		p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: "caller", Code: abi.ProcessKilled})
		k.procs.mu.Unlock()
		return 0, err
	}
	return p.state.Pid, nil
}

// Spawn makes a child for the call of j, and starts it. The same call made again
// after a crash gets the child that it made.
func (j *Job) Spawn(s Spawning) (abi.Pid, *abi.Error) {
	parent := j.op.p
	k := parent.k
	s.TaskTokens = k.cfg.Count(s.Task) // without the lock, because a long task takes a while
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	if pid := parent.state.Children[j.Call.N]; pid != 0 {
		return pid, nil
	}
	if parent.state.Ending != nil {
		return 0, parent.state.Refusal()
	}
	s.Parent, s.ParentCall = parent.state.Pid, j.Call.N
	p, _, err := k.spawn(&s, parent)
	if err != nil {
		var e *abi.Error
		if !errors.As(err, &e) {
			e = &abi.Error{Code: abi.InvalidCall, Message: err.Error()}
		}
		return 0, e
	}
	// The record of the child booked what the call held for it.
	children := abi.Usage{abi.Children: j.op.held[abi.Children]}
	parent.state.Account.Release(&children)
	j.op.held.Sub(&children)
	p.start()
	return p.state.Pid, nil
}

// spawn makes a process. The lock is held.
func (k *Kernel) spawn(s *Spawning, parent *proc) (*proc, journal.Pending, error) {
	if e := k.cfg.Log.Err(); e != nil {
		return nil, journal.Pending{}, e
	}
	if k.closed {
		return nil, journal.Pending{}, &abi.Error{Code: abi.DaemonGone, Message: "the kernel is closing"}
	}
	machine := k.procs.machine
	s.Limits.Lift()
	if parent != nil {
		s.Depth = parent.state.Spawn.Depth + 1
		narrow(&s.Limits, parent.state, k.cfg.Now().UnixNano())
	} else if s.Account != "" && machine.Accounts[s.Account] == nil {
		return nil, journal.Pending{}, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("no account %q", s.Account),
			Hint: "make it with: kern account set " + s.Account + " --money 5"}
	}
	r := &abi.Record{Kind: abi.KindSpawned, Spawn: &s.Spawn}
	s.Spawn.Program = payload(r, s.Program)
	s.Spawn.Task = payload(r, s.Task)
	if f := s.Spawn.Fork; f != nil {
		state := f.State.Bytes
		f.State = payload(r, state)
		f.State.Bytes = state // the fold reads it now; the journal keeps the blob
	}
	pid, err := k.cfg.Store.NewPid()
	if err != nil {
		return nil, journal.Pending{}, &abi.Error{Code: abi.StorageBroken, Message: err.Error()}
	}
	p := k.procs.add(k, machine.Add(max(pid, machine.NextPid), &s.Spawn))
	t := p.record(r)
	p.watchWall()
	return p, t, nil
}

// narrow lowers the limits of a child to what is left on its parent's path.
func narrow(child *abi.Limits, parent *process.State, now int64) {
	left := parent.Account.Left()
	left.Each(func(u abi.Unit, n int64) {
		if asked, set := child.Get(u); set && asked > n {
			child.Set(u, n)
		}
	})
	// Bounds that do not add up are not booked on accounts, so the child gets its own.
	for u, gone := range map[abi.Unit]int64{abi.Wall: now - parent.Born, abi.Context: 0, abi.Depth: 1} {
		n, set := parent.Account.Limits.Get(u)
		if asked, own := child.Get(u); set && (!own || asked > n-gone) {
			child.Set(u, max(0, n-gone))
		}
	}
}
