// Package publish does the operations of a commit and takes them back. Each is
// one rename between a slot and the workspace, and each can be told to be done
// or not by looking at its slot, so doing and undoing may be repeated after
// any crash. It knows nothing of why.
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

// An Op is one step of publishing. Together with the slots it says how to do
// it, whether it is done, and how to undo it.
type Op struct {
	Do     string    `json:"do"`
	Path   []byte    `json:"path"` // any bytes, so not a JSON string
	Slot   string    `json:"slot,omitempty"`
	New    fsys.Hash `json:"new,omitzero"` // shape of what the slot holds at first
	Old    fsys.Hash `json:"old,omitzero"` // shape of what the path holds at first
	Before *Attr     `json:"before,omitempty"`
	After  *Attr     `json:"after,omitempty"`
}

type Attr struct {
	Kind fsys.Kind   `json:"kind"`
	Mode fs.FileMode `json:"mode"`
	Time int64       `json:"time"`
}

func AttrOf(e fsys.Entry) *Attr { return &Attr{e.Kind, e.Mode, e.Time} }

func (a *Attr) entry() fsys.Entry { return fsys.Entry{Kind: a.Kind, Mode: a.Mode, Time: a.Time} }

func (o *Op) At() string { return string(o.Path) }

func (o *Op) oldSlot() string { return o.Slot + ".old" }

// What an operation does; see the package comment.
const (
	Make   = "make"
	Swap   = "swap"
	Drop   = "drop"
	Adjust = "attr"
)

// A Hand does operations and takes them back. It knows the workspace, the
// slots it is given, and nothing of what a commit is.
type Hand struct {
	Place *fsys.Place        // the workspace
	Link  bool               // act as on a file system that cannot exchange
	Step  func(point string) // called before each step, for who wants to crash there
}

// Perform does every operation and looks at what came out.
func (h *Hand) Perform(ops []Op, slots *fsys.Place) error {
	for i := range ops {
		h.Step("op")
		if err := h.do(&ops[i], slots); err != nil {
			return err
		}
	}
	h.Step("ops")
	return nil
}

// do does one operation, or fails with a Conflict when the path does not hold
// what the plan saw.
func (h *Hand) do(o *Op, slots *fsys.Place) error {
	clash := func(err error) error {
		return &fsys.Error{Code: fsys.Conflict, Paths: []string{o.At()}, Text: "changed by somebody else while it was being published; nothing was published", Err: err}
	}
	var err error
	check := o.Slot
	switch o.Do {
	case Make:
		err = h.Place.Make(slots, o.Slot, o.At())
		check = ""
	case Swap:
		err = errors.ErrUnsupported
		if !h.Link {
			err = h.Place.Exchange(slots, o.Slot, o.At())
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return h.doLinked(o, slots, clash)
		}
	case Drop:
		err = h.Place.Drop(slots, o.At(), o.Slot)
	case Adjust:
		check = ""
		if o.After != nil {
			err = h.Place.Attr(o.At(), o.After.entry())
		}
	}
	if err != nil && fsys.Theirs(err) {
		return clash(err)
	}
	if err != nil || check == "" {
		return err
	}
	e, err := fsys.Look(slots, check)
	if err != nil {
		return err
	}
	if fsys.Shape(e) != o.Old {
		return clash(nil)
	}
	return nil
}

// doLinked is a swap on a file system that cannot exchange: what is there gets
// a second name in the slots, then the new file takes its place in one step.
// Where one of the two is a directory the old has to be moved away first, so
// the name is free for a moment.
func (h *Hand) doLinked(o *Op, slots *fsys.Place, clash func(error) error) error {
	put := h.Place.Over
	slot, err := slots.Lstat(o.Slot)
	if err != nil {
		return err
	}
	if slot.Kind == fsys.Dir || h.Place.Keep(slots, o.At(), o.oldSlot()) != nil {
		put = h.Place.Make
		if err := h.Place.Drop(slots, o.At(), o.oldSlot()); err != nil {
			return clash(err)
		}
	}
	e, err := fsys.Look(slots, o.oldSlot())
	if err != nil {
		return err
	}
	if fsys.Shape(e) != o.Old {
		return clash(nil)
	}
	h.Step("linked")
	return put(slots, o.Slot, o.At())
}

