// Package publish does the operations of a commit and undoes them. Each operation
// is one rename between a slot and the workspace. Its slot shows whether it was
// done, so doing and undoing may be repeated after any crash. The package does not
// know what a commit is.
package publish

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// An Op is one step of publishing. With the slots, it says how to do the step,
// whether it was done, and how to undo it.
type Op struct {
	Do     string    `json:"do"`
	Path   []byte    `json:"path"` // may hold any bytes, so it is no JSON string
	Slot   string    `json:"slot,omitempty"`
	New    fsys.Hash `json:"new,omitzero"` // shape of the slot at first
	Old    fsys.Hash `json:"old,omitzero"` // shape of the path at first
	Before *Attr     `json:"before,omitempty"`
	After  *Attr     `json:"after,omitempty"`
}

// An Attr is the mode and time that an operation sets.
type Attr struct {
	Kind fsys.Kind   `json:"kind"`
	Mode fs.FileMode `json:"mode"`
	Time int64       `json:"time"`
}

// AttrOf returns the mode and time of an entry.
func AttrOf(e fsys.Entry) *Attr { return &Attr{e.Kind, e.Mode, e.Time} }

func (a *Attr) entry() fsys.Entry { return fsys.Entry{Kind: a.Kind, Mode: a.Mode, Time: a.Time} }

// At returns the path of the operation.
func (o *Op) At() string { return string(o.Path) }

func (o *Op) oldSlot() string { return o.Slot + ".old" }

// The operations; see the comment of package workspace.
const (
	Make   = "make"
	Swap   = "swap"
	Drop   = "drop"
	Adjust = "attr"
)

// A Publisher does operations on a workspace and undoes them.
type Publisher struct {
	Place *fsys.Handle       // the workspace
	Link  bool               // act as on a file system that cannot exchange
	Step  func(point string) // called before each step, so that a test can crash there
}

// Perform does every operation and checks its result.
func (p *Publisher) Perform(ops []Op, slots *fsys.Handle) error {
	for i := range ops {
		p.Step("op")
		if err := p.do(&ops[i], slots); err != nil {
			return err
		}
	}
	p.Step("ops")
	return nil
}

// do does one operation. It fails with a Conflict if the path does not hold what
// the plan saw.
func (p *Publisher) do(o *Op, slots *fsys.Handle) error {
	conflict := func(err error) error {
		return &fsys.Error{Code: fsys.Conflict, Paths: []string{o.At()}, Text: "changed by somebody else while it was being published; nothing was published", Err: err}
	}
	var err error
	// After a swap or a drop, the slot holds what was at the path. Its shape proves that nobody changed it since
	// the plan.
	check := o.Slot
	switch o.Do {
	case Make:
		err = p.Place.RenameNew(slots, o.Slot, o.At())
		check = ""
	case Swap:
		err = errors.ErrUnsupported
		if !p.Link {
			err = p.Place.Exchange(slots, o.Slot, o.At())
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return p.swapByLink(o, slots, conflict)
		}
	case Drop:
		err = p.Place.MoveTo(slots, o.At(), o.Slot)
	case Adjust:
		check = ""
		if o.After != nil {
			err = p.Place.SetAttr(o.At(), o.After.entry())
		}
	}
	if err != nil && fsys.ChangedOutside(err) {
		return conflict(err)
	}
	if err != nil || check == "" {
		return err
	}
	e, err := fsys.Look(slots, check)
	if err != nil {
		return err
	}
	if fsys.Shape(e) != o.Old {
		return conflict(nil)
	}
	return nil
}

// swapByLink is a swap on a file system that cannot exchange. It links the old file
// into the slots, then renames the new file over it. If one of the two is a
// directory, the old one is moved away first, and the path is missing for a moment.
func (p *Publisher) swapByLink(o *Op, slots *fsys.Handle, conflict func(error) error) error {
	put := p.Place.RenameOver
	slot, err := slots.Lstat(o.Slot)
	if err != nil {
		return err
	}
	// A directory cannot be linked, and no rename puts a directory in the place of a file.
	if slot.Kind == fsys.Dir || p.Place.LinkTo(slots, o.At(), o.oldSlot()) != nil {
		put = p.Place.RenameNew
		if err := p.Place.MoveTo(slots, o.At(), o.oldSlot()); err != nil {
			return conflict(err)
		}
	}
	e, err := fsys.Look(slots, o.oldSlot())
	if err != nil {
		return err
	}
	// The check comes before the rename over the path, which would replace a file that the plan never saw.
	if fsys.Shape(e) != o.Old {
		return conflict(nil)
	}
	p.Step("linked")
	return put(slots, o.Slot, o.At())
}

