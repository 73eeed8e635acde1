package workspace

import (
	"errors"
	"io/fs"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/publish"
)

// A committer does the operations of commits, rolls them back, and ends commits
// in doubt.
type committer struct {
	repo      *repo
	scratch   *scratch
	publisher publish.Publisher
}

// step marks a point at which a test may crash.
func (c *committer) step(point string) { c.publisher.Step(point) }

// syncLog syncs the log. It runs beside other syncs, and the disk decides their
// order.
func (c *committer) syncLog() error {
	err := c.repo.log.Sync()
	c.step("log first")
	return err
}

// undoUnsealed rolls back a commit in doubt that only this log decides. The lock
// is held.
func (c *committer) undoUnsealed() error {
	if p := c.repo.log.Pending(); p != nil && p.Intent.Auto {
		_, err := c.settleDoubt(p, Undo)
		return err
	}
	return nil
}

// settleDoubt ends a commit in doubt. Every step may be repeated after a crash.
func (c *committer) settleDoubt(p *logRecord, v Verdict) (rescued []string, err error) {
	// An intent is synced beside its slots. Missing slots are harmless only if no operation began.
	slots, err := c.scratch.place.Sub(p.Intent.Slots + "/slots")
	if errors.Is(err, fs.ErrNotExist) && v == Undo && c.publisher.Untouched(p.Intent.Ops) {
		return nil, c.repo.log.Append(logRecord{Kind: kindUndone}) // the power failed before the slots were on disk
	}
	if err != nil {
		return nil, fsys.Errorf(Damaged, p.Intent.Slots, "the slots of commit %q are gone: %v", p.Intent.Note.ID, err)
	}
	defer slots.Close()
	c.step("settling")
	if v == Finish {
		rescued, err = c.publisher.Redo(p.Intent.Ops, slots)
	} else {
		rescued, err = c.publisher.Undo(p.Intent.Ops, slots)
	}
	if err != nil {
		return rescued, err
	}
	c.step("settled")
	r := logRecord{Kind: kindUndone}
	if v == Finish {
		r = logRecord{Kind: kindSeal, Head: p.Head}
	}
	// The log decides only after the operations are synced. A crash before this repeats them.
	if err := c.repo.log.Append(r); err != nil {
		return rescued, err
	}
	// The operations moved files without a scan, so the known tree is stale.
	c.repo.index.invalidate()
	c.step("logged")
	// The pack goes after the record: a pack that an undecided intent names must still be there.
	if v == Undo {
		c.repo.hist.Objects.Forget(p.Intent.Pack)
	}
	return rescued, c.scratch.remove(p.Intent.Slots)
}

// rollBack undoes a commit of this process. Changes that somebody else made since
// stay, and the error names them.
func (c *committer) rollBack(rec *logRecord, slots *fsys.Handle) error {
	kept, err := c.publisher.Undo(rec.Intent.Ops, slots)
	if err != nil {
		return err
	}
	if err := c.repo.log.Append(logRecord{Kind: kindUndone}); err != nil {
		return err
	}
	c.step("undone")
	// The pack goes after the record, because an intent in doubt still needs its pack.
	c.repo.hist.Objects.Forget(rec.Intent.Pack)
	if len(kept) > 0 {
		e := fsys.Errorf(Conflict, "", "rolled back, but somebody else changed what was published: that change stays, and the replaced content is kept at these paths")
		e.Paths = kept
		return e
	}
	return nil
}

// redoLast repeats the operations of the last commit that sealed itself, if the
// machine was booted since and the slots are still there. The seal may have
// reached the disk before an operation did. The lock is held.
func (c *committer) redoLast() error {
	p := c.repo.log.Now().Last
	// Only a power failure loses operations that were done. Within one boot nothing is missing.
	if p == nil || p.Intent.Boot != "" && p.Intent.Boot == boot() {
		return nil
	}
	slots, err := c.scratch.place.Sub(p.Intent.Slots + "/slots")
	// Slots are removed after the sync of the operations, so without slots nothing is missing.
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer slots.Close()
	_, err = c.publisher.Redo(p.Intent.Ops, slots)
	return err
}
