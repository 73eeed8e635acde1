package journal

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/kern-run/kern/abi"
)

// How a blob is packed, in its first byte.
const (
	packedPlain = 0 // as it is
	packedFlate = 1 // its size as a uvarint, then DEFLATE
)

// maxBlob bounds a blob, well below what SQLite can hold in a row.
const maxBlob = 512 << 20

// packer is what one compression needs; it is large, so it is kept.
type packer struct {
	w   *flate.Writer
	buf bytes.Buffer
}

var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	return &packer{w: w}
}}

// pack makes b as small as is worth it: a sixteenth must be gained.
func pack(b []byte) []byte {
	p := packers.Get().(*packer)
	defer packers.Put(p)
	p.buf.Reset()
	p.w.Reset(&p.buf)
	p.w.Write(b) // a bytes.Buffer takes everything
	p.w.Close()
	if n := p.buf.Len(); n < len(b)-len(b)/16 {
		out := binary.AppendUvarint(append(make([]byte, 0, n+6), packedFlate), uint64(len(b)))
		return append(out, p.buf.Bytes()...)
	}
	return append(append(make([]byte, 0, len(b)+1), packedPlain), b...)
}

// unpack gives back what pack was given, and refuses anything that is not h.
func unpack(p []byte, h abi.Hash) ([]byte, error) {
	b, err := inflate(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBlob, h, err)
	}
	if abi.HashOf(b) != h {
		return nil, fmt.Errorf("%w: %s: its content has another hash", ErrBlob, h)
	}
	return b, nil
}

func inflate(p []byte) ([]byte, error) {
	if len(p) == 0 || p[0] > packedFlate {
		return nil, fmt.Errorf("it is packed in an unknown way")
	}
	if p[0] == packedPlain {
		return p[1:], nil
	}
	size, n := binary.Uvarint(p[1:])
	if n <= 0 || size > maxBlob {
		return nil, fmt.Errorf("it has no size")
	}
	r := flate.NewReader(bytes.NewReader(p[1+n:]))
	var b bytes.Buffer
	b.Grow(int(min(size, 1<<20)))
	if _, err := io.Copy(&b, io.LimitReader(r, int64(size)+1)); err != nil {
		return nil, err
	}
	if b.Len() != int(size) {
		return nil, fmt.Errorf("it unpacks to %d bytes, expected %d", b.Len(), size)
	}
	return b.Bytes(), r.Close()
}
