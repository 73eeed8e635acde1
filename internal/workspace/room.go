package workspace

import (
	"github.com/kern-run/kern/internal/workspace/fsys"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A room is where transactions are staged: a directory for each, locked while
// its holder lives.
type room struct {
	place *fsys.Place
	busy  chan struct{}  // a token for each removal that runs beside
	trash sync.WaitGroup // what is being removed, or joined in the history
}

// sweep removes the transactions of holders that died, but not the one in doubt. The lock is held.
func (r *room) sweep(pending string) {
	ents, _ := os.ReadDir(r.place.Name)
	for _, e := range ents {
		if e.Name() == "rescued" || e.Name() == pending {
			continue
		}
		if strings.HasPrefix(e.Name(), "trash-") {
			discard(filepath.Join(r.place.Name, e.Name()))
			continue
		}
		f, err := os.OpenFile(filepath.Join(r.place.Name, e.Name(), "lock"), os.O_RDWR, 0)
		if err != nil {
			if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > time.Minute {
				fsys.RemoveAll(filepath.Join(r.place.Name, e.Name())) // else it may just be being made
			}
			continue
		}
		if ok, err := fsys.TryLock(f); ok && err == nil {
			r.remove(e.Name())
		}
		f.Close()
	}
}

// remove puts a transaction's directory, with all that is mounted in it, out of
// sight, then away: a few beside each other, any more one after the other. What
// a crash leaves of it is swept.
func (r *room) remove(name string) error {
	dir := filepath.Join(r.place.Name, name)
	unshare(filepath.Join(dir, "slots"))
	gone := filepath.Join(r.place.Name, "trash-"+name)
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	select {
	case r.busy <- struct{}{}:
		r.trash.Go(func() { discard(gone); <-r.busy })
	default:
		discard(gone)
	}
	return nil
}

func discard(dir string) {
	if _, err := os.Lstat(filepath.Join(dir, "view")); err == nil {
		fsys.Unmount(dir)
	}
	fsys.RemoveAll(dir)
}

// unshare removes the slots that are further names of files in the workspace.
// Removing such a name changes the other's metadata, so it is done now and not
// at some time when somebody looks at it.
func unshare(slots string) {
	p, err := fsys.Open(slots)
	if err != nil {
		return
	}
	defer p.Close()
	names, _ := p.Names()
	if len(names) > 1000 {
		return // a scan will read those files once more; nothing else comes of it
	}
	for _, n := range names {
		if e, err := p.Lstat(n); err == nil && e.Group != 0 {
			os.Remove(filepath.Join(slots, n))
		}
	}
}
