package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/view"
)

// View says how a transaction shows the workspace.
type View string

// The views. Native picks Overlay where the host allows it, else Copy.
const (
	Layered View = "layer"   // [Tx.Layer]: a copy-on-write file system in Go; nothing is mounted or copied
	Overlay View = "overlay" // [Tx.Dir]: overlayfs; Linux, as root
	Copied  View = "copy"    // [Tx.Dir]: a copy, by reference where the file system has them; everywhere
	Native  View = "native"
)

// Options say what a transaction may do. The zero Options are a Layer without
// bounds.
type Options struct {
	View  View
	Bytes int64 // at most so many bytes may be staged; 0: no bound
	Files int   // at most so many files, directories and links may be staged; 0: no bound
}

// A Tx is a private view of a workspace whose changes come into effect all at
// once or never. It must end with Seal (or Commit) or Rollback. Its methods may
// be called from several goroutines; its view must be left alone from Publish on.
type Tx struct {
	stage
	w    *Workspace
	opt  Options
	name string   // of its directory in scratch
	lock *os.File // tells others that its holder lives
	view view.View

	mu      sync.Mutex
	state   state
	rec     *logRecord
	next    fsys.Item
	torn    error // sealed, but a directory could not be made to last
	commit  *Commit
	release func()
}

type state int

const (
	staging state = iota
	frozen
	broken // freezing failed
	published
	doubtful // taking back failed: the slots stay for recovery
	ended
)

// Begin opens a transaction.
func (w *Workspace) Begin(ctx context.Context, opt Options) (*Tx, error) {
	if w.closed.Load() {
		return nil, fsys.Errorf(Ended, "", "the workspace is closed")
	}
	if opt.Bytes < 0 || opt.Files < 0 {
		return nil, fsys.Errorf(Refused, "", "expected Options.Bytes and Options.Files of 0 or more")
	}
	w.mu.Lock()
	seen := w.seen
	w.mu.Unlock()
	p := w.log.Pending()
	if p != nil && !p.Intent.Auto && !w.gate.taken() {
		return nil, fsys.Errorf(InDoubt, "", "commit %q waits for Resolve", p.Intent.Note.ID)
	}
	if !seen || !fsys.HasStamps {
		if _, err := w.Snapshot(ctx); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		tx := &Tx{w: w, opt: opt, name: fmt.Sprintf("tx-%d-%s", os.Getpid(), rand.Text()[:10])}
		err := tx.room()
		if err == nil {
			err = tx.begin(ctx)
		}
		if err == nil {
			return tx, nil
		}
		tx.leave()
		if !errors.Is(err, fs.ErrNotExist) || try == 3 {
			return nil, err
		}
	}
}

// room makes the transaction's directory and locks it, so that nobody sweeps
// it while its holder lives. A sweeper may come between the two: then the
// directory is gone and Begin takes another.
func (tx *Tx) room() (err error) {
	dir := filepath.Join(tx.w.conf.Scratch, tx.name)
	if err := os.MkdirAll(filepath.Join(dir, "slots"), 0o700); err != nil {
		return err
	}
	if tx.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	if ok, err := fsys.TryLock(tx.lock); err != nil || !ok {
		return errors.Join(err, fs.ErrNotExist)
	}
	tx.slots, err = fsys.Open(filepath.Join(dir, "slots"))
	return err
}

