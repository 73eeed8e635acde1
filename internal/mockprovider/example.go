package mockprovider

import (
	"encoding/json"
	"strings"
)

// maxDepth ends schemas that contain themselves.
const maxDepth = 12

// example returns a value that a JSON Schema allows. Its strings are made of
// word. It understands only the keywords that client libraries generate.
func example(schema []byte, word string) string {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil {
		return "{}"
	}
	b, err := encode(exampleValue(root, root, word, 0))
	if err != nil {
		return "{}"
	}
	return string(b)
}

func exampleValue(root, s map[string]any, word string, depth int) any {
	if depth > maxDepth {
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		return exampleValue(root, resolveRef(root, ref), word, depth+1)
	}
	if v, ok := s["const"]; ok {
		return v
	}
	if all, ok := s["enum"].([]any); ok && len(all) > 0 {
		return all[0]
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		if all, ok := s[k].([]any); ok && len(all) > 0 {
			one, _ := all[0].(map[string]any)
			return exampleValue(root, one, word, depth+1)
		}
	}
	t, _ := s["type"].(string)
	if many, ok := s["type"].([]any); ok && len(many) > 0 {
		t, _ = many[0].(string)
	}
	switch t {
	case "string":
		return word
	case "integer", "number":
		least, _ := s["minimum"].(float64)
		return least
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		return exampleArray(root, s, word, depth)
	}
	o := map[string]any{}
	fields, _ := s["properties"].(map[string]any)
	for name, f := range fields {
		one, _ := f.(map[string]any)
		o[name] = exampleValue(root, one, word, depth+1)
	}
	return o
}

func exampleArray(root, s map[string]any, word string, depth int) any {
	least, _ := s["minItems"].(float64)
	items, _ := s["items"].(map[string]any)
	list := []any{}
	for range min(max(int(least), 1), 100) {
		list = append(list, exampleValue(root, items, word, depth+1))
	}
	return list
}

// resolveRef follows a reference within the schema.
func resolveRef(root map[string]any, ref string) map[string]any {
	at := root
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at, _ = at[name].(map[string]any)
	}
	return at
}
