package workspace

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Verdict decides a commit that is in doubt.
type Verdict int

// The verdicts.
const (
	Undo   Verdict = iota // the commit is rolled back
	Finish                // the commit stands
)

// A State is the state of a commit.
type State string

// The states. A commit that was rolled back, or never published, is Unknown.
const (
	Unknown   State = "unknown"
	Doubtful  State = "in doubt" // published, maybe in part; waits for Resolve
	Committed State = "committed"
)

// Outcome returns the state of the commit whose Note had this ID, and its hash
// once it is committed.
func (w *Workspace) Outcome(id string) (state State, hash Hash, err error) {
	p := w.repo.log.Pending()
	if p != nil && p.Intent.Note.ID == id {
		return Doubtful, p.Commit, nil
	}
	h, ok, err := w.repo.findID(id)
	if err != nil || !ok {
		return Unknown, h, err
	}
	return Committed, h, nil
}

// Pending returns the Note of the commit in doubt, if there is one.
func (w *Workspace) Pending() (Note, bool) {
	if p := w.repo.log.Pending(); p != nil {
		return p.Intent.Note, true
	}
	return Note{}, false
}

// Resolve decides the commit in doubt that an earlier holder of this workspace
// left. A path that somebody else changed meanwhile is left alone; Resolve keeps
// the content that belongs there and returns its names. After a crash, Resolve
// may be called again and continues.
func (w *Workspace) Resolve(ctx context.Context, id string, v Verdict) (rescued []string, err error) {
	release, err := w.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	p := w.repo.log.Pending()
	if p == nil || p.Intent.Note.ID != id {
		return nil, fsys.Errorf(Missing, "", "no commit %q is in doubt", id)
	}
	if rescued, err = w.committer.settleDoubt(p, v); err != nil {
		return rescued, err
	}
	// Open did not scan, because the paths of a commit in doubt are neither old nor new.
	if err := w.index.scan(ctx, false); err != nil {
		return rescued, err
	}
	return rescued, errors.Join(w.repo.putRefs(), w.repo.recordOutside(ctx))
}

// boot identifies this boot of the machine; empty where the system does not say.
var boot = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})
