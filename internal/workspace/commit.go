package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
)

// Publish makes everything the transaction staged visible, durably, or nothing
// at all. Until [Tx.Seal] or [Tx.Rollback] the commit is in doubt and holds the
// workspace: a crash leaves it to [Workspace.Resolve]. The caller writes down
// in its own journal that the commit is to stand, then calls Seal.
//
// When Publish fails nothing was published and the transaction can only be
// rolled back; a Conflict names the paths.
func (tx *Tx) Publish(ctx context.Context, note Note) (*Commit, error) {
	return tx.publish(ctx, note, git.Transaction, false)
}

// Commit is Publish and Seal for a caller without a journal of its own: after
// a crash the workspace decides by itself, and takes back what was not sealed.
func (tx *Tx) Commit(ctx context.Context, note Note) (*Commit, error) {
	if note.ID == "" {
		note.ID = rand.Text()
	}
	c, err := tx.publish(ctx, note, git.Transaction, true)
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
		return nil, fsys.Errorf(Refused, "", "expected Note.ID, by which to ask for this commit after a crash")
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
	if err := w.tidy(); err != nil {
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
	root = root.Merge(p.before)
	next := root.Merge(p.after)
	in := &intent{Note: note, Auto: auto, Boot: boot(), Slots: tx.name, Ops: p.ops}
	rec, c, err := tx.record(ctx, root, next, in, kind)
	if err != nil {
		return nil, err
	}
	w.step("intent")
	if err := tx.perform(rec); err != nil {
		bad := w.takeBack(rec, tx.slots)
		if w.log.Pending() != nil {
			tx.state = doubtful
		}
		return nil, errors.Join(err, bad)
	}
	tx.state, tx.rec, tx.release = published, rec, release
	tx.next, tx.commit = tx.settled(next, p.after), c
	return c, nil
}

// perform does the operations and makes them last. When nobody else decides,
// the seal goes to the disk beside them: whichever comes first, recovery on
// another boot does again what did not.
func (tx *Tx) perform(rec *logRecord) error {
	w, ops := tx.w, rec.Intent.Ops
	if err := w.hand.Perform(ops, tx.slots); err != nil {
		return err
	}
	var with []func() error
	if rec.Intent.Auto {
		if err := w.log.Put(logRecord{Kind: kindSeal, Head: rec.Head}); err != nil {
			return err
		}
		w.step("sealing")
		with = append(with, w.syncLog)
	}
	err := w.hand.Sync(ops, tx.slots, with...)
	if err != nil && rec.Intent.Auto && w.log.Pending() == nil {
		tx.torn = err
		err = nil
	}
	w.step("dirs")
	return err
}

// syncLog is one of several syncs whose order is left to the disk.
func (w *Workspace) syncLog() error {
	err := w.log.Sync()
	w.step("log first")
	return err
}

// record writes the new state into the history and makes all of it last: what
// somebody else did to the directory as a commit of its own, then ours.
func (tx *Tx) record(ctx context.Context, root, next fsys.Item, in *intent, kind string) (*logRecord, *Commit, error) {
	w := tx.w
	last, err := w.lastNode()
	if err != nil {
		return nil, nil, err
	}
	slots := map[string]string{}
	for _, c := range tx.changes {
		if c.To != nil && c.To.Kind == File {
			slots[c.Path] = c.Slot
		}
	}
	r := git.NewRecorder(w.hist, w.content)
	if err := r.Tree(".", root.Dir, last); err != nil {
		return nil, nil, err
	}
	head, err := w.addOutside(r, root)
	if err != nil {
		return nil, nil, err
	}
	r.From(func(p string, e *fsys.Item) (*os.File, error) { return tx.slots.Open(slots[p]) })
	if err := r.Tree(".", next.Dir, root.Dir); err != nil {
		return nil, nil, err
	}
	c := &Commit{Kind: kind, Note: in.Note, Time: time.Now(), Digest: next.Dir.Digest()}
	head = r.Commit(c, next.Dir, head)
	pk, err := r.Write()
	if err != nil {
		return nil, nil, err
	}
	w.step("packed")
	in.Pack = pk.Name
	rec := &logRecord{Kind: kindIntent, Head: head, Intent: in}
	if err = w.log.Put(*rec); err == nil {
		w.step("written")
		err = tx.stage.sync(w.syncLog, pk.Sync, func() error { return fsys.Sync(w.hist.PackDir()) })
	}
	if err == nil {
		err = w.hist.Adopt(pk)
	}
	if err != nil {
		err = errors.Join(err, pk.Close(), w.log.Append(logRecord{Kind: kindUndone}))
		w.hist.Forget(in.Pack)
		if w.log.Pending() != nil {
			tx.state = doubtful
		}
		return nil, nil, err
	}
	return rec, c, nil
}

// settled gives next the metadata that publishing left: entries of next that
// were published are its own, so they may still be written to.
func (tx *Tx) settled(next fsys.Item, after []fsys.Edit) fsys.Item {
	for _, e := range after {
		if e.Item == nil {
			continue
		}
		x := next.Lookup(e.Path)
		if x == nil {
			continue
		}
		now, err := tx.w.place.Lstat(e.Path)
		if err != nil || now.Kind != x.Kind || x.Kind == File && now.Print.Ino != x.Print.Ino {
			x.Racy = true
			continue
		}
		x.Print, x.Time, x.Mode = now.Print, now.Time, now.Mode
	}
	return next
}

// Seal makes a published commit stand, durably, and ends the transaction. It
// fails only when the log cannot be written: then the commit is still in doubt,
// and Seal or Rollback may be called again.
func (tx *Tx) Seal() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state != published {
		return fsys.Errorf(Ended, "", "expected a transaction that Publish has published")
	}
	w := tx.w
	if !tx.rec.Intent.Auto {
		w.step("sealing")
		if err := w.log.Append(logRecord{Kind: kindSeal, Head: tx.rec.Head}); err != nil {
			return err
		}
	}
	w.step("sealed")
	tx.state = ended
	w.mu.Lock()
	w.root, w.last = tx.next, tx.next.Dir
	if w.ids != nil {
		w.ids[tx.commit.ID] = tx.commit.Hash
	}
	w.mu.Unlock()
	w.stale = false
	w.mu.Lock()
	w.upkeep = nil // it is tried again now
	w.mu.Unlock()
	err := w.keepUp()
	tx.release()
	if tx.torn != nil { // recovery may need the slots
		err = errors.Join(err, tx.close(), tx.torn)
	} else {
		err = errors.Join(err, tx.leave())
	}
	w.complain(err)
	return nil
}

// keepUp does what a commit leaves to do. It decides nothing: what fails is
// tried again at the next commit or the next Open.
func (w *Workspace) keepUp() error {
	err := w.putRefs()
	w.step("refs")
	if w.log.Full() {
		err = errors.Join(err, w.log.Rewrite())
	}
	w.room.trash.Go(func() { w.complain(w.hist.Gather()) })
	return err
}

// complain keeps what upkeep failed, for Close to tell.
func (w *Workspace) complain(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upkeep = errors.Join(w.upkeep, err)
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
		doubt := tx.w.log.Pending() != nil
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
