//go:build !linux

package workspace

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

// A place is a directory: the workspace, or one of our own. Here the system
// has no way to resolve a path below a directory without following links, so
// every component is looked at first: a link that was there is refused, one
// that is put there in between is not seen. Linux has no such gap.
type place struct {
	name string
	root *os.Root
}

func openPlace(dir string) (*place, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &place{dir, r}, nil
}

func (p *place) close() error { return p.root.Close() }

func (p *place) in(name string, f func(full string) error) error {
	if name != "." && (!filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name) {
		return errorf(Refused, name, "expected the name of something below the workspace")
	}
	full := p.name
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
	return f(filepath.Join(p.name, filepath.FromSlash(name)))
}

func (p *place) sub(name string) (q *place, err error) {
	e, err := p.lstat(name)
	if err != nil {
		return nil, err
	}
	if e.Kind != Dir {
		return nil, &fs.PathError{Op: "open", Path: path.Join(p.name, name), Err: errors.New("expected a directory")}
	}
	r, err := p.root.OpenRoot(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	return &place{filepath.Join(p.name, filepath.FromSlash(name)), r}, nil
}

func (p *place) open(name string) (f *os.File, err error) {
	e, err := p.lstat(name)
	if err != nil {
		return nil, err
	}
	if e.Kind != File {
		return nil, &fs.PathError{Op: "open", Path: path.Join(p.name, name), Err: errors.New("expected a file")}
	}
	return p.root.Open(filepath.FromSlash(name))
}

func (p *place) lstat(name string) (e entry, err error) {
	err = p.in(name, func(full string) error {
		fi, err := os.Lstat(full)
		if err == nil {
			e = entryOf(fi)
			e.name = path.Base(name)
		}
		return err
	})
	return e, err
}

func fstat(f *os.File) (entry, error) {
	fi, err := f.Stat()
	if err != nil {
		return entry{}, err
	}
	return entryOf(fi), nil
}

func entryOf(fi fs.FileInfo) (e entry) {
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
	e.fp = printOf(fi)
	if e.Kind == File && e.fp.nlink > 1 {
		e.Group = e.fp.ino
	}
	return e
}

func (p *place) readlink(name string) (s string, err error) {
	err = p.in(name, func(full string) error {
		s, err = os.Readlink(full)
		return err
	})
	return s, err
}

func (p *place) names() ([]string, error) {
	f, err := p.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func (p *place) make(q *place, slot, name string) error {
	return p.in(name, func(full string) error {
		if _, err := os.Lstat(full); err == nil {
			return &fs.PathError{Op: "create", Path: full, Err: fs.ErrExist}
		}
		return os.Rename(filepath.Join(q.name, slot), full)
	})
}

func (p *place) exchange(q *place, slot, name string) error { return errors.ErrUnsupported }

func (p *place) keep(q *place, name, slot string) error {
	return p.in(name, func(full string) error { return os.Link(full, filepath.Join(q.name, slot)) })
}

func (p *place) over(q *place, slot, name string) error {
	return p.in(name, func(full string) error { return os.Rename(filepath.Join(q.name, slot), full) })
}

func (p *place) drop(q *place, name, slot string) error {
	return p.in(name, func(full string) error { return os.Rename(full, filepath.Join(q.name, slot)) })
}

func (p *place) attr(name string, e Entry) error {
	if e.Kind == Symlink {
		return nil
	}
	return p.in(name, func(full string) error {
		if err := os.Chmod(full, e.Mode); err != nil {
			return err
		}
		return os.Chtimes(full, e.ModTime(), e.ModTime())
	})
}

func own(string, print) error { return nil }

func (p *place) syncDir(name string) error {
	return p.in(name, func(full string) error { return syncName(full) })
}

func (p *place) syncAll() error { return errors.ErrUnsupported }

func fdatasync(f *os.File) error { return f.Sync() }

func sameFS(p, q *place) bool { return sameVolume(p.name, q.name) }

func copyContent(g, f *os.File, size int64) error {
	_, err := io.Copy(g, io.NewSectionReader(f, 0, size))
	return err
}

func writers(*os.File) error { return nil }

func fineStamps(string) bool { return false }

// foreign tells that err comes from the root of another mount.
func foreign(error) bool { return false }

// syncAllOr is syncAll where there is one; elsewhere files were synced as they
// were closed by the system.
func (p *place) syncAllOr() error {
	if err := p.syncAll(); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func mountBounded(dir string, _ int64, _ int, _ Bound) error {
	return errorf(Unsupported, dir, "a quota on this kind of view needs Linux; this is %s; use a layer, or no quota", runtime.GOOS)
}

func unmount(string) error { return nil }
