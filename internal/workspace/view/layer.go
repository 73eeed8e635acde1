package view

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
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

// NewLayer opens a view that is a Layer.
func NewLayer(g Ground) View {
	return layerView{&Layer{tree: layerTree{ground: g, quota: quota{most: g.Quota}, inode: map[uint64]*lnode{},
		root: &lnode{Entry: fsys.Entry{Kind: fsys.Dir, Mode: g.Base.Mode, Time: g.Base.Time}, base: "."}}}}
}

// layerView shows a Layer to its transaction.
type layerView struct{ l *Layer }

func (v layerView) Layer() *Layer { return v.l }

func (v layerView) Changes() ([]Staged, error) { return v.l.changes() }

func (v layerView) End() error { return v.l.close() }

var (
	errNotDir   = errors.New("not a directory")
	errIsDir    = errors.New("is a directory")
	errNotEmpty = errors.New("directory not empty")
	errLoop     = errors.New("too many links")
)

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

func (l *Layer) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tree.closed = true
	return nil
}
