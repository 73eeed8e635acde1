package view

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A layerTree is the tree of names in a Layer.
type layerTree struct {
	ground Ground
	quota  quota
	root   *lnode
	next   int               // number of the next content file or group
	inode  map[uint64]*lnode // files with several names
	closed bool
}

// A quota counts what is staged.
type quota struct {
	most  fsys.Limit
	bytes int64 // of staged files
	files int
}

// An lnode is a file, directory or link of the view. It may have several names.
type lnode struct {
	fsys.Entry
	base  string     // its path in the workspace, until it is written; "" for a new one
	seen  fsys.Print // of base
	was   fsys.Entry // of base
	data  string     // the file with staged content, once written
	dirty bool       // differs from base
	names int
	first int // names that it has in the workspace
	count int // how many staged files it counts as
	group uint64

	// The entries of a directory, now and at first. Both are nil until the
	// directory is read.
	kids map[string]*lnode
	orig map[string]*lnode
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// loadDir reads a directory of the workspace at its first use.
func (t *layerTree) loadDir(n *lnode) error {
	if n.kids != nil {
		return nil
	}
	kids := map[string]*lnode{}
	if n.base != "" {
		p, err := t.ground.Place.Sub(n.base)
		if err != nil {
			return err
		}
		defer p.Close()
		err = p.Each(func(e *fsys.Item) (err error) {
			if e.Kind == fsys.Symlink {
				if e.Target, err = p.Readlink(e.Name); err != nil {
					return err
				}
			}
			kids[e.Name] = t.nodeOf(path.Join(n.base, e.Name), *e)
			return nil
		})
		if err != nil {
			return err
		}
	}
	// The first look stays in orig: the changes are what differs from it.
	n.kids, n.orig = kids, maps.Clone(kids)
	return nil
}

// nodeOf returns the node of an entry of the workspace. Names of one file share a
// node.
func (t *layerTree) nodeOf(base string, e fsys.Item) *lnode {
	if k := t.inode[e.Group]; e.Group != 0 && k != nil && k.seen.Ino == e.Print.Ino {
		k.names++
		k.first++
		return k
	}
	n := &lnode{Entry: e.Entry, base: base, seen: e.Print, was: e.Entry, names: 1, first: 1, group: e.Group}
	if e.Group != 0 {
		t.inode[e.Group] = n
	}
	return n
}

// resolve finds name. It returns the directory, the last part of the name, and the
// node there, or nil. With follow, it also follows a link at the end.
func (t *layerTree) resolve(op, name string, follow bool) (dir *lnode, last string, n *lnode, err error) {
	if t.closed {
		return nil, "", nil, pathError(op, name, fs.ErrClosed)
	}
	if strings.ContainsRune(name, 0) || strings.HasPrefix(name, "/") {
		return nil, "", nil, pathError(op, fsys.Clip(name), fsys.Errorf(fsys.Refused, "", "expected a path relative to the workspace"))
	}
	// The trail knows the real parents, so ".." after a link goes where the kernel would go.
	trail := []*lnode{t.root}
	parts := strings.Split(name, "/")
	last, n = ".", t.root
	for links := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		dir = trail[len(trail)-1]
		switch part {
		case "", ".":
			continue
		case "..":
			// No path leaves the workspace, and an error shows the mistake.
			if len(trail) == 1 {
				return nil, "", nil, pathError(op, name, fsys.Errorf(fsys.Refused, "", "the path leads out of the workspace"))
			}
			trail = trail[:len(trail)-1]
			n, last = trail[len(trail)-1], "."
			continue
		}
		if err := t.loadDir(dir); err != nil {
			return nil, "", nil, err
		}
		n, last = dir.kids[part], part
		if n != nil && n.Kind == fsys.Symlink && (len(parts) > 0 || follow) {
			// Linux also gives up after 40 links, which finds loops.
			if links++; links > 40 {
				return nil, "", nil, pathError(op, name, errLoop)
			}
			// The layer has no root directory, so an absolute target lies outside.
			if strings.HasPrefix(n.Target, "/") {
				return nil, "", nil, pathError(op, name, fsys.Errorf(fsys.Refused, "", "the link %s leads out of the workspace", part))
			}
			parts = append(strings.Split(n.Target, "/"), parts...)
			n, last = dir, "."
			continue
		}
		if n == nil {
			// A missing name is an error only if the path goes on behind it. Otherwise the caller may make it.
			if slices.ContainsFunc(parts, func(s string) bool { return s != "" && s != "." }) {
				return nil, "", nil, pathError(op, name, fs.ErrNotExist)
			}
			return dir, last, nil, nil
		}
		if n.Kind == fsys.Dir {
			trail = append(trail, n)
		} else if len(parts) > 0 {
			return nil, "", nil, pathError(op, name, errNotDir)
		}
	}
	return dir, last, n, nil
}

// findNode resolves a name that must exist.
func (t *layerTree) findNode(op, name string, follow bool) (*lnode, error) {
	_, _, n, err := t.resolve(op, name, follow)
	if err == nil && n == nil {
		err = pathError(op, name, fs.ErrNotExist)
	}
	return n, err
}

