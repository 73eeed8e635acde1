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

// Restore brings back the state of a commit, as a commit of its own after all
// the others. It writes what differs, and leaves ignored files alone.
func (w *Workspace) Restore(ctx context.Context, id Hash, note Note) (*Commit, error) {
	c, err := w.hist.Commit(id)
	if err != nil {
		return nil, err
	}
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
	want, err := tx.w.hist.State(c, tx.ground.Base.Dir)
	if err != nil {
		return nil, err
	}
	cs, err := tx.toward(&want)
	if err != nil {
		return nil, err
	}
	if err := tx.view.End(); err != nil {
		return nil, err
	}
	tx.view = fixed(cs)
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

// fixed is a view whose changes are known beforehand.
type fixed []view.Staged

func (f fixed) Changes() ([]view.Staged, error) { return f, nil }
func (f fixed) End() error                      { return nil }

// toward stages what makes the base into want.
func (tx *Tx) toward(want *fsys.Item) ([]view.Staged, error) {
	var out []view.Staged
	for p, d := range fsys.Differ(&tx.ground.Base, want, true) {
		if d[1] == nil {
			out = append(out, view.Staged{Path: p})
			continue
		}
		e := *d[1]
		e.Dir, e.Print = nil, fsys.Print{}
		out = append(out, view.Staged{Path: p, To: &e})
	}
	return out, tx.w.fetch(out, tx.ground.Scratch)
}

// Export writes the state of a commit into dir, which must be empty or not
// exist: the files of that moment, for a workspace of their own.
func (w *Workspace) Export(ctx context.Context, id Hash, dir string) error {
	c, err := w.hist.Commit(id)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if ents, err := os.ReadDir(dir); err != nil || len(ents) > 0 {
		return errors.Join(err, fsys.Errorf(Refused, dir, "expected an empty directory, found %d names", len(ents)))
	}
	root, err := w.hist.State(c, nil)
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
			err = os.Mkdir(name, 0o700)
		case e.Kind == Symlink:
			err = os.Symlink(e.Target, name)
		case e.Group != 0 && groups[e.Group] != "":
			err = os.Link(groups[e.Group], name)
		default:
			err = w.fetchOne(e.Hash, name)
			groups[e.Group] = name
		}
		if err == nil && e.Kind != Dir {
			err = p.Attr(at, e.Entry)
		}
		if err != nil {
			return err
		}
	}
	for _, d := range slices.Backward(dirs) {
		if err := p.Attr(d.Path, d.To.Entry); err != nil {
			return err
		}
	}
	return p.SyncAllOr()
}

// The index remembers what was known of the directory, so that the next Open
// reads only what has changed since. It is a cache: one that does not read
// back is as good as none.