// Sync makes every directory that an operation touched last, and runs with
// beside that.
func (h *Hand) Sync(ops []Op, slots *fsys.Place, with ...func() error) error {
	dirs := map[string]bool{}
	var files []string
	for i := range ops {
		o := &ops[i]
		if o.Do != Adjust {
			dirs[path.Dir(o.At())] = true
		} else if o.Before.Kind == fsys.Dir {
			dirs[o.At()] = true
		} else {
			files = append(files, o.At())
		}
	}
	if len(dirs)+len(files) > 50 {
		if err := h.Place.SyncAll(); !errors.Is(err, errors.ErrUnsupported) {
			return errors.Join(err, fsys.Together(with))
		}
	}
	jobs := append(with, func() error { return slots.SyncDir(".") })
	for d := range dirs {
		jobs = append(jobs, func() error {
			if err := h.Place.SyncDir(d); err != nil && !fsys.Theirs(err) {
				return err
			}
			return nil // somebody else has taken the directory away
		})
	}
	for _, name := range files {
		jobs = append(jobs, func() error {
			f, err := h.Place.Open(name)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	}
	return fsys.Together(jobs)
}

// done tells whether o was done, and where the old content then lies.
func (h *Hand) done(o *Op, slots *fsys.Place) (done bool, old string, err error) {
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
	if !gone {
		done, err := h.swapped(o, fsys.Shape(e))
		return done, o.Slot, err
	}
	if _, err = slots.Lstat(o.oldSlot()); errors.Is(err, fs.ErrNotExist) {
		return false, "", nil // undone: the new content was moved back over nothing
	}
	return true, o.oldSlot(), err
}

// Undo takes operations back, last first, then puts modes and times back.
func (h *Hand) Undo(ops []Op, slots *fsys.Place) (rescued []string, err error) {
	for i := range slices.Backward(ops) {
		o := &ops[i]
		if o.Do == Adjust {
			continue
		}
		h.Step("undo")
		name, err := h.undoOne(o, slots)
		if err != nil {
			return rescued, err
		}
		if name != "" {
			rescued = append(rescued, name)
		}
	}
	for i := range ops {
		o := &ops[i]
		if o.Do != Adjust {
			continue
		}
		h.Step("unattr")
		if err := h.Place.Attr(o.At(), o.Before.entry()); err != nil && !fsys.Theirs(err) {
			return rescued, err
		}
	}
	h.Step("taken back")
	return rescued, h.Sync(ops, slots)
}

// swapped tells whether a swap was done whose slot has this shape. When it is
// neither what was to go nor what was to come, somebody still writes to what
// was replaced, or the slot never reached the disk: then the path tells.
func (h *Hand) swapped(o *Op, slot fsys.Hash) (bool, error) {
	if slot == o.New || slot == o.Old {
		return slot == o.Old, nil
	}
	now, err := fsys.Look(h.Place, o.At())
	if err != nil && !fsys.Theirs(err) {
		return false, err
	}
	return err != nil || fsys.Shape(now) != o.Old, nil
}

func (h *Hand) undoOne(o *Op, slots *fsys.Place) (rescued string, err error) {
	done, old, err := h.done(o, slots)
	if err != nil {
		return "", err
	}
	if !done {
		if o.Do == Swap && old == "" { // taken back by a rename, or never linked
			return "", nil
		}
		return "", h.unlinkOld(o, slots)
	}
	if o.Do != Drop {
		now, err := fsys.Look(h.Place, o.At())
		if err != nil && !fsys.Theirs(err) {
			return "", err
		}
		if err != nil || fsys.Shape(now) != o.New {
			if errors.Is(err, fs.ErrNotExist) && old == "" {
				return "", nil // never made, or taken away since
			}
			if old == "" {
				return o.At(), nil // what we made is theirs now
			}
			return h.rescue(old, slots)
		}
	}
	switch {
	case o.Do == Make:
		err = h.Place.Drop(slots, o.At(), o.Slot)
	case o.Do == Drop:
		err = h.Place.Make(slots, o.Slot, o.At())
		if fsys.Theirs(err) {
			return h.rescue(o.Slot, slots)
		}
	case old == o.Slot:
		err = h.Place.Exchange(slots, o.Slot, o.At())
	default:
		now, bad := h.Place.Lstat(o.At())
		was, err := slots.Lstat(old)
		if err = errors.Join(bad, err); err != nil {
			return "", err
		}
		if now.Kind == fsys.Dir || was.Kind == fsys.Dir {
			if err := h.Place.Drop(slots, o.At(), o.Slot); err != nil {
				return "", err
			}
			h.Step("moved")
			return "", h.Place.Make(slots, old, o.At())
		}
		return "", h.Place.Over(slots, old, o.At())
	}
	return "", err
}

// unlinkOld removes the second name that doLinked gave a file it did not get
// to replace; a directory it had moved away goes back.
func (h *Hand) unlinkOld(o *Op, slots *fsys.Place) error {
	if o.Do != Swap {
		return nil
	}
	if _, err := slots.Lstat(o.oldSlot()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := h.Place.Lstat(o.At()); errors.Is(err, fs.ErrNotExist) {
		return h.Place.Make(slots, o.oldSlot(), o.At())
	}
	return os.Remove(filepath.Join(slots.Name, o.oldSlot()))
}

// Redo does what is not done yet. What it finds in its way stays there.
func (h *Hand) Redo(ops []Op, slots *fsys.Place) (rescued []string, err error) {
	for i := range ops {
		o := &ops[i]
		h.Step("redo")
		if o.Do == Adjust {
			if o.After != nil {
				if err := h.Place.Attr(o.At(), o.After.entry()); err != nil && !fsys.Theirs(err) {
					return rescued, err
				}
			}
			continue
		}
		done, _, err := h.done(o, slots)
		if err != nil {
			return rescued, err
		}
		if done {
			continue
		}
		if err := h.unlinkOld(o, slots); err != nil {
			return rescued, err
		}
		clear, err := h.clear(o)
		if err == nil && clear {
			err = h.do(o, slots)
		}
		if !clear || fsys.Is(err, fsys.Conflict) {
			err = nil
			if o.Do != Drop {
				var name string
				if name, err = h.rescue(o.Slot, slots); err == nil {
					rescued = append(rescued, name)
				}
			}
		}
		if err != nil {
			return rescued, err
		}
	}
	h.Step("redone")
	return rescued, h.Sync(ops, slots)
}

// clear tells that o's path still holds what the plan saw.
func (h *Hand) clear(o *Op) (bool, error) {
	now, err := fsys.Look(h.Place, o.At())
	switch {
	case err != nil && fsys.Theirs(err):
		return o.Do == Make && errors.Is(err, fs.ErrNotExist), nil
	case err != nil:
		return false, err
	}
	return o.Do != Make && fsys.Shape(now) == o.Old, nil
}

// rescue keeps a slot's content for a person to find.
func (h *Hand) rescue(slot string, slots *fsys.Place) (string, error) {
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

// Untouched tells, without slots, that no operation was done.
func (h *Hand) Untouched(ops []Op) bool {
	for i := range ops {
		o := &ops[i]
		if o.Do == Adjust {
			continue
		}
		now, err := fsys.Look(h.Place, o.At())
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
