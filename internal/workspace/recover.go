package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/kern-run/kern/internal/workspace/fsys"
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
	p := w.log.Pending()
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
	if p := w.log.Pending(); p != nil {
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
	p := w.log.Pending()
	if p == nil || p.Intent.Note.ID != id {
		return nil, fsys.Errorf(Missing, "", "no commit %q is in doubt", id)
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
	if p := w.log.Pending(); p != nil && p.Intent.Auto {
		_, err := w.settle(p, Undo)
		return err
	}
	return nil
}

// settle brings a commit in doubt to its end. Every step of it may be repeated.
func (w *Workspace) settle(p *logRecord, v Verdict) (rescued []string, err error) {
	slots, err := w.room.place.Sub(p.Intent.Slots + "/slots")
	if errors.Is(err, fs.ErrNotExist) && v == Undo && w.hand.Untouched(p.Intent.Ops) {
		return nil, w.log.Append(logRecord{Kind: kindUndone}) // the power went before the slots were on disk
	}
	if err != nil {
		return nil, fsys.Errorf(Damaged, p.Intent.Slots, "the slots of commit %q are gone: %v", p.Intent.Note.ID, err)
	}
	defer slots.Close()
	w.step("settling")
	if v == Finish {
		rescued, err = w.hand.Redo(p.Intent.Ops, slots)
	} else {
		rescued, err = w.hand.Undo(p.Intent.Ops, slots)
	}
	if err != nil {
		return rescued, err
	}
	w.step("settled")
	r := logRecord{Kind: kindUndone}
	if v == Finish {
		r = logRecord{Kind: kindSeal, Head: p.Head}
	}
	if err := w.log.Append(r); err != nil {
		return rescued, err
	}
	w.forget()
	w.step("logged")
	if v == Undo {
		w.hist.Forget(p.Intent.Pack)
	}
	return rescued, w.room.remove(p.Intent.Slots)
}

// takeBack undoes a commit of this process. An outsider's change stays; then
// the error names it.
func (w *Workspace) takeBack(rec *logRecord, slots *fsys.Place) error {
	kept, err := w.hand.Undo(rec.Intent.Ops, slots)
	if err != nil {
		return err
	}
	if err := w.log.Append(logRecord{Kind: kindUndone}); err != nil {
		return err
	}
	w.step("undone")
	w.hist.Forget(rec.Intent.Pack)
	if len(kept) > 0 {
		e := fsys.Errorf(Conflict, "", "rolled back, but somebody else changed what had been published; theirs was left, ours is kept there")
		e.Paths = kept
		return e
	}
	return nil
}

// redoLast does again what was sealed last by itself, if the machine went down
// since and its slots are still there: its seal may have reached the disk before
// an operation did. The lock is held.
func (w *Workspace) redoLast() error {
	p := w.log.Now().Last
	if p == nil || p.Intent.Boot != "" && p.Intent.Boot == boot() {
		return nil
	}
	slots, err := w.room.place.Sub(p.Intent.Slots + "/slots")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer slots.Close()
	_, err = w.hand.Redo(p.Intent.Ops, slots)
	return err
}

// boot names this run of the machine; empty where the system does not say.
var boot = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})
