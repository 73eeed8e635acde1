package workspace

import (
	"encoding/binary"
	"os"
)

const indexMagic = "kernidx1"

// encode writes a tree down with a key, and a sum over both.
func encode(root *entry, key string) []byte {
	b := putEntry(append([]byte(indexMagic), putString(nil, key)...), root)
	sum := blobHash(b)
	return append(b, sum[:]...)
}

// decode reads what encode wrote for the same key.
func decode(b []byte, key string) (e entry, ok bool) {
	if len(b) < len(indexMagic)+32 {
		return e, false
	}
	sum := Hash(b[len(b)-32:])
	b = b[:len(b)-32]
	if blobHash(b) != sum || string(b[:len(indexMagic)]) != indexMagic {
		return e, false
	}
	r := &indexReader{b: b[len(indexMagic):]}
	if r.text() != key {
		return e, false
	}
	e = r.entry()
	return e, !r.bad && len(r.b) == 0
}

func putString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func putEntry(b []byte, e *entry) []byte {
	b = append(putString(b, e.name), byte(e.Kind))
	flags := uint64(0)
	for i, f := range []bool{e.ignored, e.racy} {
		if f {
			flags |= 1 << i
		}
	}
	for _, v := range []uint64{flags, uint64(e.Mode), uint64(e.Size), e.Group, e.fp.ino, uint64(e.fp.nlink), uint64(e.fp.uid), uint64(e.fp.gid)} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendVarint(binary.AppendVarint(b, e.Time), e.fp.ctime)
	switch e.Kind {
	case Dir:
		if e.dir == nil {
			return binary.AppendUvarint(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(len(e.dir.ents)))
		for i := range e.dir.ents {
			b = putEntry(b, &e.dir.ents[i])
		}
	case Symlink:
		b = putString(append(b, e.Hash[:]...), e.Target)
	default:
		b = append(b, e.Hash[:]...)
	}
	return b
}

type indexReader struct {
	b   []byte
	bad bool
}

func (r *indexReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad = true
		return make([]byte, min(n, 64))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *indexReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) text() string { return string(r.take(r.uint())) }

func (r *indexReader) entry() (e entry) {
	e.name, e.Kind = r.text(), Kind(r.take(1)[0])
	flags := r.uint()
	e.ignored, e.racy = flags&1 != 0, flags&2 != 0
	e.Mode, e.Size, e.Group = os.FileMode(r.uint()), int64(r.uint()), r.uint()
	e.fp = print{ino: r.uint(), nlink: uint32(r.uint()), uid: uint32(r.uint()), gid: uint32(r.uint())}
	e.Time, e.fp.ctime = r.int(), r.int()
	switch e.Kind {
	case Dir:
		n := r.uint()
		if n > uint64(len(r.b)) {
			r.bad = true
			return e
		}
		d := &node{ents: make([]entry, 0, n)}
		for range n {
			d.ents = append(d.ents, r.entry())
		}
		e.dir = d.done()
	default:
		e.Hash = Hash(r.take(32))
		if e.Kind == Symlink {
			e.Target = r.text()
		}
	}
	return e
}
