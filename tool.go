package kern

import (
	"context"
	"encoding/json"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/tools"
)

// A Tool is a Go function that an agent may call.
type Tool struct {
	tool *tools.Tool
	err  error // reported by the call that uses the tool
}

// NewTool makes a tool of a Go function. The schema of its arguments follows from
// In, a struct. A new tool counts as irreversible: if the program dies in the
// middle of a call, nobody runs that call again. Use [Tool.As] to say otherwise.
func NewTool[In, Out any](name, description string, f func(context.Context, In) (Out, error)) Tool {
	t, err := tools.Func(name, description, f)
	return Tool{t, err}
}

// As declares what a call of the tool may change.
func (t Tool) As(e abi.Effect) Tool {
	if t.err != nil {
		return t
	}
	changed := *t.tool
	changed.Effect = e
	return Tool{&changed, tools.Validate(&changed.ToolSpec)}
}

// UndoneBy declares that a call of the tool name takes back a call of this one, so
// this one is compensable. Both tools must belong to the same agent.
//
// In args, "$args" and "$result", alone or with a JSON pointer behind them, stand
// for what the call was given and what it returned. Without args the other tool
// gets {"args": ..., "result": ...}.
func (t Tool) UndoneBy(name string, args map[string]any) Tool {
	if t.err != nil {
		return t
	}
	changed := *t.tool
	changed.Effect, changed.Undo = abi.Compensable, &abi.ToolUndo{Tool: name}
	if args != nil {
		b, err := json.Marshal(args)
		if err != nil {
			return Tool{err: err}
		}
		changed.Undo.Args = b
	}
	return Tool{&changed, tools.Validate(&changed.ToolSpec)}
}
