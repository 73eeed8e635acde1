package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"
)

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
	if err := w.hand.perform(rec.Intent.Ops, tx.slots); err != nil {
		bad := w.takeBack(rec, tx.slots)
		if w.log.pending() != nil {
			tx.state = doubtful
		}
		return nil, errors.Join(err, bad)
	}
	tx.state, tx.rec, tx.release = published, rec, release
	tx.next, tx.commit = tx.settled(next, p.after), c
	return c, nil
}

// record writes the new state into the history and makes all of it last: what
// somebody else did to the directory as a commit of its own, then ours.
func (tx *Tx) record(ctx context.Context, root, next entry, note Note, kind string) (*record, *Commit, error) {
	w := tx.w
	last, err := w.lastNode()
	if err != nil {
		return nil, nil, err
	}
	if err := w.hist.room(w.log.now().Commit); err != nil {
		return nil, nil, err
	}
	slots := map[string]string{}
	for _, c := range tx.changes {
		if c.e != nil && c.e.Kind == File {
			slots[c.path] = c.slot
		}
	}
	r := newRecorder(w.hist, w.content)
	if err := r.tree(".", root.dir, last); err != nil {
		return nil, nil, err
	}
	head, err := w.addOutside(r, root)
	if err != nil {
		return nil, nil, err
	}
	r.from(func(p string, e *entry) (*os.File, error) { return tx.slots.open(slots[p]) })
	if err := r.tree(".", next.dir, root.dir); err != nil {
		return nil, nil, err
	}
	c := &Commit{Kind: kind, Note: note, Time: time.Now(), Digest: next.dir.digest()}
	head = r.commit(c, next.dir, head)
	pk, err := r.write()
	if err != nil {
		return nil, nil, err
	}
	w.step("packed")
	if err := tx.stage.sync(pk, w.hist.packDir()); err != nil {
		return nil, nil, errors.Join(err, pk.close())
	}
	return &record{Kind: "intent", Head: head, Intent: &intent{Pack: pk.name}}, c, w.hist.adopt(pk)
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
	if err := w.log.append(record{Kind: "seal", Head: tx.rec.Head}); err != nil {
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
	if w.log.full() {
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
		doubt := tx.w.log.pending() != nil
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
