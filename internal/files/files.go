// Package files holds the file tools of every process with a workspace: fs.read,
// fs.write, fs.edit, fs.list, fs.search and fs.remove.
//
// A tool works only on an [FS], the stage of one call. It does not decide whether
// its changes are published. A tool promises a model that
//
//   - it does the whole request or nothing,
//   - an edit changes exactly one place, or the error lists the possible places,
//   - everything else stays the same: line ends, a missing last newline, permissions,
//   - a shortened answer says that it is shortened and how to get the rest,
//   - an error says what the tool found, so that the next call can be right.
package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/schema"
	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Reader reads a workspace. Names have slashes and are relative. Stat follows
// links, Lstat does not.
type Reader interface {
	Stat(name string) (fsys.Entry, error)
	Lstat(name string) (fsys.Entry, error)
	ReadDir(name string) ([]string, error)
	ReadFile(name string) ([]byte, error)
}

// A Writer changes a workspace. Names are those of [Reader].
type Writer interface {
	MkdirAll(name string, mode fs.FileMode) error
	WriteFile(name string, b []byte, mode fs.FileMode) error
	Remove(name string) error
	RemoveAll(name string) error
}

// An FS is the stage of a call, such as a [workspace.Layer] or a directory.
type FS interface {
	Reader
	Writer
}

// A Tool is one file tool with the declaration that a model gets.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
	Effect      abi.Effect

	args *schema.Schema
	run  func(c *call) (string, *abi.Error)
}

// Size limits. A model reads a long file in parts. A file beyond maxFile needs
// other tools.
const (
	maxFile    = 16 << 20 // bytes of a file that a tool reads, searches or edits
	maxAnswer  = 64 << 10 // bytes of an answer
	maxLine    = 2000     // bytes of a line in an answer
	maxLines   = 2000     // lines in the answer of fs.read
	maxEntries = 1000     // entries in the answer of fs.list
	maxMatches = 200      // matches in the answer of fs.search
)

// Find returns the tool with this name, or nil.
func Find(name string) *Tool {
	for _, t := range tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Names returns the names of all tools.
func Names() []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return names
}

const pathDoc = `"path":{"type":"string","minLength":1,"description":"relative to the workspace, with slashes"}`

var tools = []*Tool{
	declare("fs.read", abi.Pure, (*call).read,
		fmt.Sprintf("Read a text file. Each line comes with its number and a tab before it; they are not part of the file. At most %d lines come at once: ask for a part with from (the first line, from 1) and lines (how many).", maxLines),
		pathDoc+`,"from":{"type":"integer","minimum":1,"description":"first line"},"lines":{"type":"integer","minimum":1,"description":"how many lines"}`, "path"),
	declare("fs.write", abi.Transactional, (*call).write,
		"Write a whole file, in place of what it holds. Missing directories are made. Use fs.edit to change a part.",
		pathDoc+`,"content":{"type":"string"}`, "path", "content"),
	declare("fs.edit", abi.Transactional, (*call).edit,
		"Replace text in a file. old must be exactly what the file holds, white space included and without line numbers, and must occur once: give enough lines around it. With all, every occurrence is replaced.",
		pathDoc+`,"old":{"type":"string","minLength":1},"new":{"type":"string"},"all":{"type":"boolean"}`, "path", "old", "new"),
	declare("fs.list", abi.Pure, (*call).list,
		"List a directory: directories end with a slash, files have their size, links say where they lead. depth is how many levels down, 1 if left out.",
		`"path":{"type":"string","description":"relative to the workspace; left out: all of it"},"depth":{"type":"integer","minimum":1,"maximum":32}`),
	declare("fs.search", abi.Pure, (*call).search,
		"Search the lines of text files for a regular expression (RE2; (?i) ignores case) in a file, or below a directory. The answer has path:line:text for each line that matches.",
		`"pattern":{"type":"string","minLength":1},"path":{"type":"string","description":"relative to the workspace; left out: all of it"}`, "pattern"),
	declare("fs.remove", abi.Transactional, (*call).remove,
		"Remove a file or a link. A directory is removed, with all below it, only with recursive.",
		pathDoc+`,"recursive":{"type":"boolean"}`, "path"),
}

