package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/yamlfile"
)

// readWorkspace reads the workspace of an agent: a directory, or a mapping of the
// directory, its view and the quota of a call.
func (r *agentReader) readWorkspace(n ast.Node, what string) error {
	d, p := r.d, &r.run.Program
	r.at["/workspace"] = n
	v, err := d.Value(n)
	if err != nil {
		return err
	}
	if _, ok := v.(ast.MapNode); !ok {
		return yamlfile.Into(&p.Workspace, d.Text)(n, what)
	}
	err = d.Mapping(n, what, []string{"dir", "view", "bytes", "files"}, map[string]yamlfile.Field{
		"dir": yamlfile.Into(&p.Workspace, d.Text),
		"view": func(n ast.Node, what string) (err error) {
			if p.View, err = d.Text(n, what); err == nil && !slices.Contains(abi.Views, p.View) {
				err = d.Errorf(n, "%s is %q, expected one of %s", what, p.View, strings.Join(abi.Views, ", "))
			}
			return err
		},
		"bytes": func(n ast.Node, what string) error {
			text, err := d.Scalar(n, what)
			if err != nil {
				return err
			}
			if p.Quota.Bytes, err = abi.ParseUnit(abi.OutputBytes, text); err != nil || p.Quota.Bytes == 0 {
				return d.Errorf(n, "%s is %q, expected a size such as 10MiB", what, jsontext.Clip(text))
			}
			return nil
		},
		"files": func(n ast.Node, what string) (err error) {
			if p.Quota.Files, err = d.Count(n, what); err == nil && p.Quota.Files == 0 {
				err = d.Errorf(n, "%s is 0, expected 1 or more", what)
			}
			return err
		},
	})
	if err == nil && p.Workspace == "" {
		err = d.Errorf(n, "%s: the key dir is missing, expected the directory of the workspace", what)
	}
	return err
}

// readInvariant reads one entry under invariants.
func (r *agentReader) readInvariant(n ast.Node) error {
	d, p := r.d, &r.run.Program
	var v abi.Invariant
	err := d.Mapping(n, "an invariant", []string{"paths", "check", "command"}, map[string]yamlfile.Field{
		"paths":   yamlfile.Into(&v.Paths, d.Text),
		"check":   yamlfile.Into(&v.Check, d.Text),
		"command": command(d, &v.Command),
	})
	if err != nil {
		return err
	}
	if err := v.Validate(); err != nil {
		return d.Errorf(n, "an invariant: %v", err)
	}
	r.at[fmt.Sprintf("/invariants/%d", len(p.Invariants))] = n
	p.Invariants = append(p.Invariants, v)
	return nil
}

// command reads a program and its arguments.
func command(d *yamlfile.Document, to *[]string) yamlfile.Field {
	return func(n ast.Node, what string) error {
		return d.List(n, what, yamlfile.AppendTo(to, func(n ast.Node) (string, error) { return d.Scalar(n, what) }))
	}
}

// readBuiltin reads the list of file tools. An empty list means no file tools.
func (r *agentReader) readBuiltin(n ast.Node, what string) error {
	d, p := r.d, &r.run.Program
	r.at["/builtin"] = n
	p.Builtin = []string{}
	return d.List(n, what, yamlfile.AppendTo(&p.Builtin, func(n ast.Node) (string, error) {
		name, err := d.Text(n, what)
		if err == nil && !slices.Contains(files.Names(), name) {
			err = d.Errorf(n, "%s: there is no file tool %q, expected some of %s", what, jsontext.Clip(name), strings.Join(files.Names(), ", "))
		}
		return name, err
	}))
}

// undo returns a field that reads the tool that undoes another tool's effect, and
// its arguments.
func undo(d *yamlfile.Document, to **abi.ToolUndo) yamlfile.Field {
	return func(n ast.Node, what string) error {
		u := new(abi.ToolUndo)
		*to = u
		return d.Mapping(n, what, []string{"tool", "args"}, map[string]yamlfile.Field{
			"tool": yamlfile.Into(&u.Tool, d.Text),
			"args": func(n ast.Node, what string) (err error) { u.Args, err = d.JSON(n); return err },
		})
	}
}
