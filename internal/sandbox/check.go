package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// WithDefaults replaces zeros by [DefaultLimits].
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits
	return Limits{
		Wall:      either(l.Wall, d.Wall),
		CPU:       either(l.CPU, d.CPU),
		Memory:    either(l.Memory, d.Memory),
		Output:    either(l.Output, d.Output),
		FileBytes: either(l.FileBytes, d.FileBytes),
		Files:     either(l.Files, d.Files),
		Processes: either(l.Processes, d.Processes),
	}
}

func either[T int | int64 | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// Check returns an error if no backend could run the Spec. Backends call it first.
func (s *Spec) Check() error {
	if (s.Code == "") == (len(s.Argv) == 0) {
		return fmt.Errorf("want exactly one of Code and Argv, got %d bytes of Code and %d Argv", len(s.Code), len(s.Argv))
	}
	if err := s.checkRun(); err != nil {
		return err
	}
	if len(s.Functions) > 0 && s.Code == "" {
		return fmt.Errorf("want Functions only with Code, got %d of them with Argv", len(s.Functions))
	}
	return nil
}

// CheckSession is Check for a Spec that opens a Session and runs nothing yet.
func (s *Spec) CheckSession() error {
	if s.Code != "" || len(s.Argv) > 0 {
		return fmt.Errorf("want a session's Spec without Code and Argv: they belong to its runs")
	}
	return s.checkRun()
}

func (s *Spec) checkRun() error {
	if !utf8.ValidString(s.Code) || strings.ContainsRune(s.Code, 0) {
		return fmt.Errorf("want Code as UTF-8 text without NUL")
	}
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		return fmt.Errorf("want Dir as an absolute path, got %q", s.Dir)
	}
	if s.Dir != "" && s.Files != nil {
		return fmt.Errorf("want Dir or Files, got both")
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("want an environment of NAME=VALUE without NUL, got the name %q", k)
		}
	}
	if err := s.Limits.check(); err != nil {
		return err
	}
	return CheckFunctions(s.Functions)
}

func (l Limits) check() error {
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"Wall", int64(l.Wall)}, {"CPU", int64(l.CPU)}, {"Memory", l.Memory}, {"Output", l.Output},
		{"FileBytes", l.FileBytes}, {"Files", int64(l.Files)}, {"Processes", int64(l.Processes)},
	} {
		// Zero already means the default, so a negative limit can only be a mistake.
		if f.v < 0 {
			return fmt.Errorf("want Limits.%s above zero, or zero for the default, got %d", f.name, f.v)
		}
	}
	return nil
}

// CheckFunctions returns an error if a Function cannot be offered to Python. Names
// and types become part of Python source, so the check lets only names and types
// pass.
func CheckFunctions(fs []Function) error {
	seen := make(map[string]bool, len(fs))
	for _, f := range fs {
		if !identifier(f.Namespace) || !identifier(f.Name) {
			return fmt.Errorf("want a Function's names to be Python identifiers, got tools.%s.%s", f.Namespace, f.Name)
		}
		full := f.Namespace + "." + f.Name
		// A namespace of this name would hide the exception tools.ToolError.
		if f.Namespace == "ToolError" || seen[full] {
			return fmt.Errorf("want each Function once and under its own name, got tools.%s again", full)
		}
		seen[full] = true
		if f.Call == nil {
			return fmt.Errorf("want tools.%s to have a Call", full)
		}
		if err := checkParams(full, f.Params); err != nil {
			return err
		}
	}
	return nil
}

func checkParams(full string, ps []Param) error {
	optional := false
	names := make(map[string]bool, len(ps))
	for _, p := range ps {
		if !identifier(p.Name) || names[p.Name] {
			return fmt.Errorf("want the parameters of tools.%s to be different Python identifiers, got %q", full, p.Name)
		}
		names[p.Name] = true
		if !annotation(p.Type) {
			return fmt.Errorf("want the type of %s in tools.%s to be of %s, joined by |, got %q", p.Name, full, strings.Join(types, " "), p.Type)
		}
		// Python refuses a function with a required parameter after an optional one.
		if optional && !p.Optional {
			return fmt.Errorf("want optional parameters of tools.%s last, got %s after one", full, p.Name)
		}
		optional = p.Optional
	}
	return nil
}

var types = []string{"str", "int", "float", "bool", "list", "dict", "bytes", "None"}

// annotation reports whether s is empty (no annotation) or a union of types.
func annotation(s string) bool {
	if s == "" {
		return true
	}
	for t := range strings.SplitSeq(s, "|") {
		if !slices.Contains(types, strings.TrimSpace(t)) {
			return false
		}
	}
	return true
}

var keywords = strings.Fields(`False None True and as assert async await break class continue def del
	elif else except finally for from global if import in is lambda nonlocal not or pass raise return
	try while with yield`)

// identifier matches Python names in ASCII, except names with two leading
// underscores, which Python itself uses.
func identifier(s string) bool {
	if s == "" || strings.HasPrefix(s, "__") || slices.Contains(keywords, s) {
		return false
	}
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || '9' < c) {
			return false
		}
	}
	return true
}
