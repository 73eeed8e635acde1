package provider

import (
	"fmt"
	"github.com/kern-run/kern/model"
	"slices"
	"strings"
)

// Providers take letters, digits, _ and - in the name of a tool. Ours may have a
// dot, as in fs.read; on the wire it is fs_read.

// wireNames are the names of tools as a provider is told them, and back; nil
// when they are the same.
type wireNames struct{ to, from map[string]string }

func wireName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// namesOf gives every tool a name of its own: one that is plain keeps it.
func namesOf(tools []model.ToolSpec) *wireNames {
	if !slices.ContainsFunc(tools, func(t model.ToolSpec) bool { return wireName(t.Name) != t.Name }) {
		return nil
	}
	n := &wireNames{make(map[string]string), make(map[string]string)}
	for _, t := range tools {
		if wireName(t.Name) == t.Name {
			n.to[t.Name], n.from[t.Name] = t.Name, t.Name
		}
	}
	for _, t := range tools {
		if n.to[t.Name] != "" {
			continue
		}
		name := wireName(t.Name)
		for i := 2; n.from[name] != ""; i++ {
			name = fmt.Sprintf("%s_%d", wireName(t.Name), i)
		}
		n.to[t.Name], n.from[name] = name, t.Name
	}
	return n
}

// outward is r as the provider is sent it. Calls of tools that are not there any
// more have plain names too.
func (n *wireNames) outward(r model.Request) model.Request {
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
				calls[j].Name = wireName(calls[j].Name)
			}
		}
		r.Messages[i].Calls = calls
	}
	return r
}

// inward is our name of a tool that the provider named.
func (n *wireNames) inward(name string) string {
	if n != nil && n.from[name] != "" {
		return n.from[name]
	}
	return name
}
