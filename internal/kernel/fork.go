package kernel

import (
	"context"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// Forking says how a fork differs from the process that it continues.
type Forking struct {
	At       uint64               // the last record that counts; 0: the last one
	Program  []byte               // replaces the definition of the agent; nil keeps it
	Grant    abi.Grant            // changes the limits that were left
	Continue *abi.ContinueOptions // go on where the process stopped; nil: at record At as it was
}

// Fork makes a process that continues from the state that pid had after a record, with
// the limits that were left then.
func (k *Kernel) Fork(ctx context.Context, pid abi.Pid, f Forking) (abi.Pid, error) {
	if err := k.cfg.Log.Flush(ctx); err != nil {
		return 0, k.answers.broken()
	}
	old, err := k.procs.stateAfter(pid, f.At)
	if err != nil {
		return 0, err
	}
	s := Spawning{Spawn: *old.Spawn, Program: f.Program}
	s.Spawn.Parent, s.Spawn.ParentCall, s.Spawn.Depth, s.Spawn.Task, s.Spawn.TaskTokens = 0, 0, 0, abi.Data{}, 0
	s.Spawn.Priority = old.Priority
	if f.Continue != nil {
		if err := f.goOn(k.procs, old, &s); err != nil {
			return 0, err
		}
	}
	if s.Program == nil {
		if s.Program, err = k.Bytes(old.Spawn.Program); err != nil {
			return 0, err
		}
	}
	state, err := old.Inheritance()
	if err != nil {
		return 0, err
	}
	var bad *abi.Error
	if s.Limits, bad = f.Grant.Apply(leftOf(old)); bad != nil {
		return 0, bad
	}
	s.Spawn.Fork = &abi.Fork{Pid: pid, At: old.N, State: abi.Data{Bytes: state, Size: int64(len(state))}}
	return k.Spawn(ctx, s)
}

// leftOf returns what a process itself has left of its limits.
func leftOf(s *process.State) (left abi.Limits) {
	s.Account.Limits.Each(func(u abi.Unit, n int64) {
		switch {
		case u < abi.Units:
			n, _ = s.Account.Unsettled(u)
			n = max(0, n)
		case u == abi.Wall:
			n = max(0, n-(s.Last-s.Born))
		}
		left.Set(u, n)
	})
	return left
}

// goOn makes s go on where old stopped. It takes over the conversation as it was before
// the refusal that ended the run: without last words, and with the calls that were
// refused still to be made. A call that had begun is not made again.
func (f *Forking) goOn(ps *Processes, old *process.State, s *Spawning) error {
	o := f.Continue
	f.Grant = o.Grant
	if e := continuable(old, o); e != nil {
		return e
	}
	cut := process.Cut{Stop: old.Calls.Stop}
	for r, err := range ps.answers.store.Records(old.Pid, 0) {
		if err != nil {
			return err
		}
		cut.Note(r)
	}
	cut.Apply(old)
	s.Task = []byte(o.Say)
	if o.Account != nil {
		s.Spawn.Account = *o.Account
		return nil
	}
	for pid := old.Pid; pid != 0; { // the account stands at the top of the tree
		i, err := ps.Info(pid)
		if err != nil {
			return err
		}
		pid, s.Spawn.Account = i.Parent, i.Account
	}
	return nil
}

// continuable says why a process cannot go on, or what is missing.
func continuable(old *process.State, c *abi.ContinueOptions) *abi.Error {
	pid, exit := old.Pid, old.Exit
	bad := func(hint, format string, a ...any) *abi.Error {
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d ", pid) + fmt.Sprintf(format, a...), Hint: hint}
	}
	switch {
	case exit == nil && old.Phase == abi.Paused:
		return bad(fmt.Sprintf("kern cont %d lets it go on", pid), "is paused")
	case exit == nil:
		return bad(fmt.Sprintf("kern limit %d changes its limits, kern wait %d waits for its end", pid, pid), "still runs")
	case exit.Exit == abi.ExitDone && c.Say == "":
		return bad(fmt.Sprintf("say what comes next: kern continue %d \"and now ...\"", pid), "is done")
	case exit.Exit != abi.ExitLimit:
		return nil
	}
	u, _ := abi.LimitOf(exit.Code)
	if n, own := old.Account.Limits.Get(u); own && !c.Grant.Names(u) {
		return bad(fmt.Sprintf("say how much more: kern continue %d %s", pid, abi.MoreFlag(u, n)), "reached its limit on %s, and it would reach it again", u)
	}
	return nil
}
