package syscalls

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/workspace"
)

// CodeArgs are the arguments of code.
type CodeArgs struct {
	Source  string `json:"source"`
	Timeout string `json:"timeout,omitempty"`
}

// codeWall is the default timeout of code, and codeWallMax the longest one.
const (
	codeWall    = 30 * time.Second
	codeWallMax = 10 * time.Minute
)

// CodeOutcome is the value of a successful call of code.
type CodeOutcome struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// codeWork is the work of a plan of code.
type codeWork struct {
	loaded *Loaded
	source string
	wall   time.Duration
}

func (w *World) planCode(v kernel.View, c abi.Call) (pl kernel.Plan, e *abi.Error) {
	pl = kernel.Plan{Effect: abi.Irreversible, Intent: true, Tool: "code", Reserve: abi.Usage{abi.ToolCalls: 1},
		Elastic: kernel.Elastic{Unit: abi.OutputBytes, Min: 1, Max: toolOutput}}
	a, e := decode[CodeArgs](c)
	if e != nil {
		return pl, e
	}
	d, e := parseDuration("code", "/timeout", a.Timeout)
	if e != nil {
		return pl, e
	}
	if d > codeWallMax {
		return pl, &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf("code: expected a timeout of at most %s", codeWallMax), Where: "/timeout", Got: a.Timeout}
	}
	l, err := w.Load(v.Spawn.Program)
	if err != nil {
		return pl, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	pl.Work = &codeWork{l, a.Source, cmp.Or(d, codeWall)}
	return pl, nil
}

// runCode runs source in the sandbox of the process. The tools of the process are
// functions there, and each call of a function is a system call of its own. Code and
// the file tools that it calls share one stage. Any other tool has its own stage.
func (w *World) runCode(ctx context.Context, j *kernel.Job) kernel.Done {
	cw := j.Plan.Work.(*codeWork)
	box, err := w.Sandbox(cw.loaded.Agent.Sandbox)
	if err != nil {
		return failed(&abi.Error{Code: abi.CodeRefused, Message: err.Error()})
	}
	rules := workspaceRules(&cw.loaded.Agent)
	view := workspace.Layered
	if cw.loaded.Agent.Sandbox == "jail" {
		view = rules.JailView()
	}
	s, e := w.Workspaces.Begin(ctx, rules, view)
	if e != nil {
		return failed(e)
	}
	spec := sandbox.Spec{
		Code:      cw.source,
		Functions: w.functions(s, j, cw.loaded),
		Limits:    sandbox.Limits{Wall: cw.wall, CPU: cw.wall, Output: j.Granted},
		Files:     s.SandboxFS(),
		Dir:       s.Dir(),
	}
	return finishStage(ctx, s, j, codeDone(box.Run(ctx, spec)))
}

// codeDone converts the outcome of a run.
func codeDone(out sandbox.Outcome, err error) kernel.Done {
	d := kernel.Done{Usage: abi.Usage{abi.ToolCalls: 1, abi.OutputBytes: out.Usage.OutputBytes, abi.CPU: int64(out.Usage.CPU)}}
	if err != nil {
		d.Err = &abi.Error{Code: abi.CodeRefused, Message: err.Error()}
		var r *sandbox.Refusal
		if errors.As(err, &r) {
			d.Err.Hint = r.Fix
		}
		return d
	}
	if out.Cause == sandbox.OK {
		d.Value, err = json.Marshal(CodeOutcome{string(out.Stdout), string(out.Stderr), out.Truncated})
		if err == nil {
			return d
		}
	}
	d.Err = codeError(&out)
	return d
}

var codeCodes = map[sandbox.Cause]abi.Code{
	sandbox.Failed:    abi.CodeFailed,
	sandbox.Timeout:   abi.CodeTimeout,
	sandbox.Memory:    abi.CodeMemory,
	sandbox.Output:    abi.CodeOutput,
	sandbox.Processes: abi.CodeProcesses,
	sandbox.Files:     abi.CodeFiles,
	sandbox.Refused:   abi.CodeRefused,
	sandbox.Killed:    abi.Interrupted,
}

// codeOutputKept is the number of bytes of failed code's output that the model sees. It
// sees the end, because the end usually holds the reason.
const codeOutputKept = 4096

// codeError returns the error for code that failed.
func codeError(out *sandbox.Outcome) *abi.Error {
	e := &abi.Error{Code: codeCodes[out.Cause], Message: fmt.Sprintf("the code ended with %s, exit %d", out.Cause, out.Exit)}
	text := string(out.Stdout) + string(out.Stderr)
	if n := len(text) - codeOutputKept; n > 0 {
		text = "..." + strings.ToValidUTF8(text[n:], "")
	}
	e.Got = text
	return e
}

