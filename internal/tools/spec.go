package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/schema"
)

// A Spec declares a tool. It is what is recorded when a process is spawned, so
// a resumed process runs under the declaration it began with.
type Spec struct {
	Name        string
	Description string
	Command     []string        // of a command tool: the program and its arguments
	Schema      json.RawMessage // of the arguments; empty: any JSON object
	Result      json.RawMessage // schema of the result; empty: anything
	Effect      abi.Effect
	Timeout     time.Duration // of one attempt
	Attempts    int
	Cost        int64 // nano-dollars a call
	Approval    bool  // every call waits for a person
	Undo        *Undo // of a compensable one: how its effect is taken back
}

// What Defaults fills in.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultAttempts = 1
	DefaultEffect   = abi.Irreversible
)

// Defaults fills in what was left out: the most careful effect, a timeout, one
// attempt.
func (s *Spec) Defaults() {
	if s.Effect == "" {
		s.Effect = DefaultEffect
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultTimeout
	}
	if s.Attempts == 0 {
		s.Attempts = DefaultAttempts
	}
}

var namePattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$`)

// Validate reports what in s makes no sense, and what was expected. Defaults
// is called before it.
func (s *Spec) Validate() error {
	if _, _, err := s.compile(); err != nil {
		return err
	}
	return nil
}

// compile validates s and returns its schemas; that of results is nil if none
// is declared.
func (s *Spec) compile() (args, result *schema.Schema, err error) {
	if !namePattern.MatchString(s.Name) {
		return nil, nil, fmt.Errorf("tool %q: name: expected a letter, then up to 63 letters, digits, _, . or -", s.Name)
	}
	bad := func(field, format string, a ...any) (*schema.Schema, *schema.Schema, error) {
		return nil, nil, fmt.Errorf("tool %q: %s: %s", s.Name, field, fmt.Sprintf(format, a...))
	}
	for i, a := range s.Command {
		if strings.ContainsRune(a, 0) || i == 0 && a == "" {
			return bad("command", "argument %d is %q; expected text without zero bytes, and a program first", i, a)
		}
	}
	switch {
	case !slices.Contains(abi.Effects, s.Effect):
		return bad("effect", "%q; expected one of %s", s.Effect, effectNames())
	case s.Timeout <= 0:
		return bad("timeout", "%s; expected more than 0", s.Timeout)
	case s.Attempts < 1:
		return bad("attempts", "%d; expected 1 or more", s.Attempts)
	case s.Attempts > 1 && !s.Effect.Repeatable():
		return bad("attempts", "%d; expected 1, because a tool with the effect %s may not be run twice (effects that may: pure, idempotent, polling, transactional)", s.Attempts, s.Effect)
	case s.Effect == abi.Compensable && (s.Undo == nil || s.Undo.Tool == ""):
		return bad("undo", "none; expected the tool that takes back what this one does, because its effect is compensable")
	case s.Undo != nil && s.Effect != abi.Compensable:
		return bad("undo", "%s; expected none, because the effect is %s and not compensable", s.Undo.Tool, s.Effect)
	case s.Cost < 0:
		return bad("cost", "%s; expected dollars, 0 or more", abi.FormatMoney(s.Cost))
	}
	raw := s.Schema
	if len(raw) == 0 {
		raw = anyObject
	}
	if args, err = schema.Compile(raw); err != nil {
		return bad("schema", "%v", err)
	}
	if !acceptsObject(raw) {
		return bad("schema", "expected a schema of objects (type: object), because arguments have names")
	}
	if len(s.Result) > 0 {
		if result, err = schema.Compile(s.Result); err != nil {
			return bad("result", "%v", err)
		}
	}
	return args, result, nil
}

var anyObject = json.RawMessage(`{"type":"object"}`)

// acceptsObject reports whether the type at the top of a schema leaves room
// for objects.
func acceptsObject(raw []byte) bool {
	var top struct{ Type any }
	if json.Unmarshal(raw, &top) != nil { // true or false
		return string(bytes.TrimSpace(raw)) == "true"
	}
	switch t := top.Type.(type) {
	case string:
		return t == "object"
	case []any:
		return slices.Contains(t, any("object"))
	}
	return true
}

func effectNames() string {
	names := make([]string, len(abi.Effects))
	for i, e := range abi.Effects {
		names[i] = string(e)
	}
	return strings.Join(names, ", ")
}

// specJSON is how a Spec is written. Money and time are text, as people write
// them; money read from a number keeps its digits.
type specJSON struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Command     []string        `json:"command,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	Effect      abi.Effect      `json:"effect,omitempty"`
	Timeout     string          `json:"timeout,omitempty"`
	Attempts    *int            `json:"attempts,omitempty"`
	Cost        json.RawMessage `json:"cost,omitempty"`
	Approval    bool            `json:"approval,omitempty"`
	Undo        *Undo           `json:"undo,omitempty"`
}

// MarshalJSON writes s in a stable form.
func (s Spec) MarshalJSON() ([]byte, error) {
	j := specJSON{Name: s.Name, Description: s.Description, Command: s.Command, Schema: s.Schema, Result: s.Result,
		Effect: s.Effect, Approval: s.Approval, Undo: s.Undo}
	if s.Timeout != 0 {
		j.Timeout = s.Timeout.String()
	}
	if s.Attempts != 0 {
		j.Attempts = &s.Attempts
	}
	if s.Cost != 0 {
		j.Cost = json.RawMessage(`"` + abi.FormatMoney(s.Cost) + `"`)
	}
	return marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote, and what a person wrote: unknown
// keys are refused, and what is written must make sense by itself. What is left
// out stays zero, for Defaults.
func (s *Spec) UnmarshalJSON(b []byte) error {
	if bad := jsontext.Check(b, jsontext.Strict); bad != nil {
		return fmt.Errorf("tool: %w", bad)
	}
	var j specJSON
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return fmt.Errorf("tool: %s; expected an object of %s", strings.TrimPrefix(err.Error(), "json: "), specKeys)
	}
	n := Spec{Name: j.Name, Description: j.Description, Command: j.Command, Schema: unlessNull(j.Schema),
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
		if n.Cost, err = abi.ParseMoney(c); err != nil {
			return bad("cost", c, "dollars such as 2 or 0.05, at most nine decimals")
		}
	}
	*s = n
	return nil
}

const specKeys = "name, description, command, schema, result, effect, timeout, attempts, cost, approval, undo"

func unlessNull(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// marshal encodes v without changing what stands in strings: a schema or a
// result must read back as it was given.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
