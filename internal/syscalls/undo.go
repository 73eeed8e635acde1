package syscalls

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/tools"
)

// UndoArgs are the arguments of undo: the first and the last call of the group to
// undo. Calls within these calls belong to the group.
type UndoArgs struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Undone lists the compensable calls of a group, the last first.
type Undone struct {
	Undone []UndoneCall `json:"undone,omitempty"`
	Kept   []UndoneCall `json:"not_undone,omitempty"` // each with the reason
}

// UndoneCall is one call that was undone, or could not be undone.
type UndoneCall struct {
	Call uint64          `json:"call"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args,omitempty"`
	By   string          `json:"by"`
	Err  *abi.Error      `json:"error,omitempty"`
}

// compensable is a compensable call that succeeded.
type compensable struct {
	call         uint64
	tool         string
	args, result json.RawMessage
}

// runUndo undoes the compensable calls of a group, in reverse order of their ends.
// Each undoing is a system call of its own, and its number follows from the number
// of this call. After a crash, this call runs again: it finds the undoing calls with
// an answer, and makes the others.
func (w *World) runUndo(ctx context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[UndoArgs](j.Call)
	if e != nil {
		return failed(e)
	}
	l, err := w.Load(j.View.Spawn.Program)
	if err != nil {
		return failed(&abi.Error{Code: abi.Internal, Message: err.Error()})
	}
	u := &undoing{w, j, l}
	calls, err := u.calls(&a)
	if err != nil {
		return failed(&abi.Error{Code: abi.StorageBroken, Message: err.Error()})
	}
	var all Undone
	for _, d := range slices.Backward(calls) {
		t := UndoneCall{Call: d.call, Tool: d.tool, Args: d.args}
		t.By, t.Err = u.undoCall(ctx, &d)
		if t.Err != nil {
			all.Kept = append(all.Kept, t)
		} else {
			all.Undone = append(all.Undone, t)
		}
		if ctx.Err() != nil { // a later attempt continues, or the process has ended
			return failed(&abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("undo was stopped: %v", context.Cause(ctx))})
		}
	}
	return done(all)
}

// undoing is one call of undo.
type undoing struct {
	w *World
	j *kernel.Job
	l *Loaded
}

// undoCall calls the tool that undoes d.
func (u *undoing) undoCall(ctx context.Context, d *compensable) (by string, e *abi.Error) {
	i := slices.IndexFunc(u.l.Agent.Tools, func(s abi.ToolSpec) bool { return s.Name == d.tool && s.Undo != nil })
	if i < 0 {
		return "", &abi.Error{Code: abi.UnknownTool, Message: fmt.Sprintf("the tool %s names nothing that undoes it", d.tool)}
	}
	by = u.l.Agent.Tools[i].Undo.Tool
	args, err := tools.UndoArgs(u.l.Agent.Tools[i].Undo, d.args, d.result)
	if err != nil {
		return by, &abi.Error{Code: abi.InvalidArguments, Message: err.Error()}
	}
	b, err := json.Marshal(ToolArgs{Name: by, Args: args, Undoes: d.call})
	if err != nil {
		return by, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	return by, u.j.Nested(ctx, abi.Call{Row: "tool", Args: b}).Err
}

// calls returns the compensable calls of a group that succeeded, in the order of
// their ends, without calls that another undo has undone.
func (u *undoing) calls(a *UndoArgs) (list []compensable, err error) {
	begun := make(map[uint64]*abi.Intent)
	// The records are read in order, so each answer follows its intent, and an undo
	// follows the call that it undid.
	for r, err := range u.w.Journal.Records(u.j.Call.Pid, groupStart(u.j.View)) {
		if err != nil {
			return nil, err
		}
		if r.Kind == abi.KindBegan {
			begun[r.Call] = r.Intent
		}
		in := r.Intent
		if in == nil {
			in = begun[r.Call]
		}
		if r.Kind != abi.KindEnded || r.Answer.Outcome != abi.OK || in == nil || in.Row != "tool" {
			continue
		}
		// A nested call may be the undoing of another call, so it is not skipped here.
		if in.Effect != abi.Compensable && in.Within == 0 {
			continue
		}
		d := compensable{call: r.Call, tool: in.Tool}
		var undoes uint64
		if d.args, undoes, err = u.callOf(in); err != nil {
			return nil, err
		}
		// A call that this undo already undid before a crash stays in the list, because
		// runUndo repeats its undoing call and gets the recorded answer.
		if undoes != 0 && in.Within != u.j.Call.N {
			list = slices.DeleteFunc(list, func(d compensable) bool { return d.call == undoes })
		}
		top := r.Call % kernel.NestedFrom
		if in.Effect != abi.Compensable || undoes != 0 || top < a.First || top > a.Last {
			continue
		}
		if d.result, err = u.w.Journal.Bytes(r.Answer.Value); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// groupStart returns the record of the reply that the process works on.
func groupStart(v kernel.View) uint64 {
	for _, pg := range slices.Backward(v.Pages) {
		if pg.Role == process.RoleAssistant && pg.Pid == v.Pid {
			return pg.N
		}
	}
	return 0
}

// callOf returns the arguments of a recorded tool call, and the call that it undid.
func (u *undoing) callOf(in *abi.Intent) (args json.RawMessage, undoes uint64, err error) {
	c := abi.Call{Pid: u.j.Call.Pid, Row: in.Row, For: in.For}
	if c.Args, err = u.w.Journal.Bytes(in.Args); err != nil {
		return nil, 0, err
	}
	if c.For == "" {
		a, e := decode[ToolArgs](c)
		if e != nil {
			return nil, 0, e
		}
		undoes = a.Undoes
	}
	_, text, e := u.w.toolCall(u.j.View, c)
	if e != nil {
		return nil, 0, e
	}
	return json.RawMessage(text), undoes, nil
}

// Say is the message for the model; empty if there was nothing to undo.
func (u *Undone) Say() string {
	if len(u.Undone)+len(u.Kept) == 0 {
		return ""
	}
	b, err := json.Marshal(struct {
		Because string `json:"because"`
		*Undone
	}{"a call of the same reply did not go well, so the others that can be undone were undone, the last first", u})
	if err != nil {
		return ""
	}
	return string(b)
}