// findFree resolves a name that must not exist and that may be made.
func (t *layerTree) findFree(op, name string) (*lnode, string, error) {
	dir, last, n, err := t.resolve(op, name, false)
	if err == nil && n != nil {
		err = pathError(op, name, fs.ErrExist)
	}
	if err == nil && len(last) > 255 {
		err = pathError(op, fsys.Clip(name), fsys.Errorf(fsys.Refused, "", "expected a name of at most 255 bytes, found %d", len(last)))
	}
	if err == nil && fsys.IsGit(last) && !t.ground.WriteGit {
		err = pathError(op, name, fsys.Errorf(fsys.Refused, "", "a transaction may not change a person's repository (Config.WriteGit allows it)"))
	}
	return dir, last, err
}

// charge counts staged bytes and files, or fails if the quota does not allow them.
// Negative amounts are returned to the quota.
func (q *quota) charge(bytes int64, files int) error {
	if bytes > 0 && q.most.Bytes > 0 && q.bytes+bytes > q.most.Bytes {
		return fsys.Errorf(fsys.Quota, "", "expected at most %d bytes staged, this would make %d", q.most.Bytes, q.bytes+bytes)
	}
	if files > 0 && q.most.Files > 0 && q.files+files > q.most.Files {
		return fsys.Errorf(fsys.Quota, "", "expected at most %d files staged, this would make %d", q.most.Files, q.files+files)
	}
	q.bytes += bytes
	q.files += files
	return nil
}

// chargeNames counts n as it will be with this many names. Names that it has in
// the workspace are free, so a rename is free as well, and content counts once.
func (q *quota) chargeNames(n *lnode, names int) error {
	count := max(0, names-n.first)
	if names > 0 && n.base != "" && n.data != "" {
		count++
	}
	if err := q.charge(0, count-n.count); err != nil {
		return err
	}
	n.count = count
	return nil
}

func touch(n *lnode) {
	n.Time, n.dirty = time.Now().UnixNano(), true
}

// link adds a name for n.
func (t *layerTree) link(dir *lnode, name string, n *lnode) {
	dir.kids[name] = n
	n.names++
	touch(dir)
}

// loadNames reads every directory that has a name of the same file. A write
// through one name then changes the file under all names.
func (t *layerTree) loadNames(n *lnode) error {
	// A dirty file was loaded under all its names before its first change.
	if n.Group == 0 || n.dirty {
		return nil
	}
	for p, e := range t.ground.Base.Walk(".") {
		if e.Group != n.Group {
			continue
		}
		at := t.root
		for part := range strings.SplitSeq(p, "/") {
			if err := t.loadDir(at); err != nil {
				return err
			}
			next := at.orig[part]
			// The last part is the file itself. An earlier one means that somebody else changed the directory.
			if next == nil || next.Kind != fsys.Dir {
				break
			}
			at = next
		}
	}
	return nil
}

// checkChangeable refuses to change what a workspace never changes.
func (t *layerTree) checkChangeable(op, name string, n *lnode) error {
	if n.Kind == fsys.Other {
		return pathError(op, name, fsys.Errorf(fsys.Refused, "", "a FIFO, socket, device or mount is not changed"))
	}
	if n.base != "" && fsys.InGit(n.base) && !t.ground.WriteGit {
		return pathError(op, name, fsys.Errorf(fsys.Refused, "", "a transaction may not change a person's repository (Config.WriteGit allows it)"))
	}
	return nil
}

// unlink takes a name from n.
func (t *layerTree) unlink(dir *lnode, last string, n *lnode) {
	delete(dir.kids, last)
	touch(dir)
	n.names--
	t.quota.chargeNames(n, n.names)
	if n.names == 0 && n.data != "" {
		t.quota.charge(-n.Size, 0)
		os.Remove(n.data) // open files still work
	}
}

// checkReplaceable returns an error if n cannot replace was, as rename(2) has it.
func (t *layerTree) checkReplaceable(n, was *lnode, name string) error {
	switch {
	case last(name) == ".":
		return pathError("rename", name, fs.ErrInvalid)
	case n.Kind == fsys.Dir && was.Kind != fsys.Dir:
		return pathError("rename", name, errNotDir)
	case n.Kind != fsys.Dir && was.Kind == fsys.Dir:
		return pathError("rename", name, errIsDir)
	case was.Kind == fsys.Dir:
		if err := t.loadDir(was); err != nil {
			return err
		}
		if len(was.kids) > 0 {
			return pathError("rename", name, errNotEmpty)
		}
	}
	return nil
}

func last(name string) string { return path.Base(path.Clean("/" + name)) }

func (n *lnode) contains(d *lnode) bool {
	if n == d {
		return true
	}
	for _, k := range n.kids {
		if k.Kind == fsys.Dir && k.contains(d) {
			return true
		}
	}
	return false
}

