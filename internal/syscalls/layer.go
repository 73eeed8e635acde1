package syscalls

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/workspace"
)

// layered is a view in Go as the files of code that runs in this program.
type layered struct{ l *workspace.Layer }

// told is an error of a view as one of package os: by its number, which is what
// code sees of it.
func told(err error) error {
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

func (f layered) Stat(name string) (fs.FileInfo, error) {
	e, err := f.l.Stat(name)
	return info{path.Base(name), e}, told(err)
}

func (f layered) Lstat(name string) (fs.FileInfo, error) {
	e, err := f.l.Lstat(name)
	return info{path.Base(name), e}, told(err)
}

func (f layered) Readlink(name string) (string, error) {
	e, err := f.l.Lstat(name)
	if err == nil && e.Kind != workspace.Symlink {
		err = &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
	}
	return e.Target, told(err)
}

func (f layered) Mkdir(name string, mode fs.FileMode) error { return told(f.l.Mkdir(name, mode)) }
func (f layered) Remove(name string) error                  { return told(f.l.Remove(name)) }
func (f layered) Rename(from, to string) error              { return told(f.l.Rename(from, to)) }
func (f layered) Chtimes(name string, _, modified time.Time) error {
	return told(f.l.Chtimes(name, modified))
}

// known are the flags that a view understands; what else there is speaks of the
// host's files.
const known = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL | os.O_TRUNC

func (f layered) OpenFile(name string, flag int, mode fs.FileMode) (sandbox.File, error) {
	e, err := f.l.Stat(name)
	if err == nil && e.Kind == workspace.Dir {
		if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
		}
		return &layerDir{f: f, name: name}, nil
	}
	g, err := f.l.OpenFile(name, flag&known, mode)
	if err != nil {
		return nil, told(err)
	}
	return &layerFile{g, path.Base(name)}, nil
}

// layerFile is an open file of a view.
type layerFile struct {
	*workspace.LayerFile
	name string
}

func (f *layerFile) Stat() (fs.FileInfo, error) {
	e, err := f.LayerFile.Stat()
	return info{f.name, e}, told(err)
}

func (f *layerFile) Write(b []byte) (n int, err error) {
	n, err = f.LayerFile.Write(b)
	return n, told(err)
}

func (f *layerFile) WriteAt(b []byte, off int64) (n int, err error) {
	n, err = f.LayerFile.WriteAt(b, off)
	return n, told(err)
}

func (f *layerFile) Truncate(size int64) error { return told(f.LayerFile.Truncate(size)) }

// layerDir is an open directory of a view.
type layerDir struct {
	f    layered
	name string
	list []string // what is left to be listed; nil: not looked at yet
}

var errFolder = &fs.PathError{Op: "use", Path: ".", Err: syscall.EISDIR}

func (d *layerDir) ReadAt([]byte, int64) (int, error)  { return 0, errFolder }
func (d *layerDir) WriteAt([]byte, int64) (int, error) { return 0, errFolder }
func (d *layerDir) Write([]byte) (int, error)          { return 0, errFolder }
func (d *layerDir) Truncate(int64) error               { return errFolder }
func (d *layerDir) Close() error                       { return nil }
func (d *layerDir) Stat() (fs.FileInfo, error)         { return d.f.Stat(d.name) }

func (d *layerDir) Seek(int64, int) (int64, error) {
	d.list = nil
	return 0, nil
}

func (d *layerDir) ReadDir(n int) (ents []fs.DirEntry, err error) {
	if d.list == nil {
		if d.list, err = d.f.l.ReadDir(d.name); err != nil {
			return nil, told(err)
		}
		d.list = append([]string{}, d.list...)
	}
	for ; len(d.list) > 0 && (n <= 0 || len(ents) < n); d.list = d.list[1:] {
		fi, err := d.f.Lstat(path.Join(d.name, d.list[0]))
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

// info is an entry of a workspace as package os describes a file.
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
