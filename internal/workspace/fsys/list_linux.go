package fsys

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"path"
	"sync"

	"golang.org/x/sys/unix"
)

var lists = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Each gives every name in p and what it is, in no order; e is only good until
// f returns. Nobody else may list the same Place meanwhile. A name that is gone
// when it is looked at is left out. A scan is mostly this, so it costs what the
// system takes and little more.
func (p *Place) Each(f func(e *Item) error) error {
	buf := lists.Get().(*[32 << 10]byte)
	defer lists.Put(buf)
	if _, err := unix.Seek(p.fd, 0, 0); err != nil {
		return wrap(p, ".", err)
	}
	for {
		n, err := retry(func() (int, error) { return unix.Getdents(p.fd, buf[:]) })
		if err != nil {
			return &fs.PathError{Op: "readdir", Path: p.Name, Err: err}
		}
		if n == 0 {
			return nil
		}
		for b := buf[:n]; len(b) > 0; {
			size := binary.NativeEndian.Uint16(b[16:]) // after the inode and the offset
			name := b[19:size]
			b = b[size:]
			name = name[:bytes.IndexByte(name, 0)]
			if string(name) == "." || string(name) == ".." {
				continue
			}
			if err := p.look(string(name), f); err != nil {
				return err
			}
		}
	}
}

func (p *Place) look(name string, f func(e *Item) error) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(p.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		e := entryOf(&st)
		e.Name = name
		return f(&e)
	case unix.ENOENT:
		return nil
	default:
		return &fs.PathError{Op: "stat", Path: path.Join(p.Name, name), Err: err}
	}
}
