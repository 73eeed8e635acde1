package sqlite

import (
	"bytes"
	"compress/flate"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// A packed blob is its size as a uvarint and its DEFLATE, or a zero byte and its
// plain bytes.

// flateEnd is the end of every DEFLATE. A packed blob leaves it out.
const flateEnd = "\x00\x00\xff\xff"

// packer holds the buffers of one compression. They are large, so a pool keeps them.
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

// pack compresses b, or leaves it plain if that saves less than a sixteenth.
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

// A packet is a packed blob, ready for its row.
type packet struct {
	hash abi.Hash
	body []byte
}

// alone is the amount of bytes for each goroutine of packAll. Less is packed sooner
// than another goroutine starts.
const alone = 16 << 10

// packAll packs blobs on all processors.
func packAll(blobs []abi.Blob) []packet {
	out := make([]packet, len(blobs))
	size := 0
	for i := range blobs {
		size += len(blobs[i].Bytes)
	}
	var at atomic.Int64
	work := func() {
		for i := at.Add(1) - 1; i < int64(len(blobs)); i = at.Add(1) - 1 {
			out[i] = packet{blobs[i].Hash, pack(blobs[i].Bytes)}
		}
	}
	var wg sync.WaitGroup
	for range min(len(blobs), runtime.GOMAXPROCS(0), 1+size/alone) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return out
}

// unpack reverses pack, and refuses a content whose hash is not h.
func unpack(p []byte, h abi.Hash) ([]byte, error) {
	b, err := inflate(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", journal.ErrBlob, h, err)
	}
	if abi.HashOf(b) != h {
		return nil, fmt.Errorf("%w: %s: its content has another hash", journal.ErrBlob, h)
	}
	return b, nil
}

// inflaters keeps decompressors for the next blob, because each has 40 KB.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(strings.NewReader("")) }}

func inflate(p []byte) ([]byte, error) {
	size, n := binary.Uvarint(p)
	switch {
	case n <= 0 || size > journal.MaxBlob:
		return nil, fmt.Errorf("it has no size")
	case size == 0:
		return p[1:], nil
	}
	r := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(r)
	if err := r.(flate.Resetter).Reset(io.MultiReader(bytes.NewReader(p[n:]), strings.NewReader(flateEnd)), nil); err != nil {
		return nil, err
	}
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

// blobKey returns the part of a hash that the table names is ordered by. Several
// blobs may share it.
func blobKey(h abi.Hash) int64 { return int64(int32(binary.BigEndian.Uint32(h[:]))) }

func (w *writer) storeBlob(p packet) error {
	b, err := findBlob(w.named, p.hash)
	if b != nil || err != nil && !errors.Is(err, journal.ErrBlob) {
		return err
	}
	id, err := w.blob.number(p.body)
	if err != nil {
		return err
	}
	return w.name.exec(blobKey(p.hash), id)
}

// findBlob returns the blob of a hash, or nil if none is stored. A damaged blob is a
// [journal.ErrBlob], unless a second row has it undamaged.
func findBlob(named *stmt, h abi.Hash) ([]byte, error) {
	rows, err := named.query(blobKey(h))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var dest [1]driver.Value
	var bad error
	for {
		switch err := rows.Next(dest[:]); err {
		case nil:
		case io.EOF:
			return nil, bad
		default:
			return nil, err
		}
		p, _ := dest[0].([]byte)
		b, err := unpack(p, h)
		if err == nil {
			return b, nil
		}
		bad = err
	}
}
