package kernel

import (
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// The reasons why a call waits before it runs, as lists show them.
const (
	waitCont     = "cont"
	waitApproval = "approval"
	waitRoom     = "room"
	waitTurn     = "turn"
	waitBackoff  = "back-off"
)

// admission is what admit decides on.
type admission struct {
	state  *process.State
	call   *abi.Call
	row    *Row // nil: there is no such row
	plan   *Plan
	bad    *abi.Error     // what the row itself found wrong with the arguments
	claims []ledger.Claim // what calls hold that cannot settle before this one
	now    int64
}

// verdict is what admit says of a call: it may run, it must wait, or it is refused.
type verdict struct {
	refused *abi.Error
	wait    string     // for what the call waits; empty: it may run
	fit     ledger.Fit // set when the call may run, and when it waits for room
}

// admit decides whether a call may run now. It changes nothing, and reads neither
// the clock nor anything outside its input. Of two reasons the first one counts.
func admit(in *admission) verdict {
	s, plan := in.state, in.plan
	if e := halted(s, in.call, plan); e != nil {
		return verdict{refused: e}
	}
	switch {
	case s.Phase == abi.Paused:
		return verdict{wait: waitCont}
	case in.row == nil:
		return verdict{refused: &abi.Error{Code: abi.UnknownRow, Message: fmt.Sprintf("there is no system call %q", in.call.Row), Got: in.call.Row}}
	case !slices.Contains(s.Spawn.Rows, in.call.Row):
		return verdict{refused: &abi.Error{Code: abi.NotGranted, Message: fmt.Sprintf("this process may not use %q", in.call.Row),
			Hint: "it may use: " + fmt.Sprint(s.Spawn.Rows)}}
	case in.bad != nil:
		return verdict{refused: in.bad}
	}
	if e := s.Failures.Blocked(plan.Tool, in.now); e != nil {
		return verdict{refused: e}
	}
	if e := fitsContext(s, plan); e != nil {
		return verdict{refused: e}
	}
	if depth, set := s.Account.Limits.Get(abi.Depth); set && plan.Child && depth < 1 {
		return verdict{refused: &abi.Error{Code: abi.LimitDepth, Message: "a child would be deeper than allowed", Hint: "do the task in this process"}}
	}
	f := s.Account.Fit(&plan.Reserve, &plan.Elastic, in.claims)
	if !f.OK && (!f.Wait || plan.Firm) {
		return verdict{refused: overLimit(s, plan, &f)}
	}
	// A person is asked only about a call that can run, and before it waits for room.
	if plan.Ask != "" {
		q := s.Calls.Pending[in.call.N]
		if q == nil || q.Ask == nil || !q.Ask.Decided {
			return verdict{wait: waitApproval}
		}
		if !q.Ask.Yes {
			return verdict{refused: notApproved(q.Ask)}
		}
	}
	if !f.OK {
		return verdict{wait: waitRoom, fit: f}
	}
	return verdict{fit: f}
}

// halted says why the process takes no such call any more.
func halted(s *process.State, c *abi.Call, plan *Plan) *abi.Error {
	switch {
	case s.Ending != nil:
		return s.Refusal()
	case s.Term && !plan.Last && c.Row != process.ExitRow:
		return ending("the process was asked to finish")
	case plan.Last && s.Calls.Lasted && s.Calls.Pending[c.N] == nil: // another attempt at the last words is allowed
		return ending("the last words were spoken")
	}
	return nil
}

// overLimit is the refusal of a call that does not fit.
func overLimit(s *process.State, plan *Plan, f *ledger.Fit) *abi.Error {
	a, u := f.At, f.Unit
	limit, _ := a.Limits.Get(u)
	owner := "this process"
	switch {
	case a.Name != "":
		owner = "the account " + a.Name
	case a != s.Account:
		owner = "an account above this process"
	}
	counted := a.Counted(u) + a.Doubt[u]
	used, held := amount(u, counted), ""
	if n := a.Reserved[u] + a.Held[u] - a.Doubt[u]; n > 0 {
		held = ", " + amount(u, n) + " is held by open calls"
	}
	if left := limit - counted - (a.Reserved[u] + a.Held[u] - a.Doubt[u]); left > 0 {
		held += ", " + amount(u, left) + " is left"
	}
	bound, hint := amount(u, limit), "finish with what you have"
	if counted == 0 && f.Need[u] > limit && limit > 0 { // no call would ever fit
		hint = fmt.Sprintf("a limit of %s admits this call, and what it does not use is free again", amount(u, f.Need[u]))
	}
	if per := a.Period.Per; per != "" {
		bound += " a " + per
		hint += "; the limit renews with the next " + per + ", at midnight UTC"
	}
	least := ""
	if e := &plan.Elastic; e.Floor > e.Min && f.Granted < e.Max {
		least = fmt.Sprintf(" even with %d of the %d output tokens that it asks for, the least that is worth a call (min_output)", f.Granted, e.Max)
	}
	return &abi.Error{
		Code: abi.LimitCode(u),
		Message: fmt.Sprintf("the %s limit of %s is %s; %s is used%s and the call may use %s%s",
			u, owner, bound, used, held, amount(u, f.Need[u]), least),
		Got:  abi.FormatUnit(u, f.Need[u]),
		Hint: hint,
	}
}

// amount formats an amount for a person.
func amount(u abi.Unit, n int64) string {
	if u == abi.Money {
		return "$" + abi.FormatUnit(u, n)
	}
	return abi.FormatUnit(u, n)
}

// fitsContext checks the request of a model call against the context limit of the
// process and the model's window.
func fitsContext(s *process.State, plan *Plan) *abi.Error {
	if plan.Context == 0 {
		return nil
	}
	limit, limited := s.Account.Limits.Get(abi.Context)
	bound, ok := process.FitsContext(plan.Context, plan.Elastic.Min, limit, limited, plan.Window)
	if ok {
		return nil
	}
	return &abi.Error{Code: abi.LimitContext,
		Message: fmt.Sprintf("the request takes %d tokens and %d are allowed", plan.Context, bound),
		Hint:    "start a new process with a shorter task, or raise the context limit"}
}

func notApproved(q *process.Question) *abi.Error {
	e := &abi.Error{Code: abi.NotApproved, Message: "a person said no"}
	if q.Reason.Size > 0 {
		e.Message += ": " + string(q.Reason.Bytes)
	}
	return e
}

func ending(why string) *abi.Error {
	return &abi.Error{Code: abi.ProcessEnding, Message: why, Hint: "say your last words and exit"}
}
