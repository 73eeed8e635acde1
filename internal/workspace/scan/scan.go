// Package scan reads the tree of a directory. It reads only files with changed
// metadata, and reuses the known nodes of unchanged directories.
package scan

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Scanner compares a directory with its known tree.
type Scanner struct {
	ctx   context.Context
	rules *fsys.Rules
	Full  bool // read every file
	deep  bool // enter ignored directories, too, without reading their files
	flat  bool // take the known state of directories below
	fine  bool // time stamps of the file system tell any two writes apart
	start int64
	sem   chan struct{} // a token for each directory that is scanned beside another
}

// New returns a Scanner that starts now.
func New(ctx context.Context, r *fsys.Rules, fine bool) *Scanner {
	return &Scanner{ctx: ctx, rules: r, fine: fine, start: time.Now().UnixNano(),
		sem: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Tree scans p. For an unchanged directory it returns the node of prev.
func (s *Scanner) Tree(p *fsys.Handle, prev fsys.Item) (fsys.Item, error) {
	// Each moves the position of a descriptor, so two scans must not share one.
	q, err := p.Sub(".")
	if err != nil {
		return fsys.Item{}, err
	}
	defer q.Close()
	e, err := q.Lstat(".")
	if err != nil {
		return fsys.Item{}, err
	}
	e.Name = prev.Name
	e.Dir, err = s.dir(q, ".", prev.Dir)
	return e, err
}

// dir scans one directory. It returns prev if nothing changed.
func (s *Scanner) dir(p *fsys.Handle, at string, prev *fsys.Node) (*fsys.Node, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if prev != nil && !s.Full && !s.deep {
		if n, ok, err := s.quickDir(p, at, prev); ok || err != nil {
			return n, err
		}
	}
	var out []fsys.Item
	if err := p.Each(func(e *fsys.Item) error { out = append(out, *e); return nil }); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b fsys.Item) int { return strings.Compare(a.Name, b.Name) })
	olds := make([]*fsys.Item, len(out))
	for i := range out {
		if j, ok := prev.Find(out[i].Name); ok {
			olds[i] = &prev.Ents[j]
		}
	}
	same, err := s.completeAll(p, at, out, olds)
	if err != nil {
		return nil, err
	}
	// Returning prev lets two snapshots share the node, so comparing them costs nothing.
	if same && prev != nil && len(out) == len(prev.Ents) {
		return prev, nil
	}
	return (&fsys.Node{Ents: out}).Done(), nil
}

// quickDir is dir for a directory with the same names as before, which is nearly
// every directory. It allocates only for changed items.
func (s *Scanner) quickDir(p *fsys.Handle, at string, prev *fsys.Node) (n *fsys.Node, ok bool, err error) {
	var news []fsys.Item
	var olds []*fsys.Item
	var where []int
	names, added := 0, false
	err = p.Each(func(e *fsys.Item) error {
		j, ok := prev.Find(e.Name)
		// A new name needs the full way. Counting names finds removed ones.
		if names++; !ok {
			added = true
		} else if old := &prev.Ents[j]; !e.Unchanged(old) {
			news, olds, where = append(news, *e), append(olds, old), append(where, j)
		}
		return nil
	})
	// The set of names changed, so the sorted list must be made again.
	if err != nil || added || names != len(prev.Ents) {
		return nil, false, err
	}
	same, err := s.completeAll(p, at, news, olds)
	if err != nil || same {
		return prev, err == nil, err
	}
	// Snapshots share prev, so it must never change.
	n = &fsys.Node{Ents: slices.Clone(prev.Ents)}
	for i, j := range where {
		n.Ents[j] = news[i]
	}
	return n.Done(), true, nil
}

// completeAll completes the items news of p, and reports whether all of them are
// equal to olds. It scans directories beside each other.
func (s *Scanner) completeAll(p *fsys.Handle, at string, news []fsys.Item, olds []*fsys.Item) (bool, error) {
	var wg sync.WaitGroup
	errs := make([]error, len(news))
	same := make([]bool, len(news))
	for i := range news {
		one := func() { same[i], errs[i] = s.complete(p, path.Join(at, news[i].Name), &news[i], olds[i]) }
		if news[i].Kind == fsys.Dir {
			select {
			case s.sem <- struct{}{}:
				wg.Go(func() { one(); <-s.sem })
				continue
			// Waiting for a token could deadlock, because a parent keeps its token until its children are scanned.
			default:
			}
		}
		one()
	}
	wg.Wait()
	return !slices.Contains(same, false), errors.Join(errs...)
}

