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

// workspaceRules are what an agent declares about its workspace.
func workspaceRules(p *abi.Agent) staging.Rules {
	return staging.Rules{Dir: p.Workspace, View: p.View, Quota: p.Quota, Invariants: p.Invariants}
}

// CheckWorkspace returns an error if an agent declares something about its
// workspace, or about undoing, that makes no sense.
func CheckWorkspace(p *abi.Agent) error {
	bad := func(format string, a ...any) error {
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf(format, a...)}
	}
	rules := workspaceRules(p)
	if err := rules.Validate(); err != nil {
		return bad("%v", err)
	}
	for _, t := range p.Tools {
		if t.Effect == abi.Transactional && p.Workspace == "" {
			return bad("tool %q: effect: transactional cannot be enforced without a workspace, expected workspace: DIR", t.Name)
		}
		if t.Undo != nil && !slices.ContainsFunc(p.Tools, func(u abi.ToolSpec) bool { return u.Name == t.Undo.Tool }) {
			return bad("tool %q: undo: there is no tool %q, expected one of the same agent", t.Name, t.Undo.Tool)
		}
	}
	return nil
}

// A World is what rows reach: models and tools, by the program that names them.
type World struct {
	// Open opens the model of a program. It is called once for each program and model.
	Open func(p *abi.Agent) (model.Model, error)
	// Command makes a tool of a declared command.
	Command func(s abi.ToolSpec) (*tools.Tool, error)
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
	Child func(parent *abi.Agent, ref string) (abi.Agent, error)
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
	Agent  abi.Agent
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
	if err := json.Unmarshal(b, &l.Agent); err != nil {
		return nil, fmt.Errorf("the program of the process cannot be read: %w", err)
	}
	if err := w.prepare(l); err != nil {
		return nil, err
	}
	w.loaded.Put(h, l)
	return l, nil
}

func (w *World) prepare(l *Loaded) (err error) {
	if l.Agent.Model != "" {
		m, err := w.Open(&l.Agent)
		if err != nil {
			return err
		}
		l.routes = append(l.routes, route{m, recordedFacts(l.Agent.Facts, m.Facts())})
	}
	for _, f := range l.Agent.Fallback {
		r := route{facts: recordedFacts(f.Facts, model.Facts{Name: f.Model})}
		if m, err := w.Open(&abi.Agent{Model: f.Model, Dir: l.Agent.Dir}); err == nil { // else a process that runs does without
			r = route{m, recordedFacts(f.Facts, m.Facts())}
		}
		l.routes = append(l.routes, r)
	}
	for _, s := range l.Agent.Tools {
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
	for _, name := range l.Agent.Rows {
		if r := rows[name]; r != nil {
			l.specs = append(l.specs, model.ToolSpec{Name: name, Description: r.Doc, Schema: r.Schema.Raw()})
		}
	}
	b, err := json.Marshal(model.Request{Messages: []model.Message{{Role: model.System, Text: l.Agent.System}}, Tools: l.specs})
	l.sum = abi.HashOf(b)
	return err
}

// recordedFacts replaces what is known of a model today by what was recorded.
func recordedFacts(f *abi.ModelFacts, m model.Facts) model.Facts {
	if f != nil {
		m.Price, m.Priced = model.Price(f.Price), f.Priced
		m.Long, m.Beyond = model.Price(f.Long), f.Beyond
		m.Window, m.MaxOutput, m.MinOutput = f.Window, f.MaxOutput, f.MinOutput
	}
	return m
}

// Recorded are the facts of a model as a program records them.
func Recorded(f model.Facts) *abi.ModelFacts {
	return &abi.ModelFacts{Price: abi.Price(f.Price), Priced: f.Priced, Long: abi.Price(f.Long), Beyond: f.Beyond,
		Window: f.Window, MaxOutput: f.MaxOutput, MinOutput: f.MinOutput}
}
