package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Verdict decides a commit that is in doubt.
type Verdict int

// The verdicts.
const (
	Undo   Verdict = iota // it was not to be
	Finish                // it stands
)

// A State says what became of a commit.
type State string

// The states. A commit that was rolled back, or never published, is Unknown.
const (
	Unknown   State = "unknown"
	Doubtful  State = "in doubt" // published or partly; waits for Resolve
	Committed State = "committed"
)

// Outcome says what became of the commit whose Note had this ID; hash names it
// when it is committed.
func (w *Workspace) Outcome(id string) (state State, hash Hash, err error) {
	w.mu.Lock()
	p := w.log.pending
	w.mu.Unlock()
	if p != nil && p.Intent.Note.ID == id {
		return Doubtful, p.Commit, nil
	}
	h, ok, err := w.find(id)
	if err != nil || !ok {
		return Unknown, h, err
	}
	return Committed, h, nil
}

// Pending is the commit that is in doubt, if there is one.
func (w *Workspace) Pending() (Note, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.log.pending; p != nil {
		return p.Intent.Note, true
	}
	return Note{}, false
}

// Resolve decides the commit in doubt that an earlier holder of this workspace
// left. It names what could not be put where it should be because somebody else
// had changed it meanwhile: that is left alone, and ours is kept beside, under
// the names it returns. Resolving again after a crash goes on where it stopped.
func (w *Workspace) Resolve(ctx context.Context, id string, v Verdict) (rescued []string, err error) {
	release, err := w.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	p := w.log.pending
	if p == nil || p.Intent.Note.ID != id {
		return nil, errorf(Missing, "", "no commit %q is in doubt", id)
	}
	if rescued, err = w.settle(p, v); err != nil {
		return rescued, err
	}
	if err := w.scan(ctx, false); err != nil {
		return rescued, err
	}
	return rescued, errors.Join(w.putRefs(), w.recordOutside(ctx))
}

// recover decides what nobody else has to decide. The lock is held.
func (w *Workspace) recover() error {
	if p := w.log.pending; p != nil && p.Intent.Auto {
		_, err := w.settle(p, Undo)
		return err
	}
	return nil
}

// settle brings a commit in doubt to its end. Every step of it may be repeated.
func (w *Workspace) settle(p *record, v Verdict) (rescued []string, err error) {
	slots, err := w.scratch.sub(p.Intent.Slots + "/slots")
	if err != nil {
		return nil, errorf(Damaged, p.Intent.Slots, "the slots of commit %q are gone: %v", p.Intent.Note.ID, err)
	}
	defer slots.close()
	w.step("settling")
	if v == Finish {
		rescued, err = w.redo(p.Intent, slots)
	} else {
		rescued, err = w.undo(p.Intent, slots)
	}
	if err != nil {
		return rescued, err
	}
	w.step("settled")
	r := record{Kind: "undone"}
	if v == Finish {
		r = record{Kind: "seal", Seq: p.Seq, Commit: p.Commit, Side: p.Side}
	}
	if err := w.log.append(r); err != nil {
		return rescued, err
	}
	w.forget()
	w.step("logged")
	if v == Undo {
		w.hist.forget(p.Intent.Pack)
	}
	return rescued, w.remove(p.Intent.Slots)
}

// takeBack undoes a commit of this process. An outsider's change stays; then
// the error names it.
func (w *Workspace) takeBack(rec *record, slots *place) error {
	kept, err := w.undo(rec.Intent, slots)
	if err != nil {
		return err
	}
	if err := w.log.append(record{Kind: "undone"}); err != nil {
		return err
	}
	w.step("undone")
	w.hist.forget(rec.Intent.Pack)
	if len(kept) > 0 {
		e := errorf(Conflict, "", "rolled back, but somebody else changed what had been published; theirs was left, ours is kept there")
		e.Paths = kept
		return e
	}
	return nil
}

// done tells whether o was done, and where the old content then lies.
func (w *Workspace) done(o *op, slots *place) (done bool, old string, err error) {
	e, err := w.bare(slots, o.Slot)
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
func (w *Workspace) undo(in *intent, slots *place) (rescued []string, err error) {
	for i := range slices.Backward(in.Ops) {
		o := &in.Ops[i]
		if o.Do == opAttr {
			continue
		}
		w.step("undo")
		name, err := w.undoOne(in, o, slots)
		if err != nil {
			return rescued, err
		}
		if name != "" {
			rescued = append(rescued, name)
		}
	}
	for i := range in.Ops {
		o := &in.Ops[i]
		if o.Do != opAttr {
			continue
		}
		w.step("unattr")
		if err := w.place.attr(o.path(), o.Before.entry()); err != nil && !skippable(err) {
			return rescued, err
		}
	}
	w.step("taken back")
	return rescued, w.syncTouched(in, slots)
}

// skippable tells that a path is not what it was any more: somebody else's now.
func skippable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || isNotDir(err) || foreign(err)
}

