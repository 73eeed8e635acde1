package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/internal/yamlfile"
)

// File is an agent as a person declares it.
type File struct {
	Name     string
	Model    string
	System   string
	Priority int
	Limits   abi.Limits
	Watchdog abi.Watchdog
	Sandbox  string // where code runs; empty: as the host says
	Tools    []tools.Spec
	Rows     []string // tools without a command: system calls that the model may use
	Space    Space

	at []ast.Node // where the tools stand
}

// ParseFile reads an agent file. Every error names the file, the line and what was
// expected.
func ParseFile(name string, data []byte) (*File, error) {
	d, root, err := yamlfile.Parse(name, data)
	if err != nil {
		return nil, err
	}
	f := &File{Priority: abi.DefaultPriority}
	err = d.Mapping(root, "an agent file", []string{"name", "model", "system", "priority", "limits", "watchdog", "sandbox", "workspace", "invariants", "builtin", "tools"}, map[string]yamlfile.Field{
		"name":     yamlfile.Into(&f.Name, d.Text),
		"model":    yamlfile.Into(&f.Model, d.Text),
		"system":   yamlfile.Into(&f.System, d.Text),
		"priority": func(n ast.Node, what string) error { return readPriority(d, n, what, &f.Priority) },
		"limits":   func(n ast.Node, what string) error { return readLimits(d, n, what, &f.Limits) },
		"watchdog": func(n ast.Node, what string) error { return readWatchdog(d, n, what, &f.Watchdog) },
		"sandbox":  yamlfile.Into(&f.Sandbox, d.Text),

		"workspace": func(n ast.Node, what string) error { return f.Space.workspace(d, n, what) },
		"invariants": func(n ast.Node, what string) error {
			return d.List(n, what, func(n ast.Node) error { return f.Space.invariant(d, n) })
		},
		"builtin": func(n ast.Node, what string) error { return f.Space.builtin(d, n, what) },
		"tools": func(n ast.Node, what string) error {
			return d.List(n, what, func(n ast.Node) error { return f.tool(d, n) })
		},
	})
	if err != nil {
		return nil, err
	}
	if err := f.undos(d); err != nil {
		return nil, err
	}
	if f.Model == "" {
		return nil, d.Errorf(root, "the key model is missing, expected script:FILE, openai:NAME or anthropic:NAME")
	}
	return f, nil
}

func readPriority(d *yamlfile.Document, n ast.Node, what string, to *int) error {
	v, err := d.Count(n, what)
	if err == nil && v > abi.MaxPriority {
		err = d.Errorf(n, "%s is %d, expected 0 (the most urgent) to %d", what, v, abi.MaxPriority)
	}
	*to = v
	return err
}

func readLimits(d *yamlfile.Document, n ast.Node, what string, to *abi.Limits) error {
	units := abi.SettableUnits()
	fields := make(map[string]yamlfile.Field, len(units))
	order := make([]string, len(units))
	for i, u := range units {
		order[i] = u.String()
		fields[u.String()] = func(n ast.Node, what string) error {
			s, err := d.Scalar(n, what)
			if err != nil {
				return err
			}
			v, err := abi.ParseUnit(u, s)
			if err != nil {
				return d.Errorf(n, "%v", err)
			}
			to.Set(u, v)
			return nil
		}
	}
	return d.Mapping(n, what, order, fields)
}

func readWatchdog(d *yamlfile.Document, n ast.Node, what string, to *abi.Watchdog) error {
	return d.Mapping(n, what, []string{"profile", "repeat"}, map[string]yamlfile.Field{
		"profile": func(n ast.Node, what string) (err error) {
			if to.Profile, err = d.Text(n, what); err == nil && !slices.Contains([]string{"smart", "strict", "off"}, to.Profile) {
				// YAML reads a bare off as false; the text of the token is what the person wrote.
				err = d.Errorf(n, "%s is %q, expected smart, strict or off", what, to.Profile)
			}
			return err
		},
		"repeat": func(n ast.Node, what string) (err error) {
			if to.Repeat, err = d.Count(n, what); err == nil && to.Repeat < 2 {
				err = d.Errorf(n, "%s is %d, expected 2 or more", what, to.Repeat)
			}
			return err
		},
	})
}

// tool reads one entry under tools. One without a command names a system call.
func (f *File) tool(d *yamlfile.Document, n ast.Node) error {
	var s tools.Spec
	cost := ""
	err := d.Mapping(n, "a tool", []string{"name", "description", "command", "schema", "result", "effect", "timeout", "attempts", "cost", "approval", "undo"}, map[string]yamlfile.Field{
		"name":        yamlfile.Into(&s.Name, d.Text),
		"description": yamlfile.Into(&s.Description, d.Text),
		"command":     command(d, &s.Command),
		"undo":        undo(d, &s.Undo),
		"schema":      func(n ast.Node, what string) (err error) { s.Schema, err = d.JSON(n); return err },
		"result":      func(n ast.Node, what string) (err error) { s.Result, err = d.JSON(n); return err },
		"effect":      func(n ast.Node, what string) error { t, err := d.Text(n, what); s.Effect = abi.Effect(t); return err },
		"timeout":     yamlfile.Into(&s.Timeout, d.Duration),
		"attempts":    yamlfile.Into(&s.Attempts, d.Count),
		"cost":        yamlfile.Into(&cost, d.Scalar),
		"approval":    yamlfile.Into(&s.Approval, d.Boolean),
	})
	if err != nil {
		return err
	}
	if len(s.Command) == 0 {
		if !slices.Contains(abi.ModelRows(), s.Name) {
			return d.Errorf(n, "the tool %q has no command, expected command: [PROGRAM, ...], or the name of a system call: %s", s.Name, strings.Join(abi.ModelRows(), ", "))
		}
		f.Rows = append(f.Rows, s.Name)
		return nil
	}
	if cost != "" {
		if s.Cost, err = abi.ParseMoney(cost); err != nil {
			return d.Errorf(n, "cost: %v", err)
		}
	}
	s.Defaults()
	if err := s.Validate(); err != nil {
		return d.Errorf(n, "%v", err)
	}
	same := func(t tools.Spec) bool { return t.Name == s.Name }
	if slices.ContainsFunc(f.Tools, same) || slices.Contains(abi.ModelRows(), s.Name) {
		return d.Errorf(n, "the tool %q is there already", s.Name)
	}
	f.Tools, f.at = append(f.Tools, s), append(f.at, n)
	return nil
}

// undos looks whether the tools that are to take something back are there.
func (f *File) undos(d *yamlfile.Document) error {
	for i, s := range f.Tools {
		if s.Undo != nil && !slices.ContainsFunc(f.Tools, func(t tools.Spec) bool { return t.Name == s.Undo.Tool }) {
			return d.Errorf(f.at[i], "tool %q: undo: there is no tool %q, expected one of this file", s.Name, s.Undo.Tool)
		}
	}
	return nil
}
