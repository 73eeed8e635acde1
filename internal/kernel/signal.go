package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/process"
)

// Signal sends s to a process, in the name of by. It overtakes every call: calls
// that wait stop waiting, and calls that run are stopped. Stop is different: it
// only holds back calls that have not begun.
//
// A signal that ends or stops a process works also while nothing can be written.
// The error then says that it is not on disk yet.
func (k *Kernel) Signal(ctx context.Context, pid abi.Pid, s abi.Signal, by string) error {
	k.procs.mu.Lock()
	p, err := k.procs.live(pid)
	full := k.cfg.Log.Err()
	if err == nil && full != nil {
		switch {
		case s == abi.Cont:
			err = full
		case p.state.Ending != nil, s == abi.Stop && p.state.Phase == abi.Paused, s == abi.Term && p.state.Term:
			err = unwritten(pid, s, full) // the process obeys already; there is no room for another record
		}
	}
	if err != nil {
		k.procs.mu.Unlock()
		return err
	}
	t := p.signal(s, by)
	k.procs.mu.Unlock()
	var e *abi.Error
	if err = k.cfg.Log.WaitUnlessFull(ctx, t); errors.As(err, &e) {
		err = unwritten(pid, s, e)
	}
	return err
}

// unwritten says that a signal works and may be lost by a restart.
func unwritten(pid abi.Pid, s abi.Signal, e *abi.Error) *abi.Error {
	return &abi.Error{Code: e.Code, Message: fmt.Sprintf("process %d obeys %s, but that is not on disk: %s", pid, s, e.Message),
		Hint: e.Hint + " If the daemon restarts before that, the signal is lost."}
}

// live returns a process that has not exited. The lock is held.
func (ps *Processes) live(pid abi.Pid) (*proc, error) {
	p := ps.byPid[pid]
	switch {
	case p == nil:
		return nil, ps.machine.Absent(pid)
	case p.state.Exit != nil:
		return nil, p.state.Refusal()
	}
	return p, nil
}

// writable is live, and refuses while nothing can be written. The lock is held.
func (k *Kernel) writable(pid abi.Pid) (*proc, error) {
	p, err := k.procs.live(pid)
	if full := k.cfg.Log.Err(); err == nil && full != nil {
		return nil, full
	}
	return p, err
}

// signal records s and makes p obey it. The lock is held.
func (p *proc) signal(s abi.Signal, by string) journal.Pending {
	again := p.state.Term
	t := p.record(&abi.Record{Kind: abi.KindSignaled, Note: &abi.Note{Signal: s, From: by}})
	switch s {
	case abi.Stop:
		p.pokeAll()
	case abi.Cont:
		p.pokeAll()
		p.start()
	case abi.Term:
		if again { // a second term must not cut the last words
			p.pokeAll()
		} else {
			p.term()
		}
	case abi.Kill:
		p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: string(abi.Kill), Code: abi.ProcessKilled})
	}
	p.news.ring()
	return t
}

func (p *proc) pokeAll() {
	for _, o := range p.ops {
		o.waiting.poke()
	}
}

// term stops all calls and gives p some time for its last words.
func (p *proc) term() {
	for _, o := range p.ops {
		if o.call.Row == process.ExitRow { // it may wait for cont, which term implies
			o.waiting.poke()
		} else {
			o.stop(errTerm)
		}
	}
	p.start() // a loop that was never started has last words too
	p.watchTerm()
}

// watchTerm ends p when its last words take too long. The lock is held.
func (p *proc) watchTerm() {
	if p.timers.last != nil || p.state.Ending != nil {
		return
	}
	p.timers.last = p.afterFunc(p.k.cfg.Last, func() {
		p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: string(abi.Term), Code: abi.ProcessKilled})
	})
}

// start reports that p can run. The lock is held.
func (p *proc) start() {
	if p.state.Exit == nil && !p.started && p.state.Phase != abi.Paused && p.k.cfg.Start != nil {
		p.started = true
		p.k.cfg.Start(p.state.Pid)
	}
}

// Resume starts these processes; without any, every process that can run.
func (k *Kernel) Resume(pids ...abi.Pid) {
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	procs := make([]*proc, 0, len(pids))
	for _, pid := range pids {
		if p := k.procs.byPid[pid]; p != nil {
			procs = append(procs, p)
		}
	}
	if len(pids) == 0 {
		procs = k.procs.sorted()
	}
	for _, p := range procs {
		if p.state.Ending == nil {
			p.start()
		}
	}
}
