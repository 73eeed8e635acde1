//go:build !linux

package fsys

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// A Handle is a directory. This system cannot resolve a path below a directory
// without following links. So every component is checked first: an existing link
// is refused, but a link that appears after the check is not seen. Linux has no
// such gap.
type Handle struct {
	Name string
	root *os.Root
}

func Open(dir string) (*Handle, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Handle{dir, r}, nil
}

func (p *Handle) Close() error { return p.root.Close() }

// Current reports whether the name of p still is this directory.
func (p *Handle) Current() bool {
	open, err := p.root.Stat(".")
	if err != nil {
		return false
	}
	named, err := os.Stat(p.Name)
	return err == nil && os.SameFile(open, named)
}

func (p *Handle) withPath(name string, f func(full string) error) error {
	if name != "." && (!filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name) {
		return Errorf(Refused, name, "expected the name of something below the workspace")
	}
	full := p.Name
	if dir := path.Dir(name); dir != "." {
		for _, part := range strings.Split(dir, "/") {
			full = filepath.Join(full, part)
			if fi, err := os.Lstat(full); err != nil {
				return err
			} else if !fi.IsDir() {
				return &fs.PathError{Op: "open", Path: full, Err: errors.New("expected a directory")}
			}
		}
	}
	return f(filepath.Join(p.Name, filepath.FromSlash(name)))
}

func (p *Handle) Sub(name string) (q *Handle, err error) {
	e, err := p.Lstat(name)
	if err != nil {
		return nil, err
	}
	if e.Kind != Dir {
		return nil, &fs.PathError{Op: "open", Path: path.Join(p.Name, name), Err: errors.New("expected a directory")}
	}
	r, err := p.root.OpenRoot(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	return &Handle{filepath.Join(p.Name, filepath.FromSlash(name)), r}, nil
}

func (p *Handle) Open(name string) (f *os.File, err error) {
	e, err := p.Lstat(name)
	if err != nil {
		return nil, err
	}
	if e.Kind != File {
		return nil, &fs.PathError{Op: "open", Path: path.Join(p.Name, name), Err: errors.New("expected a file")}
	}
	return p.root.Open(filepath.FromSlash(name))
}

func (p *Handle) Lstat(name string) (e Item, err error) {
	err = p.withPath(name, func(full string) error {
		fi, err := os.Lstat(full)
		if err == nil {
			e = itemOf(fi)
			e.Name = path.Base(name)
		}
		return err
	})
	return e, err
}

func Stat(f *os.File) (Item, error) {
	fi, err := f.Stat()
	if err != nil {
		return Item{}, err
	}
	return itemOf(fi), nil
}

func itemOf(fi fs.FileInfo) (e Item) {
	switch m := fi.Mode(); {
	case m.IsRegular():
		e.Kind, e.Size = File, fi.Size()
	case m.IsDir():
		e.Kind = Dir
	case m&fs.ModeSymlink != 0:
		e.Kind = Symlink
	default:
		e.Kind = Other
	}
	if e.Kind != Symlink {
		e.Mode = fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	}
	e.Time = fi.ModTime().UnixNano()
	e.Print = printOf(fi)
	if e.Kind == File && e.Print.Nlink > 1 {
		e.Group = e.Print.Ino
	}
	return e
}

func (p *Handle) Readlink(name string) (s string, err error) {
	err = p.withPath(name, func(full string) error {
		s, err = os.Readlink(full)
		return err
	})
	return s, err
}

func (p *Handle) Names() ([]string, error) {
	f, err := p.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func (p *Handle) RenameNew(q *Handle, slot, name string) error {
	return p.withPath(name, func(full string) error {
		if _, err := os.Lstat(full); err == nil {
			return &fs.PathError{Op: "create", Path: full, Err: fs.ErrExist}
		}
		return os.Rename(filepath.Join(q.Name, slot), full)
	})
}

func (p *Handle) Exchange(q *Handle, slot, name string) error { return errors.ErrUnsupported }

func (p *Handle) LinkTo(q *Handle, name, slot string) error {
	return p.withPath(name, func(full string) error { return os.Link(full, filepath.Join(q.Name, slot)) })
}

func (p *Handle) RenameOver(q *Handle, slot, name string) error {
	return p.withPath(name, func(full string) error { return os.Rename(filepath.Join(q.Name, slot), full) })
}

func (p *Handle) MoveTo(q *Handle, name, slot string) error {
	return p.withPath(name, func(full string) error { return os.Rename(full, filepath.Join(q.Name, slot)) })
}

func (p *Handle) SetAttr(name string, e Entry) error {
	if e.Kind == Symlink {
		return nil
	}
	return p.withPath(name, func(full string) error {
		if err := os.Chmod(full, e.Mode); err != nil {
			return err
		}
		return os.Chtimes(full, e.ModTime(), e.ModTime())
	})
}

func Chown(string, Print) error { return nil }

func (p *Handle) SyncDir(name string) error {
	return p.withPath(name, func(full string) error { return syncName(full) })
}

func (p *Handle) SyncAll() error { return errors.ErrUnsupported }

func Datasync(f *os.File) error { return f.Sync() }

func SameFS(p, q *Handle) bool { return sameVolume(p.Name, q.Name) }

func Copy(g, f *os.File, size int64) error {
	_, err := io.Copy(g, io.NewSectionReader(f, 0, size))
	return err
}

func CheckNoWriters(*os.File) error { return nil }

func FineStamps(string) bool { return false }

// IsOtherMount reports whether err comes from the root of another mount.
func IsOtherMount(error) bool { return false }

// SyncAllIfPossible does nothing on this system.
func (p *Handle) SyncAllIfPossible() error {
	if err := p.SyncAll(); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func MountBounded(dir string, _ int64, _ int, _ Limit) error {
	return Errorf(Unsupported, dir, "a quota on this kind of view needs Linux; this is %s; use a layer, or no quota", runtime.GOOS)
}

func Unmount(string) error { return nil }

// Each calls f for every name in p, in no order. It leaves out a name that is
// removed in between.
func (p *Handle) Each(f func(e *Item) error) error {
	names, err := p.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		e, err := p.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			e.Name = name
			err = f(&e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Sync syncs a file, or the names in a directory.
func Sync(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
