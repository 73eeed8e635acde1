package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// An op is one step of publishing. Together with the slots it says how to do
// it, whether it is done, and how to undo it.
type op struct {
	Do     string `json:"do"`
	Path   []byte `json:"path"` // any bytes, so not a JSON string
	Slot   string `json:"slot,omitempty"`
	New    Hash   `json:"new,omitzero"` // shape of what the slot holds at first
	Old    Hash   `json:"old,omitzero"` // shape of what the path holds at first
	Before *attr  `json:"before,omitempty"`
	After  *attr  `json:"after,omitempty"`
}

type attr struct {
	Kind Kind        `json:"kind"`
	Mode fs.FileMode `json:"mode"`
	Time int64       `json:"time"`
}

func attrOf(e Entry) *attr { return &attr{e.Kind, e.Mode, e.Time} }

func (a *attr) entry() Entry { return Entry{Kind: a.Kind, Mode: a.Mode, Time: a.Time} }

func (o *op) path() string { return string(o.Path) }

func (o *op) oldSlot() string { return o.Slot + ".old" }

// What an operation does; see the package comment.
const (
	opMake = "make"
	opSwap = "swap"
	opDrop = "drop"
	opAttr = "attr"
)

// A hand does operations and takes them back. It knows the workspace, the
// slots it is given, and nothing of what a commit is.
type hand struct {
	place *place             // the workspace
	link  bool               // act as on a file system that cannot exchange
	step  func(point string) // called before each step, for who wants to crash there
}

// perform does every operation, looks at what came out, and syncs.
func (h *hand) perform(ops []op, slots *place) error {
	for i := range ops {
		h.step("op")
		if err := h.do(&ops[i], slots); err != nil {
			return err
		}
	}
	h.step("ops")
	if err := h.syncTouched(ops, slots); err != nil {
		return err
	}
	h.step("dirs")
	return nil
}

// do does one operation, or fails with a Conflict when the path does not hold
// what the plan saw.
func (h *hand) do(o *op, slots *place) error {
	clash := func(err error) error {
		return &Error{Conflict, []string{o.path()}, "changed by somebody else while it was being published; nothing was published", err}
	}
	var err error
	check := o.Slot
	switch o.Do {
	case opMake:
		err = h.place.make(slots, o.Slot, o.path())
		check = ""
	case opSwap:
		err = errors.ErrUnsupported
		if !h.link {
			err = h.place.exchange(slots, o.Slot, o.path())
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return h.doLinked(o, slots, clash)
		}
	case opDrop:
		err = h.place.drop(slots, o.path(), o.Slot)
	case opAttr:
		check = ""
		if o.After != nil {
			err = h.place.attr(o.path(), o.After.entry())
		}
	}
	if err != nil && skippable(err) {
		return clash(err)
	}
	if err != nil || check == "" {
		return err
	}
	e, err := bare(slots, check)
	if err != nil {
		return err
	}
	if shapeOf(e) != o.Old {
		return clash(nil)
	}
	return nil
}

// doLinked is a swap on a file system that cannot exchange: what is there gets
// a second name in the slots, then the new file takes its place in one step.
// Where one of the two is a directory the old has to be moved away first, so
// the name is free for a moment.
func (h *hand) doLinked(o *op, slots *place, clash func(error) error) error {
	put := h.place.over
	slot, err := slots.lstat(o.Slot)
	if err != nil {
		return err
	}
	if slot.Kind == Dir || h.place.keep(slots, o.path(), o.oldSlot()) != nil {
		put = h.place.make
		if err := h.place.drop(slots, o.path(), o.oldSlot()); err != nil {
			return clash(err)
		}
	}
	e, err := bare(slots, o.oldSlot())
	if err != nil {
		return err
	}
	if shapeOf(e) != o.Old {
		return clash(nil)
	}
	h.step("linked")
	return put(slots, o.Slot, o.path())
}

