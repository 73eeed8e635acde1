package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/workspace"
)

// Undo restores the files that the process and its descendants changed. A path that
// somebody else changed since is a conflict, and keeps its content. If there is a
// conflict, Undo restores nothing, unless u.Partial asks for the other paths.
func (h *History) Undo(ctx context.Context, u abi.UndoOptions) (abi.UndoResult, error) {
	done := abi.UndoResult{Pid: h.pid, Paths: []abi.PathChange{}, Kept: []string{}}
	if len(h.commits) == 0 {
		return done, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d changed no file", h.pid)}
	}
	from := 0
	if u.To != 0 {
		var err error
		if from, err = h.after(ctx, u.To); err != nil {
			return done, err
		}
	}
	// The commits in order say what each path was before and after the process.
	r := &restore{history: h, want: make(map[string]*workspace.Entry), last: make(map[string]*workspace.Entry), foreign: make(map[string]bool), links: make(map[uint64]string)}
	for _, s := range h.commits[from:] {
		changes, err := h.changes(s)
		if err != nil {
			return done, err
		}
		r.follow(changes)
	}
	if err := r.look(ctx); err != nil {
		return done, err
	}
	// A conflict ends the undo before anything is staged.
	if done.Kept = append(done.Kept, r.conflicts...); len(r.conflicts) > 0 && !u.Partial {
		return done, conflict(r.conflicts)
	}
	if len(r.todo) == 0 {
		return done, nil
	}
	c, err := r.publish(ctx, u)
	if err != nil {
		return done, err
	}
	if c != nil {
		done.Hash = c.Hash.String()
	}
	done.Kept = append(done.Kept, r.full...)
	for _, p := range r.todo {
		if w := changeName(r.now(p), r.want[p]); w != "" && !slices.Contains(r.full, p) {
			done.Paths = append(done.Paths, abi.PathChange{Path: p, Change: w})
		}
	}
	return done, nil
}

func conflict(paths []string) error {
	const most = 20
	list := strings.Join(paths[:min(most, len(paths))], ", ")
	if n := len(paths) - most; n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	return &abi.Error{Code: abi.WorkspaceConflict, Message: "somebody else changed since: " + list + "; nothing was brought back",
		Where: paths[0], Hint: "look at them, then say --partial to bring back all but these"}
}

// restore is one undo at work: it brings some paths back to an earlier state.
type restore struct {
	history   *History
	want      map[string]*workspace.Entry // each path before the first undone commit; nil: absent
	last      map[string]*workspace.Entry // each path after the last commit of the process; nil: absent
	foreign   map[string]bool             // somebody else changed the path between two of the commits
	snap      *workspace.Snapshot         // the directory now
	todo      []string                    // paths to restore, sorted
	conflicts []string
	full      []string          // directories that stay, because they hold files of others
	links     map[uint64]string // the first restored name of each group of hard links
}

// follow adds the changes of one commit. The oldest commit comes first.
func (r *restore) follow(changes []workspace.Change) {
	for _, c := range changes {
		if was, seen := r.last[c.Path]; !seen {
			r.want[c.Path] = c.Before
		} else if !sameContent(was, c.Before) {
			r.foreign[c.Path] = true
		}
		r.last[c.Path] = c.After
	}
}

func (r *restore) now(p string) *workspace.Entry {
	if e, ok := r.snap.Lookup(p); ok {
		return &e
	}
	return nil
}

// look compares the directory with the wanted state, and sorts the paths into todo
// and conflicts. A path is a conflict if it differs from its last commit.
func (r *restore) look(ctx context.Context) (err error) {
	if r.snap, err = r.history.workspace.Snapshot(ctx); err != nil {
		return staging.Error(err)
	}
	for _, p := range slices.Sorted(maps.Keys(r.want)) {
		now, want := r.now(p), r.want[p]
		switch {
		case sameContent(now, want) && (now == nil || now.Kind != workspace.File || now.Time == want.Time):
		// Somebody else wrote here after the last commit, or between two of them. Going back would lose that.
		case !sameContent(now, r.last[p]) || r.foreign[p] && !sameContent(now, want):
			r.conflicts = append(r.conflicts, p)
		default:
			r.todo = append(r.todo, p)
		}
	}
	return nil
}

// publish restores the paths in one commit. It returns nil if nothing changes.
func (r *restore) publish(ctx context.Context, u abi.UndoOptions) (*workspace.Commit, error) {
	tx, err := r.history.begin(ctx)
	if err != nil {
		return nil, err
	}
	c, err := r.stage(ctx, tx, u)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return c, nil
}

