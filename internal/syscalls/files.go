package syscalls

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/schema"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/model"
)

// FileTools are the names of all file tools.
func FileTools() []string { return files.Names() }

// builtinTools returns the file tools of a process: the listed ones, or all if there
// is a workspace. A declared tool replaces the file tool with the same name.
func builtinTools(p *abi.Agent) (list []*files.Tool, err error) {
	if p.Workspace == "" {
		if len(p.Builtin) > 0 {
			return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("builtin: %s needs a workspace, and there is none; expected workspace: DIRECTORY", strings.Join(p.Builtin, ", ")), Where: "/builtin"}
		}
		return nil, nil
	}
	names := p.Builtin
	if names == nil {
		names = files.Names()
	}
	for i, name := range names {
		f := files.Find(name)
		switch {
		case f == nil:
			return nil, fmt.Errorf("builtin: there is no file tool %q; expected some of %s", name, strings.Join(files.Names(), ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("builtin: %s is listed twice", name)
		case !slices.ContainsFunc(p.Tools, func(s abi.ToolSpec) bool { return s.Name == name }):
			list = append(list, f)
		}
	}
	return list, nil
}

// Builtins are the names of the file tools of a process.
func Builtins(p *abi.Agent) (names []string) {
	list, _ := builtinTools(p) // checked when the process was spawned
	for _, f := range list {
		names = append(names, f.Name)
	}
	return names
}

// addFiles adds the file tools of a process to its others.
func (l *Loaded) addFiles() error {
	list, err := builtinTools(&l.Agent)
	if err != nil {
		return err
	}
	l.files = make(map[string]*files.Tool, len(list))
	for _, f := range list {
		if l.tools[f.Name], err = fileTool(f); err != nil {
			return err
		}
		l.files[f.Name] = f
		l.specs = append(l.specs, model.ToolSpec{Name: f.Name, Description: f.Description, Schema: f.Schema})
	}
	return nil
}

// fileTool describes a file tool like any other tool. It has no Run, because it
// needs a stage; see runFileTool.
func fileTool(f *files.Tool) (*tools.Tool, error) {
	t := &tools.Tool{ToolSpec: abi.ToolSpec{Name: f.Name, Description: f.Description, Schema: f.Schema, Effect: f.Effect}}
	t.SetDefaults()
	var err error
	t.Args, err = schema.Compile(f.Schema)
	return t, err
}
