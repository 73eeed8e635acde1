package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/schema"
)

var namePattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$`)

// Validate returns an error if a declaration makes no sense. The error names the field
// and the expected value. The caller must set the defaults first.
func Validate(s *abi.ToolSpec) error {
	if _, _, err := compile(s); err != nil {
		return err
	}
	return nil
}

// compile validates s and returns its schemas. The schema of results is nil if s
// declares none.
func compile(s *abi.ToolSpec) (args, result *schema.Schema, err error) {
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
	// The effect comes first, because attempts and undo depend on it.
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

// acceptsObject reports whether the type at the top of a schema allows objects.
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

// marshal encodes v without HTML escapes, because a schema or a result must read back
// exactly as it was given.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
