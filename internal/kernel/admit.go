package kernel

import (
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// What a call can wait for before it runs.
const (
	waitCont     = "cont"
	waitApproval = "approval"
	waitRoom     = "room"
	waitTurn     = "turn"
	waitBackoff  = "back-off"
)

// verdict is what admit says of a call: it may run, with so much reserved; or
// it must wait; or it is refused.
type verdict struct {
	refused *abi.Error
	wait    string     // for what the call waits; empty: it may run
	fit     ledger.Fit // set when the call may run, and when it waits for room
}

// admission is what admit decides on.
type admission struct {
	state  *fold
	call   *abi.Call
	row    *Row // nil: there is no such row
	plan   *Plan
	bad    *abi.Error     // what the row itself found wrong with the arguments
	claims []ledger.Claim // what calls hold that cannot settle before this one
	now    int64
}

// admit says whether a call may run now. It reads, and changes nothing: no
// clock, no input or output.
func admit(in *admission) verdict {
	p, c, plan := in.state, in.call, in.plan
	q := p.Calls.Pending[c.N]
	asked := plan.Ask != "" && in.bad == nil
	if e := halted(p, c, plan); e != nil {
		return verdict{refused: e}
	}
	switch {
	case p.Phase == abi.Paused:
		return verdict{wait: waitCont}
	case in.row == nil:
		return verdict{refused: &abi.Error{Code: abi.UnknownRow, Message: fmt.Sprintf("there is no system call %q", c.Row), Got: c.Row}}
	case !slices.Contains(p.Spawn.Rows, c.Row):
		return verdict{refused: &abi.Error{Code: abi.NotGranted, Message: fmt.Sprintf("this process may not use %q", c.Row),
			Hint: "it may use: " + fmt.Sprint(p.Spawn.Rows)}}
	case in.bad != nil:
		return verdict{refused: in.bad}
	}
	if e := p.Rests.Blocked(plan.Tool, in.now); e != nil {
		return verdict{refused: e}
	}
	if e := fitsContext(p, plan); e != nil {
		return verdict{refused: e}
	}
	if depth, set := p.acct.Limits.Get(abi.Depth); set && plan.Child && depth < 1 {
		return verdict{refused: &abi.Error{Code: abi.LimitDepth, Message: "a child would be deeper than allowed", Hint: "do the task in this process"}}
	}
	f := p.acct.Fit(&plan.Reserve, &plan.Elastic, in.claims)
	switch {
	case !f.OK && (!f.Wait || plan.Firm):
		return verdict{refused: p.over(&f)}
	case asked && (q == nil || q.Ask == nil || !q.Ask.Decided):
		return verdict{wait: waitApproval}
	case asked && !q.Ask.Yes:
		return verdict{refused: notApproved(q.Ask)}
	case !f.OK:
		return verdict{wait: waitRoom, fit: f}
	}
	return verdict{fit: f}
}

// halted says why the process does not go on with a call.
func halted(p *fold, c *abi.Call, plan *Plan) *abi.Error {
	switch {
	case p.Ending != nil:
		return ended(p)
	case p.Term && !plan.Last && c.Row != exitRow:
		return ending("the process was asked to finish")
	case plan.Last && p.Calls.Lasted && p.Calls.Pending[c.N] == nil: // it may be tried again, as any call
		return ending("the last words were spoken")
	}
	return nil
}

// least is what a call needs at least.
func (pl *Plan) least() abi.Usage {
	return pl.Elastic.Need(pl.Reserve, pl.Elastic.Least())
}

// over is the refusal of a call that does not fit.
func (p *fold) over(f *ledger.Fit) *abi.Error {
	a, u := f.At, f.Unit
	limit, _ := a.Limits.Get(u)
	whose := "this process"
	if a != p.acct {
		whose = "an account above this process"
	}
	used, open := abi.FormatUnit(u, a.Settled[u]+a.Doubt[u]), ""
	if n := a.Reserved[u] + a.Held[u] - a.Doubt[u]; n > 0 {
		open = ", " + abi.FormatUnit(u, n) + " is held by open calls"
	}
	return &abi.Error{
		Code: abi.LimitCode(u),
		Message: fmt.Sprintf("the %s limit of %s is %s; %s is used%s and the call may take %s",
			u, whose, abi.FormatUnit(u, limit), used, open, abi.FormatUnit(u, f.Need[u])),
		Hint: "finish with what you have",
	}
}

// fitsContext holds the request of a model call against the limits on context
// from the process upwards, and against the model's window.
func fitsContext(p *fold, plan *Plan) *abi.Error {
	if plan.Context == 0 {
		return nil
	}
	limit, limited := p.acct.Limits.Get(abi.Context)
	bound, ok := process.FitsContext(plan.Context, plan.Elastic.Min, limit, limited, plan.Window)
	if ok {
		return nil
	}
	return &abi.Error{Code: abi.LimitContext,
		Message: fmt.Sprintf("the request takes %d tokens and %d are allowed", plan.Context, bound),
		Hint:    "start a new process with a shorter task, or raise the context limit"}
}

func notApproved(a *ask) *abi.Error {
	e := &abi.Error{Code: abi.NotApproved, Message: "a person said no"}
	if a.Reason.Size > 0 {
		e.Message += ": " + string(a.Reason.Bytes)
	}
	return e
}

// ended is the refusal of a process that is at its end.
func ended(p *fold) *abi.Error {
	if p.Exit != nil {
		return process.ExitOf(p.Exit).Exited(p.Pid)
	}
	return process.ExitOf(p.Ending).Leaving(p.Pid)
}

func ending(why string) *abi.Error {
	return &abi.Error{Code: abi.ProcessEnding, Message: why, Hint: "say your last words and exit"}
}