func (w *Workspace) undoOne(in *intent, o *op, slots *place) (rescued string, err error) {
	done, old, err := w.done(o, slots)
	if err != nil {
		return "", err
	}
	if !done {
		if o.Do == opSwap && old == "" { // taken back by a rename, or never linked
			return "", nil
		}
		return "", w.unlinkOld(o, slots)
	}
	if o.Do != opDrop {
		now, err := w.bare(w.place, o.path())
		if err != nil && !skippable(err) {
			return "", err
		}
		if err != nil || shapeOf(now) != o.New {
			if old == "" {
				return o.path(), nil // what we made is theirs now
			}
			return w.rescue(in, old, slots)
		}
	}
	switch {
	case o.Do == opMake:
		err = w.place.drop(slots, o.path(), o.Slot)
	case o.Do == opDrop:
		err = w.place.make(slots, o.Slot, o.path())
		if skippable(err) {
			return w.rescue(in, o.Slot, slots)
		}
	case old == o.Slot:
		err = w.place.exchange(slots, o.Slot, o.path())
	default:
		now, bad := w.place.lstat(o.path())
		was, err := slots.lstat(old)
		if err = errors.Join(bad, err); err != nil {
			return "", err
		}
		if now.Kind == Dir || was.Kind == Dir {
			if err := w.place.drop(slots, o.path(), o.Slot); err != nil {
				return "", err
			}
			w.step("moved")
			return "", w.place.make(slots, old, o.path())
		}
		return "", w.place.over(slots, old, o.path())
	}
	return "", err
}

// unlinkOld removes the second name that doLinked gave a file it did not get
// to replace; a directory it had moved away goes back.
func (w *Workspace) unlinkOld(o *op, slots *place) error {
	if o.Do != opSwap {
		return nil
	}
	if _, err := slots.lstat(o.oldSlot()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := w.place.lstat(o.path()); errors.Is(err, fs.ErrNotExist) {
		return w.place.make(slots, o.oldSlot(), o.path())
	}
	return os.Remove(filepath.Join(slots.name, o.oldSlot()))
}

// redo does what is not done yet. What it finds in its way stays there.
func (w *Workspace) redo(in *intent, slots *place) (rescued []string, err error) {
	for i := range in.Ops {
		o := &in.Ops[i]
		w.step("redo")
		if o.Do == opAttr {
			if o.After != nil {
				if err := w.place.attr(o.path(), o.After.entry()); err != nil && !skippable(err) {
					return rescued, err
				}
			}
			continue
		}
		done, _, err := w.done(o, slots)
		if err != nil {
			return rescued, err
		}
		if done {
			continue
		}
		if err := w.unlinkOld(o, slots); err != nil {
			return rescued, err
		}
		clear, err := w.clear(o)
		if err == nil && clear {
			err = w.do(o, slots)
		}
		if !clear || isCodeOf(err, Conflict) {
			err = nil
			if o.Do != opDrop {
				var name string
				if name, err = w.rescue(in, o.Slot, slots); err == nil {
					rescued = append(rescued, name)
				}
			}
		}
		if err != nil {
			return rescued, err
		}
	}
	w.step("redone")
	return rescued, w.syncTouched(in, slots)
}

// clear tells that o's path still holds what the plan saw.
func (w *Workspace) clear(o *op) (bool, error) {
	now, err := w.bare(w.place, o.path())
	switch {
	case err != nil && skippable(err):
		return o.Do == opMake && errors.Is(err, fs.ErrNotExist), nil
	case err != nil:
		return false, err
	}
	return o.Do != opMake && shapeOf(now) == o.Old, nil
}

// rescue keeps a slot's content for a person to find.
func (w *Workspace) rescue(in *intent, slot string, slots *place) (string, error) {
	dir := filepath.Join(w.conf.Scratch, "rescued")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, in.Slots+"-"+slot)
	if err := os.Rename(filepath.Join(slots.name, slot), name); err != nil {
		return "", err
	}
	return name, syncPath(dir)
}

// sweep removes the transactions of holders that died. The lock is held.
func (w *Workspace) sweep() {
	ents, _ := os.ReadDir(w.conf.Scratch)
	for _, e := range ents {
		if e.Name() == "rescued" || w.log.pending != nil && w.log.pending.Intent.Slots == e.Name() {
			continue
		}
		if strings.HasPrefix(e.Name(), "trash-") {
			removeAll(filepath.Join(w.conf.Scratch, e.Name()))
			continue
		}
		f, err := os.OpenFile(filepath.Join(w.conf.Scratch, e.Name(), "lock"), os.O_RDWR, 0)
		if err != nil {
			if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > time.Minute {
				removeAll(filepath.Join(w.conf.Scratch, e.Name())) // else it may just be being made
			}
			continue
		}
		if ok, err := flock(f); ok && err == nil {
			w.remove(e.Name())
		}
		f.Close()
	}
}

// remove puts a transaction's directory out of sight, then away.
func (w *Workspace) remove(name string) error {
	dir := filepath.Join(w.conf.Scratch, name)
	if _, err := os.Lstat(filepath.Join(dir, "view")); err == nil {
		unmount(dir)
	}
	unshare(filepath.Join(dir, "slots"))
	gone := filepath.Join(w.conf.Scratch, "trash-"+name)
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	w.trash.Go(func() { removeAll(gone) })
	return nil
}

// unshare removes the slots that are further names of files in the workspace.
// Removing such a name changes the other's metadata, so it is done now and not
// at some time when somebody looks at it.
func unshare(slots string) {
	p, err := openPlace(slots)
	if err != nil {
		return
	}
	defer p.close()
	names, _ := p.names()
	if len(names) > 1000 {
		return // a scan will read those files once more; nothing else comes of it
	}
	for _, n := range names {
		if e, err := p.lstat(n); err == nil && e.Group != 0 {
			os.Remove(filepath.Join(slots, n))
		}
	}
}

// removeAll removes a tree of ours, whatever modes it was given.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
