package journal

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/kern-run/kern/abi"
)

// A packed blob begins with its size as a uvarint, and goes on with DEFLATE; or
// it begins with a zero byte, and goes on as it is.

// flateEnd is how the compressor always ends. It is left out.
const flateEnd = "\x00\x00\xff\xff"

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
	z, ok := bytes.CutSuffix(p.buf.Bytes(), []byte(flateEnd))
	if ok && len(z) < len(b)-len(b)/16 {
		return append(binary.AppendUvarint(make([]byte, 0, len(z)+4), uint64(len(b))), z...)
	}
	return append(make([]byte, 1, len(b)+1), b...)
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
	size, n := binary.Uvarint(p)
	switch {
	case n <= 0 || size > maxBlob:
		return nil, fmt.Errorf("it has no size")
	case size == 0:
		return p[1:], nil
	}
	r := flate.NewReader(io.MultiReader(bytes.NewReader(p[n:]), strings.NewReader(flateEnd)))
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
