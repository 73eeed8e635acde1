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

// A Layer is the view of a transaction as a copy-on-write file system in Go. Code
// in the wasm sandbox and file tools work on it. A directory is read from the
// workspace at its first use and does not change afterwards. A file that somebody
// else changed since then cannot be read any more. Names have slashes and are
// relative to the workspace. A link may lead anywhere inside the workspace; a link
// that leads out is an error. A write beyond the quota fails. A Layer is safe for
// concurrent use.
type Layer struct {
	mu   sync.Mutex
	tree layerTree
}

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

// NewLayer opens a view that is a Layer.
func NewLayer(g Ground) View {
	return layerView{&Layer{tree: layerTree{ground: g, quota: quota{most: g.Quota}, inode: map[uint64]*lnode{},
		root: &lnode{Entry: fsys.Entry{Kind: fsys.Dir, Mode: g.Base.Mode, Time: g.Base.Time}, base: "."}}}}
}

// layerView shows a Layer to its transaction.
type layerView struct{ l *Layer }

func (v layerView) Layer() *Layer              { return v.l }
func (v layerView) Changes() ([]Staged, error) { return v.l.changes() }
func (v layerView) End() error                 { return v.l.close() }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

var (
	errNotDir   = errors.New("not a directory")
	errIsDir    = errors.New("is a directory")
	errNotEmpty = errors.New("directory not empty")
	errLoop     = errors.New("too many links")
)

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

// Mkdir makes a directory.
func (l *Layer) Mkdir(name string, mode fs.FileMode) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, last, err := l.tree.findFree("mkdir", name)
	if err != nil {
		return err
	}
	n := &lnode{Entry: fsys.Entry{Kind: fsys.Dir, Mode: mode & (fs.ModePerm | fs.ModeSticky)}, kids: map[string]*lnode{}}
	if err := l.tree.quota.chargeNames(n, 1); err != nil {
		return err
	}
	touch(n)
	l.tree.link(dir, last, n)
	return nil
}

// MkdirAll makes a directory and all missing directories above it.
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

// Symlink makes a link. Its target may be any text, but following it never leaves
// the workspace.
func (l *Layer) Symlink(target, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, last, err := l.tree.findFree("symlink", name)
	if err != nil {
		return err
	}
	if target == "" || len(target) > 4095 || strings.ContainsRune(target, 0) {
		return pathError("symlink", name, fsys.Errorf(fsys.Refused, "", "expected a target of 1 to 4095 bytes"))
	}
	n := &lnode{Entry: fsys.Entry{Kind: fsys.Symlink, Target: target}}
	if err := l.tree.quota.chargeNames(n, 1); err != nil {
		return err
	}
	touch(n)
	l.tree.link(dir, last, n)
	return nil
}