// Sync syncs every directory that an operation touched, and runs with beside that.
func (p *Publisher) Sync(ops []Op, slots *fsys.Handle, with ...func() error) error {
	dirs := map[string]bool{}
	var files []string
	for i := range ops {
		o := &ops[i]
		if o.Do != Adjust {
			// A rename is durable only when its directory is synced.
			dirs[path.Dir(o.At())] = true
		} else if o.Before.Kind == fsys.Dir {
			dirs[o.At()] = true
		} else {
			files = append(files, o.At())
		}
	}
	// One sync of the whole file system is cheaper than many single syncs.
	if len(dirs)+len(files) > 50 {
		if err := p.Place.SyncAll(); !errors.Is(err, errors.ErrUnsupported) {
			return errors.Join(err, fsys.RunAll(with))
		}
	}
	// The slots hold the undo information, so their directory must be on disk as well.
	jobs := append(with, func() error { return slots.SyncDir(".") })
	for d := range dirs {
		jobs = append(jobs, func() error { return p.syncOne(p.Place.SyncDir, d) })
	}
	for _, name := range files {
		jobs = append(jobs, func() error { return p.syncOne(p.syncFile, name) })
	}
	return fsys.RunAll(jobs)
}

// syncOne syncs one path. It tolerates what SetAttr tolerates: somebody else
// removed or replaced the path, so nothing of ours is left to sync there.
func (p *Publisher) syncOne(sync func(name string) error, name string) error {
	err := sync(name)
	switch {
	case err != nil && fsys.ChangedOutside(err):
		return nil
	// Only an open file can be synced. The whole file system is synced if its owner may not open the file.
	case errors.Is(err, fs.ErrPermission):
		return p.Place.SyncAllIfPossible()
	}
	return err
}

func (p *Publisher) syncFile(name string) error {
	e, err := p.Place.Lstat(name)
	// A FIFO or socket in the place of the file cannot be synced.
	if err != nil || e.Kind != fsys.File {
		return err
	}
	f, err := p.Place.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// isDone reports whether o was done, and which slot then holds the old content.
func (p *Publisher) isDone(o *Op, slots *fsys.Handle) (done bool, old string, err error) {
	e, err := fsys.Look(slots, o.Slot)
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return false, "", err
	}
	switch o.Do {
	case Make:
		return gone, "", nil
	case Drop:
		return !gone, o.Slot, nil
	}
	// Only a swap is left. Its slot holds something before and after it, so the shape decides.
	if !gone {
		done, err := p.isSwapped(o, fsys.Shape(e))
		return done, o.Slot, err
	}
	if _, err = slots.Lstat(o.oldSlot()); errors.Is(err, fs.ErrNotExist) {
		return false, "", nil // it was undone: the new content was moved back
	}
	return true, o.oldSlot(), err
}

// Undo undoes operations, last first, then restores modes and times. It returns the
// names of content that it could not restore, because somebody else changed the path.
func (p *Publisher) Undo(ops []Op, slots *fsys.Handle) (rescued []string, err error) {
	// The modes come first, because the owner cannot move a new directory that is read-only already.
	if err := p.restoreAttrs(ops); err != nil {
		return nil, err
	}
	for i := range slices.Backward(ops) {
		o := &ops[i]
		if o.Do == Adjust {
			continue
		}
		p.Step("undo")
		name, err := p.undoOne(o, slots)
		if err != nil {
			return rescued, err
		}
		if name != "" {
			rescued = append(rescued, name)
		}
	}
	// The times come last, because moving files changes the times of their directories.
	if err := p.restoreAttrs(ops); err != nil {
		return rescued, err
	}
	p.Step("taken back")
	return rescued, p.Sync(ops, slots)
}

// restoreAttrs sets the modes and times from before the operations.
func (p *Publisher) restoreAttrs(ops []Op) error {
	for i := range ops {
		o := &ops[i]
		if o.Do != Adjust {
			continue
		}
		p.Step("unattr")
		if err := p.Place.SetAttr(o.At(), o.Before.entry()); err != nil && !fsys.ChangedOutside(err) {
			return err
		}
	}
	return nil
}

// isSwapped reports whether a swap was done, given the shape of its slot. The shape
// is neither old nor new if somebody still writes to the old file, or if the slot
// never reached the disk. Then the path decides.
func (p *Publisher) isSwapped(o *Op, slot fsys.Hash) (bool, error) {
	if slot == o.New || slot == o.Old {
		return slot == o.Old, nil
	}
	now, err := fsys.Look(p.Place, o.At())
	if err != nil && !fsys.ChangedOutside(err) {
		return false, err
	}
	return err != nil || fsys.Shape(now) != o.Old, nil
}