func (tx *Tx) begin(ctx context.Context) error {
	// A stamp that was looked at is followed by a later one where the file
	// system can: then everything before now is told from everything after.
	if _, err := fsys.Stat(tx.lock); err != nil {
		return err
	}
	if _, err := tx.lock.WriteString("held\n"); err != nil {
		return err
	}
	e, err := fsys.Stat(tx.lock)
	if err != nil {
		return err
	}
	w := tx.w
	tx.began, tx.fine = e.Print.Ctime, w.fine
	tx.ground = view.Ground{Place: w.place, Base: w.known(), Scratch: filepath.Dir(tx.slots.Name), Quota: fsys.Bound{Bytes: tx.opt.Bytes, Files: tx.opt.Files},
		WriteGit: w.conf.WriteGit, Rules: w.rules}
	switch tx.opt.View {
	case Layered, "":
		tx.view = view.NewLayer(tx.ground)
	case Overlay:
		tx.view, err = view.NewOverlay(tx.ground)
	case Copied:
		tx.view, err = view.NewCopy(ctx, tx.ground)
	case Native:
		if tx.view, err = view.NewOverlay(tx.ground); err != nil {
			tx.view, err = view.NewCopy(ctx, tx.ground)
		}
	default:
		err = fsys.Errorf(Refused, "", "expected a view of layer, overlay, copy or native, found %q", fsys.Clip(string(tx.opt.View)))
	}
	return err
}

// Dir is the directory in which a program sees the transaction; empty for a Layer.
func (tx *Tx) Dir() string {
	if v, ok := tx.view.(interface{ Path() string }); ok {
		return v.Path()
	}
	return ""
}

// Layer is the file system of a transaction begun as Layered, else nil.
func (tx *Tx) Layer() *Layer {
	if v, ok := tx.view.(interface{ Layer() *Layer }); ok {
		return v.Layer()
	}
	return nil
}

// Diff says what the transaction would change, sorted by path. It closes the
// view: what is checked is what is published.
func (tx *Tx) Diff() ([]Change, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.freeze(); err != nil {
		return nil, err
	}
	var out []Change
	for _, c := range tx.changes {
		d := Change{Path: c.Path}
		if b := tx.ground.Base.Lookup(c.Path); b != nil {
			d.Before = &b.Entry
		}
		if c.To != nil {
			d.After = &c.To.Entry
		}
		if c.Path != "." && (d.Before == nil || d.After == nil || !d.Before.Same(*d.After) ||
			d.After.Kind != Dir && d.Before.Time != d.After.Time) {
			out = append(out, d)
		}
	}
	return out, nil
}

// Open opens the staged content of a path that Diff names, for checks before
// it is published.
func (tx *Tx) Open(name string) (*os.File, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == frozen || tx.state == published {
		for _, c := range tx.changes {
			if c.Path == name && c.To != nil && c.To.Kind == File {
				if f, err := tx.slots.Open(c.Slot); err == nil || tx.state == frozen {
					return f, err
				}
				return tx.w.place.Open(name)
			}
		}
	}
	return nil, fsys.Errorf(Missing, name, "expected a file that Diff names as changed")
}

// freeze closes the view and moves what it staged into slots. Once.
func (tx *Tx) freeze() error {
	switch tx.state {
	case frozen:
		return nil
	case staging:
	default:
		return fsys.Errorf(Ended, "", "the transaction is over")
	}
	tx.state = broken
	cs, err := tx.view.Changes()
	if err != nil {
		return err
	}
	slices.SortFunc(cs, func(a, b view.Staged) int { return fsys.Compare(a.Path, b.Path) })
	if tx.Layer() == nil { // which counts exactly, write by write
		if err := tx.within(cs); err != nil {
			return err
		}
	}
	if err := tx.fill(cs); err != nil {
		return err
	}
	tx.changes, tx.state = cs, frozen
	return tx.view.End()
}

// close lets go of the transaction's directory and leaves it there.
func (tx *Tx) close() error {
	err := tx.view.End()
	tx.slots.Close()
	return errors.Join(err, tx.lock.Close())
}

// leave takes the view and the transaction's directory away.
func (tx *Tx) leave() error {
	if l := tx.Layer(); l != nil {
		tx.view.End()
	}
	if tx.slots != nil {
		tx.slots.Close()
	}
	err := tx.w.room.remove(tx.name)
	if tx.lock != nil {
		tx.lock.Close()
	}
	return err
}
