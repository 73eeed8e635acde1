package host

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/kern-run/kern/internal/staging"
	"io"
	"os"
	"path/filepath"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/workspace"
)

// A Fork asks for a process that continues from a moment of another. When that
// has a workspace, the fork works on a copy of the files of that moment, in a
// directory of its own.
type Fork struct {
	At        uint64 `json:"at,omitempty"`        // the last record that counts; 0: the last there is
	Workspace string `json:"workspace,omitempty"` // where the copy is put, an absolute name; empty: beside the workspace
}

// Forked is a new process, and where its copy of the files is.
type Forked struct {
	Pid       abi.Pid `json:"pid"`
	Workspace string  `json:"workspace,omitempty"`
}

// Fork starts a process that continues from a moment of another.
func (k *Kernel) Fork(ctx context.Context, pid abi.Pid, f Fork) (Forked, error) {
	v, err := k.View(pid)
	if err != nil {
		return Forked{}, err
	}
	l, err := k.world.Load(v.Spawn.Program)
	if err != nil {
		return Forked{}, err
	}
	if l.Workspace == "" {
		if f.Workspace != "" {
			return Forked{}, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no workspace to be copied", pid), Got: f.Workspace}
		}
		n, err := k.Kernel.Fork(ctx, pid, f.At)
		if err == nil {
			k.Launch(n)
		}
		return Forked{Pid: n}, err
	}
	dir, err := k.export(ctx, pid, f, l.Workspace)
	if err != nil {
		return Forked{}, err
	}
	p := l.Program
	p.Workspace = dir
	b, err := json.Marshal(p)
	if err != nil {
		return Forked{}, err
	}
	n, err := k.ForkAs(ctx, pid, f.At, b)
	if err != nil {
		return Forked{}, errors.Join(err, os.RemoveAll(dir)) // made by export a moment ago
	}
	k.Launch(n)
	return Forked{n, dir}, nil
}

// export writes the files of a moment of pid into a directory that is not
// there yet, and returns its name.
func (p past) export(ctx context.Context, pid abi.Pid, f Fork, from string) (dir string, err error) {
	w, err := p.k.spaces.get(from)
	if err != nil {
		return "", err
	}
	id, err := p.k.moment(ctx, w, pid, f.At)
	if err != nil {
		return "", err
	}
	dir = f.Workspace
	if dir == "" {
		dir = fmt.Sprintf("%s.fork-%d", w.Dir(), pid)
		if f.At != 0 {
			dir += fmt.Sprintf("-%d", f.At)
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
	if err := w.Export(ctx, id, dir); err != nil {
		return "", errors.Join(staging.Error(err), os.RemoveAll(dir))
	}
	return dir, nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// moment is the state of a workspace at a record: as the last commit of the
// process left it, or before it made any, as the last commit of anybody did.
func (p past) moment(ctx context.Context, w *workspace.Workspace, pid abi.Pid, at uint64) (workspace.Hash, error) {
	h, err := p.k.CommitAt(ctx, pid, at)
	if err != nil || !h.IsZero() {
		return workspace.Hash(h), err
	}
	i, err := p.k.Info(pid)
	if err != nil {
		return workspace.Hash{}, err
	}
	if at == 0 {
		at = i.Records
	}
	r, err := p.k.Record(pid, at)
	if err != nil {
		return workspace.Hash{}, err
	}
	var id workspace.Hash
	for c, err := range w.History() {
		if err != nil {
			return id, staging.Error(err)
		}
		if id = c.Hash; c.Time.UnixNano() <= r.Time {
			break
		}
	}
	if id.IsZero() {
		return id, &abi.Error{Code: abi.WorkspaceMissing, Message: fmt.Sprintf("the history of %s is empty", w.Dir())}
	}
	return id, nil
}

// Sound is what was found in a workspace whose every part was read.
type Sound struct {
	Dir      string    `json:"dir"`
	History  string    `json:"history"` // a repository for git --git-dir
	Commits  int       `json:"commits"`
	Contents int       `json:"contents"` // different contents in all of them, each read and as it was
	Files    int       `json:"files"`    // in the directory now
	Bytes    int64     `json:"bytes"`
	Digest   string    `json:"digest"`  // of the directory
	Outside  []Changed `json:"outside"` // what differs from the last commit: changed by somebody else
}

// VerifyWorkspace reads everything that is kept of a workspace: every file of
// the directory, every commit and every content in its history.
func (p past) VerifyWorkspace(ctx context.Context, dir string) (Sound, error) {
	if !p.k.spaces.known(dir) {
		return Sound{}, &abi.Error{Code: abi.WorkspaceMissing, Message: dir + ": no process of this data directory has worked in it", Hint: "expected the workspace of a process; kern show PID names it"}
	}
	w, err := p.k.spaces.get(dir)
	if err != nil {
		return Sound{}, err
	}
	snap, err := w.Verify(ctx)
	if err != nil {
		return Sound{}, staging.Error(err)
	}
	s := Sound{Dir: w.Dir(), History: w.GitDir(), Digest: snap.Digest().String(), Outside: []Changed{}}
	for _, e := range snap.All() {
		s.Files, s.Bytes = s.Files+1, s.Bytes+e.Size
	}
	read := make(map[workspace.Hash]bool)
	var at *workspace.Snapshot // each commit is much like the one before it
	for c, err := range w.History() {
		if err != nil {
			return s, staging.Error(err)
		}
		if at, err = w.AtFrom(c.Hash, at); err != nil {
			return s, staging.Error(err)
		}
		if at.Digest() != c.Digest {
			return s, damaged(c.Hash.String(), "its files are not those it was made of")
		}
		if err := contents(ctx, w, at, read); err != nil {
			return s, err
		}
		if s.Commits++; s.Commits == 1 {
			for _, ch := range at.Diff(snap) {
				if what := what(ch.Before, ch.After); what != "" {
					s.Outside = append(s.Outside, Changed{ch.Path, what})
				}
			}
		}
	}
	s.Contents = len(read)
	return s, nil
}

func damaged(what, why string) error {
	return &abi.Error{Code: abi.WorkspaceDamaged, Message: "the history of the workspace is damaged: " + what + ": " + why,
		Hint: "the files themselves are not touched by this; bring back a copy of the data directory"}
}

// contents reads every content of a state that was not read yet, and holds it
// to its name.
func contents(ctx context.Context, w *workspace.Workspace, at *workspace.Snapshot, read map[workspace.Hash]bool) error {
	for p, e := range at.All() {
		if e.Kind != workspace.File || read[e.Hash] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := w.Content(e.Hash)
		if err != nil {
			return staging.Error(err)
		}
		sum := sha256.New()
		fmt.Fprintf(sum, "blob %d\x00", e.Size)
		_, err = io.Copy(sum, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return staging.Error(err)
		}
		if [32]byte(sum.Sum(nil)) != e.Hash {
			return damaged(p, "its content is not what it was")
		}
		read[e.Hash] = true
	}
	return nil
}

// known reports whether a directory has been a workspace.
func (s *workspaces) known(dir string) bool {
	real, err := canonical(dir)
	return err == nil && exists(filepath.Join(s.store, nameOf(real), "dir"))
}
