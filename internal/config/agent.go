package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/internal/yamlfile"
)

// agentReader reads an agent file.
type agentReader struct {
	d   *yamlfile.Document
	run abi.Run
	at  map[string]ast.Node // the nodes of tools and invariants by their pointers, for errors
}

// ReadAgent reads an agent file into a request without a task. An error names the
// file, the line and what was expected.
func ReadAgent(file string) (abi.Run, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return abi.Run{}, err
	}
	run, err := ParseAgent(file, data)
	if err != nil {
		return abi.Run{}, err
	}
	if run.Program.Dir, err = filepath.Abs(filepath.Dir(file)); err != nil {
		return abi.Run{}, err
	}
	if _, err := SandboxName(run.Program.Sandbox); err != nil {
		return abi.Run{}, fmt.Errorf("%s: sandbox: %w", file, err)
	}
	return run, nil
}

// ParseAgent reads the bytes of an agent file. The name is for errors.
func ParseAgent(name string, data []byte) (abi.Run, error) {
	r, err := readAgent(name, data)
	if err != nil {
		return abi.Run{}, err
	}
	return r.run, nil
}

// Locate adds the place in an agent file to an error of the daemon about that agent.
// The daemon finds what only its host can know, such as a program that is missing.
func Locate(file string, e *abi.Error) error {
	if data, err := os.ReadFile(file); err == nil {
		if r, err := readAgent(file, data); err == nil && r.at[e.Where] != nil {
			return r.d.Errorf(r.at[e.Where], "%s", e.Message)
		}
	}
	return e
}

func readAgent(name string, data []byte) (*agentReader, error) {
	d, root, err := yamlfile.Parse(name, data)
	if err != nil {
		return nil, err
	}
	r := &agentReader{d: d, run: abi.Run{Priority: abi.DefaultPriority}, at: make(map[string]ast.Node)}
	p := &r.run.Program
	err = d.Mapping(root, "an agent file", []string{"name", "model", "system", "priority", "limits", "min_output", "watchdog", "sandbox", "workspace", "invariants", "builtin", "tools"}, map[string]yamlfile.Field{
		"name":       yamlfile.Into(&p.Name, d.Text),
		"model":      yamlfile.Into(&p.Model, d.Text),
		"system":     yamlfile.Into(&p.System, d.Text),
		"priority":   func(n ast.Node, what string) error { return readPriority(d, n, what, &r.run.Priority) },
		"limits":     func(n ast.Node, what string) error { return readLimits(d, n, what, &r.run.Limits) },
		"watchdog":   func(n ast.Node, what string) error { return readWatchdog(d, n, what, &r.run.Watchdog) },
		"sandbox":    yamlfile.Into(&p.Sandbox, d.Text),
		"min_output": func(n ast.Node, what string) error { return readMinOutput(d, n, what, &p.MinOutput) },

		"workspace":  r.readWorkspace,
		"invariants": func(n ast.Node, what string) error { return d.List(n, what, r.readInvariant) },
		"builtin":    r.readBuiltin,
		"tools":      func(n ast.Node, what string) error { return d.List(n, what, r.readTool) },
	})
	if err != nil {
		return nil, err
	}
	if err := r.checkUndos(); err != nil {
		return nil, err
	}
	if p.Model == "" {
		return nil, d.Errorf(root, "the key model is missing, expected script:FILE, openai:NAME or anthropic:NAME")
	}
	return r, nil
}

// Prepare completes a request that a person wrote: it reads the script that the
// agent names, makes directories absolute, and refuses what no kernel can run.
func Prepare(run *abi.Run) (err error) {
	p := &run.Program
	if p.Dir == "" {
		if p.Dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	if p.Workspace != "" && !filepath.IsAbs(p.Workspace) {
		p.Workspace = filepath.Join(p.Dir, p.Workspace)
	}
	if p.Sandbox, err = SandboxName(p.Sandbox); err != nil {
		return err
	}
	if name, ok := strings.CutPrefix(p.Model, "script:"); ok {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("model %s: %w", p.Model, err)
		}
		p.Script = string(text)
	}
	for _, row := range p.Rows {
		if !slices.Contains(abi.ModelRows(), row) {
			return fmt.Errorf("agent %q: no system call %q for a model; expected one of %s", p.Name, row, strings.Join(abi.ModelRows(), ", "))
		}
	}
	return nil
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
				// YAML reads a bare off as false, so the text of the token decides.
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

// readTool reads one entry under tools. An entry without a command names a system
// call.
func (r *agentReader) readTool(n ast.Node) error {
	d, p := r.d, &r.run.Program
	var s abi.ToolSpec
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
		p.Rows = append(p.Rows, s.Name)
		return nil
	}
	if cost != "" {
		if s.Cost, err = abi.ParseMoney(cost); err != nil {
			return d.Errorf(n, "cost: %v", err)
		}
	}
	s.SetDefaults()
	if err := tools.Validate(&s); err != nil {
		return d.Errorf(n, "%v", err)
	}
	same := func(t abi.ToolSpec) bool { return t.Name == s.Name }
	if slices.ContainsFunc(p.Tools, same) || slices.Contains(abi.ModelRows(), s.Name) {
		return d.Errorf(n, "the tool %q is there already", s.Name)
	}
	r.at[fmt.Sprintf("/tools/%d", len(p.Tools))] = n
	p.Tools = append(p.Tools, s)
	return nil
}

// checkUndos refuses a tool whose undo is not a tool of the file.
func (r *agentReader) checkUndos() error {
	list := r.run.Program.Tools
	for i, s := range list {
		if s.Undo != nil && !slices.ContainsFunc(list, func(t abi.ToolSpec) bool { return t.Name == s.Undo.Tool }) {
			return r.d.Errorf(r.at[fmt.Sprintf("/tools/%d", i)], "tool %q: undo: there is no tool %q, expected one of this file", s.Name, s.Undo.Tool)
		}
	}
	return nil
}
