package view

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Layer is the view of a transaction as a file system in Go: what a sandbox
// without a kernel of its own shows its guest, and what file tools work on.
// Reading goes to the workspace, each directory as it was when it was first
// looked at; a file changed outside since then cannot be read any more. Names
// are slash-separated and relative to the workspace; a link may lead
// anywhere inside it, and one that leads out is an error. Quotas hold at the
// write that would pass them. It is safe for concurrent use.
type Layer struct {
	mu sync.Mutex
	shadow
}

// A shadow is what stands where in a Layer, and where its contents lie.
type shadow struct {
	ground Ground
	purse
	root  *lnode
	next  int
	inode map[uint64]*lnode // files with several names
	over  bool
}

// A purse holds the quota.
type purse struct {
	most  fsys.Bound
	bytes int64 // held by staged files
	files int
}

// An lnode is a file, directory or link of the view; under several names if it
// has several.
type lnode struct {
	fsys.Entry
	base  string     // what it is in the workspace, until written; "" for new
	seen  fsys.Print // of base
	was   fsys.Entry // of base
	data  string     // staged content, once written
	dirty bool       // not as base is
	names int
	group uint64

	// Of a directory: what is in it, and what was in it at first; both nil
	// until it is looked at.
	kids map[string]*lnode
	orig map[string]*lnode
}

// NewLayer makes the view of a Layer.
func NewLayer(g Ground) View {
	return layered{&Layer{shadow: shadow{ground: g, purse: purse{most: g.Quota}, inode: map[uint64]*lnode{},
		root: &lnode{Entry: fsys.Entry{Kind: fsys.Dir, Mode: g.Base.Mode, Time: g.Base.Time}, base: "."}}}}
}

// layered is a Layer as its transaction sees it.
type layered struct{ l *Layer }

func (v layered) Layer() *Layer              { return v.l }
func (v layered) Changes() ([]Staged, error) { return v.l.changes() }
func (v layered) End() error                 { return v.l.close() }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

var (
	errNotDir = errors.New("not a directory")
	errIsDir  = errors.New("is a directory")
	errFull   = errors.New("directory not empty")
	errLoop   = errors.New("too many links")
)

// load reads a directory of the workspace at its first use.
func (l *shadow) load(n *lnode) error {
	if n.kids != nil {
		return nil
	}
	kids := map[string]*lnode{}
	if n.base != "" {
		p, err := l.ground.Place.Sub(n.base)
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
			kids[e.Name] = l.inherit(path.Join(n.base, e.Name), *e)
			return nil
		})
		if err != nil {
			return err
		}
	}
	n.kids, n.orig = kids, maps.Clone(kids)
	return nil
}

func (l *shadow) inherit(base string, e fsys.Item) *lnode {
	if k := l.inode[e.Group]; e.Group != 0 && k != nil && k.seen.Ino == e.Print.Ino {
		k.names++
		return k
	}
	n := &lnode{Entry: e.Entry, base: base, seen: e.Print, was: e.Entry, names: 1, group: e.Group}
	if e.Group != 0 {
		l.inode[e.Group] = n
	}
	return n
}

