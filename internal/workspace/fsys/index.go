package fsys

import (
	"encoding/binary"
	"os"
)

const indexMagic = "kernidx1"

// Encode encodes a tree with a key and a checksum.
func Encode(root *Item, key string) []byte {
	b := putEntry(append([]byte(indexMagic), putString(nil, key)...), root)
	sum := Blob(b)
	return append(b, sum[:]...)
}

// Decode decodes the output of Encode for the same key.
func Decode(b []byte, key string) (e Item, ok bool) {
	if len(b) < len(indexMagic)+32 {
		return e, false
	}
	sum := Hash(b[len(b)-32:])
	b = b[:len(b)-32]
	// The index vouches for content that is not read again, so a damaged one must not be used.
	if Blob(b) != sum || string(b[:len(indexMagic)]) != indexMagic {
		return e, false
	}
	r := &indexReader{b: b[len(indexMagic):]}
	// Other rules or another directory make other entries.
	if r.text() != key {
		return e, false
	}
	e = r.entry()
	return e, !r.broken && len(r.b) == 0
}

func putString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func putEntry(b []byte, e *Item) []byte {
	b = append(putString(b, e.Name), byte(e.Kind))
	flags := uint64(0)
	// Racy must survive a restart, or the next scan would trust a file that may have changed.
	for i, f := range []bool{e.Ignored, e.Racy} {
		if f {
			flags |= 1 << i
		}
	}
	for _, v := range []uint64{flags, uint64(e.Mode), uint64(e.Size), e.Group, e.Print.Ino, uint64(e.Print.Nlink), uint64(e.Print.Uid), uint64(e.Print.Gid)} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendVarint(binary.AppendVarint(b, e.Time), e.Print.Ctime)
	switch e.Kind {
	case Dir:
		if e.Dir == nil {
			return binary.AppendUvarint(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(len(e.Dir.Ents)))
		for i := range e.Dir.Ents {
			b = putEntry(b, &e.Dir.Ents[i])
		}
	case Symlink:
		b = putString(append(b, e.Hash[:]...), e.Target)
	default:
		b = append(b, e.Hash[:]...)
	}
	return b
}

type indexReader struct {
	b      []byte
	broken bool
}

func (r *indexReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.broken = true
		// Callers index the result before they look at broken.
		return make([]byte, min(n, 64))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *indexReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.broken, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.broken, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) text() string { return string(r.take(r.uint())) }

func (r *indexReader) entry() (e Item) {
	e.Name, e.Kind = r.text(), Kind(r.take(1)[0])
	flags := r.uint()
	e.Ignored, e.Racy = flags&1 != 0, flags&2 != 0
	e.Mode, e.Size, e.Group = os.FileMode(r.uint()), int64(r.uint()), r.uint()
	e.Print = Print{Ino: r.uint(), Nlink: uint32(r.uint()), Uid: uint32(r.uint()), Gid: uint32(r.uint())}
	e.Time, e.Print.Ctime = r.int(), r.int()
	switch e.Kind {
	case Dir:
		n := r.uint()
		// Each entry takes at least a byte. A larger count is damage, and would take any amount of memory.
		if n > uint64(len(r.b)) {
			r.broken = true
			return e
		}
		d := &Node{Ents: make([]Item, 0, n)}
		for range n {
			d.Ents = append(d.Ents, r.entry())
		}
		e.Dir = d.Done()
	default:
		e.Hash = Hash(r.take(32))
		if e.Kind == Symlink {
			e.Target = r.text()
		}
	}
	return e
}
