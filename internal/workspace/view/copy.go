package view

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A copyView is a directory with a copy of everything. Changes compares it with the
// state right after copying.
type copyView struct {
	ground Ground
	dir    string
	was    map[string]*copiedFile
	done   bool
}

type copiedFile struct {
	seen fsys.Print // of the original
	fp   fsys.Print // of the copy
	e    fsys.Entry
}

// NewCopy opens a view that is a copy of the workspace.
func NewCopy(ctx context.Context, g Ground) (View, error) {
	c := &copyView{ground: g, dir: filepath.Join(g.Scratch, "view"), was: map[string]*copiedFile{}}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	top, err := fsys.Metadata(ctx, g.Place)
	if err != nil {
		return nil, err
	}
	if err := c.mountQuota(&top); err != nil {
		return nil, err
	}
	// A mount must not stay behind when the copy fails.
	if err := c.fill(ctx, &top); err != nil {
		return nil, errors.Join(err, c.End())
	}
	return c, nil
}

// mountQuota mounts a file system for the copy that enforces the quota.
func (c *copyView) mountQuota(top *fsys.Item) error {
	if !bounded(c.ground.Quota) {
		return nil
	}
	bytes, files := int64(0), 1
	groups := map[uint64]bool{}
	for _, e := range top.Walk(".") {
		// Names that share a file take its space once.
		if e.Group == 0 || !groups[e.Group] {
			bytes += e.Size
			files++
		}
		groups[e.Group] = true
	}
	return fsys.MountBounded(c.dir, bytes+int64(files)*4096, files, c.ground.Quota)
}

// fill copies the tree top.
func (c *copyView) fill(ctx context.Context, top *fsys.Item) error {
	type dir struct {
		at string
		e  *fsys.Item
	}
	var dirs []dir
	groups := map[uint64]string{}
	for at, e := range top.Walk(".") {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.Join(c.dir, filepath.FromSlash(at))
		switch {
		// A FIFO, socket or device is never published, so the copy leaves it out.
		case e.Kind == fsys.Other:
			continue
		case e.Kind == fsys.Dir:
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
			err := c.copyOne(at, name, e)
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed while the copy was made
			}
			if err != nil {
				return err
			}
			groups[e.Group] = name
		}
		c.was[at] = &copiedFile{seen: e.Print}
	}
	p, err := fsys.Open(c.dir)
	if err != nil {
		return err
	}
	defer p.Close()
	// Modes and times of directories come last: each new file needs write permission and changes the time.
	for i := len(dirs) - 1; i >= 0; i-- {
		d := dirs[i]
		c.was[d.at] = &copiedFile{seen: d.e.Print}
		if err := errors.Join(fsys.Chown(filepath.Join(c.dir, d.at), d.e.Print), p.SetAttr(d.at, d.e.Entry)); err != nil {
			return err
		}
	}
	for at, f := range c.was { // only now, because making a link changes metadata
		e, err := p.Lstat(at)
		if err != nil {
			return err
		}
		f.fp, f.e = e.Print, e.Entry
	}
	return nil
}

// copyOne copies one file or link.
func (c *copyView) copyOne(at, name string, e *fsys.Item) error {
	p := c.ground.Place
	if e.Kind == fsys.Symlink {
		// A link is copied as text and never followed.
		t, err := p.Readlink(at)
		if err != nil {
			return err
		}
		if err := os.Symlink(t, name); err != nil {
			return err
		}
	} else {
		f, err := p.Open(at)
		if err != nil {
			return err
		}
		defer f.Close()
		// The walk saw an earlier moment, and size and times must fit the content that is copied.
		now, err := fsys.Stat(f)
		if err != nil {
			return err
		}
		g, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(fsys.Copy(g, f, now.Size), g.Close()); err != nil {
			return err
		}
		fp := e.Print
		*e = now // the metadata at the moment of the copy
		e.Print.Nlink = fp.Nlink
	}
	if err := fsys.Chown(name, e.Print); err != nil {
		return err
	}
	q, err := fsys.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer q.Close()
	return q.SetAttr(filepath.Base(name), e.Entry)
}

