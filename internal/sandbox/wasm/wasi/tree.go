package wasi

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/sys"

	"github.com/kern-run/kern/internal/sandbox"
)

// A Tree is the file system of the code. It has the library below /usr, read-only,
// the workspace in /workspace, a private /tmp, and /dev/null. Workspace and /tmp are
// behind an [os.Root], so no name and no symbolic link leads out of them; the caller
// may also pass the workspace as a [sandbox.FS].
//
// The code cannot make links, and cannot open a FIFO or a device.
type Tree struct {
	Base  fs.FS // seen as /usr
	Quota Quota

	work, tmp mount
}

// A mount is a directory of the host, or files from the caller. A private mount is
// made at the first write and removed at the end.
type mount struct {
	root    sandbox.FS
	dir     *os.Root // to be closed
	private string   // the directory to remove
}

// Open sets the workspace of the tree. With "" and nil it is private.
func (t *Tree) Open(workspace string, files sandbox.FS) error {
	if files != nil {
		t.work.root = files
		return nil
	}
	if workspace == "" {
		return nil
	}
	return t.work.open(workspace)
}

func (p *mount) open(name string) (err error) {
	if p.dir, err = os.OpenRoot(name); err == nil {
		p.root = host{p.dir}
	}
	return err
}

// Close closes the directories of the host and removes the private ones.
func (t *Tree) Close() error {
	err := errors.Join(t.work.close(), t.tmp.close())
	t.Quota = Quota{}
	return err
}

func (p *mount) close() error {
	var err error
	if p.dir != nil {
		err = p.dir.Close()
	}
	if p.private != "" {
		err = errors.Join(err, os.RemoveAll(p.private))
	}
	*p = mount{}
	return err
}

// prepare makes a private directory at the first write.
func (p *mount) prepare() error {
	if p.root != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "kern-wasm-")
	if err != nil {
		return err
	}
	p.private = dir
	return p.open(dir)
}

// where is the part of the tree that a path lies in.
type where int

const (
	nowhere where = iota
	virtual       // a directory that only the tree has
	base
	null
	work
	tmp
)

var virtuals = map[string][]string{
	"/":    {"dev", "tmp", "usr", "workspace"},
	"/dev": {"null"},
}

// locate splits a path into its part of the tree and its name there.
func locate(p string) (where, string) {
	if _, is := virtuals[p]; is {
		return virtual, p
	}
	top, rest, _ := strings.Cut(p[1:], "/")
	if rest == "" {
		rest = "."
	}
	switch top {
	case "workspace":
		return work, rest
	case "tmp":
		return tmp, rest
	case "usr":
		return base, rest
	}
	if p == "/dev/null" {
		return null, p
	}
	return nowhere, p
}

func (t *Tree) mount(w where) *mount {
	if w == work {
		return &t.work
	}
	return &t.tmp
}

// root returns the files of a mount for reading; nil if it is private and nothing
// was written there.
func (t *Tree) root(w where) sandbox.FS { return t.mount(w).root }

// writable returns the files of a mount for a change of p.
func (t *Tree) writable(p string) (sandbox.FS, where, string, Errno) {
	w, name := locate(p)
	switch w {
	case work, tmp:
		if err := t.mount(w).prepare(); err != nil {
			return nil, w, name, errnoOf(err)
		}
		return t.mount(w).root, w, name, ok
	case nowhere:
		return nil, w, name, eNoEnt
	}
	return nil, w, name, eRoFS
}

// libraryTime is the time of all library files, because the image has no times.
var libraryTime = time.Unix(1767225600, 0)

func directory(p string) sys.Stat_t {
	return sys.Stat_t{Mode: fs.ModeDir | 0o755, Ino: number(p), Nlink: 1, Mtim: libraryTime.UnixNano()}
}

// number makes an inode number from a path.
func number(p string) sys.Inode {
	h := uint64(14695981039346656037)
	for _, c := range []byte(p) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return sys.Inode(h | 1)
}

