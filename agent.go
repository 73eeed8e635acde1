package kern

import (
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/tools"
)

// An Agent is what a process runs. Only Model is needed. The kernel records it
// when it spawns the process, so a resumed, forked or replayed process runs the
// agent that it began with.
type Agent struct {
	Name     string
	Model    string // openai:NAME, anthropic:NAME, script:FILE, or a name of Config.Models
	System   string // instructions for the model
	Tools    []Tool
	Calls    []string // system calls that the model may use as tools: spawn, wait, send, recv, sleep, ask, yield, code
	Limits   Limits
	Priority int          // 1 to 99, a smaller one goes first; 0: DefaultPriority; Urgent: before all others
	Watchdog abi.Watchdog // the zero Watchdog warns once after three repeats, then ends the process
	Account  string       // the named account that is charged; empty: none
	Parallel int          // tool calls of one answer that run at a time; 0: all
	Sandbox  string       // the sandbox of its code: wasm or jail; empty: wasm
	Dir      string       // the directory of relative file names; empty: the working directory

	Workspace      string // the directory that its tools change by transactions; empty: none
	WorkspaceRules WorkspaceRules

	commands []abi.ToolSpec // command tools of an agent file
}

// WorkspaceRules say what an agent may do in its workspace. The zero WorkspaceRules
// give it all file tools, the best view that the host has, and no bounds.
type WorkspaceRules struct {
	View       string    // how a program sees the workspace while a call changes it: auto, overlay or copy
	Quota      abi.Quota // of one call
	Invariants []abi.Invariant
	Builtin    []string // the file tools of the agent; nil: all
}

// The priorities that an [Agent] can name.
const (
	DefaultPriority = 10
	Urgent          = -1
)

// ReadAgent reads an agent file. An error names the file, the line and what was
// expected.
func ReadAgent(file string) (Agent, error) {
	r, err := config.ReadAgent(file)
	if err != nil {
		return Agent{}, err
	}
	p := &r.Program
	a := Agent{Name: p.Name, Model: p.Model, System: p.System, Calls: p.Rows, Limits: limitsOf(r.Limits), Priority: r.Priority, Watchdog: r.Watchdog,
		Sandbox: p.Sandbox, Dir: p.Dir, commands: p.Tools,
		Workspace: p.Workspace, WorkspaceRules: WorkspaceRules{View: p.View, Quota: p.Quota, Invariants: p.Invariants, Builtin: p.Builtin}}
	if a.Priority == 0 {
		a.Priority = Urgent
	}
	return a, nil
}

// request makes the agent ready to be recorded: it reads the files that it names
// and refuses what no kernel can run.
func (a *Agent) request(task string) (r abi.Run, err error) {
	r = abi.Run{Priority: recordedPriority(a.Priority), Watchdog: a.Watchdog, Account: a.Account, Task: task, Program: abi.Agent{
		Name: a.Name, Model: a.Model, System: a.System, Rows: a.Calls, Parallel: a.Parallel, Sandbox: a.Sandbox, Dir: a.Dir, Tools: slices.Clone(a.commands),
		Workspace: a.Workspace, View: a.WorkspaceRules.View, Quota: a.WorkspaceRules.Quota, Invariants: a.WorkspaceRules.Invariants, Builtin: a.WorkspaceRules.Builtin}}
	if r.Limits, err = a.Limits.abi(); err != nil {
		return r, err
	}
	list, err := a.goTools()
	if err != nil {
		return r, err
	}
	for _, t := range list {
		r.Program.Tools = append(r.Program.Tools, t.ToolSpec)
	}
	return r, config.Prepare(&r)
}

// recordedPriority is a priority as the journal has it, where 0 is the most urgent.
func recordedPriority(p int) int {
	switch p {
	case 0:
		return DefaultPriority
	case Urgent:
		return 0
	}
	return p
}

// goTools are the tools of the agent, if all of them are sound.
func (a *Agent) goTools() (list []*tools.Tool, err error) {
	for _, t := range a.Tools {
		if t.err != nil {
			return nil, t.err
		}
		list = append(list, t.tool)
	}
	return list, nil
}