func (p *Publisher) undoOne(o *Op, slots *fsys.Handle) (rescued string, err error) {
	done, old, err := p.isDone(o, slots)
	if err != nil {
		return "", err
	}
	if !done {
		if o.Do == Swap && old == "" { // undone by a rename, or never linked
			return "", nil
		}
		return "", p.unlinkOld(o, slots)
	}
	// Somebody may have changed the published path since. That content stays, and the replaced content is rescued.
	if o.Do != Drop {
		now, err := fsys.Look(p.Place, o.At())
		if err != nil && !fsys.ChangedOutside(err) {
			return "", err
		}
		if err != nil || fsys.Shape(now) != o.New {
			if errors.Is(err, fs.ErrNotExist) && old == "" {
				return "", nil // never made, or removed since
			}
			if old == "" {
				return o.At(), nil // somebody else changed what we made
			}
			return p.rescue(old, slots)
		}
	}
	switch {
	case o.Do == Make:
		err = p.Place.MoveTo(slots, o.At(), o.Slot)
	case o.Do == Drop:
		// Somebody may have made a new file at the path. It stays, and the old content is kept for a person.
		err = p.Place.RenameNew(slots, o.Slot, o.At())
		if fsys.ChangedOutside(err) {
			return p.rescue(o.Slot, slots)
		}
	case old == o.Slot:
		err = p.Place.Exchange(slots, o.Slot, o.At())
	default:
		// Without an exchange, a directory cannot be replaced in one step: ours moves away first.
		now, bad := p.Place.Lstat(o.At())
		was, err := slots.Lstat(old)
		if err = errors.Join(bad, err); err != nil {
			return "", err
		}
		if now.Kind == fsys.Dir || was.Kind == fsys.Dir {
			if err := p.Place.MoveTo(slots, o.At(), o.Slot); err != nil {
				return "", err
			}
			p.Step("moved")
			return "", p.Place.RenameNew(slots, old, o.At())
		}
		return "", p.Place.RenameOver(slots, old, o.At())
	}
	return "", err
}

// unlinkOld removes the link that swapByLink made before it was interrupted. A
// directory that was moved away goes back.
func (p *Publisher) unlinkOld(o *Op, slots *fsys.Handle) error {
	if o.Do != Swap {
		return nil
	}
	if _, err := slots.Lstat(o.oldSlot()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := p.Place.Lstat(o.At()); errors.Is(err, fs.ErrNotExist) {
		return p.Place.RenameNew(slots, o.oldSlot(), o.At())
	}
	return os.Remove(filepath.Join(slots.Name, o.oldSlot()))
}

// Redo does the operations that were not done. A path that somebody else changed
// stays; the content that belongs there is kept, and its names are returned.
func (p *Publisher) Redo(ops []Op, slots *fsys.Handle) (rescued []string, err error) {
	for i := range ops {
		o := &ops[i]
		p.Step("redo")
		if o.Do == Adjust {
			if o.After != nil {
				if err := p.Place.SetAttr(o.At(), o.After.entry()); err != nil && !fsys.ChangedOutside(err) {
					return rescued, err
				}
			}
			continue
		}
		done, _, err := p.isDone(o, slots)
		if err != nil {
			return rescued, err
		}
		if done {
			continue
		}
		// A swap by link may have stopped halfway. It is undone first, so that it can be done whole.
		if err := p.unlinkOld(o, slots); err != nil {
			return rescued, err
		}
		free, err := p.isFree(o)
		if err == nil && free {
			err = p.do(o, slots)
		}
		// The commit stands, so a path that somebody changed is no error: the content is kept for a person.
		if !free || fsys.Is(err, fsys.Conflict) {
			err = nil
			if o.Do != Drop {
				var name string
				if name, err = p.rescue(o.Slot, slots); err == nil {
					rescued = append(rescued, name)
				}
			}
		}
		if err != nil {
			return rescued, err
		}
	}
	p.Step("redone")
	return rescued, p.Sync(ops, slots)
}

// isFree reports whether the path of o still holds what the plan saw.
func (p *Publisher) isFree(o *Op) (bool, error) {
	now, err := fsys.Look(p.Place, o.At())
	switch {
	case err != nil && fsys.ChangedOutside(err):
		return o.Do == Make && errors.Is(err, fs.ErrNotExist), nil
	case err != nil:
		return false, err
	}
	return o.Do != Make && fsys.Shape(now) == o.Old, nil
}

// rescue moves the content of a slot to the directory "rescued", for a person.
func (p *Publisher) rescue(slot string, slots *fsys.Handle) (string, error) {
	top, tx := filepath.Split(filepath.Dir(slots.Name))
	dir := filepath.Join(top, "rescued")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, tx+"-"+slot)
	if err := os.Rename(filepath.Join(slots.Name, slot), name); err != nil {
		return "", err
	}
	return name, fsys.Sync(dir)
}

// Untouched reports, without slots, that no operation was done.
func (p *Publisher) Untouched(ops []Op) bool {
	for i := range ops {
		o := &ops[i]
		// A mode or time is the same before and after for many paths, so it proves nothing.
		if o.Do == Adjust {
			continue
		}
		now, err := fsys.Look(p.Place, o.At())
		if o.Do == Make {
			if err == nil && fsys.Shape(now) == o.New {
				return false
			}
		} else if err != nil || fsys.Shape(now) == o.New {
			return false
		}
	}
	return true
}
