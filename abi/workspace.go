package abi

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Quota bounds what one call may stage. Zero: no bound.
type Quota struct {
	Bytes int64 `json:"bytes,omitempty"`
	Files int   `json:"files,omitempty"`
}

// Views are the ways in which a program may see its workspace while a call
// changes it.
var Views = []string{"auto", "overlay", "copy"}

// An Invariant must hold for every changed path that matches Paths before the
// change is published. Exactly one of Check and Command is set.
type Invariant struct {
	Paths   string   `json:"paths"`           // a pattern: * and ? within a name, ** across directories
	Check   string   `json:"check,omitempty"` // one of [Checks]
	Command []string `json:"command,omitempty"`
}

// Checks are the built-in checks of an invariant.
var Checks = []string{"json", "csv", "utf8", "yaml"}

// Validate returns an error if the declaration makes no sense.
func (v *Invariant) Validate() error {
	if _, err := v.Pattern(); err != nil {
		return err
	}
	switch {
	case (v.Check == "") == (len(v.Command) == 0):
		return errors.New("expected either check or command")
	case v.Check != "" && !slices.Contains(Checks, v.Check):
		return fmt.Errorf("check is %q, expected one of %s", v.Check, strings.Join(Checks, ", "))
	}
	return nil
}

// Pattern compiles Paths: * and ? stay within a name, ** crosses directories.
func (v *Invariant) Pattern() (*regexp.Regexp, error) {
	p := v.Paths
	if p == "" || path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "../") {
		return nil, fmt.Errorf("paths is %q, expected a pattern relative to the workspace such as config/*.json or **/*.csv", p)
	}
	e := regexp.QuoteMeta(p)
	for _, r := range [][2]string{{`\*\*/`, `(?:.*/)?`}, {`\*\*`, `.*`}, {`\*`, `[^/]*`}, {`\?`, `[^/]`}} {
		e = strings.ReplaceAll(e, r[0], r[1])
	}
	return regexp.Compile(`(?s)^` + e + `$`)
}
