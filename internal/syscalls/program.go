package syscalls

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
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
	// Bytes reads a payload of the journal, Record one record.
	Bytes  func(abi.Data) ([]byte, error)
	Record func(pid abi.Pid, n uint64) (*abi.Record, error)
	// Records reads the journal of a process after record n.
	Records func(pid abi.Pid, n uint64) iter.Seq2[*abi.Record, error]
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

	mu     sync.Mutex
	loaded programs
	texts  texts
}

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
	b, err := w.Bytes(d)
	if err != nil {
		return nil, err
	}
	h := d.Hash
	if h.IsZero() {
		h = abi.HashOf(b)
	}
	w.mu.Lock()
	l := w.loaded.get(h)
	w.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l = &Loaded{tools: make(map[string]*tools.Tool)}
	if err := json.Unmarshal(b, &l.Program); err != nil {
		return nil, fmt.Errorf("the program of the process cannot be read: %w", err)
	}
	if err := w.prepare(l); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loaded.put(h, l)
	return l, nil
}

// programs keeps those that were used lately, by what they are. Each key has one
// of its own, so there is no end to them; the older half is forgotten.
type programs struct{ now, old map[abi.Hash]*Loaded }

// programsMax is how many are kept before the older half is forgotten.
const programsMax = 2000

func (p *programs) get(h abi.Hash) *Loaded {
	l := p.now[h]
	if l == nil {
		if l = p.old[h]; l != nil {
			p.put(h, l)
		}
	}
	return l
}

func (p *programs) put(h abi.Hash, l *Loaded) {
	if p.now == nil || len(p.now) >= programsMax/2 {
		p.old, p.now = p.now, make(map[abi.Hash]*Loaded)
	}
	p.now[h] = l
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

// texts keeps the messages of running processes, so that a page is read from
// the journal once. When it is full the older half is forgotten.
type texts struct {
	mu       sync.Mutex
	now, old map[pageName]page
	size     int
}

// page is a message, and a digest by which it is known again.
type page struct {
	model.Message
	sum abi.Hash
}

type pageName struct {
	pid abi.Pid
	n   uint64
}

const textsMax = 64 << 20

func (t *texts) get(k pageName) (page, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.now[k]
	if !ok {
		if m, ok = t.old[k]; ok {
			t.put(k, m)
		}
	}
	return m, ok
}

func (t *texts) put(k pageName, m page) {
	size := len(m.Text) + 200
	for _, c := range m.Calls {
		size += len(c.Args) + 100
	}
	if t.now == nil || t.size+size > textsMax/2 {
		t.old, t.now, t.size = t.now, make(map[pageName]page), 0
	}
	t.now[k] = m
	t.size += size
}

func (t *texts) add(k pageName, m page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(k, m)
}

// Message reads one page.
func (w *World) Message(pg process.Page) (model.Message, error) {
	p, err := w.page(pg)
	return p.Message, err
}

func (w *World) page(pg process.Page) (page, error) {
	k := pageName{pg.Pid, pg.N}
	if p, ok := w.texts.get(k); ok {
		return p, nil
	}
	r, err := w.Record(pg.Pid, pg.N)
	if err != nil {
		return page{}, err
	}
	m, err := w.message(pg, r)
	if err != nil {
		return page{}, fmt.Errorf("process %d record %d: %w", pg.Pid, pg.N, err)
	}
	p := page{m, sum(m)}
	w.texts.add(k, p)
	return p, nil
}

// sum is a digest of a message.
func sum(m model.Message) abi.Hash {
	b, _ := json.Marshal(m) // texts always can
	return abi.HashOf(b)
}

func (w *World) message(pg process.Page, r *abi.Record) (m model.Message, err error) {
	switch pg.Role {
	case process.RoleTask, process.RoleUser:
		d := abi.Data{}
		if r.Spawn != nil {
			d = r.Spawn.Task
		} else if r.Intent != nil {
			d = r.Intent.Say
		}
		b, err := w.Bytes(d)
		return model.Message{Role: model.User, Text: string(b)}, err
	case process.RoleAssistant:
		b, err := w.Bytes(r.Answer.Value)
		if err != nil {
			return m, err
		}
		var reply Reply
		if err := json.Unmarshal(b, &reply); err != nil {
			return m, err
		}
		return model.Message{Role: model.Assistant, Text: reply.Text, Calls: reply.Calls}, nil
	}
	m = model.Message{Role: model.Tool, CallID: pg.ID}
	if r.Answer.Err != nil {
		b, err := json.Marshal(map[string]*abi.Error{"error": r.Answer.Err})
		m.Text, m.Failed = string(b), true
		return warned(m, r), err
	}
	b, err := w.Bytes(r.Answer.Value)
	var text string
	if json.Unmarshal(b, &text) != nil {
		text = string(b)
	}
	m.Text = text
	return warned(m, r), err
}

// warned adds the watchdog's warning to the result it came with.
func warned(m model.Message, r *abi.Record) model.Message {
	if r.Answer.Warning != nil {
		b, _ := json.Marshal(map[string]*abi.Error{"warning": r.Answer.Warning})
		m.Text = strings.TrimLeft(m.Text+"\n"+string(b), "\n")
	}
	return m
}

// Conversation is the pages of a process as a model reads them: the results of
// tools stand behind the reply that asked for them, in the order asked. The
// digest is of all that is sent.
func (w *World) Conversation(l *Loaded, pages []process.Page, say string) (msgs []model.Message, digest abi.Hash, err error) {
	c := conversation{msgs: make([]model.Message, 0, len(pages)+2)}
	c.digest = append(c.digest, l.sum[:]...)
	if l.System != "" {
		c.msgs = append(c.msgs, model.Message{Role: model.System, Text: l.System})
	}
	for i := 0; i < len(pages); {
		p, err := w.page(pages[i])
		if err != nil {
			return nil, digest, err
		}
		i++
		if p.Role == model.Tool {
			continue // with the reply that asked for it
		}
		c.add(p)
		if len(p.Calls) > 0 {
			if err := w.results(&c, p.Calls, pages[i:]); err != nil {
				return nil, digest, err
			}
		}
	}
	if say != "" {
		m := model.Message{Role: model.User, Text: say}
		c.add(page{m, sum(m)})
	}
	return c.msgs, abi.HashOf(c.digest), nil
}

type conversation struct {
	msgs   []model.Message
	digest []byte
}

func (c *conversation) add(p page) {
	c.msgs = append(c.msgs, p.Message)
	c.digest = append(c.digest, p.sum[:]...)
}

// results adds the answers to calls, which stand on pages before the next
// reply.
func (w *World) results(c *conversation, calls []model.ToolCall, pages []process.Page) error {
	found := make(map[string]page, len(calls))
	for _, pg := range pages {
		if pg.Role == process.RoleAssistant {
			break
		}
		if pg.Role != process.RoleTool {
			continue
		}
		p, err := w.page(pg)
		if err != nil {
			return err
		}
		found[p.CallID] = p
	}
	for _, call := range calls {
		p, ok := found[call.ID]
		if !ok {
			m := model.Message{Role: model.Tool, CallID: call.ID, Text: `{"error":{"message":"this call was not made"}}`, Failed: true}
			p = page{m, sum(m)}
		}
		c.add(p)
	}
	return nil
}