// walk finds name: the directory it stands in, its last part, and what is
// there, or nil. With follow a link at the end is followed too.
func (l *shadow) walk(op, name string, follow bool) (dir *lnode, last string, n *lnode, err error) {
	if l.over {
		return nil, "", nil, pathError(op, name, fs.ErrClosed)
	}
	if strings.ContainsRune(name, 0) || strings.HasPrefix(name, "/") {
		return nil, "", nil, pathError(op, fsys.Clip(name), fsys.Errorf(fsys.Refused, "", "expected a path relative to the workspace"))
	}
	trail := []*lnode{l.root}
	parts := strings.Split(name, "/")
	last, n = ".", l.root
	for links := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		dir = trail[len(trail)-1]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(trail) == 1 {
				return nil, "", nil, pathError(op, name, fsys.Errorf(fsys.Refused, "", "the path leads out of the workspace"))
			}
			trail = trail[:len(trail)-1]
			n, last = trail[len(trail)-1], "."
			continue
		}
		if err := l.load(dir); err != nil {
			return nil, "", nil, err
		}
		n, last = dir.kids[part], part
		if n != nil && n.Kind == fsys.Symlink && (len(parts) > 0 || follow) {
			if links++; links > 40 {
				return nil, "", nil, pathError(op, name, errLoop)
			}
			if strings.HasPrefix(n.Target, "/") {
				return nil, "", nil, pathError(op, name, fsys.Errorf(fsys.Refused, "", "the link %s leads out of the workspace", part))
			}
			parts = append(strings.Split(n.Target, "/"), parts...)
			n, last = dir, "."
			continue
		}
		if n == nil {
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

// find is walk for what must be there.
func (l *shadow) find(op, name string, follow bool) (*lnode, error) {
	_, _, n, err := l.walk(op, name, follow)
	if err == nil && n == nil {
		err = pathError(op, name, fs.ErrNotExist)
	}
	return n, err
}

// spot is walk for what must not be there, and can be put there.
func (l *shadow) spot(op, name string) (*lnode, string, error) {
	dir, last, n, err := l.walk(op, name, false)
	if err == nil && n != nil {
		err = pathError(op, name, fs.ErrExist)
	}
	if err == nil && len(last) > 255 {
		err = pathError(op, fsys.Clip(name), fsys.Errorf(fsys.Refused, "", "expected a name of at most 255 bytes, found %d", len(last)))
	}
	if err == nil && fsys.IsGit(last) && !l.ground.WriteGit {
		err = pathError(op, name, fsys.Errorf(fsys.Refused, "", "a transaction may not change a person's repository (Config.WriteGit allows it)"))
	}
	return dir, last, err
}

// charge holds the quota. Negative amounts give back.
func (l *purse) charge(bytes int64, files int) error {
	if bytes > 0 && l.most.Bytes > 0 && l.bytes+bytes > l.most.Bytes {
		return fsys.Errorf(fsys.Quota, "", "expected at most %d bytes staged, this would make %d", l.most.Bytes, l.bytes+bytes)
	}
	if files > 0 && l.most.Files > 0 && l.files+files > l.most.Files {
		return fsys.Errorf(fsys.Quota, "", "expected at most %d files staged, this would make %d", l.most.Files, l.files+files)
	}
	l.bytes += bytes
	l.files += files
	return nil
}

func touch(n *lnode) {
	n.Time, n.dirty = time.Now().UnixNano(), true
}

func (l *shadow) add(dir *lnode, name string, n *lnode) {
	dir.kids[name] = n
	n.names++
	touch(dir)
}

// Mkdir makes a directory.
func (l *Layer) Mkdir(name string, mode fs.FileMode) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, last, err := l.spot("mkdir", name)
	if err != nil {
		return err
	}
	if err := l.charge(0, 1); err != nil {
		return err
	}
	n := &lnode{Entry: fsys.Entry{Kind: fsys.Dir, Mode: mode & (fs.ModePerm | fs.ModeSticky)}, kids: map[string]*lnode{}}
	touch(n)
	l.add(dir, last, n)
	return nil
}

