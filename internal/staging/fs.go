package staging

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/workspace"
)

// layerFS shows a layer to code that runs in this program.
type layerFS struct{ l *workspace.Layer }

// osError converts an error of a layer to one of package os. Code in a sandbox
// sees the error number, so the number must be right.
func osError(err error) error {
	var pe *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, &workspace.Error{Code: workspace.Quota}):
		return &fs.PathError{Op: "write", Path: ".", Err: syscall.ENOSPC}
	case !errors.As(err, &pe):
		return err
	}
	for _, no := range []syscall.Errno{syscall.ENOTDIR, syscall.EISDIR, syscall.ENOTEMPTY} {
		if pe.Err.Error() == no.Error() {
			return &fs.PathError{Op: pe.Op, Path: pe.Path, Err: no}
		}
	}
	return err
}

func (f layerFS) Stat(name string) (fs.FileInfo, error) {
	e, err := f.l.Stat(name)
	return info{path.Base(name), e}, osError(err)
}

func (f layerFS) Lstat(name string) (fs.FileInfo, error) {
	e, err := f.l.Lstat(name)
	return info{path.Base(name), e}, osError(err)
}

func (f layerFS) Readlink(name string) (string, error) {
	e, err := f.l.Lstat(name)
	if err == nil && e.Kind != workspace.Symlink {
		err = &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
	}
	return e.Target, osError(err)
}

func (f layerFS) Mkdir(name string, mode fs.FileMode) error { return osError(f.l.Mkdir(name, mode)) }
func (f layerFS) Remove(name string) error                  { return osError(f.l.Remove(name)) }
func (f layerFS) Rename(from, to string) error              { return osError(f.l.Rename(from, to)) }
func (f layerFS) Chtimes(name string, _, modified time.Time) error {
	return osError(f.l.Chtimes(name, modified))
}

// layerFlags are the flags that a layer understands. Other flags concern files
// of the host.
const layerFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL | os.O_TRUNC

func (f layerFS) OpenFile(name string, flag int, mode fs.FileMode) (sandbox.File, error) {
	e, err := f.l.Stat(name)
	if err == nil && e.Kind == workspace.Dir {
		if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
		}
		return &layerDir{f: f, name: name}, nil
	}
	g, err := f.l.OpenFile(name, flag&layerFlags, mode)
	if err != nil {
		return nil, osError(err)
	}
	return &layerFile{g, path.Base(name)}, nil
}

// layerFile is an open file of a layer.
type layerFile struct {
	*workspace.LayerFile
	name string
}

func (f *layerFile) Stat() (fs.FileInfo, error) {
	e, err := f.LayerFile.Stat()
	return info{f.name, e}, osError(err)
}

func (f *layerFile) Write(b []byte) (n int, err error) {
	n, err = f.LayerFile.Write(b)
	return n, osError(err)
}

func (f *layerFile) WriteAt(b []byte, off int64) (n int, err error) {
	n, err = f.LayerFile.WriteAt(b, off)
	return n, osError(err)
}

func (f *layerFile) Truncate(size int64) error { return osError(f.LayerFile.Truncate(size)) }

// layerDir is an open directory of a layer.
type layerDir struct {
	f    layerFS
	name string
	rest []string // names still to list; nil: not read yet
}

var errIsDir = &fs.PathError{Op: "use", Path: ".", Err: syscall.EISDIR}

func (d *layerDir) ReadAt([]byte, int64) (int, error)  { return 0, errIsDir }
func (d *layerDir) WriteAt([]byte, int64) (int, error) { return 0, errIsDir }
func (d *layerDir) Write([]byte) (int, error)          { return 0, errIsDir }
func (d *layerDir) Truncate(int64) error               { return errIsDir }
func (d *layerDir) Close() error                       { return nil }
func (d *layerDir) Stat() (fs.FileInfo, error)         { return d.f.Stat(d.name) }

func (d *layerDir) Seek(int64, int) (int64, error) {
	d.rest = nil
	return 0, nil
}

func (d *layerDir) ReadDir(n int) (ents []fs.DirEntry, err error) {
	if d.rest == nil {
		if d.rest, err = d.f.l.ReadDir(d.name); err != nil {
			return nil, osError(err)
		}
		d.rest = append([]string{}, d.rest...)
	}
	for ; len(d.rest) > 0 && (n <= 0 || len(ents) < n); d.rest = d.rest[1:] {
		fi, err := d.f.Lstat(path.Join(d.name, d.rest[0]))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return ents, err
		}
		ents = append(ents, fs.FileInfoToDirEntry(fi))
	}
	if len(ents) == 0 && n > 0 {
		err = io.EOF
	}
	return ents, err
}

// info describes an entry of a workspace as package os does.
type info struct {
	name string
	e    workspace.Entry
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.e.Size }
func (i info) ModTime() time.Time { return i.e.ModTime() }
func (i info) IsDir() bool        { return i.e.Kind == workspace.Dir }
func (i info) Sys() any           { return nil }

func (i info) Mode() fs.FileMode {
	switch i.e.Kind {
	case workspace.Dir:
		return i.e.Mode | fs.ModeDir
	case workspace.Symlink:
		return i.e.Mode | fs.ModeSymlink
	case workspace.Other:
		return i.e.Mode | fs.ModeIrregular
	}
	return i.e.Mode
}

// dirFS shows a directory to a file tool.
type dirFS struct{ *os.Root }

func (f dirFS) Stat(name string) (workspace.Entry, error)  { return f.entry(name, f.Root.Stat) }
func (f dirFS) Lstat(name string) (workspace.Entry, error) { return f.entry(name, f.Root.Lstat) }

func (f dirFS) entry(name string, stat func(string) (fs.FileInfo, error)) (e workspace.Entry, err error) {
	fi, err := stat(name)
	if err != nil {
		return e, err
	}
	e = workspace.Entry{Kind: workspace.File, Mode: fi.Mode().Perm(), Size: fi.Size(), Time: fi.ModTime().UnixNano()}
	switch {
	case fi.IsDir():
		e.Kind, e.Size = workspace.Dir, 0
	case fi.Mode()&fs.ModeSymlink != 0:
		e.Kind, e.Size = workspace.Symlink, 0
		e.Target, err = f.Readlink(name)
	case !fi.Mode().IsRegular():
		e.Kind, e.Size = workspace.Other, 0
	}
	return e, err
}

func (f dirFS) ReadDir(name string) (names []string, err error) {
	d, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	names, err = d.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, d.Close())
}
