package wasi

import (
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/tetratelabs/wazero/sys"

	"github.com/kern-run/kern/internal/sandbox"
)

// A file is an open descriptor of the code.
type file struct {
	path   string // absolute; names below a directory are resolved with it
	stream int    // 0..2 for the standard streams, else -1
	read   bool
	write  bool
	append bool
	pos    int64

	host sandbox.File // in /workspace or /tmp
	node *node        // when host may be written
	data []byte       // content of a file of the library
	st   sys.Stat_t
	list *listing // of a directory
}

func stream(n int) *file {
	return &file{stream: n, read: n == 0, write: n != 0}
}

// openFlags are the flags of path_open.
type openFlags struct {
	create, directory, exclusive, truncate bool
	read, write, append, follow            bool
}

// open opens p as POSIX would.
func (t *Tree) open(p string, o openFlags) (*file, Errno) {
	w, name := locate(p)
	if w == work || w == tmp {
		return t.openHost(p, w, name, o)
	}
	st, e := t.stat(p, true)
	switch {
	case e != ok:
		if o.create && w == base {
			return nil, eRoFS
		}
		return nil, e
	case o.create && o.exclusive:
		return nil, eExist
	case o.directory && !st.Mode.IsDir():
		return nil, eNotDir
	case st.Mode.IsDir() && o.write:
		return nil, eIsDir
	case w == base && (o.write || o.truncate):
		return nil, eRoFS
	}
	f := &file{path: p, stream: -1, read: o.read, write: o.write, st: st}
	if w == base && !st.Mode.IsDir() {
		// A zip cannot be read at an offset, so the file is unpacked once.
		b, err := fs.ReadFile(t.Base, name)
		if err != nil {
			return nil, errnoOf(err)
		}
		f.data = b
	}
	return f, ok
}

func (t *Tree) openHost(p string, w where, name string, o openFlags) (*file, Errno) {
	// Nothing was written yet, so the private directory does not exist.
	if t.root(w) == nil && name == "." {
		if o.write || o.create {
			return nil, eIsDir
		}
		return &file{path: p, stream: -1, read: true, st: directory(p)}, ok
	}
	if t.root(w) == nil && !o.create {
		return nil, eNoEnt
	}
	if err := t.mount(w).prepare(); err != nil {
		return nil, errnoOf(err)
	}
	h, created, e := t.openFile(t.root(w), name, o)
	if e != ok {
		return nil, e
	}
	f := &file{path: p, stream: -1, read: o.read, write: o.write, append: o.append, host: h}
	if e := t.adopt(f, o, created); e != ok {
		h.Close()
		return nil, e
	}
	return f, ok
}

// openFile opens a file or makes it, and reports which.
func (t *Tree) openFile(root sandbox.FS, name string, o openFlags) (h sandbox.File, created bool, e Errno) {
	flags := os.O_RDONLY
	switch {
	case o.read && o.write:
		flags = os.O_RDWR
	case o.write:
		flags = os.O_WRONLY
	}
	if o.append {
		flags |= os.O_APPEND
	}
	if !o.follow {
		if st, err := root.Lstat(name); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			return nil, false, eLoop
		}
	}
	for range 3 { // each turn is lost to somebody else making or removing the file
		if !o.exclusive || !o.create {
			h, err := root.OpenFile(name, flags|openQuietly, 0)
			if err == nil {
				return h, false, ok
			} else if !o.create || errnoOf(err) != eNoEnt {
				return nil, false, errnoOf(err)
			}
		}
		if _, err := root.Lstat(name); err == nil {
			if o.exclusive {
				return nil, false, eExist
			}
			return nil, false, eNoEnt // a link to nothing is not written through
		}
		// A new file counts before it is made, so that the quota is never exceeded. O_EXCL proves that this open
		// made it.
		if !t.Quota.takeFile() {
			return nil, false, eNoSpc
		}
		h, err := root.OpenFile(name, flags|openQuietly|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			return h, true, ok
		}
		t.Quota.Files++
		if e := errnoOf(err); e != eExist || o.exclusive {
			return nil, false, e
		}
	}
	return nil, false, eExist
}

// adopt fills in f after opening. It refuses everything except files and directories.
func (t *Tree) adopt(f *file, o openFlags, created bool) Errno {
	info, err := f.host.Stat()
	if err != nil {
		return errnoOf(err)
	}
	f.st = statOf(f.path, info)
	switch {
	case info.IsDir():
		if o.write || o.truncate {
			return eIsDir
		}
		return ok
	case o.directory:
		return eNotDir
	// A FIFO or device of the host must not be read or written from here.
	case !info.Mode().IsRegular():
		return ePerm
	}
	if !o.write && !o.truncate && !created {
		return ok
	}
	f.node = t.Quota.node(sys.NewStat_t(info))
	f.node.created = f.node.created || created
	f.node.opens++
	if !o.truncate || f.node.size == 0 && f.st.Size == 0 {
		return ok
	}
	// Truncating goes through the quota, because the bytes that go are free again.
	if e := f.resize(t, 0); e != ok {
		t.Quota.closed(f.node)
		f.node = nil
		return e
	}
	return ok
}

