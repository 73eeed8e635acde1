package view

import (
	"io"
	"io/fs"
	"os"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

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
