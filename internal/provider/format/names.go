package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kern-run/kern/model"
)

// ToolNames maps the tool names of Kern to the names in a request, and back. Nil maps
// every name to itself. Providers accept only letters, digits, _ and - in the name
// of a tool, but Kern's names may have a dot: a request names fs.read as fs_read.
type ToolNames struct{ to, from map[string]string }

// plainName replaces each character of a name or an id that providers refuse by _.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// NamesOf gives each tool a distinct plain name. A name that is plain stays the same.
// NamesOf returns nil if all names are plain.
func NamesOf(tools []model.ToolSpec) *ToolNames {
	if !slices.ContainsFunc(tools, func(t model.ToolSpec) bool { return plainName(t.Name) != t.Name }) {
		return nil
	}
	n := &ToolNames{make(map[string]string), make(map[string]string)}
	for _, t := range tools {
		if plainName(t.Name) == t.Name {
			n.to[t.Name], n.from[t.Name] = t.Name, t.Name
		}
	}
	// The other names get a number if their plain form is taken.
	for _, t := range tools {
		if n.to[t.Name] != "" {
			continue
		}
		name := plainName(t.Name)
		for i := 2; n.from[name] != ""; i++ {
			name = fmt.Sprintf("%s_%d", plainName(t.Name), i)
		}
		n.to[t.Name], n.from[name] = name, t.Name
	}
	return n
}

// outward returns r with the names that the provider accepts. Calls of tools that r
// no longer offers get plain names too.
func (n *ToolNames) outward(r model.Request) model.Request {
	if n == nil {
		return r
	}
	r.Tools = slices.Clone(r.Tools)
	for i := range r.Tools {
		r.Tools[i].Name = n.to[r.Tools[i].Name]
	}
	r.Messages = slices.Clone(r.Messages)
	for i := range r.Messages {
		calls := slices.Clone(r.Messages[i].Calls)
		for j := range calls {
			if to, ok := n.to[calls[j].Name]; ok {
				calls[j].Name = to
			} else {
				calls[j].Name = plainName(calls[j].Name)
			}
		}
		r.Messages[i].Calls = calls
	}
	return r
}

// Inward returns Kern's name for a tool name in an answer.
func (n *ToolNames) Inward(name string) string {
	if n != nil && n.from[name] != "" {
		return n.from[name]
	}
	return name
}
