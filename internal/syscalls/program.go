package syscalls

import (
	"cmp"
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

// workspaceRules returns what an agent declares about its workspace.
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

// A World gives the rows access to models, tools, sandboxes, workspaces and the journal.
type World struct {
	// Open opens the model of an agent. It is called once for each agent and model.
	Open func(p *abi.Agent) (model.Model, error)
	// Command makes a tool of a declared command.
	Command func(s abi.ToolSpec) (*tools.Tool, error)
	// Hosted finds a tool that is a function of this Go program, or of a connected
	// program. Nil: there are none.
	Hosted func(pid abi.Pid, name string) *tools.Tool
	// Sandbox returns the backend of a name; empty is the default.
	Sandbox func(name string) (sandbox.Backend, error)
	// Journal reads what processes recorded.
	Journal Journal
	// Workspaces opens the stages of calls.
	Workspaces *staging.Workspaces
	// Child resolves the model reference ref of spawn, and returns an agent with that
	// model, its facts and its fallbacks.
	Child func(parent *abi.Agent, ref string) (abi.Agent, error)
	// Yield decides on a request for higher limits: nil asks a person.
	Yield func(v kernel.View, asked abi.Limits) (allow bool, decided bool)
	// Away returns how long a resource is still in backoff.
	Away      func(resource string) time.Duration
	MinOutput abi.MinOutput // of agents that do not say it

	// Attempts is the number of attempts at a model before its error is the answer.
	// Zero: five.
	Attempts int
	// Live gets the text of answers as it streams. Nil: no channel does.
	Live *live.Channel

	setMax sync.Once
	loaded recent.Cache[abi.Hash, *Loaded]
}

// loadedMax is half the number of loaded agents that a World keeps.
const loadedMax = 1000

// Loaded is an agent that is ready to run.
type Loaded struct {
	Agent  abi.Agent
	routes []route // to its model, then to the fallbacks; empty if the agent has no model
	tools  map[string]*tools.Tool
	files  map[string]*files.Tool // the file tools among tools; they need a stage
	specs  []model.ToolSpec
	sum    abi.Hash // of the part of every request that is the same: system text and tools
}

// A route is a model with its recorded facts.
type route struct {
	model model.Model // nil: this host no longer has the model
	facts model.Facts
}

// Load makes a recorded agent ready to run. It caches the result by the hash of the
// record.
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
		if m, err := w.Open(&abi.Agent{Model: f.Model, Dir: l.Agent.Dir}); err == nil { // a fallback that this host lost is skipped, so a running process continues
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
			shown := cmp.Or(shownArgs[name], r.Schema)
			l.specs = append(l.specs, model.ToolSpec{Name: name, Description: r.Doc, Schema: shown.Raw()})
		}
	}
	b, err := json.Marshal(model.Request{Messages: []model.Message{{Role: model.System, Text: l.Agent.System}}, Tools: l.specs})
	l.sum = abi.HashOf(b)
	return err
}

// recordedFacts returns m with the recorded price and window in f, because a process
// keeps the facts of its spawn.
func recordedFacts(f *abi.ModelFacts, m model.Facts) model.Facts {
	if f != nil {
		m.Price, m.Priced = model.Price(f.Price), f.Priced
		m.Long, m.Beyond = model.Price(f.Long), f.Beyond
		m.Window, m.MaxOutput, m.MinOutput = f.Window, f.MaxOutput, f.MinOutput
	}
	return m
}

// Recorded converts the facts of a model to the form in which an agent records them.
func Recorded(f model.Facts) *abi.ModelFacts {
	return &abi.ModelFacts{Price: abi.Price(f.Price), Priced: f.Priced, Long: abi.Price(f.Long), Beyond: f.Beyond,
		Window: f.Window, MaxOutput: f.MaxOutput, MinOutput: f.MinOutput}
}
