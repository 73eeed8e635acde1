package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// What an operation does; see the package comment.
const (
	opMake = "make"
	opSwap = "swap"
	opDrop = "drop"
	opAttr = "attr"
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

func attrOf(e Entry) *attr    { return &attr{e.Kind, e.Mode, e.Time} }
func (a *attr) entry() Entry  { return Entry{Kind: a.Kind, Mode: a.Mode, Time: a.Time} }
func (o *op) path() string    { return string(o.Path) }
func (o *op) oldSlot() string { return o.Slot + ".old" }

// Publish makes everything the transaction staged visible, durably, or nothing
// at all. Until [Tx.Seal] or [Tx.Rollback] the commit is in doubt and holds the
// workspace: a crash leaves it to [Workspace.Resolve]. The caller writes down
// in its own journal that the commit is to stand, then calls Seal.
//
// When Publish fails nothing was published and the transaction can only be
// rolled back; a Conflict names the paths.
func (tx *Tx) Publish(ctx context.Context, note Note) (*Commit, error) {
	return tx.publish(ctx, note, Transaction, false)
}

// Commit is Publish and Seal for a caller without a journal of its own: after
// a crash the workspace decides by itself, and takes back what was not sealed.
func (tx *Tx) Commit(ctx context.Context, note Note) (*Commit, error) {
	if note.ID == "" {
		note.ID = rand.Text()
	}
	c, err := tx.publish(ctx, note, Transaction, true)
	if err == nil {
		err = tx.Seal()
	}
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return c, nil
}

func (tx *Tx) publish(ctx context.Context, note Note, kind string, auto bool) (c *Commit, err error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if note.ID == "" {
		return nil, errorf(Refused, "", "expected Note.ID, by which to ask for this commit after a crash")
	}
	if err := tx.freeze(); err != nil {
		return nil, err
	}
	w := tx.w
	w.step("frozen")
	release, err := w.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	w.step("locked")
	if err := w.recover(); err != nil {
		return nil, err
	}
	if err := w.free(note.ID); err != nil {
		return nil, err
	}
	if err := w.recordable(ctx); err != nil {
		return nil, err
	}
	root := w.known()
	p, err := tx.plan(root, tx.changes)
	if err != nil {
		return nil, err
	}
	w.step("checked")
	root = root.merge(p.before)
	next := root.merge(p.after)
	rec, c, err := tx.record(ctx, root, next, note, kind)
	if err != nil {
		return nil, err
	}
	rec.Intent = &intent{Note: note, Auto: auto, Slots: tx.name, Pack: rec.Intent.Pack, Ops: p.ops}
	w.step("synced")
	if err := w.log.append(*rec); err != nil {
		w.hist.forget(rec.Intent.Pack)
		return nil, err
	}
	w.step("intent")
	if err := w.perform(rec.Intent, tx.slots); err != nil {
		bad := w.takeBack(rec, tx.slots)
		if w.log.pending != nil {
			tx.state = doubtful
		}
		return nil, errors.Join(err, bad)
	}
	tx.state, tx.rec, tx.release = published, rec, release
	tx.next, tx.commit = tx.settled(next, p.after), c
	return c, nil
}

// free tells that nothing stands in the way of a commit called id.
func (w *Workspace) free(id string) error {
	if p := w.log.pending; p != nil {
		return errorf(InDoubt, "", "commit %q waits for Resolve", p.Intent.Note.ID)
	}
	h, ok, err := w.find(id)
	if err == nil && ok {
		err = errorf(Refused, "", "commit %q was published before, as %s", id, h)
	}
	return err
}

// recordable makes sure that what is known of the directory and not in the
// history yet can still be read there; if not, it looks again.
func (w *Workspace) recordable(ctx context.Context) error {
	last, err := w.lastNode()
	for try := 0; err == nil; try++ {
		r := newRecorder(w.hist, func(p string, e *entry) (*os.File, error) { return w.place.open(p) })
		err = r.tree(".", w.known().dir, last)
		if err == nil || try == 5 || !isCodeOf(err, Busy) && !skippable(err) {
			return err
		}
		err = w.scan(ctx, false)
	}
	return err
}

// record writes the new state into the history and makes all of it last: what
// somebody else did to the directory as a commit of its own, then ours.
func (tx *Tx) record(ctx context.Context, root, next entry, note Note, kind string) (*record, *Commit, error) {
	w := tx.w
	last, err := w.lastNode()
	if err != nil {
		return nil, nil, err
	}
	if err := w.hist.room(w.log.commit); err != nil {
		return nil, nil, err
	}
	slots := map[string]string{}
	for _, c := range tx.changes {
		if c.e != nil && c.e.Kind == File {
			slots[c.path] = c.slot
		}
	}
	outside := newRecorder(w.hist, func(p string, e *entry) (*os.File, error) { return w.place.open(p) })
	if err := outside.tree(".", root.dir, last); err != nil {
		return nil, nil, err
	}
	rec := &record{Kind: "intent", Seq: w.log.seq, Commit: w.log.commit, Side: w.log.side}
	if err := w.addOutside(outside, root, rec); err != nil {
		return nil, nil, err
	}
	ours := newRecorder(w.hist, func(p string, e *entry) (*os.File, error) { return tx.slots.open(slots[p]) })
	ours.seen = outside.seen
	if err := ours.tree(".", next.dir, root.dir); err != nil {
		return nil, nil, err
	}
	ours.objs = slices.Concat(outside.objs, ours.objs)
	c := &Commit{Kind: kind, Note: note, Time: time.Now(), Digest: next.dir.digest()}
	ours.commit(c, next.dir, rec)
	pk, err := w.hist.add(ours.objs)
	if err != nil {
		return nil, nil, err
	}
	w.step("packed")
	rec.Intent = &intent{Pack: pk.name}
	if err := tx.sync(pk); err != nil {
		pk.f.Close()
		return nil, nil, err
	}
	return rec, c, w.hist.adopt(pk)
}

// sync makes slots, their directories and the pack last. Syncs of one moment
// share the file system's own commit, so they are started together.
func (tx *Tx) sync(pk *pack) error {
	jobs := []func() error{pk.f.Sync, func() error { return syncPath(tx.w.hist.packDir()) }}
	n := 0
	for _, c := range tx.changes {
		if c.e != nil && c.e.Kind == File {
			n++
		}
	}
	if n+len(tx.made) > 100 {
		err := tx.slots.syncAll()
		if !errors.Is(err, errors.ErrUnsupported) {
			return errors.Join(err, together(jobs))
		}
	}
	err := filepath.WalkDir(tx.slots.name, func(p string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) {
			jobs = append(jobs, func() error { return syncPath(p) })
		}
		return err
	})
	return errors.Join(err, together(append(jobs, func() error { return syncPath(tx.dir.name) })))
}

