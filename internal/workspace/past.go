package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// past is the history, the log that decides it, and what is known of the
// present.
type past struct {
	memo
	hist *history
	log  *log
}

// addOutside adds a commit for what somebody else did, when they did. The
// root of r has been recorded.
func (p *past) addOutside(r *recorder, root entry) (Head, error) {
	head := p.log.now().Head
	if !head.Commit.IsZero() {
		c, err := p.hist.commit(head.Commit)
		if err != nil || c.holds(root.dir) {
			return head, err
		}
	}
	return r.commit(&Commit{Kind: Outside, Time: time.Now(), Digest: root.dir.digest()}, root.dir, head), nil
}

// recordOutside puts what was found in the directory into the history. The
// lock is held and nothing is in doubt.
func (p *past) recordOutside(ctx context.Context) error {
	for try := 0; ; try++ {
		err := p.tryOutside()
		if !isCodeOf(err, Busy) || try == 5 {
			return err
		}
		if err := p.scan(ctx, false); err != nil { // it changed between scan and reading
			return err
		}
	}
}

func (p *past) tryOutside() error {
	root := p.known()
	r := newRecorder(p.hist, p.content)
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if err := r.tree(".", root.dir, last); err != nil {
		return err
	}
	head, err := p.addOutside(r, root)
	if err != nil {
		return err
	}
	if !r.empty() { // times alone make no commit, but the next one builds on them
		pk, err := r.write()
		if err != nil {
			return err
		}
		if err := errors.Join(pk.sync(), syncPath(p.hist.packDir()), p.hist.adopt(pk)); err != nil {
			return err
		}
	}
	if head != p.log.now().Head {
		if err := errors.Join(p.log.append(record{Kind: "head", Head: head}), p.putRefs()); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = root.dir
	return nil
}

// lastNode is what the last commit recorded.
func (p *past) lastNode() (*node, error) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if last != nil || p.log.now().Commit.IsZero() {
		return last, nil
	}
	c, err := p.hist.commit(p.log.now().Commit)
	if err != nil {
		return nil, err
	}
	e, err := p.hist.state(c, p.known().dir)
	return e.dir, err
}

// History gives the commits there are, newest first.
func (p *past) History() iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		id := p.log.now().Commit
		cut, err := p.hist.cut()
		for err == nil && !id.IsZero() {
			var c *Commit
			if c, err = p.hist.commit(id); err != nil {
				break
			}
			if cut[id] {
				c.Parent = Hash{}
			}
			if !yield(c, nil) {
				return
			}
			id = c.Parent
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

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
func (p *past) Commit(id Hash) (*Commit, error) { return p.hist.commit(id) }

// At reads the state that a commit recorded.
func (p *past) At(id Hash) (*Snapshot, error) {
	c, err := p.hist.commit(id)
	if err != nil {
		return nil, err
	}
	e, err := p.hist.state(c, nil)
	if err != nil {
		return nil, err
	}
	return snapshot(e), nil
}

// Content opens the content of a file that the history holds, by Entry.Hash.
func (p *past) Content(id Hash) (io.ReadCloser, error) {
	typ, _, r, done, err := p.hist.open(id)
	if err != nil {
		return nil, err
	}
	if typ != typBlob {
		done()
		return nil, errorf(Missing, id.String(), "expected the content of a file, found a %s", typNames[typ])
	}
	return blob{r, done}, nil
}

type blob struct {
	io.Reader
	done func()
}

func (b blob) Close() error { b.done(); return nil }

// fetch writes the content of changes that come from the history.
func (p *past) fetch(cs []change, dir string) error {
	for i := range cs {
		c := &cs[i]
		if c.e == nil || c.e.Kind != File {
			continue
		}
		c.src, c.move = filepath.Join(dir, "h"+itoa(i)), true
		if err := p.fetchOne(c.e.Hash, c.src); err != nil {
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

// Kept gives the states from outside that are older than the history.
func (p *past) Kept() ([]*Commit, error) {
	ents, err := os.ReadDir(filepath.Join(p.hist.dir, "refs", "kern", "kept"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []*Commit
	for _, e := range ents {
		id, err := p.hist.ref("refs/kern/kept/" + e.Name())
		if err != nil {
			return nil, err
		}
		c, err := p.hist.commit(id)
		if err != nil {
			return nil, err
		}
		c.Parent = Hash{}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Commit) int { return int(b.Seq) - int(a.Seq) })
	return out, err
}

// free tells that nothing stands in the way of a commit called id.
func (p *past) free(id string) error {
	if p := p.log.pending(); p != nil {
		return errorf(InDoubt, "", "commit %q waits for Resolve", p.Intent.Note.ID)
	}
	h, ok, err := p.find(id)
	if err == nil && ok {
		err = errorf(Refused, "", "commit %q was published before, as %s", id, h)
	}
	return err
}

// recordable makes sure that what is known of the directory and not in the
// history yet can still be read there; if not, it looks again.
// content opens a file of the workspace to be recorded.
func (p *past) content(name string, _ *entry) (*os.File, error) { return p.place.open(name) }

func (p *past) recordable(ctx context.Context) error {
	last, err := p.lastNode()
	for try := 0; err == nil; try++ {
		r := newRecorder(p.hist, p.content)
		err = r.tree(".", p.known().dir, last)
		if err == nil || try == 5 || !isCodeOf(err, Busy) && !skippable(err) {
			return err
		}
		err = p.scan(ctx, false)
	}
	return err
}

func (p *past) putRefs() error {
	if p.log.now().Commit.IsZero() {
		return nil
	}
	return errors.Join(p.hist.setRef(refMain, p.log.now().Commit), p.hist.setRef(refMeta, p.log.now().Side))
}
