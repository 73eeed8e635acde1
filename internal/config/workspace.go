package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/yamlfile"
)

// WorkspaceRules say what the histories of workspaces keep. Ignored files are
// published and rolled back like all others, and cannot be restored later.
type WorkspaceRules struct {
	Ignore  []string `json:"ignore,omitempty"`  // patterns as in .gitignore
	Commits int      `json:"commits,omitempty"` // the number kept; 0: all
	Bytes   int64    `json:"bytes,omitempty"`   // the largest history; 0: no bound
}

func (s *WorkspaceRules) read(d *yamlfile.Document, n ast.Node, what string) error {
	return d.Mapping(n, what, []string{"ignore", "commits", "bytes"}, map[string]yamlfile.Field{
		"ignore": func(n ast.Node, what string) error {
			return d.List(n, what, func(n ast.Node) error {
				p, err := d.Text(n, what)
				if err == nil && strings.TrimSpace(p) == "" {
					err = d.Errorf(n, "%s has an empty pattern, expected one such as node_modules/", what)
				}
				s.Ignore = append(s.Ignore, p)
				return err
			})
		},
		"commits": yamlfile.Into(&s.Commits, d.Count),
		"bytes": func(n ast.Node, what string) (err error) {
			text, err := d.Scalar(n, what)
			if err != nil {
				return err
			}
			if s.Bytes, err = abi.ParseUnit(abi.OutputBytes, text); err != nil || s.Bytes == 0 {
				return d.Errorf(n, "%s is %q, expected a size such as 500MiB", what, text)
			}
			return nil
		},
	})
}

// String describes the rules in one line.
func (s WorkspaceRules) String() string {
	text := "histories keep everything"
	if s.Commits > 0 {
		text = fmt.Sprintf("histories keep %d commits", s.Commits)
	}
	if s.Bytes > 0 {
		text += fmt.Sprintf(", in at most %d bytes", s.Bytes)
	}
	if len(s.Ignore) > 0 {
		text += ", but not " + strings.Join(s.Ignore, " ")
	}
	return text
}
