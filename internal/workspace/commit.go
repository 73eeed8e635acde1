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

// Publish makes all staged changes visible and durable, or none. Until [Tx.Seal]
// or [Tx.Rollback] the commit is in doubt and locks the workspace; after a crash,
// [Workspace.Resolve] decides it. The caller writes into its own journal that the
// commit stands, then calls Seal.
//
// If Publish fails, nothing was published, and only Rollback may follow. A
// Conflict names the paths.
func (tx *Tx) Publish(ctx context.Context, note Note) (*Commit, error) {
	return tx.publish(ctx, note, git.Transaction, false)
}

// Commit is Publish and Seal for a caller without a journal of its own. After a
// crash the workspace decides by itself: it rolls back a commit without a seal.
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
	// Without an ID nobody could ask after a crash whether this commit stands.
	if note.ID == "" {
		return nil, fsys.Errorf(Refused, "", "expected Note.ID, by which to ask for this commit after a crash")
	}
	if err := tx.freeze(); err != nil {
		return nil, err
	}
	// From here to Seal or Rollback the lock is held.
	w := tx.w
	w.committer.step("frozen")
	release, err := w.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	w.committer.step("locked")
	if w.Replaced() {
		return nil, fsys.Errorf(Conflict, "", "the directory %s was removed or replaced by another since the transaction began; nothing was published", w.Dir())
	}
	// A holder that died may have left operations half done. Nothing may be planned on top of them.
	if err := w.committer.undoUnsealed(); err != nil {
		return nil, err
	}
	// Without a scan, a commit of another process would be recorded as taken back from outside.
	if err := w.index.refresh(ctx); err != nil {
		return nil, err
	}
	// Two commits with one ID would make the answer of Outcome ambiguous after a crash.
	if err := w.repo.checkUnused(note.ID); err != nil {
		return nil, err
	}
	// A history that is full refuses the commit here, where nothing is published yet.
	if err := w.repo.makeRoom(); err != nil {
		return nil, err
	}
	if err := w.repo.ensureReadable(ctx); err != nil {
		return nil, err
	}
	root := w.index.current()
	p, err := tx.stage.plan(root, tx.stage.changes)
	if err != nil {
		return nil, err
	}
	w.committer.step("checked")
	// The history first gets what somebody else changed, then this commit.
	root = root.Merge(p.before)
	next := root.Merge(p.after)
	// The boot is recorded because a power failure, unlike a kill, may lose operations that the seal promises.
	in := &intent{Note: note, Auto: auto, Boot: boot(), Slots: tx.name, Ops: p.ops}
	rec, c, err := tx.writeHistory(ctx, root, next, in, kind)
	if err != nil {
		return nil, err
	}
	w.committer.step("intent")
	if err := tx.performOps(rec); err != nil {
		// If the rollback fails too, the intent stays in the log, and recovery needs the slots.
		bad := w.committer.rollBack(rec, tx.stage.slots)
		if w.repo.log.Pending() != nil {
			tx.state = doubtful
		}
		return nil, errors.Join(err, bad)
	}
	tx.state, tx.rec, tx.release = published, rec, release
	tx.next, tx.commit = tx.readBack(next, p.after), c
	return c, nil
}

// performOps does the operations and syncs them. If only this log decides, the
// seal goes to the disk beside them. Whichever arrives first, recovery on another
// boot repeats the rest.
func (tx *Tx) performOps(rec *logRecord) error {
	w, ops := tx.w, rec.Intent.Ops
	if err := w.committer.publisher.Perform(ops, tx.stage.slots); err != nil {
		return err
	}
	var with []func() error
	if rec.Intent.Auto {
		if err := w.repo.log.Put(logRecord{Kind: kindSeal, Head: rec.Head}); err != nil {
			return err
		}
		w.committer.step("sealing")
		with = append(with, w.committer.syncLog)
	}
	err := w.committer.publisher.Sync(ops, tx.stage.slots, with...)
	// The seal is on disk, so the commit stands. Seal keeps the slots, so that recovery can repeat the operations.
	if err != nil && rec.Intent.Auto && w.repo.log.Pending() == nil {
		tx.syncErr = err
		err = nil
	}
	w.committer.step("dirs")
	return err
}