// complete adds hash, target and children to e, and reports whether e is equal to
// old.
func (s *Scanner) complete(p *fsys.Handle, at string, e, old *fsys.Item) (same bool, err error) {
	// With deep the parent itself may be ignored, so every directory above is asked.
	if s.deep {
		e.Ignored = s.rules.Below(at, e.Kind == fsys.Dir)
	} else if old != nil && old.Kind == e.Kind {
		e.Ignored = old.Ignored
	} else {
		e.Ignored = s.rules.Match(at, e.Kind == fsys.Dir)
	}
	e.Ignored = e.Ignored || e.Kind == fsys.Other
	// A racy entry may have changed after it was read without a new time stamp, so it is never trusted.
	known := old != nil && old.Entry.Kind == e.Kind && old.Ignored == e.Ignored
	same = known && old.Print == e.Print && old.Mode == e.Mode && old.Time == e.Time && old.Size == e.Size && !old.Racy
	switch {
	case e.Kind == fsys.Dir && !s.flat && (!e.Ignored || s.deep):
		return s.subdir(p, at, e, old, same)
	// Not entered: what was known of its content stays.
	case e.Kind == fsys.Dir:
		e.Dir = &fsys.Node{}
		if known {
			e.Dir = old.Dir
		}
		return same, nil
	case e.Kind == fsys.Other || e.Ignored && e.Kind == fsys.File:
		return same, nil
	case same && !s.Full:
		e.Hash, e.Target = old.Hash, old.Target
		return true, nil
	case e.Kind == fsys.Symlink:
		e.Target, err = p.Readlink(e.Name)
		e.Size = 0
		e.Hash = fsys.Blob([]byte(e.Target))
	default:
		err = s.hashFile(p, e)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fsys.Errorf(fsys.Busy, at, "it was removed while it was read: %v", err)
	}
	// A write right after this scan could leave the same time stamp. Such a file is read again next time.
	if !s.fine {
		e.Racy = max(e.Print.Ctime, e.Time)+stampSlack(e.Print.Ctime) > s.start
	}
	return same && old.Hash == e.Hash && !e.Racy, err
}

// subdir scans the directory e of p.
func (s *Scanner) subdir(p *fsys.Handle, at string, e, old *fsys.Item, same bool) (bool, error) {
	var prev *fsys.Node
	if old != nil {
		prev = old.Dir
	}
	q, err := p.Sub(e.Name)
	if err != nil {
		// Another mount is not part of the workspace. It must never be read, published or removed.
		if fsys.IsOtherMount(err) {
			*e = fsys.Item{Name: e.Name, Entry: fsys.Entry{Kind: fsys.Other}, Print: e.Print, Ignored: true}
			return old != nil && old.Kind == fsys.Other, nil
		}
		return false, err
	}
	defer q.Close()
	e.Dir, err = s.dir(q, at, prev)
	return same && e.Dir == prev, err
}

// stampSlack is how long after a change another change may have the same stamp.
func stampSlack(ctime int64) int64 {
	if ctime%int64(time.Second) == 0 {
		return 2 * int64(time.Second)
	}
	return 50 * int64(time.Millisecond)
}

// hashFile hashes the file e of p, and takes the metadata of the same moment.
func (s *Scanner) hashFile(p *fsys.Handle, e *fsys.Item) error {
	f, err := p.Open(e.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	// Hash and metadata must belong together, so a file that changed while it was read is read again.
	for try := 0; ; try++ {
		before, err := fsys.Stat(f)
		if err != nil {
			return err
		}
		h, err := fsys.HashFile(f, before.Size)
		if err != nil {
			return err
		}
		after, err := fsys.Stat(f)
		if err != nil {
			return err
		}
		if before.Print.Ctime == after.Print.Ctime && before.Size == after.Size && before.Time == after.Time {
			name := e.Name
			*e = after
			e.Name, e.Hash = name, h
			return nil
		}
		if try == 10 {
			return fsys.Errorf(fsys.Busy, f.Name(), "another program keeps writing to it")
		}
	}
}

// At returns the item at a path now, or nil. It takes unchanged items from root.
// With deep, it scans a directory with everything below it.
func (s *Scanner) At(p *fsys.Handle, root *fsys.Item, at string, deep bool) (*fsys.Item, error) {
	cur, err := p.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	// A link or file now stands where a directory was. Following it could leave the workspace.
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil, fsys.Errorf(fsys.Conflict, at, "a directory above it was replaced: %v", err)
	}
	if err != nil && fsys.IsOtherMount(err) {
		return nil, fsys.Errorf(fsys.Refused, at, "it lies in another mount: %v", err)
	}
	if err != nil {
		return nil, err
	}
	was := root.Lookup(at)
	parent, err := p.Sub(path.Dir(at))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	// A directory that stays needs only its own metadata; one that is removed needs all below it.
	s.deep = deep
	if cur.Kind == fsys.Dir && !deep {
		s.flat = true
	}
	cur.Name = path.Base(at)
	_, err = s.complete(parent, at, &cur, was)
	return &cur, err
}