// loadTree reads a directory and everything below it.
func (t *layerTree) loadTree(n *lnode) error {
	if err := t.loadDir(n); err != nil {
		return err
	}
	for _, k := range n.kids {
		if k.Kind == fsys.Other {
			return fsys.Errorf(fsys.Refused, k.base, "a FIFO, socket, device or mount is not moved")
		}
		if k.Kind == fsys.Dir {
			if err := t.loadTree(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// createFile makes an empty file.
func (t *layerTree) createFile(dir *lnode, last string, mode fs.FileMode) (*lnode, error) {
	if fsys.IsGit(last) && !t.ground.WriteGit || len(last) > 255 || last == "." {
		return nil, pathError("create", fsys.Clip(last), fsys.Errorf(fsys.Refused, "", "this name cannot be a file of a workspace"))
	}
	n := &lnode{Entry: fsys.Entry{Kind: fsys.File, Mode: mode & fs.ModePerm}}
	if err := t.quota.chargeNames(n, 1); err != nil {
		return nil, err
	}
	if err := t.newContent(n); err != nil {
		t.quota.chargeNames(n, 0)
		return nil, err
	}
	touch(n)
	t.link(dir, last, n)
	return n, nil
}

// newContent makes an empty file in scratch for the content of n.
func (t *layerTree) newContent(n *lnode) error {
	t.next++
	name := filepath.Join(t.ground.Scratch, "n"+strconv.Itoa(t.next))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n.data = name
	return f.Close()
}

// makeOwn gives n content of its own that the transaction may write: with keep, a
// copy of the file in the workspace, else an empty file.
func (t *layerTree) makeOwn(n *lnode, keep bool) error {
	if err := t.checkChangeable("write", n.base, n); err != nil {
		return err
	}
	// Names that are read later would still show the old content.
	if err := t.loadNames(n); err != nil {
		return err
	}
	if n.data != "" {
		if keep {
			return nil
		}
		if err := os.Truncate(n.data, 0); err != nil {
			return err
		}
		t.quota.charge(-n.Size, 0)
		n.Size = 0
		touch(n)
		return nil
	}
	size := n.Size
	if !keep {
		size = 0
	}
	// The quota is charged before the copy, so that no copy exceeds it.
	if err := t.quota.charge(size, 1); err != nil {
		return err
	}
	err := t.newContent(n)
	if err == nil && keep {
		err = t.copyBase(n)
	}
	if err != nil {
		t.quota.charge(-size, -1)
		n.data = ""
		return err
	}
	n.count++
	n.Size = size
	touch(n)
	return nil
}

func (t *layerTree) copyBase(n *lnode) error {
	f, err := t.openBase(n)
	if err != nil {
		return err
	}
	defer f.Close()
	g, err := os.OpenFile(n.data, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(fsys.Copy(g, f, n.Size), g.Close())
}

// openBase opens the file of n in the workspace, if nobody changed it since.
func (t *layerTree) openBase(n *lnode) (*os.File, error) {
	f, err := t.ground.Place.Open(n.base)
	if err != nil {
		return nil, err
	}
	e, err := fsys.Stat(f)
	var h fsys.Hash
	from := fsys.Item{Entry: n.was, Print: n.seen}
	if err == nil && !t.ground.Still(n.base, &from, &e, h) {
		h, err = fsys.HashFile(f, e.Size)
	}
	if err == nil && !t.ground.Still(n.base, &from, &e, h) {
		err = fsys.Errorf(fsys.Conflict, n.base, "changed by somebody else since the transaction first looked at it")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// collect compares n with under, the directory that was at its path at first.
func (t *layerTree) collect(at string, n, under *lnode, out *[]Staged) error {
	// Nobody looked into the directory, so nothing below it changed.
	if n.kids == nil && n == under {
		return nil
	}
	if err := t.loadDir(n); err != nil {
		return err
	}
	var orig map[string]*lnode
	if under != nil {
		if err := t.loadDir(under); err != nil {
			return err
		}
		orig = under.orig
	}
	for name, o := range orig {
		if n.kids[name] == nil {
			*out = append(*out, Staged{Path: path.Join(at, name), Seen: &o.seen})
		}
	}
	for name, k := range n.kids {
		p, o := path.Join(at, name), orig[name]
		if k != o || k.dirty && (k.Kind == fsys.Dir || k.data != "" || k.Mode != k.was.Mode || k.Time != k.was.Time) {
			*out = append(*out, t.staged(p, k, o))
		}
		if k.Kind != fsys.Dir {
			continue
		}
		// A directory replaced a file: everything in it is new.
		if o != nil && o.Kind != fsys.Dir {
			o = nil
		}
		if err := t.collect(p, k, o, out); err != nil {
			return err
		}
	}
	return nil
}

// staged returns the staged form of k, with o at its path before.
func (t *layerTree) staged(p string, k, o *lnode) Staged {
	c := Staged{Path: p, To: &fsys.Item{Entry: k.Entry}, Seen: &fsys.Print{}}
	c.To.Group = 0
	if o != nil {
		c.Seen = &o.seen
	}
	if k.Kind == fsys.File {
		if k.names > 1 {
			c.To.Group = k.group
		}
		if k.data != "" {
			c.Src, c.Move = k.data, true
		} else {
			c.Base, c.From = k.base, &fsys.Item{Entry: k.was, Print: k.seen}
		}
	}
	return c
}
