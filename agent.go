package kern

import (
	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
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

	commands []tools.Spec // command tools of an agent file
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
	f, err := host.ReadAgent(file)
	if err != nil {
		return Agent{}, err
	}
	a := Agent{Name: f.Name, Model: f.Model, System: f.System, Calls: f.Calls, Watchdog: f.Watchdog, Account: f.Account, Parallel: f.Parallel,
		Sandbox: f.Sandbox, Dir: f.Dir, Workspace: f.Workspace, WorkspaceRules: WorkspaceRules(f.Space), commands: f.Commands}
	var l abi.Limits
	for u, n := range f.Limits {
		l.Set(u, n)
	}
	a.Limits = limitsOf(l)
	if a.Priority = f.Priority; a.Priority == 0 {
		a.Priority = Urgent
	}
	return a, nil
}

// spec makes the agent ready to be recorded: it reads the files that it names and
// checks what a kernel would refuse.
func (a *Agent) spec(task string) (host.Spec, error) {
	f := host.Definition{Name: a.Name, Model: a.Model, System: a.System, Calls: a.Calls, Watchdog: a.Watchdog, Account: a.Account, Parallel: a.Parallel,
		Sandbox: a.Sandbox, Dir: a.Dir, Workspace: a.Workspace, Space: host.Space(a.WorkspaceRules), Commands: a.commands, Priority: recordedPriority(a.Priority)}
	s, err := f.Spec(task)
	if err != nil {
		return s, err
	}
	if s.Limits, err = a.Limits.abi(); err != nil {
		return s, err
	}
	list, err := a.goTools()
	for _, t := range list {
		s.Program.Tools = append(s.Program.Tools, t.Spec)
	}
	return s, err
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
