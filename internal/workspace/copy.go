package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// A copied view is a plain directory with everything in it. What was staged is
// found by comparing it with how it was copied.
type copied struct {
	ground ground
	dir    string
	was    map[string]*copiedFile
	done   bool
}

type copiedFile struct {
	seen print // of the original
	fp   print // of the copy
	e    Entry
}

func newCopy(ctx context.Context, g ground) (view, error) {
	c := &copied{ground: g, dir: filepath.Join(g.scratch, "view"), was: map[string]*copiedFile{}}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	top, err := bareAll(ctx, g.place)
	if err != nil {
		return nil, err
	}
	if err := c.bound(top); err != nil {
		return nil, err
	}
	if err := c.fill(ctx, top); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// bareAll looks at every name of the workspace, also ignored ones.
func bareAll(ctx context.Context, p *place) (*entry, error) {
	e, err := bareScanner(ctx).tree(p, entry{})
	return &e, err
}

// bound puts the copy on a file system of its own that holds the quota.
func (c *copied) bound(top *entry) error {
	if !bounded(c.ground.quota) {
		return nil
	}
	bytes, files := int64(0), 1
	groups := map[uint64]bool{}
	for _, e := range top.walk(".") {
		if e.Group == 0 || !groups[e.Group] {
			bytes += e.Size
			files++
		}
		groups[e.Group] = true
	}
	return mountBounded(c.dir, bytes+int64(files)*4096, files, c.ground.quota)
}

func (c *copied) fill(ctx context.Context, top *entry) error {
	type dir struct {
		at string
		e  *entry
	}
	var dirs []dir
	groups := map[uint64]string{}
	for at, e := range top.walk(".") {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.Join(c.dir, filepath.FromSlash(at))
		switch {
		case e.Kind == Other:
			continue
		case e.Kind == Dir:
			dirs = append(dirs, dir{at, e})
			if at == "." {
				continue
			}
			if err := os.Mkdir(name, 0o700); err != nil {
				return err
			}
		case e.Group != 0 && groups[e.Group] != "":
			if err := os.Link(groups[e.Group], name); err != nil {
				return err
			}
		default:
			err := c.one(at, name, e)
			if errors.Is(err, fs.ErrNotExist) {
				continue // taken away while the copy was made
			}
			if err != nil {
				return err
			}
			groups[e.Group] = name
		}
		c.was[at] = &copiedFile{seen: e.fp}
	}
	p, err := openPlace(c.dir)
	if err != nil {
		return err
	}
	defer p.close()
	for i := len(dirs) - 1; i >= 0; i-- {
		d := dirs[i]
		c.was[d.at] = &copiedFile{seen: d.e.fp}
		if err := errors.Join(own(filepath.Join(c.dir, d.at), d.e.fp), p.attr(d.at, d.e.Entry)); err != nil {
			return err
		}
	}
	for at, f := range c.was { // when all links are made
		e, err := p.lstat(at)
		if err != nil {
			return err
		}
		f.fp, f.e = e.fp, e.Entry
	}
	return nil
}

// one copies one file or link.
func (c *copied) one(at, name string, e *entry) error {
	p := c.ground.place
	if e.Kind == Symlink {
		t, err := p.readlink(at)
		if err != nil {
			return err
		}
		if err := os.Symlink(t, name); err != nil {
			return err
		}
	} else {
		f, err := p.open(at)
		if err != nil {
			return err
		}
		defer f.Close()
		now, err := fstat(f)
		if err != nil {
			return err
		}
		g, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(copyContent(g, f, now.Size), g.Close()); err != nil {
			return err
		}
		fp := e.fp
		*e = now // the moment of the copy
		e.fp.nlink = fp.nlink
	}
	if err := own(name, e.fp); err != nil {
		return err
	}
	q, err := openPlace(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer q.close()
	return q.attr(filepath.Base(name), e.Entry)
}

func (c *copied) path() string { return c.dir }

func (c *copied) changes() ([]change, error) {
	p, err := openPlace(c.dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	top, err := bareAll(context.Background(), p)
	if err != nil {
		return nil, err
	}
	links := map[uint64]uint32{}
	first := map[uint64]string{} // an unchanged name of each group
	now := map[string]*entry{}
	for at, e := range top.walk(".") {
		now[at] = e
		links[e.Group]++
		if e.Group != 0 && c.same(at, e) {
			first[e.Group] = at
		}
	}
	var out []change
	for at, e := range top.walk(".") {
		was := c.was[at]
		if c.same(at, e) || e.Kind == Dir && was != nil && was.e.Kind == Dir && was.e.Mode == e.Mode && was.e.Time == e.Time {
			continue
		}
		x := *e
		x.dir, x.fp, x.ignored = nil, print{}, false
		ch := change{path: at, e: &x, seen: &print{}}
		if was != nil {
			ch.seen = &was.seen
		}
		switch e.Kind {
		case Symlink:
			if x.Target, err = p.readlink(at); err != nil {
				return nil, err
			}
			x.Size = 0
		case File:
			ch.src = filepath.Join(c.dir, filepath.FromSlash(at))
			ch.move = e.Group == 0 && !bounded(c.ground.quota)
			if links[e.Group] != e.fp.nlink { // shared with something outside the view
				x.Group = 0
			}
			if b := first[e.Group]; e.Group != 0 && b != "" {
				ch.base, ch.src = b, ""
				ch.from = &entry{Entry: c.was[b].e, fp: c.was[b].seen}
			}
		}
		out = append(out, ch)
	}
	for at, was := range c.was {
		if now[at] == nil && (at == "." || now[path.Dir(at)] != nil) {
			out = append(out, change{path: at, seen: &was.seen})
		}
	}
	return out, nil
}

// same tells that a copy was not touched. Its stamp of last change tells that
// of its content, but also moves when another name for it comes or goes.
func (c *copied) same(at string, e *entry) bool {
	was := c.was[at]
	if was == nil || was.e.Kind != e.Kind || was.fp.ino != e.fp.ino || was.e.Mode != e.Mode || was.e.Time != e.Time || was.e.Size != e.Size {
		return false
	}
	if was.fp.ctime == e.fp.ctime || e.Kind != File {
		return true
	}
	base := c.ground.base.lookup(at)
	if base == nil || base.ignored || base.fp.ino != was.seen.ino || base.fp.ctime != was.seen.ctime {
		return false // what was copied is not known by its hash
	}
	f, err := os.Open(filepath.Join(c.dir, filepath.FromSlash(at)))
	if err != nil {
		return false
	}
	defer f.Close()
	h, err := hashFile(f, e.Size)
	return err == nil && h == base.Hash
}

func (c *copied) end() error {
	if c.done {
		return nil
	}
	c.done = true
	return unmount(c.ground.scratch)
}

func itoa(i int) string { return strconv.Itoa(i) }
