package syscalls

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/tools"
)

// Mutants that die here: a child without a list of tools that gets none, or
// with an empty one that gets all; a file tool for who has no workspace; a tool
// of the person's that is replaced by ours.

func loadedFrom(t *testing.T, p abi.Agent) (*Loaded, error) {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	w := &World{Journal: Journal{Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil }},
		Command: func(s abi.ToolSpec) (*tools.Tool, error) { return &tools.Tool{ToolSpec: s}, nil }}
	return w.Load(abi.Data{Bytes: b})
}

// has are the names of the tools that the model of a program is told of.
func (l *Loaded) has() (names []string) {
	for _, s := range l.specs {
		names = append(names, s.Name)
	}
	return names
}

// TestFileTools: they are there with a workspace, all or those that are listed.
func TestFileTools(t *testing.T) {
	own := abi.ToolSpec{Name: "fs.read", Command: []string{"cat"}, Effect: abi.Pure}
	for _, c := range []struct {
		name string
		p    abi.Agent
		want []string
		err  string
	}{
		{"none", abi.Agent{}, nil, ""},
		{"all", abi.Agent{Workspace: "/w"}, FileTools(), ""},
		{"empty", abi.Agent{Workspace: "/w", Builtin: []string{}}, nil, ""},
		{"some", abi.Agent{Workspace: "/w", Builtin: []string{"fs.list", "fs.read"}}, []string{"fs.list", "fs.read"}, ""},
		{"own", abi.Agent{Workspace: "/w", Builtin: []string{"fs.read", "fs.list"}, Tools: []abi.ToolSpec{own}}, []string{"fs.read", "fs.list"}, ""},
		{"no workspace", abi.Agent{Builtin: []string{"fs.read"}}, nil, "there is none; expected workspace"},
		{"unknown", abi.Agent{Workspace: "/w", Builtin: []string{"fs.format"}}, nil, "expected some of fs.read"},
		{"twice", abi.Agent{Workspace: "/w", Builtin: []string{"fs.read", "fs.read"}}, nil, "is listed twice"},
	} {
		l, err := loadedFrom(t, c.p)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want an error with %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := l.has(); !slices.Equal(got, c.want) {
			t.Errorf("%s: tools %v, want %v", c.name, got, c.want)
		}
		if c.name == "own" && (len(l.tools["fs.read"].Command) == 0 || l.files["fs.read"] != nil) {
			t.Error("own: the tool that is declared does not stand for ours")
		}
	}
}

// TestFileToolsOfChildren: a child has those of its parent that it is given.
func TestFileToolsOfChildren(t *testing.T) {
	look := abi.ToolSpec{Name: "look", Command: []string{"ls"}, Effect: abi.Pure}
	parent, err := loadedFrom(t, abi.Agent{Workspace: "/w", Builtin: []string{"fs.read", "fs.edit"}, Tools: []abi.ToolSpec{look}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tools, want []string
	}{
		{nil, []string{"look", "fs.read", "fs.edit"}},
		{[]string{}, nil},
		{[]string{"look"}, []string{"look"}},
		{[]string{"fs.edit", "look"}, []string{"look", "fs.edit"}},
	} {
		p, e := (&World{}).child(parent, &SpawnArgs{Tools: c.tools})
		if e != nil {
			t.Errorf("%v: %v", c.tools, e)
			continue
		}
		l, err := loadedFrom(t, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.has(); !slices.Equal(got, c.want) || l.Agent.Workspace != "/w" {
			t.Errorf("%v: the child has %v, want %v", c.tools, got, c.want)
		}
	}
	if _, e := (&World{}).child(parent, &SpawnArgs{Tools: []string{"fs.remove"}}); e == nil || e.Code != abi.UnknownTool {
		t.Errorf("a child was given what its parent has not: %v", e)
	}
}
