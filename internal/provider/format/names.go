package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kern-run/kern/model"
)

// ToolNames maps names of tools to those that a provider is sent, and back. Nil
// maps every name to itself. Providers take letters, digits, _ and - in the
// name of a tool. A tool of Kern may have a dot: a request names fs.read as fs_read.
type ToolNames struct{ to, from map[string]string }

// plainName replaces the characters that no provider takes, in a name or an id.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// NamesOf gives each tool a name of its own. A plain name stays as it is.
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

// outward returns r as the provider is sent it. Calls of tools that are no longer
// offered get plain names too.
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

// Inward returns our name of a tool that the provider named.
func (n *ToolNames) Inward(name string) string {
	if n != nil && n.from[name] != "" {
		return n.from[name]
	}
	return name
}