// functions returns the tools and rows of a process as Python functions. The tool
// "fs.read" is tools.fs.read, the tool "echo" is tools.agent.echo, and the row
// "spawn" is tools.kern.spawn.
func (w *World) functions(stage *staging.Stage, j *kernel.Job, l *Loaded) (list []sandbox.Function) {
	rows := Table(w)
	taken := make(map[string]bool)
	for _, s := range l.specs {
		if s.Name == "code" { // code may not run code
			continue
		}
		f := sandbox.Function{Namespace: "agent", Name: pythonName(s.Name), Doc: s.Description, Params: params(s.Schema)}
		row := rows[s.Name]
		if slices.Contains(l.Agent.Rows, s.Name) {
			f.Namespace, f.Params = "kern", params(row.Schema.Raw())
		} else if ns, name, ok := strings.Cut(s.Name, "."); ok {
			f.Namespace, f.Name = pythonName(ns), pythonName(name)
			row = nil
		} else {
			row = nil
		}
		// Two tools may have the same Python name, such as a-b and a_b; the first one wins.
		if taken[f.Namespace+"."+f.Name] {
			continue
		}
		taken[f.Namespace+"."+f.Name] = true
		renamed := renameKeywords(f.Params)
		// A schema without named members becomes one optional dict, because Python needs
		// the name of every parameter.
		open := len(f.Params) == 0 && openObject(s.Schema)
		if open {
			f.Params = []sandbox.Param{{Name: "args", Type: "dict", Optional: true}}
		}
		f.Call = func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			c := abi.Call{Row: "tool"}
			var err error
			if open {
				args = member(args, "args")
			}
			if args, err = restoreNames(args, renamed); err != nil {
				return nil, err
			}
			if row != nil {
				c.Row, c.Args = row.Name, args
			} else if c.Args, err = json.Marshal(ToolArgs{Name: s.Name, Args: args}); err != nil {
				return nil, err
			}
			return nested(j.Nested(stage.Context(ctx), c))
		}
		if sandbox.CheckFunctions([]sandbox.Function{f}) == nil {
			list = append(list, f)
		}
	}
	return list
}

// renameKeywords appends an underscore to parameters with the name of a Python
// keyword, such as from. It returns the old names by the new ones.
func renameKeywords(list []sandbox.Param) (was map[string]string) {
	for i := range list {
		one := sandbox.Function{Namespace: "a", Name: "a", Params: list[i : i+1], Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }}
		if sandbox.CheckFunctions([]sandbox.Function{one}) == nil {
			continue
		}
		if was == nil {
			was = make(map[string]string)
		}
		was[list[i].Name+"_"] = list[i].Name
		list[i].Name += "_"
	}
	return was
}

// restoreNames undoes renameKeywords in the arguments of a call.
func restoreNames(args json.RawMessage, was map[string]string) (json.RawMessage, error) {
	if len(was) == 0 {
		return args, nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(args, &m); err != nil {
		return nil, err
	}
	for python, name := range was {
		if v, given := m[python]; given {
			delete(m, python)
			m[name] = v
		}
	}
	return json.Marshal(m)
}

// nested converts the answer to a call of code. A refused or failed call is an
// exception that the code can catch.
func nested(r abi.Result) (json.RawMessage, error) {
	if r.Err == nil {
		return r.Value, nil
	}
	e := &sandbox.CallError{Code: string(r.Err.Code), Message: r.Err.Message, Fields: map[string]any{"outcome": string(r.Outcome)}}
	for k, v := range map[string]string{"where": r.Err.Where, "hint": r.Err.Hint, "got": r.Err.Got} {
		if v != "" {
			e.Fields[k] = v
		}
	}
	return nil, e
}

// openObject reports whether a schema allows members that it does not name. Such a
// tool takes one dict.
func openObject(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	var s struct {
		AdditionalProperties any
		Properties           map[string]any
	}
	return json.Unmarshal(raw, &s) == nil && s.AdditionalProperties != false && len(s.Properties) == 0
}

// member returns one member of an object, or an empty object.
func member(object json.RawMessage, name string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(object, &m) == nil && m[name] != nil {
		return m[name]
	}
	return json.RawMessage("{}")
}

// pythonName replaces characters that a Python name cannot have.
func pythonName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

var pythonTypes = map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict", "null": "None"}

// params returns the parameters of a function with this schema: first the required
// ones in the order of the schema, then the others by name.
func params(raw json.RawMessage) (list []sandbox.Param) {
	var s struct {
		Properties map[string]struct{ Type any }
		Required   []string
	}
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	add := func(name string, optional bool) {
		if pythonName(name) == name {
			list = append(list, sandbox.Param{Name: name, Type: annotation(s.Properties[name].Type), Optional: optional})
		}
	}
	for _, name := range s.Required {
		add(name, false)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			add(name, true)
		}
	}
	return list
}

func annotation(t any) string {
	switch t := t.(type) {
	case string:
		return pythonTypes[t]
	case []any:
		var names []string
		for _, n := range t {
			if s, ok := n.(string); ok && pythonTypes[s] != "" {
				names = append(names, pythonTypes[s])
			}
		}
		return strings.Join(names, " | ")
	}
	return ""
}