// writeHistory writes the new state into the history and syncs it, together with
// the intent and the slots. Changes from outside become a commit of their own,
// before this one.
func (tx *Tx) writeHistory(ctx context.Context, root, next fsys.Item, in *intent, kind string) (*logRecord, *Commit, error) {
	w := tx.w
	last, err := w.repo.lastNode()
	if err != nil {
		return nil, nil, err
	}
	// New content is read from the slots, because its paths still hold the old content.
	slots := map[string]string{}
	for _, c := range tx.stage.changes {
		if c.To != nil && c.To.Kind == File {
			slots[c.Path] = c.Slot
		}
	}
	r := git.NewRecorder(w.repo.hist, w.repo.openContent)
	// The state before the commit is recorded first. Otherwise changes from outside would count as changes of this
	// commit.
	if err := r.Tree(".", root.Dir, last); err != nil {
		return nil, nil, err
	}
	head, err := w.repo.addOutside(r, root)
	if err != nil {
		return nil, nil, err
	}
	r.ReadFrom(func(p string, e *fsys.Item) (*os.File, error) { return tx.stage.slots.Open(slots[p]) })
	if err := r.Tree(".", next.Dir, root.Dir); err != nil {
		return nil, nil, err
	}
	c := &Commit{Kind: kind, Note: in.Note, Time: time.Now(), Digest: next.Dir.Digest()}
	head = r.Commit(c, next.Dir, head)
	pk, err := r.Write()
	if err != nil {
		return nil, nil, err
	}
	w.committer.step("packed")
	in.Pack = pk.Name
	rec := &logRecord{Kind: kindIntent, Head: head, Intent: in}
	// Log, slots and pack are synced beside each other. No operation begins before all are on disk, so their order
	// is free.
	if err = w.repo.log.Put(*rec); err == nil {
		w.committer.step("written")
		err = tx.stage.syncSlots(w.committer.syncLog, pk.Sync, func() error { return fsys.Sync(w.repo.hist.Objects.PackDir()) })
	}
	if err == nil {
		// The index of the pack is written only now, because a whole index proves that its pack is whole.
		err = w.repo.hist.Objects.Adopt(pk)
	}
	if err != nil {
		// Nothing was published, but the intent may already be on disk. Undone takes it back.
		err = errors.Join(err, pk.Close(), w.repo.log.Append(logRecord{Kind: kindUndone}))
		w.repo.hist.Objects.Forget(in.Pack)
		if w.repo.log.Pending() != nil {
			tx.state = doubtful
		}
		return nil, nil, err
	}
	return rec, c, nil
}

// readBack updates next with the metadata of the published files. Only next holds
// these entries so far, so they may still change.
func (tx *Tx) readBack(next fsys.Item, after []fsys.Edit) fsys.Item {
	for _, e := range after {
		if e.Item == nil {
			continue
		}
		x := next.Lookup(e.Path)
		if x == nil {
			continue
		}
		now, err := tx.w.index.place.Lstat(e.Path)
		// Somebody else already changed the path. A racy entry makes the next scan read it.
		if err != nil || now.Kind != x.Kind || x.Kind == File && now.Print.Ino != x.Print.Ino {
			x.Racy = true
			continue
		}
		x.Print, x.Time, x.Mode = now.Print, now.Time, now.Mode
	}
	return next
}

// Seal makes a published commit stand and ends the transaction. It fails only if
// the log cannot be written. Then the commit is still in doubt, and the caller may
// call Seal or Rollback again.
func (tx *Tx) Seal() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state != published {
		return fsys.Errorf(Ended, "", "expected a transaction that Publish has published")
	}
	w := tx.w
	// Commit wrote its seal together with the directories; only a caller with its own journal seals here.
	if !tx.rec.Intent.Auto {
		w.committer.step("sealing")
		if err := w.repo.log.Append(logRecord{Kind: kindSeal, Head: tx.rec.Head}); err != nil {
			return err
		}
	}
	w.committer.step("sealed")
	// From here the commit stands, whatever fails below. So errors of the upkeep are kept for Close.
	tx.state = ended
	w.index.mu.Lock()
	w.index.root, w.index.last = tx.next, tx.next.Dir
	w.index.mu.Unlock()
	w.repo.stale = false
	w.index.mu.Lock()
	w.upkeep = nil // the upkeep runs again now
	w.index.mu.Unlock()
	err := w.runUpkeep()
	tx.release()
	if tx.syncErr != nil { // recovery may need the slots
		err = errors.Join(err, tx.keepDir(), tx.syncErr)
	} else {
		err = errors.Join(err, tx.removeDir())
	}
	w.noteUpkeep(err)
	return nil
}

// runUpkeep updates refs, log and packs after a commit. It decides nothing. A part
// that fails runs again at the next commit or the next Open.
func (w *Workspace) runUpkeep() error {
	err := w.repo.putRefs()
	w.committer.step("refs")
	if w.repo.log.Full() {
		err = errors.Join(err, w.repo.log.Rewrite())
	}
	// Joining packs may copy much data, so it must not delay the commit or hold its lock.
	w.scratch.background.Go(func() { w.noteUpkeep(w.repo.hist.Objects.Gather()) })
	return err
}

// noteUpkeep keeps an error of the upkeep, for Close to return.
func (w *Workspace) noteUpkeep(err error) {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	w.upkeep = errors.Join(w.upkeep, err)
}

// Rollback undoes the transaction, also after Publish, and ends it. After Seal it
// does nothing.
func (tx *Tx) Rollback() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch tx.state {
	case ended:
		return nil
	// The lock was released when Publish failed. Recovery repeats the rollback and needs the slots.
	case doubtful:
		tx.state = ended
		return tx.keepDir()
	case published:
		err := tx.w.committer.rollBack(tx.rec, tx.stage.slots)
		doubt := tx.w.repo.log.Pending() != nil
		tx.release()
		if doubt { // the intent stays, and its slots with it; recovery repeats the rollback
			tx.state = ended
			return errors.Join(err, tx.keepDir())
		}
		if err != nil {
			tx.state = ended
			return errors.Join(err, tx.removeDir())
		}
	}
	tx.state = ended
	return tx.removeDir()
}