// declare makes a tool with a closed schema. The schemas are constants in this file,
// so any test finds a schema that does not compile.
func declare(name string, effect abi.Effect, run func(*call) (string, *abi.Error), doc, properties string, required ...string) *Tool {
	if required == nil {
		required = []string{}
	}
	r, err := json.Marshal(required)
	if err != nil {
		panic(err)
	}
	raw := json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":` + string(r) + `,"additionalProperties":false}`)
	s, err := schema.Compile(raw)
	if err != nil {
		panic(err)
	}
	return &Tool{Name: name, Description: doc, Schema: raw, Effect: effect, args: s, run: run}
}

// arguments holds the arguments of all tools. The schema of each tool allows a part of
// them.
type arguments struct {
	Path      string
	From      int
	Lines     int
	Content   string
	Old, New  string
	All       bool
	Depth     int
	Pattern   string
	Recursive bool
}

// call is one call of a file tool, while it runs.
type call struct {
	ctx  context.Context
	tool *Tool
	fs   FS
	arguments
	max int64 // most bytes of the answer in JSON
}

// Run runs the tool on f. It returns a JSON string of at most limit bytes; 0 means
// only the tool's own limit. After an error, the caller must roll the stage back.
func (t *Tool) Run(ctx context.Context, f FS, args json.RawMessage, limit int64) (json.RawMessage, *abi.Error) {
	if v := t.args.Check(args); v != nil {
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: t.Name + ": " + v.Message, Where: v.Where, Expected: v.Expected, Got: v.Got,
			Hint: "call it again with arguments that match the schema"}
	}
	c := &call{ctx: ctx, tool: t, fs: f, max: maxAnswer}
	if limit > 0 {
		c.max = min(c.max, limit)
	}
	canon, err := jsontext.Canonical(nil, args) // turns 1.0 into 1: a schema allows both for an integer
	if err == nil {
		err = json.Unmarshal(canon, &c.arguments)
	}
	if err != nil {
		return nil, c.errorf(abi.InvalidArguments, "", "%v", err)
	}
	text, e := t.run(c)
	// A tool may end before it notices the stop. Its answer must not count then.
	if e == nil && ctx.Err() != nil {
		e = c.interrupted()
	}
	if e != nil {
		return nil, e
	}
	b := quote(text)
	if int64(len(b)) > c.max {
		return nil, &abi.Error{Code: abi.LimitOutputBytes, Message: fmt.Sprintf("%s: its answer of %d bytes is more than the %d that are left", t.Name, len(b), c.max)}
	}
	return b, nil
}

// interrupted returns the reason why the call was stopped. The reason is the cause in
// the context, if that is an error for processes.
func (c *call) interrupted() *abi.Error {
	var e *abi.Error
	if errors.As(context.Cause(c.ctx), &e) {
		copied := *e
		return &copied
	}
	return c.errorf(abi.Interrupted, "", "stopped before its end")
}

func (c *call) errorf(code abi.Code, where, format string, args ...any) *abi.Error {
	return &abi.Error{Code: code, Message: c.tool.Name + ": " + fmt.Sprintf(format, args...), Where: where}
}

// target returns the entry at the path of the call. It follows links.
func (c *call) target() (fsys.Entry, *abi.Error) {
	if c.Path == "" {
		c.Path = "."
	}
	e, err := c.fs.Stat(c.Path)
	if err != nil {
		return e, c.errorOf(err)
	}
	return e, nil
}

