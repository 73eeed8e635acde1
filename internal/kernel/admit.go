package kernel

import (
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
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
	wait    string
	at      *account // where there is no room yet,
	unit    abi.Unit // and of what
	need    abi.Usage
	granted int64
}

// admit says whether a call may run now. It reads, and changes nothing: no
// clock, no input or output. bad is what the row itself found wrong with the
// arguments.
func admit(p *fold, c *abi.Call, row *Row, plan *Plan, bad *abi.Error, waits []claim, now int64) verdict {
	q := p.Calls.Pending[c.N]
	asked := plan.Ask != "" && bad == nil
	if e := halted(p, c, plan); e != nil {
		return verdict{refused: e}
	}
	switch {
	case p.Phase == abi.Paused:
		return verdict{wait: waitCont}
	case row == nil:
		return verdict{refused: &abi.Error{Code: abi.UnknownRow, Message: fmt.Sprintf("there is no system call %q", c.Row), Got: c.Row}}
	case !slices.Contains(p.Spawn.Rows, c.Row):
		return verdict{refused: &abi.Error{Code: abi.NotGranted, Message: fmt.Sprintf("this process may not use %q", c.Row),
			Hint: "it may use: " + fmt.Sprint(p.Spawn.Rows)}}
	case bad != nil:
		return verdict{refused: bad}
	}
	if e := p.Rests.Blocked(plan.Tool, now); e != nil {
		return verdict{refused: e}
	}
	if e := fitsContext(p, plan); e != nil {
		return verdict{refused: e}
	}
	if depth, set := p.acct.limits.Get(abi.Depth); set && plan.Child && depth < 1 {
		return verdict{refused: &abi.Error{Code: abi.LimitDepth, Message: "a child would be deeper than allowed", Hint: "do the task in this process"}}
	}
	need, f := p.acct.fits(&plan.Reserve, &plan.Elastic, waits)
	switch {
	case !f.ok && (!f.wait || plan.Firm):
		return verdict{refused: p.over(f, need[f.unit])}
	case asked && (q == nil || q.Ask == nil || !q.Ask.Decided):
		return verdict{wait: waitApproval}
	case asked && !q.Ask.Yes:
		return verdict{refused: notApproved(q.Ask)}
	case !f.ok:
		return verdict{wait: waitRoom, at: f.at, unit: f.unit, need: need}
	}
	return verdict{need: need, granted: f.amount}
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
	return pl.Elastic.need(pl.Reserve, pl.Elastic.least())
}

// over is the refusal of a call that needs n of a unit that is used up.
func (p *fold) over(f fit, n int64) *abi.Error {
	limit, _ := f.at.limits.Get(f.unit)
	whose := "this process"
	if f.at != p.acct {
		whose = "an account above this process"
	}
	used, open := abi.FormatUnit(f.unit, f.at.settled[f.unit]+f.at.stuck[f.unit]), ""
	if n := f.at.reserved[f.unit] + f.at.held[f.unit] - f.at.stuck[f.unit]; n > 0 {
		open = ", " + abi.FormatUnit(f.unit, n) + " is held by open calls"
	}
	return &abi.Error{
		Code: abi.LimitCode(f.unit),
		Message: fmt.Sprintf("the %s limit of %s is %s; %s is used%s and the call may take %s",
			f.unit, whose, abi.FormatUnit(f.unit, limit), used, open, abi.FormatUnit(f.unit, n)),
		Hint: "finish with what you have",
	}
}

// fitsContext holds the request of a model call against the limits on context
// from the process upwards, and against the model's window.
func fitsContext(p *fold, plan *Plan) *abi.Error {
	if plan.Context == 0 {
		return nil
	}
	limit, limited := p.acct.limits.Get(abi.Context)
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
