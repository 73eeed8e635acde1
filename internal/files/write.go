package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/workspace/fsys"
)

// write runs fs.write.
func (c *call) write() (string, *abi.Error) {
	e, err := c.fs.Stat(c.Path)
	switch {
	case err == nil && e.Kind == fsys.Dir:
		return "", c.errorf(abi.FileKind, "/path", "%s is a directory", c.Path)
	case err == nil && e.Kind != fsys.File:
		return "", c.errorf(abi.FileKind, "/path", "%s is not a file", c.Path)
	case err == nil:
		return c.replace(e)
	// The error of the file system would not say which part of the path is a file.
	case c.throughFile():
		return "", c.missing()
	case !errors.Is(err, fs.ErrNotExist):
		return "", c.errorOf(err)
	}
	// Without this check a file with the name of the directory would be made.
	if strings.HasSuffix(c.Path, "/") {
		return "", c.errorf(abi.InvalidArguments, "/path", "%s names a directory, expected a file", c.Path)
	}
	if dir := path.Dir(c.Path); dir != "." {
		if err := c.fs.MkdirAll(dir, 0o755); err != nil {
			return "", c.errorOf(err)
		}
	}
	if err := c.fs.WriteFile(c.Path, []byte(c.Content), 0o644); err != nil {
		return "", c.errorOf(err)
	}
	return fmt.Sprintf("wrote %s, a new file: %s, %s", c.Path, c.lines(), plural(len(c.Content), "byte")), nil
}

func (c *call) lines() string { return plural(len(splitLines([]byte(c.Content))), "line") }

// replace overwrites a file that exists. It does not write the same content again,
// because that would make a commit without a change.
func (c *call) replace(e fsys.Entry) (string, *abi.Error) {
	if e.Size == int64(len(c.Content)) {
		if b, err := c.fs.ReadFile(c.Path); err == nil && string(b) == c.Content {
			return fmt.Sprintf("%s holds exactly this already: nothing was changed", c.Path), nil
		}
	}
	if err := c.fs.WriteFile(c.Path, []byte(c.Content), e.Mode); err != nil {
		return "", c.errorOf(err)
	}
	return fmt.Sprintf("wrote %s: %s, %s in place of %d", c.Path, c.lines(), plural(len(c.Content), "byte"), e.Size), nil
}

// edit runs fs.edit.
func (c *call) edit() (string, *abi.Error) {
	if c.Old == c.New {
		return "", c.errorf(abi.InvalidArguments, "/new", "new is the same as old, expected a change")
	}
	b, e, bad := c.readText()
	if bad != nil {
		return "", bad
	}
	old, with := []byte(c.Old), []byte(c.New)
	// A model writes LF also for a file with CR LF.
	if crlf(b) && !strings.Contains(c.Old+c.New, "\r") {
		old, with = bytes.ReplaceAll(old, []byte("\n"), []byte("\r\n")), bytes.ReplaceAll(with, []byte("\n"), []byte("\r\n"))
	}
	at := occurrences(b, old, c.All)
	switch {
	case len(at) == 0:
		return "", c.noMatch(b)
	case len(at) > 1 && !c.All:
		return "", c.ambiguous(b, at)
	}
	out := bytes.Replace(b, old, with, len(at))
	if len(out) > maxFile {
		return "", c.errorf(abi.FileTooLarge, "/new", "%s would have %d bytes, expected at most %d", c.Path, len(out), maxFile)
	}
	if err := c.fs.WriteFile(c.Path, out, e.Mode); err != nil {
		return "", c.errorOf(err)
	}
	if len(at) == 1 {
		return fmt.Sprintf("edited %s at line %d", c.Path, lineOf(b, at[0])), nil
	}
	return fmt.Sprintf("edited %s at %d places", c.Path, len(at)), nil
}

// occurrences returns the places of old in b. With all, it skips overlapping places,
// like a replacement of all. Without all, it counts them too, because such an edit is
// ambiguous.
func occurrences(b, old []byte, all bool) (at []int) {
	step := 1
	if all {
		step = len(old)
	}
	for i := 0; i <= len(b); {
		n := bytes.Index(b[i:], old)
		if n < 0 {
			break
		}
		at = append(at, i+n)
		i += n + step
	}
	return at
}

func lineOf(b []byte, at int) int { return 1 + bytes.Count(b[:at], []byte("\n")) }

// ambiguous returns the error for an edit that could mean several places.
func (c *call) ambiguous(b []byte, at []int) *abi.Error {
	const most = 20
	var where []string
	for _, i := range at[:min(most, len(at))] {
		where = append(where, fmt.Sprint(lineOf(b, i)))
	}
	more := ""
	if len(at) > most {
		more = " and further ones"
	}
	e := c.errorf(abi.EditAmbiguous, "/old", "old occurs %d times in %s, at lines %s%s; expected once", len(at), c.Path, strings.Join(where, ", "), more)
	e.Hint = "give more of the lines around the one that is meant, or set all to change every occurrence"
	return e
}

// remove runs fs.remove.
func (c *call) remove() (string, *abi.Error) {
	if p := path.Clean(c.Path); p == "." || p == ".." {
		return "", c.errorf(abi.InvalidArguments, "/path", "the workspace itself cannot be removed")
	}
	// With a slash at the end, a link would be followed to its directory.
	name := strings.TrimRight(c.Path, "/")
	e, err := c.fs.Lstat(name)
	if err != nil {
		return "", c.errorOf(err)
	}
	if e.Kind != fsys.Dir {
		if err := c.fs.Remove(name); err != nil {
			return "", c.errorOf(err)
		}
		return "removed " + name, nil
	}
	// The count goes into the answer, so that a model notices when it removed more than it meant.
	n, bad := c.below(name)
	if bad != nil {
		return "", bad
	}
	if !c.Recursive {
		bad := c.errorf(abi.FileKind, "/path", "%s is a directory with %s below it", name, plural(n, "entry"))
		bad.Hint = "set recursive to remove it with all of them"
		return "", bad
	}
	if err := c.fs.RemoveAll(name); err != nil {
		return "", c.errorOf(err)
	}
	return fmt.Sprintf("removed %s/ with %s below it", name, plural(n, "entry")), nil
}

// below counts the entries of a directory and of all directories below it.
func (c *call) below(name string) (n int, bad *abi.Error) {
	names, err := c.fs.ReadDir(name)
	if err != nil {
		return 0, c.errorOf(err)
	}
	for _, base := range names {
		e, err := c.fs.Lstat(name + "/" + base)
		if err != nil {
			return 0, c.errorOf(err)
		}
		if n++; e.Kind == fsys.Dir {
			m, bad := c.below(name + "/" + base)
			if bad != nil {
				return 0, bad
			}
			n += m
		}
	}
	return n, nil
}