// readFile reads the file at the path of the call.
func (c *call) readFile() ([]byte, fsys.Entry, *abi.Error) {
	e, bad := c.target()
	if bad != nil {
		return nil, e, bad
	}
	if e.Kind == fsys.Dir {
		bad := c.errorf(abi.FileKind, "/path", "%s is a directory", c.Path)
		bad.Hint = "fs.list shows what is in it"
		return nil, e, bad
	}
	// Reading a FIFO or a device could wait for ever.
	if e.Kind != fsys.File {
		return nil, e, c.errorf(abi.FileKind, "/path", "%s is not a file", c.Path)
	}
	if e.Size > maxFile {
		bad := c.errorf(abi.FileTooLarge, "/path", "%s has %d bytes, expected at most %d", c.Path, e.Size, maxFile)
		bad.Hint = "use a command, or code, to take what is needed from it"
		return nil, e, bad
	}
	b, err := c.fs.ReadFile(c.Path)
	if err != nil {
		return nil, e, c.errorOf(err)
	}
	return b, e, nil
}

// readText is readFile for a text; a binary file is an error.
func (c *call) readText() ([]byte, fsys.Entry, *abi.Error) {
	b, e, bad := c.readFile()
	if bad == nil && binary(b) {
		bad = c.errorf(abi.FileKind, "/path", "%s is a binary file of %d bytes%s", c.Path, len(b), kindNote(b))
		bad.Hint = "this tool is for text; use a command, or code"
	}
	return b, e, bad
}

// errorOf converts an error of the file system for the model.
func (c *call) errorOf(err error) *abi.Error {
	var w *fsys.Error
	switch {
	case c.ctx.Err() != nil:
		return c.interrupted()
	case errors.As(err, &w):
		// The text alone: the error of the workspace may hold a path of the host.
		e := c.errorf(abi.Code(w.Code), "/path", "%s: %s", c.Path, w.Text)
		switch w.Code {
		case fsys.Refused:
			e.Code, e.Hint = abi.FileRefused, inside
		case fsys.Conflict:
			e.Hint = "somebody else changed it meanwhile; look at it again in the next call"
		}
		return e
	case strings.HasSuffix(err.Error(), "path escapes from parent"): // os.Root exports no error value for this
		e := c.errorf(abi.FileRefused, "/path", "%s: the path leads out of the workspace", c.Path)
		e.Hint = inside
		return e
	case errors.Is(err, fs.ErrNotExist), c.throughFile():
		return c.missing()
	}
	return c.errorf(abi.ToolFailed, "/path", "%v", err)
}

const inside = "paths are relative to the workspace and stay inside it, for example src/main.go"

// throughFile reports whether the path leads through a file.
func (c *call) throughFile() bool {
	_, e, ok := c.deepest()
	return ok && e.Kind != fsys.Dir
}

// deepest returns the longest parent of the path that exists.
func (c *call) deepest() (string, fsys.Entry, bool) {
	for at := path.Dir(c.Path); at != "/"; at = path.Dir(at) {
		if e, err := c.fs.Stat(at); err == nil {
			return at, e, true
		}
		if at == "." {
			break
		}
	}
	return "", fsys.Entry{}, false
}

// missing returns the error for a path that does not exist, with similar names as a
// hint.
func (c *call) missing() *abi.Error {
	e := c.errorf(abi.FileMissing, "/path", "there is no %s", c.Path)
	at, entry, ok := c.deepest()
	switch {
	case !ok:
		return e
	case entry.Kind != fsys.Dir:
		e.Message += fmt.Sprintf("; %s is a file", at)
		return e
	}
	names, err := c.fs.ReadDir(at)
	if err != nil {
		return e
	}
	// The first missing part is what the model got wrong, so only its neighbours are offered.
	rest := strings.TrimPrefix(strings.TrimPrefix(c.Path, "./"), at+"/")
	want, _, _ := strings.Cut(rest, "/")
	if want != rest {
		e.Message += fmt.Sprintf("; there is no %s", path.Join(at, want))
	}
	if like := similarNames(want, names, 5); len(like) > 0 {
		for i := range like {
			like[i] = path.Join(at, like[i])
		}
		e.Hint = "there is: " + strings.Join(like, ", ")
	} else {
		e.Hint = fmt.Sprintf("fs.list shows what is in %s", at)
	}
	return e
}
