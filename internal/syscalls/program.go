package syscalls

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/live"
	"github.com/kern-run/kern/internal/recent"
	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/model"
)

// A Program is the definition of an agent. It is recorded when a process is
// spawned, so that a resumed, forked or replayed process runs under the
// definition it began with.
type Program struct {
	Name     string       `json:"name,omitempty"`
	Model    string       `json:"model,omitempty"`  // a reference such as openai:gpt-5; empty: it asks no model
	Script   string       `json:"script,omitempty"` // the text of a script model
	Facts    *Facts       `json:"facts,omitempty"`  // what was known of the model at the spawn
	Fallback []Fallback   `json:"fallback,omitempty"`
	System   string       `json:"system,omitempty"`
	Tools    []tools.Spec `json:"tools,omitempty"`
	Rows     []string     `json:"rows,omitempty"`     // system calls that the model may ask for as tools
	Dir      string       `json:"dir,omitempty"`      // where relative names of files begin
	Parallel int          `json:"parallel,omitempty"` // tool calls of one reply at a time; 0: all
	Sandbox  string       `json:"sandbox,omitempty"`  // where code runs; empty: wasm
	Hosted   bool         `json:"hosted,omitempty"`   // its loop runs in a program outside the kernel
	Held     bool         `json:"held,omitempty"`     // it ends when nobody holds it any more who runs that program
	Key      string       `json:"key,omitempty"`      // the SHA-256, in hex, of the key with which that program comes to the gateway

	Workspace  string          `json:"workspace,omitempty"` // the directory that its tools change, by transactions; empty: none
	View       string          `json:"view,omitempty"`      // how a program sees it while it is changed: auto (when empty), overlay or copy
	Invariants []abi.Invariant `json:"invariants,omitempty"`
	Quota      abi.Quota       `json:"quota,omitzero"`   // of one call
	Builtin    []string        `json:"builtin,omitzero"` // the file tools it has; nil: all where there is a workspace
}

// workspaceRules are what the program declares about its workspace.
func (p *Program) workspaceRules() staging.Rules {
	return staging.Rules{Dir: p.Workspace, View: p.View, Quota: p.Quota, Invariants: p.Invariants}
}

// CheckWorkspace returns an error if the program declares something about its
// workspace, or about undoing, that makes no sense.
func (p *Program) CheckWorkspace() error {
	bad := func(format string, a ...any) error {
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf(format, a...)}
	}
	rules := p.workspaceRules()
	if err := rules.Validate(); err != nil {
		return bad("%v", err)
	}
	for _, t := range p.Tools {
		if t.Effect == abi.Transactional && p.Workspace == "" {
			return bad("tool %q: effect: transactional cannot be enforced without a workspace, expected workspace: DIR", t.Name)
		}
		if t.Undo != nil && !slices.ContainsFunc(p.Tools, func(u tools.Spec) bool { return u.Name == t.Undo.Tool }) {
			return bad("tool %q: undo: there is no tool %q, expected one of the same agent", t.Name, t.Undo.Tool)
		}
	}
	return nil
}

// A Fallback is a model that is asked when the one before it cannot be had.
type Fallback struct {
	Model string `json:"model"`
	Facts *Facts `json:"facts,omitempty"`
}

// Facts are the price and the size of a model as they were at the spawn.
type Facts struct {
	Price     abi.Price `json:"price"`
	Priced    bool      `json:"priced"`
	Long      abi.Price `json:"long,omitzero"`
	Beyond    int       `json:"beyond,omitempty"`
	Window    int       `json:"window,omitempty"`
	MaxOutput int       `json:"max_output,omitempty"`
	MinOutput int       `json:"min_output,omitempty"`
}

// A World is what rows reach: models and tools, by the program that names them.
type World struct {
	// Open opens the model of a program. It is called once for each program and model.
	Open func(p *Program) (model.Model, error)
	// Command makes a tool of a declared command.
	Command func(s tools.Spec) (*tools.Tool, error)
	// Hosted finds a tool that lives in this Go program, or in a program that
	// is connected. Nil: there are none.
	Hosted func(pid abi.Pid, name string) *tools.Tool
	// Sandbox finds a place where code runs, by name; empty is the default.
	Sandbox func(name string) (sandbox.Backend, error)
	// Journal reads what processes recorded.
	Journal Journal
	// Workspaces opens the stages of calls.
	Workspaces *staging.Workspaces
	// Narrow reads a model reference that a model asked for in spawn.
	Child func(parent *Program, ref string) (Program, error)
	// Yield decides on a request for higher limits: nil asks a person.
	Yield func(v kernel.View, asked abi.Limits) (allow bool, decided bool)
	// Away is how long the provider at a resource is away.
	Away func(resource string) time.Duration
	// Attempts at a model before its error is the answer. Zero: five.
	Attempts int
	// Live is where text is published as it streams. Nil: nowhere.
	Live *live.Channel

	setMax sync.Once
	loaded recent.Cache[abi.Hash, *Loaded]
}

