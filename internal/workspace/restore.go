package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/view"
)

// Restore brings back the state of a commit as a new commit after all others. It
// writes only what differs, and leaves ignored files alone.
func (w *Workspace) Restore(ctx context.Context, id Hash, note Note) (*Commit, error) {
	c, err := w.repo.hist.Commit(id)
	if err != nil {
		return nil, err
	}
	// The differences are computed from the known tree, so it must be fresh.
	if _, err := w.Snapshot(ctx); err != nil {
		return nil, err
	}
	tx, err := w.Begin(ctx, Options{})
	if err != nil {
		return nil, err
	}
	done, err := tx.restore(ctx, c, note)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return done, nil
}

func (tx *Tx) restore(ctx context.Context, c *Commit, note Note) (*Commit, error) {
	want, err := tx.w.repo.hist.State(c, tx.stage.ground.Base.Dir)
	if err != nil {
		return nil, err
	}
	cs, err := tx.changesTo(&want)
	if err != nil {
		return nil, err
	}
	if err := tx.view.End(); err != nil {
		return nil, err
	}
	// The changes are known, so they take the path of any other transaction, with its checks and its rollback.
	tx.view = fixedView(cs)
	if note.Message == "" {
		note.Message = "Restore " + c.Hash.String()[:12] + ": " + strings.SplitN(c.Subject(), "\n", 2)[0]
	}
	auto := note.ID == ""
	if auto {
		note.ID = "restore-" + tx.name
	}
	out, err := tx.publish(ctx, note, git.Restored, true)
	if err != nil {
		return nil, err
	}
	return out, tx.Seal()
}

// fixedView is a view with given changes.
type fixedView []view.Staged

func (f fixedView) Changes() ([]view.Staged, error) { return f, nil }
func (f fixedView) End() error                      { return nil }

// changesTo returns the changes that turn the base into want.
func (tx *Tx) changesTo(want *fsys.Item) ([]view.Staged, error) {
	var out []view.Staged
	for p, d := range fsys.Differences(&tx.stage.ground.Base, want, true) {
		if d[1] == nil {
			out = append(out, view.Staged{Path: p})
			continue
		}
		e := *d[1]
		e.Dir, e.Print = nil, fsys.Print{}
		out = append(out, view.Staged{Path: p, To: &e})
	}
	return out, tx.w.repo.fetchContents(out, tx.stage.ground.Scratch)
}

// Export writes the state of a commit into dir, which must be empty or must not
// exist. The caller may open dir as a workspace of its own.
func (w *Workspace) Export(ctx context.Context, id Hash, dir string) error {
	c, err := w.repo.hist.Commit(id)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if ents, err := os.ReadDir(dir); err != nil || len(ents) > 0 {
		return errors.Join(err, fsys.Errorf(Refused, dir, "expected an empty directory, found %d names", len(ents)))
	}
	root, err := w.repo.hist.State(c, nil)
	if err != nil {
		return err
	}
	p, err := fsys.Open(dir)
	if err != nil {
		return err
	}
	defer p.Close()
	var dirs []view.Staged
	groups := map[uint64]string{}
	for at, e := range root.Walk(".") {
		if at == "." {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(at))
		switch {
		case e.Kind == Dir:
			dirs = append(dirs, view.Staged{Path: at, To: e})
			// The wanted mode may forbid writing, and each new file changes the time. Both are set last.
			err = os.Mkdir(name, 0o700)
		case e.Kind == Symlink:
			err = os.Symlink(e.Target, name)
		case e.Group != 0 && groups[e.Group] != "":
			err = os.Link(groups[e.Group], name)
		default:
			err = w.repo.fetchContent(e.Hash, name)
			groups[e.Group] = name
		}
		if err == nil && e.Kind != Dir {
			err = p.SetAttr(at, e.Entry)
		}
		if err != nil {
			return err
		}
	}
	// The deepest first: a directory without search permission may close the way to those below it.
	for _, d := range slices.Backward(dirs) {
		if err := p.SetAttr(d.Path, d.To.Entry); err != nil {
			return err
		}
	}
	return p.SyncAllIfPossible()
}