// begin opens a transaction. If an earlier commit is in doubt, begin settles it
// first.
func (h *History) begin(ctx context.Context) (*workspace.Tx, error) {
	tx, err := h.workspace.Begin(ctx, workspace.Options{})
	if errors.Is(err, &workspace.Error{Code: workspace.InDoubt}) {
		if err = h.source.Settle(h.workspace); err == nil {
			tx, err = h.workspace.Begin(ctx, workspace.Options{})
		}
	}
	if err != nil {
		return nil, staging.Error(err)
	}
	return tx, nil
}

func (r *restore) stage(ctx context.Context, tx *workspace.Tx, u abi.UndoOptions) (*workspace.Commit, error) {
	l := tx.Layer()
	for _, p := range r.todo { // a change after look is a conflict too
		if e, err := l.Lstat(p); !r.still(p, e, err) {
			return nil, conflict([]string{p})
		}
	}
	// Names are freed before they are made, and directories get their times last, because every step changes them.
	for _, step := range []func(*workspace.Layer) error{r.clear, r.bring, r.modes} {
		if err := step(l); err != nil {
			return nil, staging.Error(err)
		}
	}
	if changes, err := tx.Diff(); err != nil || len(changes) == 0 || u.DryRun {
		return nil, errors.Join(err, tx.Rollback())
	}
	c, err := tx.Commit(ctx, workspace.Note{ID: fmt.Sprintf("undo-%d-%d", r.history.pid, time.Now().UnixNano()), PID: int64(r.history.pid), Tool: undoTool, Message: r.title(u)})
	if err != nil {
		return nil, staging.Error(err)
	}
	return c, nil
}

func (r *restore) title(u abi.UndoOptions) string {
	s := fmt.Sprintf("undo process %d", r.history.pid)
	if u.To != 0 {
		s += fmt.Sprintf(" to record %d", u.To)
	}
	if u.By != "" {
		s += ", by " + u.By
	}
	return s
}

func (r *restore) still(p string, e workspace.Entry, err error) bool {
	was := r.now(p)
	if err != nil || was == nil {
		return was == nil && err != nil // any error means absent, such as a parent that is a file
	}
	return was.Kind == e.Kind && was.Mode == e.Mode && (e.Kind == workspace.Dir || was.Size == e.Size && was.Time == e.Time && was.Target == e.Target)
}

// clear removes the paths that are not wanted, the deepest first. A directory that
// holds files of others stays.
func (r *restore) clear(l *workspace.Layer) error {
	for _, p := range slices.Backward(r.todo) {
		now, want := r.now(p), r.want[p]
		if now == nil || want != nil && want.Kind == now.Kind && now.Kind != workspace.Symlink {
			continue
		}
		if now.Kind == workspace.Dir {
			if names, err := l.ReadDir(p); err != nil {
				return err
			} else if len(names) > 0 && want == nil {
				r.full = append(r.full, p)
				continue
			} else if len(names) > 0 {
				return conflict([]string{path.Join(p, names[0])})
			}
		}
		if err := l.Remove(p); err != nil {
			return err
		}
	}
	return nil
}

// bring makes the wanted paths, each directory before its content.
func (r *restore) bring(l *workspace.Layer) error {
	for _, p := range r.todo {
		want := r.want[p]
		if want == nil {
			continue
		}
		if err := l.MkdirAll(path.Dir(p), 0o755); err != nil {
			return err
		}
		var err error
		switch want.Kind {
		case workspace.Dir:
			err = l.MkdirAll(p, 0o755)
		case workspace.Symlink:
			err = l.Symlink(want.Target, p)
		default:
			err = r.content(l, p, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// content restores a file, and its hard links to files of the same group.
func (r *restore) content(l *workspace.Layer, p string, want *workspace.Entry) error {
	if first := r.links[want.Group]; want.Group != 0 && first != "" {
		// Link refuses a name that exists.
		if err := l.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return l.Link(first, p)
	}
	if want.Group != 0 {
		r.links[want.Group] = p
	}
	if now := r.now(p); now == nil || now.Kind != workspace.File || now.Hash != want.Hash {
		if err := r.write(l, p, want); err != nil {
			return err
		}
	}
	return errors.Join(l.Chmod(p, want.Mode), l.Chtimes(p, want.ModTime()))
}

func (r *restore) write(l *workspace.Layer, p string, want *workspace.Entry) error {
	from, err := r.history.workspace.Content(want.Hash)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := l.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, want.Mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// modes restores the permissions and times of directories, the deepest first. It
// runs last, because every change in a directory sets its time.
func (r *restore) modes(l *workspace.Layer) error {
	for _, p := range slices.Backward(r.todo) {
		if want := r.want[p]; want != nil && want.Kind == workspace.Dir {
			if err := errors.Join(l.Chmod(p, want.Mode), l.Chtimes(p, want.ModTime())); err != nil {
				return err
			}
		}
	}
	return nil
}
