package workspace

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/view"
)

// past is the history, the log that decides it, and what is known of the
// present.
type past struct {
	memo
	hist  *git.History
	stale bool // the history may lack what it held: record everything anew. The lock is held
	log   *commitLog
}

// addOutside adds a commit for what somebody else did, when they did. The
// root of r has been recorded.
func (p *past) addOutside(r *git.Recorder, root fsys.Item) (git.Head, error) {
	head := p.log.Now().Head
	if !head.Commit.IsZero() {
		c, err := p.hist.Commit(head.Commit)
		if err != nil || c.Holds(root.Dir) {
			return head, err
		}
	}
	return r.Commit(&Commit{Kind: git.Outside, Time: time.Now(), Digest: root.Dir.Digest()}, root.Dir, head), nil
}

// recordOutside puts what was found in the directory into the history. The
// lock is held and nothing is in doubt.
func (p *past) recordOutside(ctx context.Context) error {
	for try := 0; ; try++ {
		err := p.tryOutside()
		if !fsys.Is(err, Busy) || try == 5 {
			return err
		}
		if err := p.scan(ctx, false); err != nil { // it changed between scan and reading
			return err
		}
	}
}

func (p *past) tryOutside() error {
	root := p.known()
	r := git.NewRecorder(p.hist, p.content)
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if err := r.Tree(".", root.Dir, last); err != nil {
		return err
	}
	head, err := p.addOutside(r, root)
	if err != nil {
		return err
	}
	if !r.Empty() { // times alone make no commit, but the next one builds on them
		pk, err := r.Write()
		if err != nil {
			return err
		}
		if err := errors.Join(pk.Sync(), fsys.Sync(p.hist.PackDir()), p.hist.Adopt(pk)); err != nil {
			return err
		}
	}
	if head != p.log.Now().Head {
		if err := errors.Join(p.log.Append(logRecord{Kind: kindHead, Head: head}), p.putRefs()); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = root.Dir
	return nil
}

// lastNode is what the last commit recorded.
func (p *past) lastNode() (*fsys.Node, error) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if p.stale || p.log.Now().Commit.IsZero() {
		return nil, nil
	}
	if last != nil {
		return last, nil
	}
	c, err := p.hist.Commit(p.log.Now().Commit)
	if err != nil {
		return nil, err
	}
	e, err := p.hist.State(c, p.known().Dir)
	return e.Dir, err
}

// History gives the commits there are, newest first.
func (p *past) History() iter.Seq2[*Commit, error] { return p.hist.Log(p.log.Now().Commit) }

// Kept gives the states from outside that are older than the history.
func (p *past) Kept() ([]*Commit, error) { return p.hist.Kept() }

// Content opens the content of a file that the history holds, by Entry.Hash.
func (p *past) Content(id Hash) (io.ReadCloser, error) { return p.hist.Blob(id) }

// putRefs lets the refs follow the log.
func (p *past) putRefs() error { return p.hist.SetRefs(p.log.Now().Head) }

// find looks a commit up by its caller's ID.
func (p *past) find(id string) (Hash, bool, error) {
	p.mu.Lock()
	ids := p.ids
	p.mu.Unlock()
	if ids == nil {
		ids = map[string]Hash{}
		for c, err := range p.History() {
			if err != nil {
				return Hash{}, false, err
			}
			if c.ID != "" {
				ids[c.ID] = c.Hash
			}
		}
		p.mu.Lock()
		p.ids = ids
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := ids[id]
	return h, ok, nil
}

// Commit reads one commit.
func (p *past) Commit(id Hash) (*Commit, error) { return p.hist.Commit(id) }

// At reads the state that a commit recorded.
func (p *past) At(id Hash) (*Snapshot, error) { return p.AtFrom(id, nil) }

// AtFrom is At for a state like another that was read: only what differs from
// it is read, and the two share the rest.
func (p *past) AtFrom(id Hash, near *Snapshot) (*Snapshot, error) {
	c, err := p.hist.Commit(id)
	if err != nil {
		return nil, err
	}
	e, err := p.hist.State(c, near.Dir())
	if err != nil {
		return nil, err
	}
	return fsys.Of(e), nil
}

// fetch writes the content of changes that come from the history.
func (p *past) fetch(cs []view.Staged, dir string) error {
	for i := range cs {
		c := &cs[i]
		if c.To == nil || c.To.Kind != File {
			continue
		}
		c.Src, c.Move = filepath.Join(dir, "h"+strconv.Itoa(i)), true
		if err := p.fetchOne(c.To.Hash, c.Src); err != nil {
			return err
		}
	}
	return nil
}

func (p *past) fetchOne(id Hash, name string) error {
	r, err := p.Content(id)
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

// tidy makes room in the history, and looks whether somebody else tidied it up.
// The lock is held.
func (p *past) tidy() error {
	gone, err := p.hist.Refresh()
	p.stale = p.stale || gone
	if err != nil {
		return err
	}
	dropped, err := p.hist.Room(p.log.Now().Head)
	p.stale = p.stale || dropped
	return err
}

// free tells that nothing stands in the way of a commit called id.
func (p *past) free(id string) error {
	if p := p.log.Pending(); p != nil {
		return fsys.Errorf(InDoubt, "", "commit %q waits for Resolve", p.Intent.Note.ID)
	}
	h, ok, err := p.find(id)
	if err == nil && ok {
		err = fsys.Errorf(Refused, "", "commit %q was published before, as %s", id, h)
	}
	return err
}

// content opens a file of the workspace to be recorded.
func (p *past) content(name string, _ *fsys.Item) (*os.File, error) { return p.place.Open(name) }

// recordable makes sure that what is known of the directory and not in the
// history yet can still be read there; if not, it looks again.
func (p *past) recordable(ctx context.Context) error {
	last, err := p.lastNode()
	for try := 0; err == nil; try++ {
		r := git.NewRecorder(p.hist, p.content)
		err = r.Tree(".", p.known().Dir, last)
		if err == nil || try == 5 || !fsys.Is(err, Busy) && !fsys.Theirs(err) {
			return err
		}
		err = p.scan(ctx, false)
	}
	return err
}