// syncTouched makes every directory that an operation touched last.
func (h *hand) syncTouched(ops []op, slots *place) error {
	dirs := map[string]bool{}
	var files []string
	for i := range ops {
		o := &ops[i]
		if o.Do != opAttr {
			dirs[path.Dir(o.path())] = true
		} else if o.Before.Kind == Dir {
			dirs[o.path()] = true
		} else {
			files = append(files, o.path())
		}
	}
	if len(dirs)+len(files) > 50 {
		if err := h.place.syncAll(); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	jobs := []func() error{func() error { return slots.syncDir(".") }}
	for d := range dirs {
		jobs = append(jobs, func() error {
			if err := h.place.syncDir(d); err != nil && !skippable(err) {
				return err
			}
			return nil // somebody else has taken the directory away
		})
	}
	for _, name := range files {
		jobs = append(jobs, func() error {
			f, err := h.place.open(name)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	}
	return together(jobs)
}

// done tells whether o was done, and where the old content then lies.
func (h *hand) done(o *op, slots *place) (done bool, old string, err error) {
	e, err := bare(slots, o.Slot)
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return false, "", err
	}
	switch o.Do {
	case opMake:
		return gone, "", nil
	case opDrop:
		return !gone, o.Slot, nil
	}
	if !gone {
		return shapeOf(e) != o.New, o.Slot, nil
	}
	if _, err = slots.lstat(o.oldSlot()); errors.Is(err, fs.ErrNotExist) {
		return false, "", nil // undone: the new content was moved back over nothing
	}
	return true, o.oldSlot(), err
}

// undo takes operations back, last first, then puts modes and times back.
func (h *hand) undo(ops []op, slots *place) (rescued []string, err error) {
	for i := range slices.Backward(ops) {
		o := &ops[i]
		if o.Do == opAttr {
			continue
		}
		h.step("undo")
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
		if o.Do != opAttr {
			continue
		}
		h.step("unattr")
		if err := h.place.attr(o.path(), o.Before.entry()); err != nil && !skippable(err) {
			return rescued, err
		}
	}
	h.step("taken back")
	return rescued, h.syncTouched(ops, slots)
}

func (h *hand) undoOne(o *op, slots *place) (rescued string, err error) {
	done, old, err := h.done(o, slots)
	if err != nil {
		return "", err
	}
	if !done {
		if o.Do == opSwap && old == "" { // taken back by a rename, or never linked
			return "", nil
		}
		return "", h.unlinkOld(o, slots)
	}
	if o.Do != opDrop {
		now, err := bare(h.place, o.path())
		if err != nil && !skippable(err) {
			return "", err
		}
		if err != nil || shapeOf(now) != o.New {
			if old == "" {
				return o.path(), nil // what we made is theirs now
			}
			return h.rescue(old, slots)
		}
	}
	switch {
	case o.Do == opMake:
		err = h.place.drop(slots, o.path(), o.Slot)
	case o.Do == opDrop:
		err = h.place.make(slots, o.Slot, o.path())
		if skippable(err) {
			return h.rescue(o.Slot, slots)
		}
	case old == o.Slot:
		err = h.place.exchange(slots, o.Slot, o.path())
	default:
		now, bad := h.place.lstat(o.path())
		was, err := slots.lstat(old)
		if err = errors.Join(bad, err); err != nil {
			return "", err
		}
		if now.Kind == Dir || was.Kind == Dir {
			if err := h.place.drop(slots, o.path(), o.Slot); err != nil {
				return "", err
			}
			h.step("moved")
			return "", h.place.make(slots, old, o.path())
		}
		return "", h.place.over(slots, old, o.path())
	}
	return "", err
}

// unlinkOld removes the second name that doLinked gave a file it did not get
// to replace; a directory it had moved away goes back.
func (h *hand) unlinkOld(o *op, slots *place) error {
	if o.Do != opSwap {
		return nil
	}
	if _, err := slots.lstat(o.oldSlot()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := h.place.lstat(o.path()); errors.Is(err, fs.ErrNotExist) {
		return h.place.make(slots, o.oldSlot(), o.path())
	}
	return os.Remove(filepath.Join(slots.name, o.oldSlot()))
}

// redo does what is not done yet. What it finds in its way stays there.
func (h *hand) redo(ops []op, slots *place) (rescued []string, err error) {
	for i := range ops {
		o := &ops[i]
		h.step("redo")
		if o.Do == opAttr {
			if o.After != nil {
				if err := h.place.attr(o.path(), o.After.entry()); err != nil && !skippable(err) {
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
		if !clear || isCodeOf(err, Conflict) {
			err = nil
			if o.Do != opDrop {
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
	h.step("redone")
	return rescued, h.syncTouched(ops, slots)
}

// clear tells that o's path still holds what the plan saw.
func (h *hand) clear(o *op) (bool, error) {
	now, err := bare(h.place, o.path())
	switch {
	case err != nil && skippable(err):
		return o.Do == opMake && errors.Is(err, fs.ErrNotExist), nil
	case err != nil:
		return false, err
	}
	return o.Do != opMake && shapeOf(now) == o.Old, nil
}

// rescue keeps a slot's content for a person to find.
func (h *hand) rescue(slot string, slots *place) (string, error) {
	top, tx := filepath.Split(filepath.Dir(slots.name))
	dir := filepath.Join(top, "rescued")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, tx+"-"+slot)
	if err := os.Rename(filepath.Join(slots.name, slot), name); err != nil {
		return "", err
	}
	return name, syncPath(dir)
}
