package workspace

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/view"
)

// A repo is the history of a workspace with the log that decides it.
type repo struct {
	index *index
	hist  *git.History
	stale bool // content may be missing from the history: record everything again. The lock is held
	log   *commitLog
	ids   commitIDs
}

// commitIDs are the commits by the ID of their Note. Reading all commits is slow,
// so each is read once.
type commitIDs struct {
	mu     sync.Mutex
	head   Hash // the commits up to this one are here
	hashes map[string]Hash
}

// addOutside adds a commit if somebody changed the directory outside of
// transactions. The tree root was recorded with r before.
func (rp *repo) addOutside(r *git.Recorder, root fsys.Item) (git.Head, error) {
	head := rp.log.Now().Head
	if !head.Commit.IsZero() {
		c, err := rp.hist.Commit(head.Commit)
		if err != nil || c.Holds(root.Dir) {
			return head, err
		}
	}
	return r.Commit(&Commit{Kind: git.Outside, Time: time.Now(), Digest: root.Dir.Digest()}, root.Dir, head), nil
}

// recordOutside records the tree that was found in the directory. The lock is
// held and no commit is in doubt.
func (rp *repo) recordOutside(ctx context.Context) error {
	for try := 0; ; try++ {
		err := rp.tryOutside()
		if !fsys.Is(err, Busy) || try == 5 {
			return err
		}
		if err := rp.index.scan(ctx, false); err != nil { // a file changed between the scan and the reading
			return err
		}
	}
}

func (rp *repo) tryOutside() error {
	root := rp.index.current()
	r := git.NewRecorder(rp.hist, rp.openContent)
	rp.index.mu.Lock()
	last := rp.index.last
	rp.index.mu.Unlock()
	if err := r.Tree(".", root.Dir, last); err != nil {
		return err
	}
	head, err := rp.addOutside(r, root)
	if err != nil {
		return err
	}
	if !r.Empty() { // changed times alone make no commit, but the next commit builds on them
		pk, err := r.Write()
		if err != nil {
			return err
		}
		if err := errors.Join(pk.Sync(), fsys.Sync(rp.hist.Objects.PackDir()), rp.hist.Objects.Adopt(pk)); err != nil {
			return err
		}
	}
	// The head goes into the log after the pack is synced, because the log must never name a missing commit.
	if head != rp.log.Now().Head {
		if err := errors.Join(rp.log.Append(logRecord{Kind: kindHead, Head: head}), rp.putRefs()); err != nil {
			return err
		}
	}
	rp.index.mu.Lock()
	defer rp.index.mu.Unlock()
	rp.index.last = root.Dir
	return nil
}

// lastNode returns the tree of the last commit.
func (rp *repo) lastNode() (*fsys.Node, error) {
	rp.index.mu.Lock()
	last := rp.index.last
	rp.index.mu.Unlock()
	// Without an old tree, the recorder checks every file and writes again what the history lost.
	if rp.stale || rp.log.Now().Commit.IsZero() {
		return nil, nil
	}
	if last != nil {
		return last, nil
	}
	c, err := rp.hist.Commit(rp.log.Now().Commit)
	if err != nil {
		return nil, err
	}
	e, err := rp.hist.State(c, rp.index.current().Dir)
	return e.Dir, err
}

func (rp *repo) commits() iter.Seq2[*Commit, error] { return rp.hist.Log(rp.log.Now().Commit) }

// putRefs sets the refs to the head that the log names.
func (rp *repo) putRefs() error { return rp.hist.SetRefs(rp.log.Now().Head) }

// findID returns the commit whose Note had this ID.
func (rp *repo) findID(id string) (Hash, bool, error) {
	rp.ids.mu.Lock()
	defer rp.ids.mu.Unlock()
	// The log names a sealed commit at once, so its head says which commits are missing here.
	if head := rp.log.Now().Commit; head != rp.ids.head {
		for c, err := range rp.hist.Log(head) {
			if err != nil {
				return Hash{}, false, err
			}
			if c.Hash == rp.ids.head {
				break
			}
			if c.ID != "" {
				rp.ids.hashes[c.ID] = c.Hash
			}
		}
		rp.ids.head = head
	}
	h, ok := rp.ids.hashes[id]
	return h, ok, nil
}

// snapshot reads the state of a commit. It reads only what differs from near,
// and shares the rest with it.
func (rp *repo) snapshot(id Hash, near *Snapshot) (*Snapshot, error) {
	c, err := rp.hist.Commit(id)
	if err != nil {
		return nil, err
	}
	e, err := rp.hist.State(c, near.Dir())
	if err != nil {
		return nil, err
	}
	return fsys.SnapshotOf(e), nil
}

// fetchContents writes the content of changes from the history into files below dir.
func (rp *repo) fetchContents(cs []view.Staged, dir string) error {
	for i := range cs {
		c := &cs[i]
		if c.To == nil || c.To.Kind != File {
			continue
		}
		c.Src, c.Move = filepath.Join(dir, "h"+strconv.Itoa(i)), true
		if err := rp.fetchContent(c.To.Hash, c.Src); err != nil {
			return err
		}
	}
	return nil
}

func (rp *repo) fetchContent(id Hash, name string) error {
	r, err := rp.hist.Objects.Blob(id)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// makeRoom drops old history as the retention asks, and notices if another
// program removed content. The lock is held.
func (rp *repo) makeRoom() error {
	gone, err := rp.hist.Objects.Refresh()
	rp.stale = rp.stale || gone
	if err != nil {
		return err
	}
	dropped, err := rp.hist.Prune(rp.log.Now().Head)
	rp.stale = rp.stale || dropped
	return err
}

// checkUnused returns an error if a commit is in doubt, or if a commit with this
// ID exists.
func (rp *repo) checkUnused(id string) error {
	if d := rp.log.Pending(); d != nil {
		return fsys.Errorf(InDoubt, "", "commit %q waits for Resolve", d.Intent.Note.ID)
	}
	h, ok, err := rp.findID(id)
	if err == nil && ok {
		err = fsys.Errorf(Refused, "", "commit %q was published before, as %s", id, h)
	}
	return err
}

// openContent opens a file of the workspace that is to be recorded.
func (rp *repo) openContent(name string, _ *fsys.Item) (*os.File, error) {
	return rp.index.place.Open(name)
}

// ensureReadable checks that every file of the current tree that the history
// lacks can still be read. If not, it scans again.
func (rp *repo) ensureReadable(ctx context.Context) error {
	last, err := rp.lastNode()
	// A file may have changed since the scan. Here a new scan still helps; in the middle of a commit it would not.
	for try := 0; err == nil; try++ {
		r := git.NewRecorder(rp.hist, rp.openContent)
		err = r.Tree(".", rp.index.current().Dir, last)
		if err == nil || try == 5 || !fsys.Is(err, Busy) && !fsys.ChangedOutside(err) {
			return err
		}
		err = rp.index.scan(ctx, false)
	}
	return err
}
