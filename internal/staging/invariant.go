package staging

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/workspace"
	"github.com/kern-run/kern/internal/yamlfile"
)

// checkMax is the largest file that a built-in check reads.
const checkMax = 64 << 20

// checkInvariants returns an error for the first invariant that the changes
// would break.
func (s *Stage) checkInvariants(ctx context.Context, changes []workspace.Change) *abi.Error {
	var trial *workspace.Tx
	for i := range s.rules.Invariants {
		v := &s.rules.Invariants[i]
		pattern, err := v.Pattern()
		if err != nil {
			return &abi.Error{Code: abi.Internal, Message: err.Error()}
		}
		var names []string
		for _, c := range changes {
			if c.After == nil || c.After.Kind == workspace.Dir || !pattern.MatchString(c.Path) {
				continue
			}
			if c.After.Kind != workspace.File {
				return broken(v, c.Path, "it is a link, and a check needs a file")
			}
			names = append(names, c.Path)
		}
		if len(names) == 0 {
			continue
		}
		if v.Check != "" {
			if e := s.checkFiles(v, names); e != nil {
				return e
			}
			continue
		}
		if trial == nil {
			if trial, err = s.openTrial(ctx, changes); err != nil {
				return Error(err)
			}
			defer trial.Rollback()
		}
		if e := s.runCommand(ctx, v, trial.Dir(), names); e != nil {
			return e
		}
	}
	return nil
}

// broken returns the error for an invariant that does not hold.
func broken(v *abi.Invariant, name, why string) *abi.Error {
	what := v.Check
	if what == "" {
		what = strings.Join(v.Command, " ")
	}
	return &abi.Error{Code: abi.InvariantFailed, Where: name, Got: abi.Clip(why),
		Message: fmt.Sprintf("%s would break the invariant %s on %s: %s", name, what, v.Paths, abi.Clip(why)),
		Hint:    "nothing of this call was published; the files are as they were before it"}
}

// checkFiles applies a built-in check to staged files.
func (s *Stage) checkFiles(v *abi.Invariant, names []string) *abi.Error {
	for _, name := range names {
		f, err := s.tx.Open(name)
		if err != nil {
			return Error(err)
		}
		b, err := io.ReadAll(io.LimitReader(f, checkMax+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return Error(err)
		}
		if len(b) > checkMax {
			return broken(v, name, fmt.Sprintf("expected at most %d bytes", checkMax))
		}
		if err := checks[v.Check](b); err != nil {
			return broken(v, name, err.Error())
		}
	}
	return nil
}

var checks = map[string]func([]byte) error{
	"json": checkJSON, "csv": checkCSV, "utf8": checkUTF8, "yaml": func(b []byte) error { return yamlfile.Valid("line", b) },
}

func checkJSON(b []byte) error {
	rules := jsontext.Strict
	if len(b) > jsontext.MaxSize {
		rules = jsontext.Lenient
	}
	if bad := jsontext.Check(b, rules); bad != nil {
		return fmt.Errorf("it is not JSON: %w", bad)
	}
	return nil
}

// checkCSV requires rows of equal length.
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

// openTrial opens a second view that holds the changes, for commands to read.
// Nothing that a command does there is published.
func (s *Stage) openTrial(ctx context.Context, changes []workspace.Change) (*workspace.Tx, error) {
	tx, err := s.space.Begin(ctx, workspace.Options{View: s.rules.CommandView()})
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(tx.Dir())
	if err == nil {
		for i := 0; i < len(changes) && err == nil; i++ {
			err = s.applyChange(root, &changes[i])
		}
		err = errors.Join(err, root.Close())
	}
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// applyChange makes one change in a directory.
func (s *Stage) applyChange(root *os.Root, c *workspace.Change) error {
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

// runCommand runs the command of an invariant. The command gets
// {"paths": [...]} on stdin. If an argument contains {path}, the command runs
// once for each path.
func (s *Stage) runCommand(ctx context.Context, v *abi.Invariant, dir string, names []string) *abi.Error {
	if !slices.ContainsFunc(v.Command, func(a string) bool { return strings.Contains(a, "{path}") }) {
		return s.runOnce(ctx, v, dir, v.Command, names)
	}
	for _, name := range names {
		argv := make([]string, len(v.Command))
		for i, a := range v.Command {
			argv[i] = strings.ReplaceAll(a, "{path}", "./"+name) // with ./ it never looks like an option
		}
		if e := s.runOnce(ctx, v, dir, argv, []string{name}); e != nil {
			return e
		}
	}
	return nil
}

func (s *Stage) runOnce(ctx context.Context, v *abi.Invariant, dir string, argv, names []string) *abi.Error {
	args, err := json.Marshal(map[string][]string{"paths": names})
	if err != nil {
		return &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	e := s.from.Command(ctx, argv, dir, args)
	if e == nil || e.Code == abi.Interrupted || e.Code == abi.InvariantFailed {
		return e
	}
	return broken(v, names[0], e.Message+" "+e.Got)
}
