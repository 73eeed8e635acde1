package syscalls

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/workspace/fsys"
)

// readTool is the file tool with which a model reads the rest of a long output.
const readTool = "fs.read"

// outputDir is where the file tools show the whole outputs of earlier calls. They are
// in the journal, and not in the workspace: no command sees them, no commit has them.
const outputDir = ".kern/output/"

// outputPath returns the path of the whole output of a call.
func outputPath(call uint64) string { return fmt.Sprintf("%s%d.txt", outputDir, call) }

// Output returns all that a tool printed in a call of a process, as far as the journal
// has it: the whole output, the value, or what stands in the error.
func (j *Journal) Output(pid abi.Pid, call uint64) ([]byte, error) {
	r, err := j.Answer(pid, call)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no answer to a call %d", pid, call), Hint: fmt.Sprintf("list its calls with: kern log %d", pid)}
	}
	switch a := r.Answer; {
	case a.Whole.Size > 0:
		return j.Bytes(a.Whole)
	case a.Err != nil:
		return []byte(a.Err.Got), nil
	default:
		b, err := j.Bytes(a.Value)
		return []byte(plainText(b)), err
	}
}

// outputs is the stage of a file tool, with the outputs of earlier calls below outputDir.
type outputs struct {
	files.FS
	world *World
	pid   abi.Pid
}

// read returns the output that a path names. Other paths are the stage's own.
func (o outputs) read(name string) (b []byte, ours bool, err error) {
	number, ours := strings.CutPrefix(path.Clean(name), outputDir)
	number, text := strings.CutSuffix(number, ".txt")
	if !ours || !text {
		return nil, false, nil
	}
	call, err := strconv.ParseUint(number, 10, 64)
	if err == nil {
		b, err = o.world.Journal.Output(o.pid, call)
	}
	if err != nil {
		err = &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	return b, true, err
}

func (o outputs) entry(name string, own func(string) (fsys.Entry, error)) (fsys.Entry, error) {
	b, ours, err := o.read(name)
	if !ours {
		return own(name)
	}
	return fsys.Entry{Kind: fsys.File, Mode: 0o444, Size: int64(len(b))}, err
}

func (o outputs) Stat(name string) (fsys.Entry, error)  { return o.entry(name, o.FS.Stat) }
func (o outputs) Lstat(name string) (fsys.Entry, error) { return o.entry(name, o.FS.Lstat) }

func (o outputs) ReadFile(name string) ([]byte, error) {
	if b, ours, err := o.read(name); ours {
		return b, err
	}
	return o.FS.ReadFile(name)
}
