package host

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/internal/workspace"
)

// Feedback returns what the end of a call shows about its provider.
var Feedback = feedback

// OnSpace calls f for every workspace that is opened, before the commits in doubt
// there are decided.
func OnSpace(f func(*workspace.Workspace)) { opened = f }

// Space is the workspace of a directory.
func (k *Kernel) Space(dir string) (*workspace.Workspace, error) { return k.spaces.get(dir) }

// Hosted is for how many processes there are Go tools.
func (k *Kernel) Hosted() int {
	k.goTools.mu.Lock()
	defer k.goTools.mu.Unlock()
	return len(k.goTools.byPid)
}

// An Agent is a definition with Go tools.
type Agent struct {
	Name, Model, System string
	Tools               []Callable
	Calls               []string
	Limits              Limits
	Priority            int
	Watchdog            abi.Watchdog
	Account             string
	Parallel            int
	Sandbox, Dir        string
	Workspace           string
	Space               Space
	Commands            []abi.ToolSpec
}

// Spec is the agent as it is recorded.
func (a Agent) Spec(task string) (abi.Run, error) {
	r := abi.Run{Priority: a.Priority, Watchdog: a.Watchdog, Account: a.Account, Task: task, Program: abi.Agent{
		Name: a.Name, Model: a.Model, System: a.System, Rows: a.Calls, Parallel: a.Parallel, Sandbox: a.Sandbox, Dir: a.Dir, Tools: a.Commands,
		Workspace: a.Workspace, View: a.Space.View, Quota: a.Space.Quota, Invariants: a.Space.Invariants, Builtin: a.Space.Builtin}}
	for u, n := range a.Limits {
		r.Limits.Set(u, n)
	}
	if err := config.Prepare(&r); err != nil {
		return r, err
	}
	list, err := toolsOf(a.Tools)
	for _, t := range list {
		r.Program.Tools = append(r.Program.Tools, t.ToolSpec)
	}
	return r, err
}

// Space is what an agent may do in its workspace.
type Space struct {
	View       string
	Quota      abi.Quota
	Invariants []abi.Invariant
	Builtin    []string
}

// Limits are limits by unit.
type Limits map[abi.Unit]int64

// Dollar is an amount of money.
const Dollar int64 = 1_000_000_000

// ReadAgent reads an agent file.
func ReadAgent(file string) (Agent, error) {
	r, err := config.ReadAgent(file)
	p := &r.Program
	a := Agent{Name: p.Name, Model: p.Model, System: p.System, Calls: p.Rows, Limits: Limits{}, Priority: r.Priority, Watchdog: r.Watchdog,
		Account: r.Account, Parallel: p.Parallel, Sandbox: p.Sandbox, Dir: p.Dir, Workspace: p.Workspace, Commands: p.Tools,
		Space: Space{p.View, p.Quota, p.Invariants, p.Builtin}}
	r.Limits.Each(func(u abi.Unit, n int64) { a.Limits[u] = n })
	return a, err
}

// ToolsOf are the Go tools of agents, for Config.Tools.
func ToolsOf(agents ...Agent) map[string][]*tools.Tool {
	m := make(map[string][]*tools.Tool)
	for _, a := range agents {
		m[a.Name], _ = toolsOf(a.Tools)
	}
	return m
}

func toolsOf(list []Callable) (all []*tools.Tool, err error) {
	for _, c := range list {
		if c.err != nil {
			return nil, c.err
		}
		all = append(all, c.tool)
	}
	return all, nil
}

// A Callable is a Go function that an agent may call as a tool.
type Callable struct {
	tool *tools.Tool
	err  error
}

// Tool makes a tool of a Go function. The schema of its arguments is that of
// In, a struct. The function is taken to be irreversible: after a crash in the
// middle of it nobody runs it again. Use [Callable.As] to say otherwise.
func Tool[In, Out any](name, description string, f func(context.Context, In) (Out, error)) Callable {
	t, err := tools.Func(name, description, f)
	return Callable{t, err}
}

// As declares what the tool does to the world.
func (c Callable) As(e abi.Effect) Callable {
	if c.err != nil {
		return c
	}
	t := *c.tool
	t.Effect = e
	if err := tools.Validate(&t.ToolSpec); err != nil {
		return Callable{err: err}
	}
	return Callable{tool: &t}
}

// UndoneBy declares that the tool is compensable: what a call of it did is
// taken back by a call of the tool named, which must be one of the same agent.
// args are its arguments, in which "$args" and "$result", alone or with a JSON
// pointer behind them, stand for what the call was given and gave; nil: it gets
// {"args": ..., "result": ...}.
func (c Callable) UndoneBy(name string, args map[string]any) Callable {
	if c.err != nil {
		return c
	}
	t := *c.tool
	t.Effect, t.Undo = abi.Compensable, &abi.ToolUndo{Tool: name}
	var err error
	if args != nil {
		t.Undo.Args, err = json.Marshal(args)
	}
	if err == nil {
		err = tools.Validate(&t.ToolSpec)
	}
	return Callable{&t, err}
}

// Spawn starts a process and returns when it is on disk.
func (k *Kernel) Spawn(ctx context.Context, a Agent, task string) (abi.Pid, error) {
	s, err := a.Spec(task)
	if err != nil {
		return 0, err
	}
	list, err := toolsOf(a.Tools)
	if err != nil {
		return 0, err
	}
	return k.SpawnSpec(ctx, s, list...)
}

// Run runs an agent on a task until its process exits. When ctx ends the
// process is killed.
func (k *Kernel) Run(ctx context.Context, a Agent, task string) (Result, error) {
	pid, err := k.Spawn(ctx, a, task)
	if err != nil {
		return Result{}, err
	}
	r, err := k.Wait(ctx, pid)
	if err != nil && ctx.Err() != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := k.Signal(after, pid, abi.Kill, "context"); err != nil {
			return r, err
		}
		if r, err := k.Wait(after, pid); err != nil {
			return r, err
		}
		return r, context.Cause(ctx)
	}
	return r, err
}

// Layer is the workspace of a process as one call sees it.
type Layer = workspace.Layer

// Files is the workspace of the call whose context a tool was given.
func Files(ctx context.Context) *Layer { return staging.Layer(ctx) }

// ApplyJournal applies rules of kern.yaml to the journal now.
func (k *Kernel) ApplyJournal(ctx context.Context, r config.JournalRules) int64 {
	m := k.remover
	m.rules = r
	m.apply(ctx)
	return m.size()
}