// together runs jobs a few at a time.
func together(jobs []func() error) error {
	errs := make([]error, len(jobs))
	var wg sync.WaitGroup
	sem := make(chan struct{}, 8)
	for i, job := range jobs {
		sem <- struct{}{}
		wg.Go(func() { errs[i] = job(); <-sem })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func syncPath(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// perform does every operation, looks at what came out, and syncs.
func (w *Workspace) perform(in *intent, slots *place) error {
	for i := range in.Ops {
		w.step("op")
		if err := w.do(&in.Ops[i], slots); err != nil {
			return err
		}
	}
	w.step("ops")
	if err := w.syncTouched(in, slots); err != nil {
		return err
	}
	w.step("dirs")
	return nil
}

// do does one operation, or fails with a Conflict when the path does not hold
// what the plan saw.
func (w *Workspace) do(o *op, slots *place) error {
	clash := func(err error) error {
		return &Error{Conflict, []string{o.path()}, "changed by somebody else while it was being published; nothing was published", err}
	}
	var err error
	check := o.Slot
	switch o.Do {
	case opMake:
		err = w.place.make(slots, o.Slot, o.path())
		check = ""
	case opSwap:
		err = errors.ErrUnsupported
		if !w.link {
			err = w.place.exchange(slots, o.Slot, o.path())
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return w.doLinked(o, slots, clash)
		}
	case opDrop:
		err = w.place.drop(slots, o.path(), o.Slot)
	case opAttr:
		check = ""
		if o.After != nil {
			err = w.place.attr(o.path(), o.After.entry())
		}
	}
	if err != nil && skippable(err) {
		return clash(err)
	}
	if err != nil || check == "" {
		return err
	}
	e, err := w.bare(slots, check)
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
func (w *Workspace) doLinked(o *op, slots *place, clash func(error) error) error {
	put := w.place.over
	slot, err := slots.lstat(o.Slot)
	if err != nil {
		return err
	}
	if slot.Kind == Dir || w.place.keep(slots, o.path(), o.oldSlot()) != nil {
		put = w.place.make
		if err := w.place.drop(slots, o.path(), o.oldSlot()); err != nil {
			return clash(err)
		}
	}
	e, err := w.bare(slots, o.oldSlot())
	if err != nil {
		return err
	}
	if shapeOf(e) != o.Old {
		return clash(nil)
	}
	w.step("linked")
	return put(slots, o.Slot, o.path())
}

// syncTouched makes every directory that an operation touched last.
func (w *Workspace) syncTouched(in *intent, slots *place) error {
	dirs := map[string]bool{}
	var files []string
	for i := range in.Ops {
		o := &in.Ops[i]
		if o.Do != opAttr {
			dirs[path.Dir(o.path())] = true
		} else if o.Before.Kind == Dir {
			dirs[o.path()] = true
		} else {
			files = append(files, o.path())
		}
	}
	if len(dirs)+len(files) > 50 {
		if err := w.place.syncAll(); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	jobs := []func() error{func() error { return slots.syncDir(".") }}
	for d := range dirs {
		jobs = append(jobs, func() error {
			if err := w.place.syncDir(d); err != nil && !skippable(err) {
				return err
			}
			return nil // somebody else has taken the directory away
		})
	}
	for _, name := range files {
		jobs = append(jobs, func() error {
			f, err := w.place.open(name)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	}
	return together(jobs)
}

// settled gives next the metadata that publishing left: entries of next that
// were published are its own, so they may still be written to.
func (tx *Tx) settled(next entry, after []edit) entry {
	for _, e := range after {
		if e.e == nil {
			continue
		}
		x := next.lookup(e.path)
		if x == nil {
			continue
		}
		now, err := tx.w.place.lstat(e.path)
		if err != nil || now.Kind != x.Kind || x.Kind == File && now.fp.ino != x.fp.ino {
			x.racy = true
			continue
		}
		x.fp, x.Time, x.Mode = now.fp, now.Time, now.Mode
	}
	return next
}

// Seal makes a published commit stand, durably, and ends the transaction.
func (tx *Tx) Seal() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state != published {
		return errorf(Ended, "", "expected a transaction that Publish has published")
	}
	w := tx.w
	w.step("sealing")
	if err := w.log.append(record{Kind: "seal", Seq: tx.rec.Seq, Commit: tx.rec.Commit, Side: tx.rec.Side}); err != nil {
		return err
	}
	w.step("sealed")
	tx.state = ended
	w.mu.Lock()
	w.root, w.last = tx.next, tx.next.dir
	if w.ids != nil {
		w.ids[tx.commit.ID] = tx.commit.Hash
	}
	w.mu.Unlock()
	err := w.putRefs()
	w.step("refs")
	if w.log.off > logFull {
		err = errors.Join(err, w.log.rewrite())
	}
	err = errors.Join(err, w.hist.gather())
	tx.release()
	return errors.Join(err, tx.leave())
}

// Rollback takes back whatever the transaction did, also after Publish, and
// ends it. After Seal it does nothing.
func (tx *Tx) Rollback() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch tx.state {
	case ended:
		return nil
	case doubtful:
		tx.state = ended
		return tx.close()
	case published:
		err := tx.w.takeBack(tx.rec, tx.slots)
		doubt := tx.w.log.pending != nil
		tx.release()
		if doubt { // the intent stands, and its slots with it; recovery repeats this
			tx.state = ended
			return errors.Join(err, tx.close())
		}
		if err != nil {
			tx.state = ended
			return errors.Join(err, tx.leave())
		}
	}
	tx.state = ended
	return tx.leave()
}

func (w *Workspace) putRefs() error {
	if w.log.commit.IsZero() {
		return nil
	}
	return errors.Join(w.hist.setRef(refMain, w.log.commit), w.hist.setRef(refMeta, w.log.side))
}
