package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Agent is what a process runs, as the kernel records it when it spawns the
// process. A resumed, forked or replayed process runs the agent that it began
// with. Agent files, the Go API and the control API all lead to one.
type Agent struct {
	Name     string      `json:"name,omitempty"`
	Model    string      `json:"model,omitempty"`    // a reference such as openai:gpt-5; empty: it asks no model
	Script   string      `json:"script,omitempty"`   // the text of a script model
	Facts    *ModelFacts `json:"facts,omitempty"`    // of the model, as known at the spawn
	Fallback []Fallback  `json:"fallback,omitempty"` // models asked in its place, in this order
	System   string      `json:"system,omitempty"`
	Tools    []ToolSpec  `json:"tools,omitempty"`
	Rows     []string    `json:"rows,omitempty"`     // system calls that the model may use as tools
	Dir      string      `json:"dir,omitempty"`      // the directory of relative file names
	Parallel int         `json:"parallel,omitempty"` // tool calls of one answer that run at a time; 0: all
	Sandbox  string      `json:"sandbox,omitempty"`  // the sandbox of its code; empty: wasm
	Hosted   bool        `json:"hosted,omitempty"`   // its loop runs in a program outside the kernel
	Held     bool        `json:"held,omitempty"`     // it ends when nobody holds it any more
	Key      string      `json:"key,omitempty"`      // the SHA-256, in hex, of the key that its program has for the gateway

	Workspace  string      `json:"workspace,omitempty"` // the directory that its tools change by transactions; empty: none
	View       string      `json:"view,omitempty"`      // one of [Views]; empty: auto
	Invariants []Invariant `json:"invariants,omitempty"`
	Quota      Quota       `json:"quota,omitzero"`   // of one call
	Builtin    []string    `json:"builtin,omitzero"` // its file tools; nil: all, if it has a workspace

	MinOutput MinOutput `json:"min_output,omitempty"` // empty: as kern.yaml says
}

// Compensates reports whether a tool of the agent can be undone.
func (a *Agent) Compensates() bool {
	return slices.ContainsFunc(a.Tools, func(s ToolSpec) bool { return s.Undo != nil })
}

// Grants are the rows that a process with this agent may call.
func (a *Agent) Grants() []string {
	g := []string{"model", "tool", "exit"}
	if a.Compensates() {
		g = append(g, "undo")
	}
	switch {
	case a.Key != "":
		return append(g, "key", "run")
	case a.Hosted:
		return append(g, "code", "spawn", "wait", "send", "recv", "sleep", "ask", "yield")
	}
	return append(g, a.Rows...)
}

// A Run is a request for a process: an agent and a task.
type Run struct {
	Program  Agent    `json:"program"`
	Limits   Limits   `json:"limits,omitzero"`
	Priority int      `json:"priority"` // 0 is the most urgent
	Watchdog Watchdog `json:"watchdog,omitzero"`
	Account  string   `json:"account,omitempty"` // the named account that is charged
	Parent   Pid      `json:"parent,omitempty"`  // a process with a key, whose child it is; 0: none
	Task     string   `json:"task"`
	Title    string   `json:"-"` // what runs with the key of the process, for lists; see [Spawn]
}

// A Fallback is a model that is asked when the one before it is not available.
type Fallback struct {
	Model string      `json:"model"`
	Facts *ModelFacts `json:"facts,omitempty"`
}

// ModelFacts are the price and the size of a model as they were at the spawn.
type ModelFacts struct {
	Price     Price `json:"price"`
	Priced    bool  `json:"priced"`
	Long      Price `json:"long,omitzero"`
	Beyond    int   `json:"beyond,omitempty"`
	Window    int   `json:"window,omitempty"`
	MaxOutput int   `json:"max_output,omitempty"`
	MinOutput int   `json:"min_output,omitempty"`
}

