package syscalls

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/schema"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/internal/workspace"
	"github.com/kern-run/kern/internal/yamlfile"
)

// Checks are the built-in checks of an invariant.
var Checks = []string{"json", "csv", "utf8", "yaml"}

// checkMax is the largest file that a built-in check reads.
const checkMax = 64 << 20

// Validate says what is wrong with an invariant as it is declared.
func (v *Invariant) Validate() error {
	if _, err := v.pattern(); err != nil {
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

// pattern is the expression that stands for v.Paths: * and ? stay within a
// name, ** crosses directories.
func (v *Invariant) pattern() (*regexp.Regexp, error) {
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

// invariants says which of what is declared would not hold after a change.
func (s *staged) invariants(ctx context.Context, changes []workspace.Change) *abi.Error {
	var trial *workspace.Tx
	for i := range s.loaded.Invariants {
		v := &s.loaded.Invariants[i]
		pattern, err := v.pattern()
		if err != nil {
			return &abi.Error{Code: abi.Internal, Message: err.Error()}
		}
		var names []string
		for _, c := range changes {
			if c.After == nil || c.After.Kind == workspace.Dir || !pattern.MatchString(c.Path) {
				continue
			}
			if c.After.Kind != workspace.File {
				return v.broken(c.Path, "it is a link, and a check needs a file")
			}
			names = append(names, c.Path)
		}
		if len(names) == 0 {
			continue
		}
		if v.Check != "" {
			if e := s.check(v, names); e != nil {
				return e
			}
			continue
		}
		if trial == nil {
			if trial, err = s.trial(ctx, changes); err != nil {
				return WorkspaceError(err)
			}
			defer trial.Rollback()
		}
		if e := s.ask(ctx, v, trial.Dir(), names); e != nil {
			return e
		}
	}
	return nil
}

// broken is the error of an invariant that does not hold.
func (v *Invariant) broken(name, why string) *abi.Error {
	what := v.Check
	if what == "" {
		what = strings.Join(v.Command, " ")
	}
	return &abi.Error{Code: abi.InvariantFailed, Where: name, Got: clip(why),
		Message: fmt.Sprintf("%s would break the invariant %s on %s: %s", name, what, v.Paths, clip(why)),
		Hint:    "nothing of this call was published; the files are as they were before it"}
}

// check reads staged files with a built-in check.
func (s *staged) check(v *Invariant, names []string) *abi.Error {
	for _, name := range names {
		f, err := s.tx.Open(name)
		if err != nil {
			return WorkspaceError(err)
		}
		b, err := io.ReadAll(io.LimitReader(f, checkMax+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return WorkspaceError(err)
		}
		if len(b) > checkMax {
			return v.broken(name, fmt.Sprintf("expected at most %d bytes", checkMax))
		}
		if err := checks[v.Check](b); err != nil {
			return v.broken(name, err.Error())
		}
	}
	return nil
}

var checks = map[string]func([]byte) error{
	"json": checkJSON, "csv": checkCSV, "utf8": checkUTF8, "yaml": func(b []byte) error { return yamlfile.Valid("line", b) },
}

func checkJSON(b []byte) error {
	if len(b) > schema.MaxSize {
		if !json.Valid(b) {
			return errors.New("it is not JSON")
		}
		return nil
	}
	return schema.Valid(b)
}

// checkCSV wants rows of one length.
func checkCSV(b []byte) error {
	r := csv.NewReader(bytes.NewReader(b))
	r.ReuseRecord = true
	for {
		if _, err := r.Read(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func checkUTF8(b []byte) error {
	for at := 0; at < len(b); {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("the byte %d is not UTF-8", at)
		}
		at += n
	}
	return nil
}

// trial is a view of its own with the change in it, for commands to look at:
// whatever they do there is not published.
func (s *staged) trial(ctx context.Context, changes []workspace.Change) (*workspace.Tx, error) {
	tx, err := s.space.Begin(ctx, workspace.Options{View: s.loaded.view()})
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(tx.Dir())
	if err == nil {
		for i := 0; i < len(changes) && err == nil; i++ {
			err = s.put(root, &changes[i])
		}
		err = errors.Join(err, root.Close())
	}
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// put makes one change in a directory.
func (s *staged) put(root *os.Root, c *workspace.Change) error {
	if c.Before != nil && (c.After == nil || c.After.Kind != workspace.Dir || c.Before.Kind != workspace.Dir) {
		if err := root.RemoveAll(c.Path); err != nil {
			return err
		}
	}
	switch {
	case c.After == nil:
		return nil
	case c.After.Kind == workspace.Dir:
		return root.MkdirAll(c.Path, c.After.Mode|0o700)
	case c.After.Kind == workspace.Symlink:
		return root.Symlink(c.After.Target, c.Path)
	}
	from, err := s.tx.Open(c.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := root.OpenFile(c.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, c.After.Mode.Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// ask runs the command of an invariant. It gets {"paths": [...]} on stdin; one
// with an argument {path} is run once for each.
func (s *staged) ask(ctx context.Context, v *Invariant, dir string, names []string) *abi.Error {
	if !slices.ContainsFunc(v.Command, func(a string) bool { return strings.Contains(a, "{path}") }) {
		return s.run(ctx, v, dir, v.Command, names)
	}
	for _, name := range names {
		argv := make([]string, len(v.Command))
		for i, a := range v.Command {
			argv[i] = strings.ReplaceAll(a, "{path}", "./"+name) // it never looks like an option
		}
		if e := s.run(ctx, v, dir, argv, []string{name}); e != nil {
			return e
		}
	}
	return nil
}

func (s *staged) run(ctx context.Context, v *Invariant, dir string, argv, names []string) *abi.Error {
	t, err := s.world.Command(tools.Spec{Name: "invariant", Command: argv})
	if err != nil {
		return &abi.Error{Code: abi.InvariantFailed, Message: err.Error()}
	}
	args, err := json.Marshal(map[string][]string{"paths": names})
	if err != nil {
		return &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	out := t.Run(ctx, tools.Input{Args: args, Dir: dir})
	if out.Err == nil {
		return nil
	}
	if out.Err.Code == abi.Interrupted {
		return out.Err
	}
	return v.broken(names[0], out.Err.Message+" "+out.Err.Got)
}