func (f *file) isDir() bool { return f.stream < 0 && f.st.Mode.IsDir() }

func (f *file) close(t *Tree) Errno {
	if f.node != nil {
		t.Quota.closed(f.node)
		f.node = nil
	}
	f.list = nil
	if f.host == nil {
		return ok
	}
	return errnoOf(f.host.Close())
}

// readAt reads at off. At the end of the file it returns 0.
func (f *file) readAt(b []byte, off int64) (int, Errno) {
	switch {
	case f.isDir():
		return 0, eIsDir
	case !f.read:
		return 0, eBadf
	case f.host == nil:
		if off >= int64(len(f.data)) {
			return 0, ok
		}
		return copy(b, f.data[off:]), ok
	}
	n, err := f.host.ReadAt(b, off)
	if err == io.EOF {
		err = nil
	}
	return n, errnoOf(err)
}

// writeAt writes at off, or at the end of a file opened to append. It checks the
// quota first, so a full quota changes nothing.
func (f *file) writeAt(t *Tree, b []byte, off int64) (int, Errno) {
	switch {
	case f.isDir() || !f.write:
		return 0, eBadf
	case f.host == nil:
		return len(b), ok // /dev/null
	}
	if f.append {
		off = f.node.size
	}
	before := f.node.size
	if end := off + int64(len(b)); end > before && !t.Quota.resize(f.node, end) {
		return 0, eNoSpc
	}
	var n int
	var err error
	if f.append {
		n, err = f.host.Write(b)
	} else {
		n, err = f.host.WriteAt(b, off)
	}
	if n < len(b) { // give back what was not written
		t.Quota.resize(f.node, max(before, off+int64(n)))
	}
	// A partial write is a success; the next one shows the error.
	if n > 0 {
		err = nil
	}
	return n, errnoOf(err)
}

func (f *file) resize(t *Tree, size int64) Errno {
	if f.host == nil || f.node == nil {
		return eInval
	}
	before := f.node.size
	if !t.Quota.resize(f.node, size) {
		return eNoSpc
	}
	if err := f.host.Truncate(size); err != nil {
		t.Quota.resize(f.node, before)
		return errnoOf(err)
	}
	return ok
}

func (f *file) stat() (sys.Stat_t, Errno) {
	if f.host == nil {
		return f.st, ok
	}
	st, err := f.host.Stat()
	if err != nil {
		return sys.Stat_t{}, errnoOf(err)
	}
	return statOf(f.path, st), ok
}

// A listing is the part of a directory that is being read. So a directory of any
// size takes bounded memory of the host.
type listing struct {
	from    int // number of the first entry held
	entries []entry
	end     bool
}

type entry struct {
	name string
	mode fs.FileMode
	ino  sys.Inode
}

const listed = 256

// entry returns the nth name of a directory, or "" past the end.
func (f *file) entry(t *Tree, n int) (entry, Errno) {
	// A directory of the host can only be read forward, so going back starts again.
	if f.list == nil || n < f.list.from {
		f.list = &listing{entries: []entry{
			{".", fs.ModeDir, number(f.path)},
			{"..", fs.ModeDir, number(path.Dir(f.path))},
		}}
		if d, is := f.host.(sandbox.Folder); is {
			if _, err := d.Seek(0, io.SeekStart); err != nil {
				return entry{}, errnoOf(err)
			}
		}
	}
	l := f.list
	for n >= l.from+len(l.entries) {
		if l.end {
			return entry{}, ok
		}
		if e := f.readMore(t); e != ok {
			return entry{}, e
		}
	}
	return l.entries[n-l.from], ok
}

// readMore replaces the listing by the next part of the directory.
func (f *file) readMore(t *Tree) Errno {
	l := f.list
	l.from += len(l.entries)
	// The part before is dropped, so a directory of a million names takes no more memory than a small one.
	l.entries = l.entries[:0]
	add := func(name string, mode fs.FileMode) {
		l.entries = append(l.entries, entry{name, mode.Type(), number(f.path + "/" + name)})
	}
	if dir, is := f.host.(sandbox.Folder); is {
		ds, err := dir.ReadDir(listed)
		for _, d := range ds {
			add(d.Name(), d.Type())
		}
		// ReadDir may return fewer names than asked for before the end.
		l.end = len(ds) == 0
		if err == io.EOF {
			err = nil
		}
		return errnoOf(err)
	}
	l.end = true
	switch w, name := locate(f.path); w {
	case virtual:
		for _, n := range virtuals[f.path] {
			mode := fs.ModeDir
			if n == "null" {
				mode = fs.ModeDevice | fs.ModeCharDevice
			}
			add(n, mode)
		}
	case base:
		ds, err := fs.ReadDir(t.Base, name)
		if err != nil {
			return errnoOf(err)
		}
		for _, d := range ds {
			add(d.Name(), d.Type())
		}
	}
	return ok
}
