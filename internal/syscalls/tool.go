package syscalls

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/internal/workspace"
)

// ToolArgs are the arguments of a tool call that a program makes. A call that the
// model asked for has none: the reply of the model holds them.
type ToolArgs struct {
	Name string          `json:"name,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`

	Relay  string `json:"relay,omitempty"`  // the model's name for a call that an outside program carries out
	Undoes uint64 `json:"undoes,omitempty"` // the call that this one undoes
}

// toolOutput is what a call of a tool or of code reserves of the limit on output. Code
// is stopped at it. A tool is stopped only at a limit that somebody set.
const toolOutput = 1 << 20

// toolWork is the work of a plan of tool.
type toolWork struct {
	tool   *tools.Tool
	args   json.RawMessage
	loaded *Loaded
}

// planTool checks the arguments and reserves the most that the tool can use.
func (w *World) planTool(v kernel.View, c abi.Call) (pl kernel.Plan, e *abi.Error) {
	if a, e := decode[ToolArgs](c); e == nil && a.Relay != "" {
		return planExternal(v)
	}
	name, args, e := w.toolCall(v, c)
	// These are set before the checks, because the watchdog compares refused calls too.
	pl.Tool, pl.Effect = name, abi.Irreversible
	pl.Subject = Subject(name, args)
	if e != nil {
		return pl, e
	}
	l, err := w.Load(v.Spawn.Program)
	if err != nil {
		return pl, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	t, e := w.findTool(v.Pid, l, name)
	if e != nil {
		return pl, e
	}
	if viol := t.Args.Check([]byte(args)); viol != nil {
		return pl, &abi.Error{Code: abi.InvalidArguments, Message: name + ": " + viol.Message, Where: viol.Where, Expected: viol.Expected,
			Got: viol.Got, Hint: "call it again with arguments that match the schema"}
	}
	pl.Effect, pl.Attempts = t.Effect, t.Attempts
	pl.Intent = t.Effect != abi.Pure || t.Cost > 0
	pl.Reserve = abi.Usage{abi.ToolCalls: 1, abi.Money: t.Cost}
	pl.Elastic = kernel.Elastic{Unit: abi.OutputBytes, Min: 1, Max: toolOutput}
	if v.Bounded {
		pl.Elastic.Max = tools.MaxKept
	}
	if t.Approval {
		pl.Ask = fmt.Sprintf("may %s run with %s?", name, abi.Clip(args))
	}
	pl.Work = &toolWork{t, json.RawMessage(args), l}
	return pl, nil
}

// toolCall returns the name and the arguments of the tool that c calls.
func (w *World) toolCall(v kernel.View, c abi.Call) (name, args string, e *abi.Error) {
	if c.For == "" {
		a, e := decode[ToolArgs](c)
		if e == nil && a.Name == "" {
			e = &abi.Error{Code: abi.InvalidArguments, Message: "tool: expected the name of a tool", Where: "/name"}
		}
		if len(a.Args) == 0 {
			a.Args = json.RawMessage("{}")
		}
		return a.Name, string(a.Args), e
	}
	for i, pg := range slices.Backward(v.Pages) {
		if pg.Role != process.RoleAssistant {
			continue
		}
		m, err := w.Journal.Message(v.Pages[i])
		if err != nil {
			return "", "", &abi.Error{Code: abi.StorageBroken, Message: err.Error()}
		}
		for _, mc := range m.Calls {
			if mc.ID == c.For {
				return mc.Name, mc.Args, nil
			}
		}
	}
	return "", "", &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("the model asked for no call %q", c.For)}
}

// findTool returns a tool of the process, by name.
func (w *World) findTool(pid abi.Pid, l *Loaded, name string) (*tools.Tool, *abi.Error) {
	if t := l.tools[name]; t != nil {
		return t, nil
	}
	var names []string
	for _, s := range l.specs {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, name) {
		return nil, &abi.Error{Code: abi.UnknownTool, Message: fmt.Sprintf("there is no tool %q", name), Got: abi.Clip(name),
			Hint: "there are: " + cmp.Or(strings.Join(names, ", "), "none")}
	}
	if w.Hosted != nil {
		if t := w.Hosted(pid, name); t != nil {
			return t, nil
		}
	}
	return nil, &abi.Error{Code: abi.ToolGone, Message: fmt.Sprintf("the program that holds the tool %q is not here", name)}
}

