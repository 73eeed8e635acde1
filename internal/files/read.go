package files

import (
	"bytes"
	"fmt"
	"path"
	"unicode/utf8"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/workspace/fsys"
)

// read runs fs.read.
func (c *call) read() (string, *abi.Error) {
	b, _, bad := c.readText()
	if bad != nil {
		return "", bad
	}
	lines := splitLines(b)
	from, most := max(c.From, 1), maxLines
	if c.Lines > 0 {
		most = min(most, c.Lines)
	}
	// Line 1 of an empty file may be asked for.
	if from > max(len(lines), 1) {
		bad := c.errorf(abi.InvalidArguments, "/from", "%s has %s, and line %d was asked for", c.Path, plural(len(lines), "line"), from)
		return "", bad
	}
	s, to := newSheet(c.max), from-1
	for _, line := range lines[min(from-1, len(lines)):] {
		if to-from+1 >= most || !s.line(fmt.Sprintf("%d\t%s", to+1, clipLine(line, maxLine))) {
			break
		}
		to++
	}
	return s.end(c.rangeNote(from, to, len(lines)), textNote(b)), nil
}

// rangeNote returns a note with the lines that an answer holds; "" if it holds all.
func (c *call) rangeNote(from, to, all int) string {
	switch {
	case all == 0:
		return "the file is empty"
	case from == 1 && to == all:
		return ""
	case to < from:
		return fmt.Sprintf("there is no room for line %d of %d in the answer", from, all)
	case to == all:
		return fmt.Sprintf("lines %d to %d, the last", from, to)
	}
	return fmt.Sprintf("lines %d to %d of %d; go on with from: %d", from, to, all, to+1)
}

// textNote returns a note about properties of a file that its lines do not show.
func textNote(b []byte) string {
	var s string
	add := func(what string) {
		if s != "" {
			s += "; "
		}
		s += what
	}
	if crlf(b) {
		add("lines end with CR LF, which fs.edit keeps")
	} else if bytes.Contains(b, []byte("\r\n")) {
		add("some lines end with CR LF")
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		add("no newline at the end")
	}
	if !utf8.Valid(b) {
		add("not UTF-8 everywhere: such bytes are shown as \uFFFD")
	}
	return s
}

// list runs fs.list.
func (c *call) list() (string, *abi.Error) {
	e, bad := c.target()
	if bad != nil {
		return "", bad
	}
	if e.Kind != fsys.Dir {
		bad := c.errorf(abi.FileKind, "/path", "%s is not a directory", c.Path)
		bad.Hint = "fs.read shows a file"
		return "", bad
	}
	s, n, cut := newSheet(c.max), 0, false
	err := c.walk(c.Path, max(c.Depth, 1), func(name string, e fsys.Entry, deeper bool) bool {
		// Ending the walk here also bounds the time of a huge tree.
		if n >= maxEntries || !s.line(c.entry(name, e, deeper)) {
			cut = true
			return false
		}
		n++
		return true
	})
	if err != nil {
		return "", c.errorOf(err)
	}
	switch {
	case cut:
		return s.end(fmt.Sprintf("the first %s; there are more: list a directory below, or with less depth", plural(n, "entry"))), nil
	case n == 0:
		return s.end("the directory is empty"), nil
	}
	return s.end(), nil
}

// entry returns a line of fs.list. The line says so if fs.list skips a directory that
// depth allows; deeper says that depth allows it.
func (c *call) entry(name string, e fsys.Entry, deeper bool) string {
	switch e.Kind {
	case fsys.Dir:
		if name = clean(name) + "/"; deeper && isSkipped(path.Base(name)) {
			return name + "  (not looked into)"
		}
		return name
	case fsys.Symlink:
		return clean(name) + " -> " + clean(e.Target)
	case fsys.File:
		x := ""
		if e.Mode&0o111 != 0 {
			x = ", executable"
		}
		return fmt.Sprintf("%s  (%s%s)", clean(name), plural(int(e.Size), "byte"), x)
	}
	return clean(name) + "  (neither file, directory nor link)"
}

// clean returns a name that fits on one line: quoted if it has control characters.
func clean(name string) string {
	for _, r := range name {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return fmt.Sprintf("%q", name)
		}
	}
	return name
}

// isSkipped reports whether list and search skip a directory of this name, because
// programs write its content and people do not.
func isSkipped(name string) bool { return name == ".git" || name == "node_modules" }

// walk calls f for every entry below the directory at, sorted, down to depth levels.
// The argument deeper says that the entry's level is not the last. Walk stops when f
// returns false.
func (c *call) walk(at string, depth int, f func(name string, e fsys.Entry, deeper bool) bool) error {
	_, err := c.descend(at, depth, f)
	return err
}

// descend is walk for one directory. It reports whether to continue.
func (c *call) descend(at string, depth int, f func(string, fsys.Entry, bool) bool) (bool, error) {
	if err := c.ctx.Err(); err != nil {
		return false, err
	}
	names, err := c.fs.ReadDir(at)
	if err != nil {
		return false, err
	}
	for _, base := range names {
		name := base
		if at != "." {
			name = at + "/" + base
		}
		// A link to a directory above would be walked for ever if it were followed.
		e, err := c.fs.Lstat(name)
		if err != nil {
			return false, err
		}
		if !f(path.Clean(name), e, depth > 1) {
			return false, nil
		}
		if e.Kind != fsys.Dir || depth <= 1 || isSkipped(base) {
			continue
		}
		if more, err := c.descend(name, depth-1, f); !more || err != nil {
			return false, err
		}
	}
	return true, nil
}
