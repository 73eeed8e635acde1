package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A scratch is the directory in which transactions are staged. Each transaction
// has a directory of its own, which is locked while its holder lives.
type scratch struct {
	place      *fsys.Handle
	removals   chan struct{}  // a token for each removal in the background
	background sync.WaitGroup // removals, and upkeep of the history
}

// sweep removes the transactions of dead holders, except the one in doubt. The
// lock is held.
func (r *scratch) sweep(pending string) {
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
				fsys.RemoveAll(filepath.Join(r.place.Name, e.Name())) // a younger directory may still be in the making
			}
			continue
		}
		// The system releases the lock of a dead holder, so a lock that is free has no holder.
		if ok, err := fsys.TryLock(f); ok && err == nil {
			r.remove(e.Name())
		}
		f.Close()
	}
}

// remove renames the directory of a transaction and then removes it with all its
// mounts. A few removals run in the background; more of them wait in line. If a
// crash interrupts a removal, sweep finishes it.
func (r *scratch) remove(name string) error {
	dir := filepath.Join(r.place.Name, name)
	unshare(filepath.Join(dir, "slots"))
	// The rename makes the removal certain: a crash leaves trash for sweep and never half a transaction.
	trash := filepath.Join(r.place.Name, "trash-"+name)
	if err := os.Rename(dir, trash); err != nil {
		return err
	}
	// The bound keeps a burst of transactions from filling the disk with trash.
	select {
	case r.removals <- struct{}{}:
		r.background.Go(func() { discard(trash); <-r.removals })
	default:
		discard(trash)
	}
	return nil
}

func discard(dir string) {
	// Only a transaction with a view directory can have mounts.
	if _, err := os.Lstat(filepath.Join(dir, "view")); err == nil {
		fsys.Unmount(dir)
	}
	fsys.RemoveAll(dir)
}

// unshare removes the slots that are hard links to files of the workspace.
// Removing a link changes the metadata of the file, so it must not happen in the
// background while somebody looks at the file.
func unshare(slots string) {
	p, err := fsys.Open(slots)
	if err != nil {
		return
	}
	defer p.Close()
	names, _ := p.Names()
	if len(names) > 1000 {
		return // then a scan reads those files once more, and nothing else happens
	}
	for _, n := range names {
		if e, err := p.Lstat(n); err == nil && e.Group != 0 {
			os.Remove(filepath.Join(slots, n))
		}
	}
}