// loadedMax is half the number of loaded programs that a World keeps.
const loadedMax = 1000

// Loaded is a program ready to run.
type Loaded struct {
	Program
	routes []route // to its model, and to those asked in its place; none when it asks none
	tools  map[string]*tools.Tool
	files  map[string]*files.Tool // those of tools that work on a view
	specs  []model.ToolSpec
	sum    abi.Hash // of what goes with every request: the system's text and the tools
}

// A route is a model, and what a program knows of it.
type route struct {
	model model.Model // nil: this host has it no more
	facts model.Facts
}

// Load makes a recorded program ready, once as long as it is in use.
func (w *World) Load(d abi.Data) (*Loaded, error) {
	b, err := w.Journal.Bytes(d)
	if err != nil {
		return nil, err
	}
	h := d.Hash
	if h.IsZero() {
		h = abi.HashOf(b)
	}
	w.setMax.Do(func() { w.loaded.Max = loadedMax })
	if l, ok := w.loaded.Get(h); ok {
		return l, nil
	}
	l := &Loaded{tools: make(map[string]*tools.Tool)}
	if err := json.Unmarshal(b, &l.Program); err != nil {
		return nil, fmt.Errorf("the program of the process cannot be read: %w", err)
	}
	if err := w.prepare(l); err != nil {
		return nil, err
	}
	w.loaded.Put(h, l)
	return l, nil
}

func (w *World) prepare(l *Loaded) (err error) {
	if l.Model != "" {
		m, err := w.Open(&l.Program)
		if err != nil {
			return err
		}
		l.routes = append(l.routes, route{m, l.Facts.over(m.Facts())})
	}
	for _, f := range l.Fallback {
		r := route{facts: f.Facts.over(model.Facts{Name: f.Model})}
		if m, err := w.Open(&Program{Model: f.Model, Dir: l.Dir}); err == nil { // else a process that runs does without
			r = route{m, f.Facts.over(m.Facts())}
		}
		l.routes = append(l.routes, r)
	}
	for _, s := range l.Tools {
		l.specs = append(l.specs, model.ToolSpec{Name: s.Name, Description: s.Description, Schema: s.Schema})
		if len(s.Command) == 0 {
			continue
		}
		if l.tools[s.Name], err = w.Command(s); err != nil {
			return err
		}
	}
	if err = l.addFiles(); err != nil {
		return err
	}
	rows := Table(w)
	for _, name := range l.Rows {
		if r := rows[name]; r != nil {
			l.specs = append(l.specs, model.ToolSpec{Name: name, Description: r.Doc, Schema: r.Schema.Raw()})
		}
	}
	b, err := json.Marshal(model.Request{Messages: []model.Message{{Role: model.System, Text: l.System}}, Tools: l.specs})
	l.sum = abi.HashOf(b)
	return err
}

// over puts what was recorded into the place of what is known today.
func (f *Facts) over(m model.Facts) model.Facts {
	if f != nil {
		m.Price, m.Priced = model.Price(f.Price), f.Priced
		m.Long, m.Beyond = model.Price(f.Long), f.Beyond
		m.Window, m.MaxOutput, m.MinOutput = f.Window, f.MaxOutput, f.MinOutput
	}
	return m
}

// Recorded are the facts of a model as a program records them.
func Recorded(f model.Facts) *Facts {
	return &Facts{Price: abi.Price(f.Price), Priced: f.Priced, Long: abi.Price(f.Long), Beyond: f.Beyond,
		Window: f.Window, MaxOutput: f.MaxOutput, MinOutput: f.MinOutput}
}

// Grants are the rows that a process with this program may call.
func (p *Program) Grants() []string {
	g := []string{"model", "tool", "exit"}
	if p.Compensates() {
		g = append(g, "undo")
	}
	switch {
	case p.Key != "":
		return append(g, "key", "run")
	case p.Hosted:
		return append(g, "code", "spawn", "wait", "send", "recv", "sleep", "ask", "yield")
	}
	return append(g, p.Rows...)
}