func (c *copyView) Path() string { return c.dir }

// Changes implements View.
func (c *copyView) Changes() ([]Staged, error) {
	p, err := fsys.Open(c.dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	top, err := fsys.Metadata(context.Background(), p)
	if err != nil {
		return nil, err
	}
	links := map[uint64]uint32{}
	first := map[uint64]string{} // an unchanged name of each group
	now := map[string]*fsys.Item{}
	for at, e := range top.Walk(".") {
		now[at] = e
		links[e.Group]++
		if e.Group != 0 && c.untouched(at, e) {
			first[e.Group] = at
		}
	}
	var out []Staged
	for at, e := range top.Walk(".") {
		was := c.was[at]
		if c.untouched(at, e) || e.Kind == fsys.Dir && was != nil && was.e.Kind == fsys.Dir && was.e.Mode == e.Mode && was.e.Time == e.Time {
			continue
		}
		// The inode and the node are those of the copy. The published file gets its own.
		x := *e
		x.Dir, x.Print, x.Ignored = nil, fsys.Print{}, false
		// A zero Seen says that nothing was at the path, so a file that somebody else makes there is a conflict.
		ch := Staged{Path: at, To: &x, Seen: &fsys.Print{}}
		if was != nil {
			ch.Seen = &was.seen
		}
		switch e.Kind {
		case fsys.Symlink:
			if x.Target, err = p.Readlink(at); err != nil {
				return nil, err
			}
			x.Size = 0
		case fsys.File:
			ch.Src = filepath.Join(c.dir, filepath.FromSlash(at))
			// A file with several names stays, because its other names need it. A tmpfs is another file system.
			ch.Move = e.Group == 0 && !bounded(c.ground.Quota)
			if links[e.Group] != e.Print.Nlink { // shared with something outside the view
				x.Group = 0
			}
			// A new name for an unchanged file becomes a link to the file in the workspace, so both share it.
			if b := first[e.Group]; e.Group != 0 && b != "" {
				ch.Base, ch.Src = b, ""
				ch.From = &fsys.Item{Entry: c.was[b].e, Print: c.was[b].seen}
			}
		}
		out = append(out, ch)
	}
	for at, was := range c.was {
		// Removing a directory takes everything below along, so only its top is listed.
		if now[at] == nil && (at == "." || now[path.Dir(at)] != nil) {
			out = append(out, Staged{Path: at, Seen: &was.seen})
		}
	}
	return out, nil
}

// untouched reports whether a copy still has its content. Its change time also
// moves when a hard link to it is made or removed; then the content decides.
func (c *copyView) untouched(at string, e *fsys.Item) bool {
	was := c.was[at]
	if was == nil || was.e.Kind != e.Kind || was.fp.Ino != e.Print.Ino || was.e.Mode != e.Mode || was.e.Time != e.Time || was.e.Size != e.Size {
		return false
	}
	// Programs cannot set a change time, so equal times prove that nobody wrote.
	if was.fp.Ctime == e.Print.Ctime || e.Kind != fsys.File {
		return true
	}
	base := c.ground.Base.Lookup(at)
	if base == nil || base.Ignored || base.Print.Ino != was.seen.Ino || base.Print.Ctime != was.seen.Ctime {
		return false // the hash of the original is not known
	}
	f, err := os.Open(filepath.Join(c.dir, filepath.FromSlash(at)))
	if err != nil {
		return false
	}
	defer f.Close()
	h, err := fsys.HashFile(f, e.Size)
	return err == nil && h == base.Hash
}

func (c *copyView) End() error {
	if c.done {
		return nil
	}
	c.done = true
	return fsys.Unmount(c.ground.Scratch)
}
