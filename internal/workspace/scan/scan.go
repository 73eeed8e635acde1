// Package scan looks at directories. It reads only what metadata does not
// vouch for, and gives the very nodes that were known for what did not change.
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

// A Scanner compares a directory with what is known of it, and reads only what
// its metadata does not vouch for.
type Scanner struct {
	ctx   context.Context
	rules *fsys.Rules
	Full  bool // read every file, whatever its metadata says
	deep  bool // look into ignored directories too, without reading their files
	flat  bool // believe what is known of the directories below
	fine  bool // the file system's stamps tell any two writes apart
	start int64
	sem   chan struct{} // one token for each directory looked at beside another
}

func New(ctx context.Context, r *fsys.Rules, fine bool) *Scanner {
	return &Scanner{ctx: ctx, rules: r, fine: fine, start: time.Now().UnixNano(),
		sem: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Tree scans p. Directories that hold what prev held are the nodes of prev.
func (s *Scanner) Tree(p *fsys.Place, prev fsys.Item) (fsys.Item, error) {
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

func (s *Scanner) dir(p *fsys.Place, at string, prev *fsys.Node) (*fsys.Node, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if prev != nil && !s.Full && !s.deep {
		if n, ok, err := s.quick(p, at, prev); ok || err != nil {
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
	same, err := s.each(p, at, out, olds)
	if err != nil {
		return nil, err
	}
	if same && prev != nil && len(out) == len(prev.Ents) {
		return prev, nil
	}
	return (&fsys.Node{Ents: out}).Done(), nil
}

// quick is dir for a directory that holds the names it held: nearly every one
// of nearly every scan. It allocates only for what is not as it was.
func (s *Scanner) quick(p *fsys.Place, at string, prev *fsys.Node) (n *fsys.Node, ok bool, err error) {
	var news []fsys.Item
	var olds []*fsys.Item
	var where []int
	names, strange := 0, false
	err = p.Each(func(e *fsys.Item) error {
		j, ok := prev.Find(e.Name)
		if names++; !ok {
			strange = true
		} else if old := &prev.Ents[j]; !e.Believable(old) {
			news, olds, where = append(news, *e), append(olds, old), append(where, j)
		}
		return nil
	})
	if err != nil || strange || names != len(prev.Ents) {
		return nil, false, err
	}
	same, err := s.each(p, at, news, olds)
	if err != nil || same {
		return prev, err == nil, err
	}
	n = &fsys.Node{Ents: slices.Clone(prev.Ents)}
	for i, j := range where {
		n.Ents[j] = news[i]
	}
	return n.Done(), true, nil
}

// each completes news, which were just looked at in p, and tells whether all of
// them are as they were in olds. Directories are looked at beside each other.
func (s *Scanner) each(p *fsys.Place, at string, news []fsys.Item, olds []*fsys.Item) (bool, error) {
	var wg sync.WaitGroup
	errs := make([]error, len(news))
	same := make([]bool, len(news))
	for i := range news {
		one := func() { same[i], errs[i] = s.entry(p, path.Join(at, news[i].Name), &news[i], olds[i]) }
		if news[i].Kind == fsys.Dir {
			select {
			case s.sem <- struct{}{}:
				wg.Go(func() { one(); <-s.sem })
				continue
			default:
			}
		}
		one()
	}
	wg.Wait()
	return !slices.Contains(same, false), errors.Join(errs...)
}

// entry completes e, which was just looked at, and tells whether all of it is
// as it was in old.
func (s *Scanner) entry(p *fsys.Place, at string, e, old *fsys.Item) (same bool, err error) {
	if s.deep {
		e.Ignored = s.rules.Below(at, e.Kind == fsys.Dir)
	} else if old != nil && old.Kind == e.Kind {
		e.Ignored = old.Ignored
	} else {
		e.Ignored = s.rules.Match(at, e.Kind == fsys.Dir)
	}
	e.Ignored = e.Ignored || e.Kind == fsys.Other
	known := old != nil && old.Entry.Kind == e.Kind && old.Ignored == e.Ignored
	same = known && old.Print == e.Print && old.Mode == e.Mode && old.Time == e.Time && old.Size == e.Size && !old.Racy
	switch {
	case e.Kind == fsys.Dir && !s.flat && (!e.Ignored || s.deep):
		return s.subdir(p, at, e, old, same)
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
		err = s.read(p, e)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fsys.Errorf(fsys.Busy, at, "it went away while it was read: %v", err)
	}
	if !s.fine {
		e.Racy = max(e.Print.Ctime, e.Time)+slack(e.Print.Ctime) > s.start
	}
	return same && old.Hash == e.Hash && !e.Racy, err
}

func (s *Scanner) subdir(p *fsys.Place, at string, e, old *fsys.Item, same bool) (bool, error) {
	var prev *fsys.Node
	if old != nil {
		prev = old.Dir
	}
	q, err := p.Sub(e.Name)
	if err != nil {
		if fsys.Foreign(err) {
			*e = fsys.Item{Name: e.Name, Entry: fsys.Entry{Kind: fsys.Other}, Print: e.Print, Ignored: true}
			return old != nil && old.Kind == fsys.Other, nil
		}
		return false, err
	}
	defer q.Close()
	e.Dir, err = s.dir(q, at, prev)
	return same && e.Dir == prev, err
}

// slack is how long after a change another one may leave the same stamp.
func slack(ctime int64) int64 {
	if ctime%int64(time.Second) == 0 {
		return 2 * int64(time.Second)
	}
	return 50 * int64(time.Millisecond)
}

// read hashes the file e of p and takes its metadata from the moment at which
// the content was that.
func (s *Scanner) read(p *fsys.Place, e *fsys.Item) error {
	f, err := p.Open(e.Name)
	if err != nil {
		return err
	}
	defer f.Close()
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

// Know says what is at path now, as believed from root where its metadata has
// not changed; nil for nothing. With deep a directory is looked through.
func (s *Scanner) Know(p *fsys.Place, root *fsys.Item, at string, deep bool) (*fsys.Item, error) {
	cur, err := p.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil, fsys.Errorf(fsys.Conflict, at, "a directory on the way to it was replaced: %v", err)
	}
	if err != nil && fsys.Foreign(err) {
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
	s.deep = deep
	if cur.Kind == fsys.Dir && !deep {
		s.flat = true
	}
	cur.Name = path.Base(at)
	_, err = s.entry(parent, at, &cur, was)
	return &cur, err
}