// A ToolSpec declares a tool.
type ToolSpec struct {
	Name        string
	Description string
	Command     []string        // of a command tool: the program and its arguments
	Schema      json.RawMessage // of the arguments; empty: any JSON object
	Result      json.RawMessage // schema of the result; empty: anything
	Effect      Effect
	Timeout     time.Duration // of one attempt
	Attempts    int
	Cost        int64     // nano-dollars a call
	Approval    bool      // every call waits for a person
	Undo        *ToolUndo // of a compensable tool: the tool that undoes it
}

// A ToolUndo names the tool that undoes a compensable tool, and the arguments for it.
// Kern replaces a text "$args" or "$result" in Args by the arguments or the result of the
// call to undo. A JSON pointer after the text selects a part, such as "$result/id".
// Without Args the tool gets {"args": ..., "result": ...}.
type ToolUndo struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args,omitempty"`
}

// The values that SetDefaults fills in.
const (
	DefaultToolTimeout  = 30 * time.Second
	DefaultToolAttempts = 1
	DefaultToolEffect   = Irreversible
)

// SetDefaults fills in the missing fields: the most careful effect, a timeout, one
// attempt.
func (s *ToolSpec) SetDefaults() {
	if s.Effect == "" {
		s.Effect = DefaultToolEffect
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultToolTimeout
	}
	if s.Attempts == 0 {
		s.Attempts = DefaultToolAttempts
	}
}

// toolJSON is how a ToolSpec is written. Money and time are text, as people write
// them; money read from a number keeps its digits.
type toolJSON struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Command     []string        `json:"command,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	Effect      Effect          `json:"effect,omitempty"`
	Timeout     string          `json:"timeout,omitempty"`
	Attempts    *int            `json:"attempts,omitempty"`
	Cost        json.RawMessage `json:"cost,omitempty"`
	Approval    bool            `json:"approval,omitempty"`
	Undo        *ToolUndo       `json:"undo,omitempty"`
}

// MarshalJSON writes s in a stable form.
func (s ToolSpec) MarshalJSON() ([]byte, error) {
	j := toolJSON{Name: s.Name, Description: s.Description, Command: s.Command, Schema: s.Schema, Result: s.Result,
		Effect: s.Effect, Approval: s.Approval, Undo: s.Undo}
	if s.Timeout != 0 {
		j.Timeout = s.Timeout.String()
	}
	if s.Attempts != 0 {
		j.Attempts = &s.Attempts
	}
	if s.Cost != 0 {
		j.Cost = json.RawMessage(`"` + FormatMoney(s.Cost) + `"`)
	}
	// A schema must read back as it was written, so nothing in it is escaped.
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(j); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads a declaration that MarshalJSON or a person wrote. It refuses
// unknown keys, and values that make no sense by themselves. A missing field stays zero
// until SetDefaults fills it in.
func (s *ToolSpec) UnmarshalJSON(b []byte) error {
	var j toolJSON
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return fmt.Errorf("tool: %s; expected an object of %s", strings.TrimPrefix(err.Error(), "json: "), toolKeys)
	}
	n := ToolSpec{Name: j.Name, Description: j.Description, Command: j.Command, Schema: unlessNull(j.Schema),
		Result: unlessNull(j.Result), Effect: j.Effect, Approval: j.Approval, Undo: j.Undo}
	bad := func(field string, got any, want string) error {
		return fmt.Errorf("tool %q: %s: %v; expected %s", j.Name, field, got, want)
	}
	var err error
	if j.Timeout != "" {
		if n.Timeout, err = time.ParseDuration(j.Timeout); err != nil || n.Timeout <= 0 {
			return bad("timeout", j.Timeout, "a duration above 0 such as 30s or 10m")
		}
	}
	if j.Attempts != nil {
		if n.Attempts = *j.Attempts; n.Attempts < 1 {
			return bad("attempts", n.Attempts, "1 or more")
		}
	}
	if c := strings.Trim(string(unlessNull(j.Cost)), `"`); c != "" {
		if n.Cost, err = ParseMoney(c); err != nil {
			return bad("cost", c, "dollars such as 2 or 0.05, at most nine decimals")
		}
	}
	*s = n
	return nil
}

const toolKeys = "name, description, command, schema, result, effect, timeout, attempts, cost, approval, undo"

func unlessNull(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
