package history

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/workspace"
)

// Export writes the files of a workspace, as they were at a record of a process,
// into a directory that does not exist yet.
func Export(ctx context.Context, source Source, w *workspace.Workspace, pid abi.Pid, at uint64, dir string) error {
	id, err := commitAt(source, w, pid, at)
	if err != nil {
		return err
	}
	if err := w.Export(ctx, id, dir); err != nil {
		return errors.Join(staging.Error(err), os.RemoveAll(dir))
	}
	return nil
}

// LastCommit returns the last commit that a process had made when its record at was
// written, or zero if it had made none. If at is 0, it is the last record.
func LastCommit(source Source, pid abi.Pid, at uint64) (last abi.Hash, err error) {
	n := uint64(0)
	for r, err := range source.Records(pid, 0) {
		if err != nil {
			return last, err
		}
		if n = r.N; r.Answer != nil && !r.Answer.Commit.IsZero() {
			last = r.Answer.Commit
		}
		if n == at {
			return last, nil
		}
	}
	if n == 0 || n < at {
		return last, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has %d records, and %d was asked for", pid, n, at)}
	}
	return last, nil
}

// commitAt returns the commit whose files a process saw at a record: its own last
// commit, or else the last commit of the workspace at that time.
func commitAt(source Source, w *workspace.Workspace, pid abi.Pid, at uint64) (workspace.Hash, error) {
	h, err := LastCommit(source, pid, at)
	if err != nil || !h.IsZero() {
		return workspace.Hash(h), err
	}
	if at == 0 {
		if _, at, err = source.Process(pid); err != nil {
			return workspace.Hash{}, err
		}
	}
	r, err := source.Record(pid, at)
	if err != nil {
		return workspace.Hash{}, err
	}
	var id workspace.Hash
	for c, err := range w.History() {
		if err != nil {
			return id, staging.Error(err)
		}
		// Without an older commit, the oldest one is the best that is known.
		if id = c.Hash; c.Time.UnixNano() <= r.Time {
			break
		}
	}
	if id.IsZero() {
		return id, &abi.Error{Code: abi.WorkspaceMissing, Message: fmt.Sprintf("the history of %s is empty", w.Dir())}
	}
	return id, nil
}

// Verify reads every file of a workspace, every commit of its history and every
// stored content, and reports the first damage. It lists the paths that changed
// outside of Kern.
func Verify(ctx context.Context, w *workspace.Workspace) (abi.WorkspaceCheck, error) {
	snap, err := w.Verify(ctx)
	if err != nil {
		return abi.WorkspaceCheck{}, staging.Error(err)
	}
	s := abi.WorkspaceCheck{Dir: w.Dir(), History: w.GitDir(), Digest: snap.Digest().String(), Outside: []abi.PathChange{}}
	for _, e := range snap.All() {
		s.Files, s.Bytes = s.Files+1, s.Bytes+e.Size
	}
	read := make(map[workspace.Hash]bool)
	var at *workspace.Snapshot // the commit before, because a similar one is cheap to read from it
	for c, err := range w.History() {
		if err != nil {
			return s, staging.Error(err)
		}
		if at, err = w.AtFrom(c.Hash, at); err != nil {
			return s, staging.Error(err)
		}
		// The digest was recorded with the commit, so it shows damage in trees and modes alike.
		if at.Digest() != c.Digest {
			return s, damaged(c.Hash.String(), "its files are not those it was made of")
		}
		if err := contents(ctx, w, at, read); err != nil {
			return s, err
		}
		// The newest commit comes first. Any difference from it was made outside of Kern.
		if s.Commits++; s.Commits == 1 {
			for _, ch := range at.Diff(snap) {
				if what := changeName(ch.Before, ch.After); what != "" {
					s.Outside = append(s.Outside, abi.PathChange{Path: ch.Path, Change: what})
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

// contents reads every content of a state that was not read yet, and compares it
// with the hash that names it.
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
		// Git hashes this head before the content, so plain Git can check the same objects.
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
