package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/internal/workspace/history"
)

// FileHistory shows the changes that processes made to their workspaces, and undoes
// them.
type FileHistory struct {
	kernel     running
	world      *syscalls.World
	journal    *reader
	workspaces *workspaces
}

// Commits lists the commits of a process and its descendants, the oldest first.
func (f *FileHistory) Commits(ctx context.Context, pid abi.Pid) ([]abi.Commit, error) {
	h, err := f.history(ctx, pid)
	if err != nil {
		return nil, err
	}
	return h.Commits()
}

// Diff shows what a process and its descendants changed: in all, or in the commit
// of its record seq.
func (f *FileHistory) Diff(ctx context.Context, pid abi.Pid, seq uint64) ([]abi.FileDiff, error) {
	h, err := f.history(ctx, pid)
	if err != nil {
		return nil, err
	}
	return h.Diff(seq)
}

// Undo restores the files that a process and its descendants changed.
func (f *FileHistory) Undo(ctx context.Context, pid abi.Pid, o abi.UndoOptions) (abi.UndoResult, error) {
	h, err := f.history(ctx, pid)
	if err != nil {
		return abi.UndoResult{}, err
	}
	return h.Undo(ctx, o)
}

// Verify reads the files and the whole history of a workspace, and reports damage.
func (f *FileHistory) Verify(ctx context.Context, dir string) (abi.WorkspaceCheck, error) {
	if !f.workspaces.known(dir) {
		return abi.WorkspaceCheck{}, &abi.Error{Code: abi.WorkspaceMissing, Message: dir + ": no process of this data directory has worked in it", Hint: "expected the workspace of a process; kern show PID names it"}
	}
	w, err := f.workspaces.get(dir)
	if err != nil {
		return abi.WorkspaceCheck{}, err
	}
	return history.Verify(ctx, w)
}

// CommitAt returns the last commit that a process had made when its record at was
// written, or zero if it had made none. If at is 0, it is the last record.
func (f *FileHistory) CommitAt(ctx context.Context, pid abi.Pid, at uint64) (abi.Hash, error) {
	if err := f.journal.log.Flush(ctx); err != nil {
		return abi.Hash{}, err
	}
	return history.LastCommit(f.source(), pid, at)
}

func (f *FileHistory) history(ctx context.Context, pid abi.Pid) (*history.History, error) {
	v, err := f.kernel.View(pid)
	if err != nil {
		return nil, err
	}
	l, err := f.world.Load(v.Spawn.Program)
	if err != nil {
		return nil, err
	}
	if l.Agent.Workspace == "" {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no workspace, so there is no history of its files", pid),
			Hint: "an agent file has workspace: DIR, and kern run has --workspace DIR"}
	}
	w, err := f.workspaces.get(l.Agent.Workspace)
	if err != nil {
		return nil, err
	}
	if err := f.journal.log.Flush(ctx); err != nil {
		return nil, err
	}
	return history.Read(f.source(), w, pid)
}

// source returns the journal and the tree of processes as a history reads them.
func (f *FileHistory) source() history.Source {
	return history.Source{
		Records: f.journal.store.Records,
		Record:  f.journal.Record,
		Process: func(pid abi.Pid) ([]abi.Pid, uint64, error) {
			i, err := f.kernel.Info(pid)
			return i.Children, i.Records, err
		},
		Settle: f.workspaces.settle,
	}
}

// export writes the files that pid saw at record o.At into a new directory, and
// returns its name. It refuses a directory that exists.
func (f *FileHistory) export(ctx context.Context, pid abi.Pid, o abi.ForkOptions, from string) (dir string, err error) {
	w, err := f.workspaces.get(from)
	if err != nil {
		return "", err
	}
	dir = o.Workspace
	if dir == "" {
		dir = fmt.Sprintf("%s.fork-%d", w.Dir(), pid)
		if o.At != 0 {
			dir += fmt.Sprintf("-%d", o.At)
		}
		for i, plain := 2, dir; exists(dir); i++ {
			dir = fmt.Sprintf("%s.%d", plain, i)
		}
	}
	if !filepath.IsAbs(dir) {
		return "", &abi.Error{Code: abi.WorkspaceRefused, Message: fmt.Sprintf("the workspace of the fork is %q, expected an absolute name", dir)}
	}
	if exists(dir) {
		return "", &abi.Error{Code: abi.WorkspaceRefused, Message: dir + " is there already", Hint: "name a directory that is not there yet: the fork works on a copy of its own"}
	}
	if err := f.journal.log.Flush(ctx); err != nil {
		return "", err
	}
	return dir, history.Export(ctx, f.source(), w, pid, o.At, dir)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// known reports whether a directory has been a workspace of this data directory.
func (s *workspaces) known(dir string) bool {
	real, err := canonical(dir)
	return err == nil && exists(filepath.Join(s.store, nameOf(real), "dir"))
}