// stat describes a path. With follow, it follows a link at the end.
func (t *Tree) stat(p string, follow bool) (sys.Stat_t, Errno) {
	switch w, name := locate(p); w {
	case virtual:
		return directory(p), ok
	case null:
		return sys.Stat_t{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, Ino: number(p), Nlink: 1}, ok
	case base:
		st, err := fs.Stat(t.Base, name)
		if err != nil {
			return sys.Stat_t{}, errnoOf(err)
		}
		return library(p, st), ok
	case work, tmp:
		root := t.root(w)
		// The private directory is made at the first write. Until then it looks empty.
		if root == nil {
			if name == "." {
				return directory(p), ok
			}
			return sys.Stat_t{}, eNoEnt
		}
		look := root.Lstat
		if follow {
			look = root.Stat
		}
		st, err := look(name)
		if err != nil {
			return sys.Stat_t{}, errnoOf(err)
		}
		return statOf(p, st), ok
	}
	return sys.Stat_t{}, eNoEnt
}

func library(p string, st fs.FileInfo) sys.Stat_t {
	if st.IsDir() {
		return directory(p)
	}
	return sys.Stat_t{Mode: 0o644, Size: st.Size(), Ino: number(p), Nlink: 1, Mtim: libraryTime.UnixNano()}
}

func (t *Tree) mkdir(p string) Errno {
	root, _, name, e := t.writable(p)
	// As on Linux, a name that exists is reported before the read-only file system.
	if e == eRoFS {
		if _, there := t.stat(p, true); there == ok {
			return eExist
		}
	}
	if e != ok {
		return e
	}
	if _, err := root.Lstat(name); err == nil {
		return eExist
	}
	if !t.Quota.takeFile() {
		return eNoSpc
	}
	if err := root.Mkdir(name, 0o755); err != nil {
		t.Quota.Files++
		return errnoOf(err)
	}
	if st, err := root.Lstat(name); err == nil {
		t.Quota.node(sys.NewStat_t(st)).created = true
	}
	return ok
}

// remove removes a file or an empty directory.
func (t *Tree) remove(p string, dir bool) Errno {
	root, _, name, e := t.writable(p)
	if e != ok {
		return e
	}
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return errnoOf(err)
	case name == ".":
		return ePerm
	case dir && !info.IsDir():
		return eNotDir
	case !dir && info.IsDir():
		return eIsDir
	}
	if err := root.Remove(name); err != nil {
		return errnoOf(err)
	}
	// A file with another name keeps its bytes on disk.
	if st := sys.NewStat_t(info); info.IsDir() || st.Nlink <= 1 {
		t.Quota.removed(st)
	}
	return ok
}

func (t *Tree) rename(from, to string) Errno {
	root, w, name, e := t.writable(from)
	if e != ok {
		return e
	}
	_, w2, name2, e := t.writable(to)
	if e != ok {
		return e
	}
	if w != w2 {
		return eXdev
	}
	if name == "." || name2 == "." {
		return ePerm
	}
	// A rename may remove the file that had the name. Its bytes return to the quota.
	old, err := root.Lstat(name2)
	if err := root.Rename(name, name2); err != nil {
		return errnoOf(err)
	}
	if err == nil && name != name2 {
		if st := sys.NewStat_t(old); old.IsDir() || st.Nlink <= 1 {
			// Two names of one file stay as they are, so nothing was removed.
			if now, err := root.Lstat(name2); err != nil || !os.SameFile(old, now) {
				t.Quota.removed(st)
			}
		}
	}
	return ok
}

func (t *Tree) readlink(p string) (string, Errno) {
	w, name := locate(p)
	if w != work && w != tmp || t.root(w) == nil {
		if _, e := t.stat(p, false); e != ok {
			return "", e
		}
		return "", eInval
	}
	s, err := t.root(w).Readlink(name)
	return s, errnoOf(err)
}

func (t *Tree) setTimes(p string, access, modified time.Time) Errno {
	root, _, name, e := t.writable(p)
	if e != ok {
		return e
	}
	return errnoOf(root.Chtimes(name, access, modified))
}

// clean makes a path absolute, starting from dir.
func clean(dir, p string) string {
	if strings.HasPrefix(p, "/") {
		return path.Clean(p)
	}
	return path.Clean(dir + "/" + p)
}
