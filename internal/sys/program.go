package sys

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/memory"
	"github.com/kern-run/kern/internal/tool"
	"github.com/kern-run/kern/model"
)

// A Program is the definition of an agent. It is recorded when a process is
// spawned, so that a resumed, forked or replayed process runs under the
// definition it began with.
type Program struct {
	Name     string      `json:"name,omitempty"`
	Model    string      `json:"model,omitempty"`  // a reference such as openai:gpt-5; empty: it asks no model
	Script   string      `json:"script,omitempty"` // the text of a script model
	Facts    *Facts      `json:"facts,omitempty"`  // what was known of the model at the spawn
	System   string      `json:"system,omitempty"`
	Tools    []tool.Spec `json:"tools,omitempty"`
	Rows     []string    `json:"rows,omitempty"`     // system calls that the model may ask for as tools
	Dir      string      `json:"dir,omitempty"`      // where relative names of files begin
	Parallel int         `json:"parallel,omitempty"` // tool calls of one reply at a time; 0: all
	Hosted   bool        `json:"hosted,omitempty"`   // its loop runs in a program outside the kernel
}

// Facts are the price and the size of a model as they were at the spawn.
type Facts struct {
	Price     abi.Price `json:"price"`
	Priced    bool      `json:"priced"`
	Window    int       `json:"window,omitempty"`
	MaxOutput int       `json:"max_output,omitempty"`
	MinOutput int       `json:"min_output,omitempty"`
}

// A World is what rows reach: models and tools, by the program that names them.
type World struct {
	// Open opens a model. It is called once for each program.
	Open func(p *Program) (model.Model, error)
	// Command makes a tool of a declared command.
	Command func(s tool.Spec) (*tool.Tool, error)
	// Hosted finds a tool that lives in this Go program, or in a program that
	// is connected. Nil: there are none.
	Hosted func(pid abi.Pid, name string) *tool.Tool
	// Bytes reads a payload of the journal, Record one record.
	Bytes  func(abi.Data) ([]byte, error)
	Record func(pid abi.Pid, n uint64) (*abi.Record, error)
	// Narrow reads a model reference that a model asked for in spawn.
	Child func(parent *Program, ref string) (Program, error)
	// Yield decides on a request for higher limits: nil asks a person.
	Yield func(v kernel.View, asked abi.Limits) (allow bool, decided bool)
	// Attempts at a model before its error is the answer. Zero: five.
	Attempts int

	mu     sync.Mutex
	loaded map[abi.Hash]*Loaded
	texts  texts
}

// Loaded is a program ready to run.
type Loaded struct {
	Program
	Model model.Model // nil when the program asks none
	Facts model.Facts
	tools map[string]*tool.Tool
	specs []model.ToolSpec
}

// Load makes a recorded program ready, once.
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
	l := w.loaded[h]
	w.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l = &Loaded{tools: make(map[string]*tool.Tool)}
	if err := json.Unmarshal(b, &l.Program); err != nil {
		return nil, fmt.Errorf("the program of the process cannot be read: %w", err)
	}
	if err := w.prepare(l); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loaded == nil {
		w.loaded = make(map[abi.Hash]*Loaded)
	}
	w.loaded[h] = l
	return l, nil
}

func (w *World) prepare(l *Loaded) (err error) {
	if l.Program.Model != "" {
		if l.Model, err = w.Open(&l.Program); err != nil {
			return err
		}
		l.Facts = l.Model.Facts()
		if f := l.Program.Facts; f != nil { // as recorded, whatever is known today
			l.Facts.Price, l.Facts.Priced = model.Price(f.Price), f.Priced
			l.Facts.Window, l.Facts.MaxOutput, l.Facts.MinOutput = f.Window, f.MaxOutput, f.MinOutput
		}
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
	rows := Table(w)
	for _, name := range l.Rows {
		if r := rows[name]; r != nil {
			l.specs = append(l.specs, model.ToolSpec{Name: name, Description: r.Doc, Schema: r.Schema.Raw()})
		}
	}
	return nil
}

// Recorded are the facts of a model as a program records them.
func Recorded(f model.Facts) *Facts {
	return &Facts{Price: abi.Price(f.Price), Priced: f.Priced, Window: f.Window, MaxOutput: f.MaxOutput, MinOutput: f.MinOutput}
}

// Grants are the rows that a process with this program may call.
func (p *Program) Grants() []string {
	g := []string{"model", "tool", "exit"}
	if p.Hosted {
		return append(g, "spawn", "wait", "send", "recv", "sleep", "ask", "yield")
	}
	return append(g, p.Rows...)
}

// texts keeps the messages of running processes, so that a page is read from
// the journal once. When it is full the older half is forgotten.
type texts struct {
	mu       sync.Mutex
	now, old map[pageName]model.Message
	size     int
}

type pageName struct {
	pid abi.Pid
	n   uint64
}

const textsMax = 64 << 20

func (t *texts) get(k pageName) (model.Message, bool) {
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

func (t *texts) put(k pageName, m model.Message) {
	size := len(m.Text) + 200
	for _, c := range m.Calls {
		size += len(c.Args) + 100
	}
	if t.now == nil || t.size+size > textsMax/2 {
		t.old, t.now, t.size = t.now, make(map[pageName]model.Message), 0
	}
	t.now[k] = m
	t.size += size
}

func (t *texts) add(k pageName, m model.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(k, m)
}

// Message reads one page.
func (w *World) Message(pg memory.Page) (model.Message, error) {
	k := pageName{pg.Pid, pg.N}
	if m, ok := w.texts.get(k); ok {
		return m, nil
	}
	r, err := w.Record(pg.Pid, pg.N)
	if err != nil {
		return model.Message{}, err
	}
	m, err := w.message(pg, r)
	if err != nil {
		return m, fmt.Errorf("process %d record %d: %w", pg.Pid, pg.N, err)
	}
	w.texts.add(k, m)
	return m, nil
}

func (w *World) message(pg memory.Page, r *abi.Record) (m model.Message, err error) {
	switch pg.Role {
	case memory.Task, memory.Said:
		d := abi.Data{}
		if r.Spawn != nil {
			d = r.Spawn.Task
		} else if r.Intent != nil {
			d = r.Intent.Say
		}
		b, err := w.Bytes(d)
		return model.Message{Role: model.User, Text: string(b)}, err
	case memory.Assistant:
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
// tools stand behind the reply that asked for them, in the order asked.
func (w *World) Conversation(system string, pages []memory.Page) ([]model.Message, error) {
	msgs := make([]model.Message, 0, len(pages)+1)
	if system != "" {
		msgs = append(msgs, model.Message{Role: model.System, Text: system})
	}
	for i := 0; i < len(pages); {
		m, err := w.Message(pages[i])
		if err != nil {
			return nil, err
		}
		i++
		if m.Role != model.Tool {
			msgs = append(msgs, m)
		}
		if len(m.Calls) == 0 {
			continue
		}
		results := make(map[string]model.Message)
		j := i
		for ; j < len(pages) && pages[j].Role != memory.Assistant; j++ {
			if pages[j].Role != memory.Tool {
				continue
			}
			t, err := w.Message(pages[j])
			if err != nil {
				return nil, err
			}
			results[t.CallID] = t
		}
		for _, c := range m.Calls {
			t, ok := results[c.ID]
			if !ok {
				t = model.Message{Role: model.Tool, CallID: c.ID, Text: `{"error":{"message":"this call was not made"}}`, Failed: true}
			}
			msgs = append(msgs, t)
		}
	}
	return msgs, nil
}