// MkdirAll makes a directory and those above it that are missing.
func (l *Layer) MkdirAll(name string, mode fs.FileMode) error {
	for i := range len(name) + 1 {
		if i == len(name) || name[i] == '/' {
			err := l.Mkdir(name[:i], mode)
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	e, err := l.Stat(name)
	if err == nil && e.Kind != fsys.Dir {
		err = pathError("mkdir", name, errNotDir)
	}
	return err
}

// Symlink makes a link. Its text may be anything; following it stays inside.
func (l *Layer) Symlink(target, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, last, err := l.spot("symlink", name)
	if err != nil {
		return err
	}
	if target == "" || len(target) > 4095 || strings.ContainsRune(target, 0) {
		return pathError("symlink", name, fsys.Errorf(fsys.Refused, "", "expected a target of 1 to 4095 bytes"))
	}
	if err := l.charge(0, 1); err != nil {
		return err
	}
	n := &lnode{Entry: fsys.Entry{Kind: fsys.Symlink, Target: target}}
	touch(n)
	l.add(dir, last, n)
	return nil
}

// Link gives a file a further name.
func (l *Layer) Link(old, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.find("link", old, false)
	if err != nil {
		return err
	}
	if n.Kind != fsys.File {
		return pathError("link", old, fsys.Errorf(fsys.Refused, "", "expected a file"))
	}
	if err := l.whole(n); err != nil {
		return err
	}
	dir, last, err := l.spot("link", name)
	if err != nil {
		return err
	}
	if err := l.charge(0, 1); err != nil {
		return err
	}
	if n.group == 0 {
		l.next++
		n.group = 1<<63 + uint64(l.next)
	}
	l.add(dir, last, n)
	return nil
}

// whole looks at every name in the workspace of a file that has several, so
// that all of them follow when it is written through one.
func (l *shadow) whole(n *lnode) error {
	if n.Group == 0 || n.dirty {
		return nil
	}
	for p, e := range l.ground.Base.Walk(".") {
		if e.Group != n.Group {
			continue
		}
		at := l.root
		for part := range strings.SplitSeq(p, "/") {
			if err := l.load(at); err != nil {
				return err
			}
			next := at.orig[part]
			if next == nil || next.Kind != fsys.Dir {
				break
			}
			at = next
		}
	}
	return nil
}

// Remove removes a file, a link, or an empty directory.
func (l *Layer) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, last, n, err := l.walk("remove", name, false)
	switch {
	case err != nil:
		return err
	case n == nil:
		return pathError("remove", name, fs.ErrNotExist)
	case last == ".":
		return pathError("remove", name, fs.ErrInvalid)
	}
	if err := l.takeable("remove", name, n); err != nil {
		return err
	}
	if n.Kind == fsys.Dir {
		if err := l.load(n); err != nil {
			return err
		}
		if len(n.kids) > 0 {
			return pathError("remove", name, errFull)
		}
	}
	l.drop(dir, last, n)
	return nil
}

func (l *shadow) takeable(op, name string, n *lnode) error {
	if n.Kind == fsys.Other {
		return pathError(op, name, fsys.Errorf(fsys.Refused, "", "a FIFO, socket, device or mount is not changed"))
	}
	if n.base != "" && fsys.InGit(n.base) && !l.ground.WriteGit {
		return pathError(op, name, fsys.Errorf(fsys.Refused, "", "a transaction may not change a person's repository (Config.WriteGit allows it)"))
	}
	return nil
}

func (l *shadow) drop(dir *lnode, last string, n *lnode) {
	delete(dir.kids, last)
	touch(dir)
	n.names--
	if n.base == "" || n.data != "" {
		l.charge(0, -1)
	}
	if n.names == 0 && n.data != "" {
		l.charge(-n.Size, 0)
		os.Remove(n.data) // open handles go on
	}
}

// RemoveAll removes name and all below it; nothing there is no error.
func (l *Layer) RemoveAll(name string) error {
	e, err := l.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		return nil
	}
	if err == nil && e.Kind == fsys.Dir {
		var names []string
		if names, err = l.ReadDir(name); err != nil {
			return err
		}
		for _, n := range names {
			if err := l.RemoveAll(name + "/" + n); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	return l.Remove(name)
}

// Rename moves a name; what it replaces is gone, as with rename(2).
func (l *Layer) Rename(old, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, fromLast, n, err := l.walk("rename", old, false)
	if err == nil && (n == nil || fromLast == ".") {
		err = pathError("rename", old, fs.ErrNotExist)
	}
	if err == nil {
		err = l.takeable("rename", old, n)
	}
	if err != nil {
		return err
	}
	to, last, was, err := l.walk("rename", name, false)
	if err != nil || was == n {
		return err
	}
	if was == nil {
		if to, last, err = l.spot("rename", name); err != nil {
			return err
		}
	} else {
		if err := l.takeable("rename", name, was); err != nil {
			return err
		}
		if err := l.replaceable(n, was, name); err != nil {
			return err
		}
	}
	if n.Kind == fsys.Dir {
		if n.holds(to) {
			return pathError("rename", name, fsys.Errorf(fsys.Refused, "", "a directory cannot be moved below itself"))
		}
		if err := l.loadAll(n); err != nil { // it may never be read under its old name again
			return err
		}
	}
	if was != nil {
		l.drop(to, last, was)
	}
	delete(from.kids, fromLast)
	touch(from)
	n.names--
	l.add(to, last, n)
	return nil
}

func (l *shadow) replaceable(n, was *lnode, name string) error {
	switch {
	case last(name) == ".":
		return pathError("rename", name, fs.ErrInvalid)
	case n.Kind == fsys.Dir && was.Kind != fsys.Dir:
		return pathError("rename", name, errNotDir)
	case n.Kind != fsys.Dir && was.Kind == fsys.Dir:
		return pathError("rename", name, errIsDir)
	case was.Kind == fsys.Dir:
		if err := l.load(was); err != nil {
			return err
		}
		if len(was.kids) > 0 {
			return pathError("rename", name, errFull)
		}
	}
	return nil
}

func last(name string) string { return path.Base(path.Clean("/" + name)) }

func (n *lnode) holds(d *lnode) bool {
	if n == d {
		return true
	}
	for _, k := range n.kids {
		if k.Kind == fsys.Dir && k.holds(d) {
			return true
		}
	}
	return false
}

func (l *shadow) loadAll(n *lnode) error {
	if err := l.load(n); err != nil {
		return err
	}
	for _, k := range n.kids {
		if k.Kind == fsys.Other {
			return fsys.Errorf(fsys.Refused, k.base, "a FIFO, socket, device or mount is not moved")
		}
		if k.Kind == fsys.Dir {
			if err := l.loadAll(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// Lstat says what name is; Stat, what it leads to.
func (l *Layer) Lstat(name string) (fsys.Entry, error) { return l.stat(name, false) }

// Stat follows links.
func (l *Layer) Stat(name string) (fsys.Entry, error) { return l.stat(name, true) }

func (l *Layer) stat(name string, follow bool) (fsys.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.find("stat", name, follow)
	if err != nil {
		return fsys.Entry{}, err
	}
	e := n.Entry
	e.Group = n.group
	return e, nil
}

// ReadDir lists a directory, sorted.
func (l *Layer) ReadDir(name string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.find("readdir", name, true)
	if err == nil && n.Kind != fsys.Dir {
		err = pathError("readdir", name, errNotDir)
	}
	if err == nil {
		err = l.load(n)
	}
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(n.kids)), nil
}

// Chmod changes permissions.
func (l *Layer) Chmod(name string, mode fs.FileMode) error {
	return l.attr("chmod", name, func(n *lnode) { n.Mode = mode & (fs.ModePerm | fs.ModeSticky) })
}

// Chtimes changes the time of last change.
func (l *Layer) Chtimes(name string, t time.Time) error {
	return l.attr("chtimes", name, func(n *lnode) { n.Time = t.UnixNano() })
}

func (l *Layer) attr(op, name string, set func(*lnode)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.find(op, name, true)
	if err == nil {
		err = l.takeable(op, name, n)
	}
	if err == nil {
		err = l.whole(n)
	}
	if err != nil {
		return err
	}
	set(n)
	n.dirty = true
	return nil
}

// ReadFile reads a whole file.
func (l *Layer) ReadFile(name string) ([]byte, error) {
	f, err := l.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// WriteFile writes a whole file, as os.WriteFile does.
func (l *Layer) WriteFile(name string, b []byte, mode fs.FileMode) error {
	f, err := l.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// OpenFile opens a file with the flags of os.OpenFile.
func (l *Layer) OpenFile(name string, flag int, mode fs.FileMode) (*LayerFile, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, last, n, err := l.walk("open", name, flag&os.O_EXCL == 0)
	if err != nil {
		return nil, err
	}
	write := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n == nil:
		if n, err = l.create(dir, last, mode); err != nil {
			return nil, err
		}
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case n.Kind == fsys.Dir:
		return nil, pathError("open", name, errIsDir)
	case n.Kind != fsys.File:
		return nil, pathError("open", name, fsys.Errorf(fsys.Refused, "", "expected a file"))
	}
	f := &LayerFile{l: l, n: n, name: name, write: write, read: flag&os.O_WRONLY == 0, end: flag&os.O_APPEND != 0}
	if write && flag&os.O_TRUNC != 0 && n.Size > 0 {
		if err := l.own(n, false); err != nil {
			return nil, err
		}
	}
	return f, f.content()
}

func (l *shadow) create(dir *lnode, last string, mode fs.FileMode) (*lnode, error) {
	if fsys.IsGit(last) && !l.ground.WriteGit || len(last) > 255 || last == "." {
		return nil, pathError("create", fsys.Clip(last), fsys.Errorf(fsys.Refused, "", "this name cannot be a file of a workspace"))
	}
	if err := l.charge(0, 1); err != nil {
		return nil, err
	}
	n := &lnode{Entry: fsys.Entry{Kind: fsys.File, Mode: mode & fs.ModePerm}}
	if err := l.blank(n); err != nil {
		l.charge(0, -1)
		return nil, err
	}
	touch(n)
	l.add(dir, last, n)
	return n, nil
}

// blank gives n an empty file to be written to.
func (l *shadow) blank(n *lnode) error {
	l.next++
	name := filepath.Join(l.ground.Scratch, "n"+strconv.Itoa(l.next))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n.data = name
	return f.Close()
}

// own makes n's content the transaction's: a copy of the workspace's, or
// nothing.
func (l *shadow) own(n *lnode, keep bool) error {
	if err := l.takeable("write", n.base, n); err != nil {
		return err
	}
	if err := l.whole(n); err != nil {
		return err
	}
	if n.data != "" {
		if keep {
			return nil
		}
		if err := os.Truncate(n.data, 0); err != nil {
			return err
		}
		l.charge(-n.Size, 0)
		n.Size = 0
		touch(n)
		return nil
	}
	size := n.Size
	if !keep {
		size = 0
	}
	if err := l.charge(size, 1); err != nil {
		return err
	}
	err := l.blank(n)
	if err == nil && keep {
		err = l.copyBase(n)
	}
	if err != nil {
		l.charge(-size, -1)
		n.data = ""
		return err
	}
	n.Size = size
	touch(n)
	return nil
}

func (l *shadow) copyBase(n *lnode) error {
	f, err := l.openBase(n)
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

// openBase opens what n is in the workspace, if it still is that.
func (l *shadow) openBase(n *lnode) (*os.File, error) {
	f, err := l.ground.Place.Open(n.base)
	if err != nil {
		return nil, err
	}
	e, err := fsys.Stat(f)
	var h fsys.Hash
	from := fsys.Item{Entry: n.was, Print: n.seen}
	if err == nil && !l.ground.Still(n.base, &from, &e, h) {
		h, err = fsys.HashFile(f, e.Size)
	}
	if err == nil && !l.ground.Still(n.base, &from, &e, h) {
		err = fsys.Errorf(fsys.Conflict, n.base, "changed by somebody else since the transaction first looked at it")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// changes closes the layer and says what differs from the workspace as it was
// found.
func (l *Layer) changes() ([]Staged, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	var out []Staged
	if l.root.dirty {
		out = append(out, Staged{Path: ".", To: &fsys.Item{Entry: l.root.Entry}})
	}
	err := l.differ(".", l.root, l.root, &out)
	return out, err
}

// differ compares what n holds with what was at its path at first: under.
func (l *shadow) differ(at string, n, under *lnode, out *[]Staged) error {
	if n.kids == nil && n == under {
		return nil
	}
	if err := l.load(n); err != nil {
		return err
	}
	var orig map[string]*lnode
	if under != nil {
		if err := l.load(under); err != nil {
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
			*out = append(*out, l.change(p, k, o))
		}
		if k.Kind != fsys.Dir {
			continue
		}
		if o != nil && o.Kind != fsys.Dir {
			o = nil
		}
		if err := l.differ(p, k, o, out); err != nil {
			return err
		}
	}
	return nil
}

func (l *shadow) change(p string, k, o *lnode) Staged {
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

func (l *Layer) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	return nil
}

// A LayerFile is an open file of a Layer.
type LayerFile struct {
	l     *Layer
	n     *lnode
	name  string
	f     *os.File
	from  string // what f is: a staged file's name, or empty for the workspace's
	at    int64
	read  bool
	write bool
	end   bool
}

// content opens what the file's content is now: it moves when it is first
// written. The lock is held.
func (f *LayerFile) content() (err error) {
	if f.l.over {
		return pathError("use", f.name, fs.ErrClosed)
	}
	if f.f != nil && f.from == f.n.data {
		return nil
	}
	var g *os.File
	if f.n.data == "" {
		g, err = f.l.openBase(f.n)
	} else {
		g, err = os.OpenFile(f.n.data, os.O_RDWR, 0)
	}
	if err != nil {
		return err
	}
	if f.f != nil {
		f.f.Close()
	}
	f.f, f.from = g, f.n.data
	return nil
}

// ReadAt reads as os.File does.
func (f *LayerFile) ReadAt(b []byte, off int64) (int, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	return f.readAt(b, off)
}

func (f *LayerFile) readAt(b []byte, off int64) (int, error) {
	if !f.read {
		return 0, pathError("read", f.name, fs.ErrPermission)
	}
	if err := f.content(); err != nil {
		return 0, err
	}
	return f.f.ReadAt(b, off)
}

// WriteAt writes as os.File does.
func (f *LayerFile) WriteAt(b []byte, off int64) (int, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	return f.writeAt(b, off)
}

func (f *LayerFile) writeAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	if err := f.ready(); err != nil {
		return 0, err
	}
	end := off + int64(len(b))
	grow := max(0, end-f.n.Size)
	if err := f.l.charge(grow, 0); err != nil {
		return 0, pathError("write", f.name, err)
	}
	k, err := f.f.WriteAt(b, off)
	f.n.Size += grow
	if err != nil {
		if fi, serr := f.f.Stat(); serr == nil {
			f.l.charge(fi.Size()-f.n.Size, 0)
			f.n.Size = fi.Size()
		}
	}
	touch(f.n)
	return k, err
}

// ready makes the content the transaction's own.
func (f *LayerFile) ready() error {
	if !f.write {
		return pathError("write", f.name, fs.ErrPermission)
	}
	if f.l.over {
		return pathError("write", f.name, fs.ErrClosed)
	}
	if f.n.names == 0 {
		return pathError("write", f.name, fs.ErrNotExist)
	}
	if err := f.l.own(f.n, true); err != nil {
		return err
	}
	return f.content()
}

// Read reads on.
func (f *LayerFile) Read(b []byte) (int, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	n, err := f.readAt(b, f.at)
	f.at += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Write writes on, at the end when opened with O_APPEND.
func (f *LayerFile) Write(b []byte) (int, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	if f.end {
		f.at = f.n.Size
	}
	n, err := f.writeAt(b, f.at)
	f.at += int64(n)
	return n, err
}

// Seek moves where Read and Write go on.
func (f *LayerFile) Seek(off int64, whence int) (int64, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		off += f.at
	case io.SeekEnd:
		off += f.n.Size
	}
	if off < 0 {
		return 0, pathError("seek", f.name, fs.ErrInvalid)
	}
	f.at = off
	return off, nil
}

// Truncate changes the size.
func (f *LayerFile) Truncate(size int64) error {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	if size < 0 {
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	if err := f.ready(); err != nil {
		return err
	}
	if err := f.l.charge(size-f.n.Size, 0); err != nil {
		return pathError("truncate", f.name, err)
	}
	if err := f.f.Truncate(size); err != nil {
		f.l.charge(f.n.Size-size, 0)
		return err
	}
	f.n.Size = size
	touch(f.n)
	return nil
}

// Stat says what the file is now.
func (f *LayerFile) Stat() (fsys.Entry, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	return f.n.Entry, nil
}

// Close ends the use of the file.
func (f *LayerFile) Close() error {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	if f.f == nil {
		return nil
	}
	g := f.f
	f.f = nil
	return g.Close()
}
