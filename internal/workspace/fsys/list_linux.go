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

// Each calls f for every name in p, in no order. The item is valid until f returns.
// Nobody else may list the same Handle meanwhile. Each leaves out a name that is
// removed in between. A scan spends most of its time here, so Each does little
// more than the system calls.
func (p *Handle) Each(f func(e *Item) error) error {
	buf := lists.Get().(*[32 << 10]byte)
	defer lists.Put(buf)
	// An earlier listing left the position at the end.
	if _, err := unix.Seek(p.fd, 0, 0); err != nil {
		return pathError(p, ".", err)
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
			if err := p.statName(string(name), f); err != nil {
				return err
			}
		}
	}
}

func (p *Handle) statName(name string, f func(e *Item) error) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(p.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		e := itemOf(&st)
		e.Name = name
		return f(&e)
	case unix.ENOENT:
		return nil
	default:
		return &fs.PathError{Op: "stat", Path: path.Join(p.Name, name), Err: err}
	}
}
