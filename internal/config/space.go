package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/internal/yamlfile"
)

// Space is the workspace of an agent, and what must hold in it.
type Space struct {
	Dir        string
	View       string
	Quota      abi.Quota
	Invariants []abi.Invariant
	Builtin    []string // the file tools it has; nil: all
}

// workspace reads a directory, or a directory with how it is seen and what one
// call may stage.
func (s *Space) workspace(d *yamlfile.Document, n ast.Node, what string) error {
	v, err := d.Value(n)
	if err != nil {
		return err
	}
	if _, ok := v.(ast.MapNode); !ok {
		return yamlfile.Into(&s.Dir, d.Text)(n, what)
	}
	err = d.Mapping(n, what, []string{"dir", "view", "bytes", "files"}, map[string]yamlfile.Field{
		"dir": yamlfile.Into(&s.Dir, d.Text),
		"view": func(n ast.Node, what string) (err error) {
			if s.View, err = d.Text(n, what); err == nil && !slices.Contains(abi.Views, s.View) {
				err = d.Errorf(n, "%s is %q, expected one of %s", what, s.View, strings.Join(abi.Views, ", "))
			}
			return err
		},
		"bytes": func(n ast.Node, what string) error {
			text, err := d.Scalar(n, what)
			if err != nil {
				return err
			}
			if s.Quota.Bytes, err = abi.ParseUnit(abi.OutputBytes, text); err != nil || s.Quota.Bytes == 0 {
				return d.Errorf(n, "%s is %q, expected a size such as 10MiB", what, jsontext.Clip(text))
			}
			return nil
		},
		"files": func(n ast.Node, what string) (err error) {
			if s.Quota.Files, err = d.Count(n, what); err == nil && s.Quota.Files == 0 {
				err = d.Errorf(n, "%s is 0, expected 1 or more", what)
			}
			return err
		},
	})
	if err == nil && s.Dir == "" {
		err = d.Errorf(n, "%s: the key dir is missing, expected the directory of the workspace", what)
	}
	return err
}

// invariant reads one entry under invariants.
func (s *Space) invariant(d *yamlfile.Document, n ast.Node) error {
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
	s.Invariants = append(s.Invariants, v)
	return nil
}

// command reads a program and its arguments.
func command(d *yamlfile.Document, to *[]string) yamlfile.Field {
	return func(n ast.Node, what string) error {
		return d.List(n, what, yamlfile.AppendTo(to, func(n ast.Node) (string, error) { return d.Scalar(n, what) }))
	}
}

// builtin reads the list of file tools; an empty one is none of them.
func (s *Space) builtin(d *yamlfile.Document, n ast.Node, what string) error {
	s.Builtin = []string{}
	return d.List(n, what, yamlfile.AppendTo(&s.Builtin, func(n ast.Node) (string, error) { return d.Text(n, what) }))
}

// undo reads how the effect of a tool is taken back.
func undo(d *yamlfile.Document, to **tools.Undo) yamlfile.Field {
	return func(n ast.Node, what string) error {
		u := new(tools.Undo)
		*to = u
		return d.Mapping(n, what, []string{"tool", "args"}, map[string]yamlfile.Field{
			"tool": yamlfile.Into(&u.Tool, d.Text),
			"args": func(n ast.Node, what string) (err error) { u.Args, err = d.JSON(n); return err },
		})
	}
}
