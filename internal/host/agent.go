package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/internal/tools"
)

// A Definition is the definition of a process. Only Model is needed. It is
// recorded when a process is spawned: a process that is resumed, forked or
// replayed runs under the definition it began with.
type Definition struct {
	Name     string
	Model    string // script:FILE, openai:NAME or anthropic:NAME
	System   string
	Calls    []string // system calls that the model may use as tools: spawn, wait, send, recv, sleep, ask, yield
	Limits   Limits
	Priority int          // 0 is the most urgent; see [DefaultPriority]
	Watchdog abi.Watchdog // the zero Watchdog is smart, with three repeats
	Account  string       // the named account that its usage is booked on; empty: none
	Parallel int          // tool calls of one reply at a time; 0: all
	Sandbox  string       // where its code runs: one of [SandboxNames]; empty: wasm
	Dir      string       // where relative names of files begin; empty: the working directory

	Workspace string // the directory that its tools change by transactions, relative to Dir; empty: none
	Space     Space

	Commands []tools.Spec // from an agent file
}

// Space says how a workspace is used. The zero Space has the best view that the
// host gives, no quota, no invariants, and all file tools.
type Space struct {
	View       string // how a program sees it while it is changed: auto, overlay or copy
	Quota      Quota  // of one call
	Invariants []Invariant
	Builtin    []string // the file tools that the agent has; nil: all
}

// A Quota bounds what one call may stage in a workspace.
type Quota = abi.Quota

// An Invariant must hold for every path it names before a change is published.
type Invariant = abi.Invariant

// DefaultPriority is a good priority for an agent that has no reason for
// another.
const DefaultPriority = abi.DefaultPriority

// Limits are hard bounds by unit: Limits{abi.Money: kern.Dollar / 2, abi.Steps: 20}.
// A unit that is not there is not limited; zero allows nothing.
type Limits map[abi.Unit]int64

// Dollar is an amount of money, in nano-dollars.
const Dollar int64 = 1_000_000_000

func (l Limits) abi() (a abi.Limits) {
	for u, n := range l {
		a.Set(u, n)
	}
	return a
}

// ReadAgent reads an agent file. An error names the file, the line and what was
// expected.
func ReadAgent(file string) (Definition, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Definition{}, err
	}
	f, err := config.ParseFile(file, data)
	if err != nil {
		return Definition{}, err
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return Definition{}, err
	}
	a := Definition{Name: f.Name, Model: f.Model, System: f.System, Priority: f.Priority, Watchdog: f.Watchdog, Limits: Limits{},
		Calls: f.Rows, Sandbox: f.Sandbox, Dir: dir, Commands: f.Tools,
		Workspace: f.Space.Dir, Space: Space{View: f.Space.View, Quota: f.Space.Quota, Invariants: f.Space.Invariants, Builtin: f.Space.Builtin}}
	if _, err := SandboxName(a.Sandbox); err != nil {
		return Definition{}, fmt.Errorf("%s: sandbox: %w", file, err)
	}
	f.Limits.Each(func(u abi.Unit, n int64) { a.Limits[u] = n })
	return a, nil
}

// Spec is an agent as it is sent to a daemon and recorded: whole, with the
// text of what its definition names.
type Spec struct {
	Program  syscalls.Program `json:"program"`
	Limits   abi.Limits       `json:"limits,omitzero"`
	Priority int              `json:"priority"`
	Watchdog abi.Watchdog     `json:"watchdog,omitzero"`
	Account  string           `json:"account,omitempty"`
	Parent   abi.Pid          `json:"parent,omitempty"` // a process with a key, whose child it is; 0: none
	Task     string           `json:"task"`
}

// Spec makes the agent ready to be sent, reading the files it names.
func (a Definition) Spec(task string) (Spec, error) {
	p := syscalls.Program{Name: a.Name, Model: a.Model, System: a.System, Rows: a.Calls, Dir: a.Dir, Parallel: a.Parallel, Tools: a.Commands}
	if p.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return Spec{}, err
		}
		p.Dir = dir
	}
	if a.Workspace != "" {
		p.Workspace = a.Workspace
		if !filepath.IsAbs(p.Workspace) {
			p.Workspace = filepath.Join(p.Dir, p.Workspace)
		}
	}
	p.View, p.Quota, p.Invariants, p.Builtin = a.Space.View, a.Space.Quota, a.Space.Invariants, a.Space.Builtin
	var err error
	if p.Sandbox, err = SandboxName(a.Sandbox); err != nil {
		return Spec{}, err
	}
	if name, ok := strings.CutPrefix(a.Model, "script:"); ok {
		text, err := readScript(p.Dir, name)
		if err != nil {
			return Spec{}, fmt.Errorf("model %s: %w", a.Model, err)
		}
		p.Script = text
	}
	for _, row := range a.Calls {
		if !isRow(row) {
			return Spec{}, fmt.Errorf("agent %q: no system call %q for a model; expected one of %s", a.Name, row, strings.Join(abi.ModelRows(), ", "))
		}
	}
	return Spec{Program: p, Limits: a.Limits.abi(), Priority: a.Priority, Watchdog: a.Watchdog, Account: a.Account, Task: task}, nil
}

func isRow(name string) bool {
	for _, r := range abi.ModelRows() {
		if r == name {
			return true
		}
	}
	return false
}

func readScript(dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	b, err := os.ReadFile(name)
	return string(b), err
}

// Result is how a process ended.
type Result struct {
	Pid       abi.Pid       `json:"pid"`
	Exit      abi.Exit      `json:"exit"`
	Reason    string        `json:"reason"` // limit: its unit; killed: the signal
	Code      abi.Code      `json:"code"`
	Output    string        `json:"output"`
	Err       *abi.Error    `json:"error"`
	Steps     int64         `json:"steps"`
	Usage     Usage         `json:"usage"`
	Limits    abi.Limits    `json:"limits"`
	Registers abi.Registers `json:"registers"`
}

// Usage is what a process and all below it took.
type Usage struct {
	Money        string `json:"money"` // dollars, exactly
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	ModelCalls   int64  `json:"model_calls"`
	ToolCalls    int64  `json:"tool_calls"`
	WallMS       int64  `json:"wall_ms"`
	InDoubt      string `json:"in_doubt,omitempty"` // dollars reserved by calls whose end nobody saw
	Drift        string `json:"drift,omitempty"`    // dollars taken beyond what was reserved
}