// Link gives a file another name.
func (l *Layer) Link(old, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.tree.findNode("link", old, false)
	if err != nil {
		return err
	}
	if n.Kind != fsys.File {
		return pathError("link", old, fsys.Errorf(fsys.Refused, "", "expected a file"))
	}
	// All names must be known, or a later write would change the file under some of them only.
	if err := l.tree.loadNames(n); err != nil {
		return err
	}
	dir, last, err := l.tree.findFree("link", name)
	if err != nil {
		return err
	}
	if err := l.tree.quota.chargeNames(n, n.names+1); err != nil {
		return err
	}
	if n.group == 0 {
		l.tree.next++
		// The high bit keeps new groups apart from inodes, by which old groups are named.
		n.group = 1<<63 + uint64(l.tree.next)
	}
	l.tree.link(dir, last, n)
	return nil
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

// Remove removes a file, a link, or an empty directory.
func (l *Layer) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, last, n, err := l.tree.resolve("remove", name, false)
	switch {
	case err != nil:
		return err
	case n == nil:
		return pathError("remove", name, fs.ErrNotExist)
	case last == ".":
		return pathError("remove", name, fs.ErrInvalid)
	}
	if err := l.tree.checkChangeable("remove", name, n); err != nil {
		return err
	}
	if n.Kind == fsys.Dir {
		// A directory that nobody looked into may still be full.
		if err := l.tree.loadDir(n); err != nil {
			return err
		}
		if len(n.kids) > 0 {
			return pathError("remove", name, errNotEmpty)
		}
	}
	l.tree.unlink(dir, last, n)
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

// RemoveAll removes name and everything below it. A missing name is no error.
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

// Rename moves a name and replaces the target, as rename(2) does.
func (l *Layer) Rename(old, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, fromLast, n, err := l.tree.resolve("rename", old, false)
	if err == nil && (n == nil || fromLast == ".") {
		err = pathError("rename", old, fs.ErrNotExist)
	}
	if err == nil {
		err = l.tree.checkChangeable("rename", old, n)
	}
	if err != nil {
		return err
	}
	to, last, was, err := l.tree.resolve("rename", name, false)
	// As in rename(2): two names of the same file stay as they are.
	if err != nil || was == n {
		return err
	}
	if was == nil {
		if to, last, err = l.tree.findFree("rename", name); err != nil {
			return err
		}
	} else {
		if err := l.tree.checkChangeable("rename", name, was); err != nil {
			return err
		}
		if err := l.tree.checkReplaceable(n, was, name); err != nil {
			return err
		}
	}
	if n.Kind == fsys.Dir {
		// Such a move would cut the directory off the tree.
		if n.contains(to) {
			return pathError("rename", name, fsys.Errorf(fsys.Refused, "", "a directory cannot be moved below itself"))
		}
		if err := l.tree.loadTree(n); err != nil { // because its old path leads nowhere now
			return err
		}
	}
	if was != nil {
		l.tree.unlink(to, last, was)
	}
	delete(from.kids, fromLast)
	touch(from)
	n.names--
	l.tree.link(to, last, n)
	return nil
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

// Lstat describes name and does not follow a link.
func (l *Layer) Lstat(name string) (fsys.Entry, error) { return l.stat(name, false) }

// Stat describes name and follows links.
func (l *Layer) Stat(name string) (fsys.Entry, error) { return l.stat(name, true) }

func (l *Layer) stat(name string, follow bool) (fsys.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.tree.findNode("stat", name, follow)
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
	n, err := l.tree.findNode("readdir", name, true)
	if err == nil && n.Kind != fsys.Dir {
		err = pathError("readdir", name, errNotDir)
	}
	if err == nil {
		err = l.tree.loadDir(n)
	}
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(n.kids)), nil
}

// Chmod changes permissions.
func (l *Layer) Chmod(name string, mode fs.FileMode) error {
	return l.setAttr("chmod", name, func(n *lnode) { n.Mode = mode & (fs.ModePerm | fs.ModeSticky) })
}

// Chtimes changes the time of the last change.
func (l *Layer) Chtimes(name string, t time.Time) error {
	return l.setAttr("chtimes", name, func(n *lnode) { n.Time = t.UnixNano() })
}

// setAttr changes the attributes of a node.
func (l *Layer) setAttr(op, name string, set func(*lnode)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.tree.findNode(op, name, true)
	if err == nil {
		err = l.tree.checkChangeable(op, name, n)
	}
	if err == nil {
		err = l.tree.loadNames(n)
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
	// With O_EXCL a link at the end counts as existing, as open(2) has it.
	dir, last, n, err := l.tree.resolve("open", name, flag&os.O_EXCL == 0)
	if err != nil {
		return nil, err
	}
	write := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n == nil:
		if n, err = l.tree.createFile(dir, last, mode); err != nil {
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
		if err := l.tree.makeOwn(n, false); err != nil {
			return nil, err
		}
	}
	return f, f.openContent()
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

// changes closes the layer and returns what differs from the workspace.
func (l *Layer) changes() ([]Staged, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tree.closed = true
	var out []Staged
	if l.tree.root.dirty {
		out = append(out, Staged{Path: ".", To: &fsys.Item{Entry: l.tree.root.Entry}})
	}
	err := l.tree.collect(".", l.tree.root, l.tree.root, &out)
	return out, err
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

func (l *Layer) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tree.closed = true
	return nil
}

// A LayerFile is an open file of a Layer.
type LayerFile struct {
	l     *Layer
	n     *lnode
	name  string
	f     *os.File
	from  string // the file with staged content that f is; empty: f is the file of the workspace
	at    int64
	read  bool
	write bool
	end   bool // opened to append
}

// openContent opens the current content. The content moves to a new file at the
// first write. The lock is held.
func (f *LayerFile) openContent() (err error) {
	if f.l.tree.closed {
		return pathError("use", f.name, fs.ErrClosed)
	}
	if f.f != nil && f.from == f.n.data {
		return nil
	}
	var g *os.File
	if f.n.data == "" {
		g, err = f.l.tree.openBase(f.n)
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
	if err := f.openContent(); err != nil {
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
	if err := f.prepareWrite(); err != nil {
		return 0, err
	}
	end := off + int64(len(b))
	grow := max(0, end-f.n.Size)
	if err := f.l.tree.quota.charge(grow, 0); err != nil {
		return 0, pathError("write", f.name, err)
	}
	k, err := f.f.WriteAt(b, off)
	f.n.Size += grow
	if err != nil {
		if fi, serr := f.f.Stat(); serr == nil {
			f.l.tree.quota.charge(fi.Size()-f.n.Size, 0)
			f.n.Size = fi.Size()
		}
	}
	touch(f.n)
	return k, err
}

// prepareWrite gives the file content of its own.
func (f *LayerFile) prepareWrite() error {
	if !f.write {
		return pathError("write", f.name, fs.ErrPermission)
	}
	if f.l.tree.closed {
		return pathError("write", f.name, fs.ErrClosed)
	}
	if f.n.names == 0 {
		return pathError("write", f.name, fs.ErrNotExist)
	}
	if err := f.l.tree.makeOwn(f.n, true); err != nil {
		return err
	}
	return f.openContent()
}

// Read reads from the current offset.
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

// Write writes at the current offset, or at the end if opened with O_APPEND.
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

// Seek sets the offset of Read and Write.
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

// Truncate sets the size.
func (f *LayerFile) Truncate(size int64) error {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	if size < 0 {
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	if err := f.prepareWrite(); err != nil {
		return err
	}
	if err := f.l.tree.quota.charge(size-f.n.Size, 0); err != nil {
		return pathError("truncate", f.name, err)
	}
	if err := f.f.Truncate(size); err != nil {
		f.l.tree.quota.charge(f.n.Size-size, 0)
		return err
	}
	f.n.Size = size
	touch(f.n)
	return nil
}

// Stat describes the file.
func (f *LayerFile) Stat() (fsys.Entry, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	return f.n.Entry, nil
}

// Close closes the file.
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
