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

// View is a way to show the workspace to a transaction.
type View string

// The views. Native picks Overlay where the host allows it, else Copy.
const (
	Layered View = "layer"   // [Tx.Layer]: a copy-on-write file system in Go; nothing is mounted or copied
	Overlay View = "overlay" // [Tx.Dir]: overlayfs; Linux, as root
	Copied  View = "copy"    // [Tx.Dir]: a copy, by reference where the file system has them; everywhere
	Native  View = "native"
)

// Options bound a transaction. The zero Options mean a Layer without bounds.
type Options struct {
	View  View
	Bytes int64 // how many bytes may be staged; 0: no bound
	Files int   // how many files, directories and links may be staged; 0: no bound
}

// A Tx is a private view of a workspace. Its changes take effect all at once or
// never. It must end with Seal, Commit or Rollback. Several goroutines may call
// its methods. From Publish on nobody may change the view.
type Tx struct {
	w     *Workspace
	opt   Options
	name  string   // of its directory in scratch
	lock  *os.File // locked while the holder lives
	view  view.View
	stage stage

	mu      sync.Mutex
	state   state
	rec     *logRecord
	next    fsys.Item // the tree after the commit
	syncErr error     // the commit is sealed, but a directory could not be synced
	commit  *Commit
	release func() // releases the lock of the workspace
}

type state int

const (
	staging state = iota
	frozen
	broken // freezing failed
	published
	doubtful // the rollback failed: the slots stay for recovery
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
	w.index.mu.Lock()
	seen := w.index.seen
	w.index.mu.Unlock()
	p := w.repo.log.Pending()
	// A commit of this process that is being published is no doubt: its holder decides it soon.
	if p != nil && !p.Intent.Auto && !w.lock.heldHere() {
		return nil, fsys.Errorf(InDoubt, "", "commit %q waits for Resolve", p.Intent.Note.ID)
	}
	// Without change times, an unchanged file cannot be told from a rewritten one without a scan.
	if !seen || !fsys.HasStamps {
		if _, err := w.Snapshot(ctx); err != nil {
			return nil, err
		}
	}
	// Another process may sweep the directory before it is locked. Then begin again.
	for try := 0; ; try++ {
		if !w.users.enter() {
			return nil, fsys.Errorf(Ended, "", "the workspace is closed, because its directory was replaced")
		}
		tx := &Tx{w: w, opt: opt, name: fmt.Sprintf("tx-%d-%s", os.Getpid(), rand.Text()[:10])}
		err := tx.makeDir()
		if err == nil {
			err = tx.openView(ctx)
		}
		if err == nil {
			return tx, nil
		}
		tx.removeDir()
		if !errors.Is(err, fs.ErrNotExist) || try == 3 {
			return nil, err
		}
	}
}

// makeDir makes the directory of the transaction and locks it, so that no other
// process sweeps it while its holder lives. A sweep between the two steps removes
// the directory; then Begin makes another.
func (tx *Tx) makeDir() (err error) {
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
	tx.stage.slots, err = fsys.Open(filepath.Join(dir, "slots"))
	return err
}

// openView notes the time and opens the view.
func (tx *Tx) openView(ctx context.Context) error {
	// Some file systems give a new time stamp only after the last one was read.
	// So read the stamp, write, and read again: every later change by somebody
	// else then has a later stamp.
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
	tx.stage.began, tx.stage.fine = e.Print.Ctime, w.index.fine
	tx.stage.ground = view.Ground{Place: w.index.place, Base: w.index.current(), Scratch: filepath.Dir(tx.stage.slots.Name), Quota: fsys.Limit{Bytes: tx.opt.Bytes, Files: tx.opt.Files},
		WriteGit: w.conf.WriteGit, Rules: w.index.rules}
	switch tx.opt.View {
	case Layered, "":
		tx.view = view.NewLayer(tx.stage.ground)
	case Overlay:
		tx.view, err = view.NewOverlay(tx.stage.ground)
	case Copied:
		tx.view, err = view.NewCopy(ctx, tx.stage.ground)
	case Native:
		// The copy is no weaker, only slower, so this fallback needs no consent.
		if tx.view, err = view.NewOverlay(tx.stage.ground); err != nil {
			tx.view, err = view.NewCopy(ctx, tx.stage.ground)
		}
	default:
		err = fsys.Errorf(Refused, "", "expected a view of layer, overlay, copy or native, found %q", fsys.Clip(string(tx.opt.View)))
	}
	return err
}

// Dir is the directory that shows the transaction to a program; empty for a Layer.
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

// Diff returns what the transaction would change, sorted by path. It closes the
// view, so the caller checks exactly what is published later.
func (tx *Tx) Diff() ([]Change, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.freeze(); err != nil {
		return nil, err
	}
	var out []Change
	for _, c := range tx.stage.changes {
		d := Change{Path: c.Path}
		if b := tx.stage.ground.Base.Lookup(c.Path); b != nil {
			d.Before = &b.Entry
		}
		if c.To != nil {
			d.After = &c.To.Entry
		}
		// The time of a directory follows from changes below it, so alone it is no change.
		if c.Path != "." && (d.Before == nil || d.After == nil || !d.Before.Same(*d.After) ||
			d.After.Kind != Dir && d.Before.Time != d.After.Time) {
			out = append(out, d)
		}
	}
	return out, nil
}

// Open opens the staged content of a path that Diff names, so that it can be
// checked before it is published.
func (tx *Tx) Open(name string) (*os.File, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == frozen || tx.state == published {
		for _, c := range tx.stage.changes {
			if c.Path == name && c.To != nil && c.To.Kind == File {
				// A published new file has left its slot for its path.
				if f, err := tx.stage.slots.Open(c.Slot); err == nil || tx.state == frozen {
					return f, err
				}
				return tx.w.index.place.Open(name)
			}
		}
	}
	return nil, fsys.Errorf(Missing, name, "expected a file that Diff names as changed")
}

// freeze closes the view and moves the staged content into slots. It does so once.
func (tx *Tx) freeze() error {
	switch tx.state {
	case frozen:
		return nil
	case staging:
	default:
		return fsys.Errorf(Ended, "", "the transaction is over")
	}
	// A view can be read only once. If anything below fails, only Rollback may follow.
	tx.state = broken
	cs, err := tx.view.Changes()
	if errors.Is(err, fs.ErrPermission) {
		return fsys.Errorf(Refused, "", "expected files and directories that their owner can read: %v", err)
	}
	if err != nil {
		return err
	}
	slices.SortFunc(cs, func(a, b view.Staged) int { return fsys.Compare(a.Path, b.Path) })
	if tx.Layer() == nil { // a layer counts exactly, write by write
		if err := tx.stage.checkQuota(cs); err != nil {
			return err
		}
	}
	if err := tx.stage.fillSlots(cs); err != nil {
		return err
	}
	tx.stage.changes, tx.state = cs, frozen
	return tx.view.End()
}

// keepDir closes the transaction and leaves its directory for recovery.
func (tx *Tx) keepDir() error {
	defer tx.w.users.leave()
	err := tx.view.End()
	tx.stage.slots.Close()
	return errors.Join(err, tx.lock.Close())
}

// removeDir closes the view and removes the directory of the transaction.
func (tx *Tx) removeDir() error {
	defer tx.w.users.leave()
	if l := tx.Layer(); l != nil {
		tx.view.End()
	}
	if tx.stage.slots != nil {
		tx.stage.slots.Close()
	}
	err := tx.w.scratch.remove(tx.name)
	if tx.lock != nil {
		tx.lock.Close()
	}
	return err
}
