package tools

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kern-run/kern/abi"
)

// UndoArgs returns the arguments of the call that undoes another call. args and result
// belong to the call to undo.
func UndoArgs(u *abi.ToolUndo, args, result json.RawMessage) (json.RawMessage, error) {
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	if len(u.Args) == 0 {
		return json.Marshal(map[string]json.RawMessage{"args": args, "result": result})
	}
	given := make(map[string]any, 2)
	for name, b := range map[string]json.RawMessage{"$args": args, "$result": result} {
		v, err := value(b)
		if err != nil {
			return nil, fmt.Errorf("undo: %s: %w", name, err)
		}
		given[name] = v
	}
	v, err := value(u.Args)
	if err != nil {
		return nil, fmt.Errorf("undo: args: %w", err)
	}
	if v, err = fill(v, given); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// value reads JSON and keeps the digits of its numbers.
func value(b json.RawMessage) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// fill replaces each text in v that names a value in given, such as "$args/path".
func fill(v any, given map[string]any) (_ any, err error) {
	switch v := v.(type) {
	case string:
		name, pointer, _ := strings.Cut(v, "/")
		at, ok := given[name]
		if !ok {
			return v, nil
		}
		if pointer == "" {
			return at, nil
		}
		for part := range strings.SplitSeq(pointer, "/") {
			if at, ok = member(at, strings.NewReplacer("~1", "/", "~0", "~").Replace(part)); !ok {
				return nil, fmt.Errorf("undo: %s names nothing in what the call was given or gave", v)
			}
		}
		return at, nil
	case map[string]any:
		for k := range v {
			if v[k], err = fill(v[k], given); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = fill(v[i], given); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func member(v any, name string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		m, ok := v[name]
		return m, ok
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(v) {
			return nil, false
		}
		return v[i], true
	}
	return nil, false
}
