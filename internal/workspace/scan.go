package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A scanner compares a directory with what is known of it, and reads only what
// its metadata does not vouch for.
type scanner struct {
	ctx   context.Context
	rules *rules
	bare  bool // metadata only: nothing is read or ignored
	full  bool // read every file, whatever its metadata says
	deep  bool // look into ignored directories too, without reading their files
	flat  bool // believe what is known of the directories below
	fine  bool // the file system's stamps tell any two writes apart
	start int64
	sem   chan struct{} // one token for each directory looked at beside another
}

func newScanner(ctx context.Context, r *rules, fine bool) *scanner {
	return &scanner{ctx: ctx, rules: r, fine: fine, start: time.Now().UnixNano(),
		sem: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// bareScanner looks at metadata only.
func bareScanner(ctx context.Context) *scanner {
	s := newScanner(ctx, nil, true)
	s.bare = true
	return s
}

// tree scans p. Directories that hold what prev held are prev's own nodes.
func (s *scanner) tree(p *place, prev entry) (entry, error) {
	return s.below(p, ".", prev)
}

// below scans the directory at of p, of which prev is known.
func (s *scanner) below(p *place, at string, prev entry) (entry, error) {
	q, err := p.sub(at)
	if err != nil {
		return entry{}, err
	}
	defer q.close()
	e, err := q.lstat(".")
	if err != nil {
		return entry{}, err
	}
	e.name = prev.name
	e.dir, err = s.dir(q, at, prev.dir)
	return e, err
}

func (s *scanner) dir(p *place, at string, prev *node) (*node, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	names, err := p.names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	out := make([]entry, 0, len(names))
	changed := prev == nil || len(names) != len(prev.ents)
	for _, name := range names {
		e, err := p.lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e.name = name
		out = append(out, e)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	errs := make([]error, len(out))
	same := make([]bool, len(out))
	for i := range out {
		var old *entry
		if j, ok := prev.find(out[i].name); ok {
			old = &prev.ents[j]
		}
		if old != nil && !s.full && !s.bare && !s.deep && out[i].believable(old) {
			out[i], same[i] = *old, true
			continue
		}
		one := func() { same[i], errs[i] = s.entry(p, path.Join(at, out[i].name), &out[i], old) }
		if out[i].Kind == Dir {
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
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if !changed && !slices.Contains(same, false) && len(out) == len(prev.ents) {
		return prev, nil
	}
	return (&node{ents: out}).done(), nil
}

// believable tells that e, which was just looked at, is what is known of it,
// without a closer look: nearly every name of nearly every scan.
func (e *entry) believable(old *entry) bool {
	return e.Kind == old.Kind && e.Kind != Dir && !old.racy && e.fp == old.fp && e.Mode == old.Mode && e.Time == old.Time &&
		(e.Kind != File || e.Size == old.Size)
}

// entry completes e, which was just looked at, and tells whether all of it is
// as it was in old.
func (s *scanner) entry(p *place, at string, e, old *entry) (same bool, err error) {
	if s.bare {
		e.ignored = true
	} else if s.deep {
		e.ignored = s.rules.below(at, e.Kind == Dir)
	} else if old != nil && old.Kind == e.Kind {
		e.ignored = old.ignored
	} else {
		e.ignored = s.rules.match(at, e.Kind == Dir)
	}
	e.ignored = e.ignored || e.Kind == Other
	known := old != nil && old.Entry.Kind == e.Kind && old.ignored == e.ignored
	same = known && old.fp == e.fp && old.Mode == e.Mode && old.Time == e.Time && old.Size == e.Size && !old.racy
	switch {
	case e.Kind == Dir && !s.flat && (!e.ignored || s.bare || s.deep):
		return s.subdir(p, at, e, old, same)
	case e.Kind == Dir:
		e.dir = &node{}
		if known {
			e.dir = old.dir
		}
		return same, nil
	case e.Kind == Other || e.ignored && e.Kind == File:
		return same, nil
	case same && !s.full:
		e.Hash, e.Target = old.Hash, old.Target
		return true, nil
	case e.Kind == Symlink:
		e.Target, err = p.readlink(e.name)
		e.Size = 0
		e.Hash = blobHash([]byte(e.Target))
	default:
		err = s.read(p, e)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errorf(Busy, at, "it went away while it was read: %v", err)
	}
	if !s.fine {
		e.racy = max(e.fp.ctime, e.Time)+slack(e.fp.ctime) > s.start
	}
	return same && old.Hash == e.Hash && !e.racy, err
}

func (s *scanner) subdir(p *place, at string, e, old *entry, same bool) (bool, error) {
	var prev *node
	if old != nil {
		prev = old.dir
	}
	q, err := p.sub(e.name)
	if err != nil {
		if foreign(err) {
			*e = entry{name: e.name, Entry: Entry{Kind: Other}, fp: e.fp, ignored: true}
			return old != nil && old.Kind == Other, nil
		}
		return false, err
	}
	defer q.close()
	e.dir, err = s.dir(q, at, prev)
	return same && e.dir == prev, err
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
func (s *scanner) read(p *place, e *entry) error {
	f, err := p.open(e.name)
	if err != nil {
		return err
	}
	defer f.Close()
	for try := 0; ; try++ {
		before, err := fstat(f)
		if err != nil {
			return err
		}
		h, err := hashFile(f, before.Size)
		if err != nil {
			return err
		}
		after, err := fstat(f)
		if err != nil {
			return err
		}
		if before.fp.ctime == after.fp.ctime && before.Size == after.Size && before.Time == after.Time {
			name := e.name
			*e = after
			e.name, e.Hash = name, h
			return nil
		}
		if try == 10 {
			return errorf(Busy, f.Name(), "another program keeps writing to it")
		}
	}
}

var buffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// hashFile names the first size bytes of f as a blob.
func hashFile(f *os.File, size int64) (out Hash, err error) {
	h := sha256.New()
	blobHead(h, size)
	buf := buffers.Get().(*[128 << 10]byte)
	defer buffers.Put(buf)
	for off := int64(0); off < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		h.Write(buf[:n])
		off += int64(n)
		if err == io.EOF {
			break // it shrank; its metadata will tell
		}
		if err != nil {
			return out, err
		}
	}
	h.Sum(out[:0])
	return out, nil
}

// bare looks at name in p without reading any file.
func bare(p *place, name string) (*entry, error) {
	e, err := p.lstat(name)
	if err != nil {
		return nil, err
	}
	if e.Kind == Dir {
		e, err = bareScanner(context.Background()).below(p, name, entry{})
	}
	return &e, err
}

// shapeOf sums up which files stand where below e: enough to tell whether a
// slot or a path still holds what the plan saw, without reading it.
func shapeOf(e *entry) Hash {
	h := sha256.New()
	for p, x := range e.walk(".") {
		t := x.Time
		size := x.Size
		if x.Kind == Dir || x.Kind == Other {
			t, size = 0, 0
		}
		fmt.Fprintf(h, "%d:%s", len(p), p)
		binary.Write(h, binary.BigEndian, []int64{int64(x.Kind), int64(x.fp.ino), size, t})
	}
	return Hash(h.Sum(nil))
}

// know says what is at path now, as believed from root where its metadata has
// not changed; nil for nothing. With deep a directory is looked through.
func (s *scanner) know(p *place, root *entry, at string, deep bool) (*entry, error) {
	cur, err := p.lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil, errorf(Conflict, at, "a directory on the way to it was replaced: %v", err)
	}
	if err != nil && foreign(err) {
		return nil, errorf(Refused, at, "it lies in another mount: %v", err)
	}
	if err != nil {
		return nil, err
	}
	was := root.lookup(at)
	parent, err := p.sub(path.Dir(at))
	if err != nil {
		return nil, err
	}
	defer parent.close()
	s.deep = deep
	if cur.Kind == Dir && !deep {
		s.flat = true
	}
	cur.name = path.Base(at)
	_, err = s.entry(parent, at, &cur, was)
	return &cur, err
}