// Subject returns the name and the canonical arguments of a tool call. The watchdog
// compares them.
func Subject(name, args string) []byte {
	b, err := jsontext.Canonical(nil, []byte(args))
	if err != nil {
		b = []byte(args)
	}
	return append(append([]byte(name), 0), b...)
}

// runTool runs a tool. A command sees the workspace as its working directory. A
// Go function finds it with [staging.Layer]. A file tool that code calls works on
// the stage of the code, so both see the same files.
func (w *World) runTool(ctx context.Context, j *kernel.Job) kernel.Done {
	if r, ok := j.Plan.Work.(External); ok {
		return r.Run(ctx, j)
	}
	t := j.Plan.Work.(*toolWork)
	in := tools.Input{Pid: j.Call.Pid, Call: j.Call.N, Attempt: j.Attempt, Args: t.args, Dir: t.loaded.Agent.Dir, Code: j.Call.Within != 0}
	if j.View.Bounded {
		in.MaxOutput = j.Granted
	}
	if t.loaded.tools[readTool] != nil {
		in.Rest = fmt.Sprintf("read the rest with %s %s", readTool, outputPath(in.Call))
	}
	f := t.loaded.files[t.tool.Name]
	if outer := staging.FromContext(ctx); outer != nil && f != nil && j.Call.Within != 0 {
		return t.done(w.runFileTool(ctx, outer, f, in))
	}
	rules := workspaceRules(&t.loaded.Agent)
	view := workspace.Layered
	if len(t.tool.Command) > 0 {
		view = rules.CommandView()
	}
	s, e := w.Workspaces.Begin(ctx, rules, view)
	if e != nil {
		return failed(e)
	}
	if f != nil {
		return finishStage(ctx, s, j, t.done(w.runFileTool(ctx, s, f, in)))
	}
	if s != nil && view != workspace.Layered {
		in.Dir = s.Dir()
	}
	return finishStage(ctx, s, j, t.done(t.tool.Run(s.Context(ctx), in)))
}

// finishStage publishes what the call staged, or rolls it back, and records the
// result in d.
func finishStage(ctx context.Context, s *staging.Stage, j *kernel.Job, d kernel.Done) kernel.Done {
	out := s.Finish(ctx, staging.Call{Pid: j.Call.Pid, N: j.Call.N, Attempt: j.Attempt, Tool: j.Plan.Tool, Effect: j.Plan.Effect}, d.Err)
	if d.Err == nil && out.Err != nil {
		d.Value = nil
	}
	d.Err, d.Commit, d.Digest, d.Rolled, d.Kept = out.Err, out.Commit, out.Digest, out.Rolled, out.Decide
	return d
}

// done converts the output of a tool.
func (t *toolWork) done(out tools.Output) kernel.Done {
	return kernel.Done{Value: out.Value, Err: out.Err, Whole: out.Whole,
		Usage: abi.Usage{abi.ToolCalls: 1, abi.Money: t.tool.Cost, abi.OutputBytes: out.Bytes, abi.CPU: int64(out.CPU)}}
}

// runFileTool runs a file tool on a stage.
func (w *World) runFileTool(ctx context.Context, s *staging.Stage, f *files.Tool, in tools.Input) (out tools.Output) {
	fs, closeFS, err := s.FS()
	if err != nil {
		return tools.Output{Err: staging.Error(err)}
	}
	timed, cancel := context.WithTimeoutCause(ctx, abi.DefaultToolTimeout, &abi.Error{Code: abi.ToolTimeout,
		Message: fmt.Sprintf("tool %s was stopped at its timeout of %s", f.Name, abi.DefaultToolTimeout), Hint: "ask for less at once"})
	defer cancel()
	out.Value, out.Err = f.Run(timed, outputs{fs, w, in.Pid}, in.Args, in.MaxOutput)
	out.Bytes = int64(len(out.Value))
	if err := closeFS(); err != nil && out.Err == nil {
		out = tools.Output{Err: staging.Error(err)}
	}
	return out
}
