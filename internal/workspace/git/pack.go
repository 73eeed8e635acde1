package git

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// The object types of Git, as numbered in a pack.
const (
	typCommit = 1
	typTree   = 2
	typBlob   = 3
	typOfs    = 6 // a delta to an object of the same pack, by distance
	typRef    = 7 // a delta to an object, by name
)

var typNames = [...]string{typCommit: "commit", typTree: "tree", typBlob: "blob"}

// An object is to be written: its bytes, or the file that holds them.
type object struct {
	id   fsys.Hash
	typ  byte
	data []byte
	file func() (*os.File, int64, error)
}

func objectID(typ byte, data []byte) (out fsys.Hash) {
	h := sha256.New()
	h.Write(append(strconv.AppendInt([]byte(typNames[typ]+" "), int64(len(data)), 10), 0))
	h.Write(data)
	h.Sum(out[:0])
	return out
}

// A Pack is one pack file with its index in memory.
type Pack struct {
	f    *os.File
	Name string // without .pack
	idx  []byte // fan-out, then the names
	n    int
	offs []int64
	crcs []uint32
	size int64
	kept bool // our .keep file stops Git from repacking it
}

// keepText is the content of our .keep files, which we may remove.
const keepText = "kern\n"

const (
	idxHead = 8
	idxFan  = 256 * 4
)

var deflaters = sync.Pool{New: func() any {
	z, _ := zlib.NewWriterLevel(io.Discard, zlib.BestSpeed)
	return z
}}

// writePack writes objs as a new pack in dir, with a .keep file. It does not sync:
// the caller decides when. Adopt writes the index after that sync, so a whole index
// proves that its pack is whole.
func writePack(dir string, objs []object) (*Pack, error) {
	f, err := os.CreateTemp(dir, "tmp_pack_")
	if err != nil {
		return nil, err
	}
	p := &Pack{f: f, kept: true}
	if err := p.writeObjects(objs); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	// The .keep file comes before the pack has its name: else Git could repack it before a ref reaches it.
	final := filepath.Join(dir, p.Name+".pack")
	keep := filepath.Join(dir, p.Name+".keep")
	if err := errors.Join(os.Chmod(f.Name(), 0o444), os.WriteFile(keep, []byte(keepText), 0o600), os.Rename(f.Name(), final)); err != nil {
		f.Close()
		os.Remove(keep)
		return nil, err
	}
	return p, nil
}

// A counter writes a pack and keeps its sums.
type counter struct {
	w   *bufio.Writer
	sum hash.Hash
	crc hash.Hash32
	n   int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.sum.Write(b)
	c.crc.Write(b)
	c.n += int64(len(b))
	return c.w.Write(b)
}

func (p *Pack) writeObjects(objs []object) error {
	c := &counter{w: bufio.NewWriterSize(p.f, 64<<10), sum: sha256.New(), crc: crc32.NewIEEE()}
	head := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(objs)))
	if _, err := c.Write(head); err != nil {
		return err
	}
	at := make([]int64, len(objs))
	crc := make([]uint32, len(objs))
	for i := range objs {
		at[i] = c.n
		c.crc.Reset()
		if err := writeObject(c, &objs[i]); err != nil {
			return err
		}
		crc[i] = c.crc.Sum32()
	}
	sum := c.sum.Sum(nil)
	c.w.Write(sum)
	p.size = c.n + int64(len(sum))
	p.Name = "pack-" + hex.EncodeToString(sum)
	p.setIndex(objs, at, crc)
	return c.w.Flush()
}

func writeObject(c *counter, o *object) error {
	size := int64(len(o.data))
	var f *os.File
	if o.file != nil {
		var err error
		if f, size, err = o.file(); err != nil {
			return err
		}
		defer f.Close()
	}
	// The head of an object in a pack: 3 bits of type, then the size, 4 bits first and 7 in each further byte.
	b := []byte{o.typ<<4 | byte(size&15)}
	for n := size >> 4; n > 0; n >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(n&0x7f))
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	z := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(z)
	z.Reset(c)
	if f == nil {
		if _, err := z.Write(o.data); err != nil {
			return err
		}
		return z.Close()
	}
	// A large file is hashed while it is written, because it may have changed since the scan.
	h := sha256.New()
	fsys.BlobHead(h, size)
	n, err := io.Copy(io.MultiWriter(z, h), io.NewSectionReader(f, 0, size))
	if err != nil {
		return err
	}
	if n != size || fsys.Hash(h.Sum(nil)) != o.id {
		return fsys.Errorf(fsys.Busy, f.Name(), "another program writes to it while it is recorded")
	}
	return z.Close()
}

// setIndex makes the index in memory from the written objects.
func (p *Pack) setIndex(objs []object, at []int64, crc []uint32) {
	order := make([]int, len(objs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(objs[a].id[:], objs[b].id[:]) })
	p.n = len(objs)
	p.idx = make([]byte, idxFan, idxFan+32*len(objs))
	p.offs, p.crcs = make([]int64, 0, len(objs)), make([]uint32, 0, len(objs))
	for _, i := range order {
		p.idx = append(p.idx, objs[i].id[:]...)
		p.offs = append(p.offs, at[i])
		p.crcs = append(p.crcs, crc[i])
	}
	// The fan-out: how many names begin with a byte of at most b.
	for b, k := 0, 0; b < 256; b++ {
		for k < len(order) && int(objs[order[k]].id[0]) <= b {
			k++
		}
		binary.BigEndian.PutUint32(p.idx[4*b:], uint32(k))
	}
}

func (p *Pack) id(i int) fsys.Hash { return fsys.Hash(p.idx[idxFan+32*i:]) }

// find returns the position of id in the index.
func (p *Pack) find(id fsys.Hash) (int, bool) {
	lo := 0
	if id[0] > 0 {
		lo = int(binary.BigEndian.Uint32(p.idx[4*(int(id[0])-1):]))
	}
	hi := int(binary.BigEndian.Uint32(p.idx[4*int(id[0]):]))
	i := lo + sort.Search(hi-lo, func(i int) bool {
		x := p.id(lo + i)
		return bytes.Compare(x[:], id[:]) >= 0
	})
	return i, i < hi && p.id(i) == id
}

// writeIndex writes the index file (version 2).
func (p *Pack) writeIndex(dir string, sync bool) error {
	b := append(make([]byte, 0, idxHead+len(p.idx)+8*p.n+64), "\xfftOc\x00\x00\x00\x02"...)
	b = append(b, p.idx...)
	for _, c := range p.crcs {
		b = binary.BigEndian.AppendUint32(b, c)
	}
	var large []int64
	for _, o := range p.offs {
		// Offsets from 2 GiB on stand in a second table, where the format has 64 bits.
		if o < 1<<31 {
			b = binary.BigEndian.AppendUint32(b, uint32(o))
		} else {
			b = binary.BigEndian.AppendUint32(b, uint32(1<<31|len(large)))
			large = append(large, o)
		}
	}
	for _, o := range large {
		b = binary.BigEndian.AppendUint64(b, uint64(o))
	}
	sum, err := hex.DecodeString(strings.TrimPrefix(p.Name, "pack-"))
	if err != nil {
		return err
	}
	b = append(b, sum...)
	own := sha256.Sum256(b)
	return fsys.Replace(filepath.Join(dir, p.Name+".idx"), append(b, own[:]...), 0o444, sync)
}

// openPack opens a pack. If the index is missing or torn, it is made again from
// the pack; then the sum of the pack must be right.
func openPack(dir, name string) (*Pack, error) {
	f, err := os.Open(filepath.Join(dir, name+".pack"))
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	keep, _ := os.ReadFile(filepath.Join(dir, name+".keep"))
	p := &Pack{f: f, Name: name, size: fi.Size(), kept: string(keep) == keepText}
	// A whole index proves a whole pack, so only a missing or torn index costs a read of the pack.
	b, err := os.ReadFile(filepath.Join(dir, name+".idx"))
	if err == nil && p.readIndex(b) {
		return p, nil
	}
	if err := p.reindex(); err != nil {
		f.Close()
		return nil, err
	}
	return p, p.writeIndex(dir, false)
}

func (p *Pack) readIndex(b []byte) bool {
	if len(b) < idxHead+idxFan+64 || string(b[:8]) != "\xfftOc\x00\x00\x00\x02" {
		return false
	}
	if sum := sha256.Sum256(b[:len(b)-32]); string(sum[:]) != string(b[len(b)-32:]) {
		return false
	}
	// The last 64 bytes are the sum of the pack and the sum of the index.
	b = b[idxHead : len(b)-64]
	n := int(binary.BigEndian.Uint32(b[idxFan-4:]))
	if len(b) < idxFan+n*40 {
		return false
	}
	p.n, p.idx = n, b[:idxFan+32*n]
	crcs, offs := b[idxFan+32*n:], b[idxFan+36*n:]
	large := b[idxFan+40*n:]
	for i := range n {
		p.crcs = append(p.crcs, binary.BigEndian.Uint32(crcs[4*i:]))
		o := int64(binary.BigEndian.Uint32(offs[4*i:]))
		if o >= 1<<31 {
			at := 8 * (o - 1<<31)
			// The sum is right, so the writer was wrong. That must not crash the reader.
			if at+8 > int64(len(large)) {
				return false
			}
			o = int64(binary.BigEndian.Uint64(large[at:]))
		}
		p.offs = append(p.offs, o)
	}
	return true
}

// A countingReader counts exactly the bytes that are read.
type countingReader struct {
	r   *bufio.Reader
	n   int64
	crc hash.Hash32
}

func (t *countingReader) ReadByte() (byte, error) {
	b, err := t.r.ReadByte()
	if err == nil {
		t.n++
		t.crc.Write([]byte{b})
	}
	return b, err
}

func (t *countingReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.n += int64(n)
	t.crc.Write(b[:n])
	return n, err
}

// reindex reads a whole pack that Kern wrote, and so has no deltas.
func (p *Pack) reindex() error {
	bad := func(why string) error {
		return fsys.Errorf(fsys.Damaged, p.f.Name(), "the pack does not read back: %s", why)
	}
	if p.size < 12+32 {
		return bad("too short")
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(p.f, 0, p.size-32)); err != nil {
		return err
	}
	// The name is the sum, so a torn pack is found before any object is trusted.
	if "pack-"+hex.EncodeToString(h.Sum(nil)) != p.Name {
		return bad("its sum is not its name")
	}
	t := &countingReader{r: bufio.NewReader(io.NewSectionReader(p.f, 0, p.size-32)), crc: crc32.NewIEEE()}
	head := make([]byte, 12)
	if _, err := io.ReadFull(t, head); err != nil {
		return bad(err.Error())
	}
	n := int(binary.BigEndian.Uint32(head[8:]))
	objs, at, crc := make([]object, n), make([]int64, n), make([]uint32, n)
	var z io.ReadCloser
	for i := range n {
		at[i] = t.n
		t.crc.Reset()
		typ, _, err := objectHead(t)
		if err != nil || typ >= typOfs {
			return bad("object of an unknown type")
		}
		// The reader counts bytes exactly, because the next object begins where this one ends.
		if z == nil {
			z, err = zlib.NewReader(t)
		} else {
			err = z.(zlib.Resetter).Reset(t, nil)
		}
		if err != nil {
			return bad(err.Error())
		}
		data, err := io.ReadAll(z)
		if err != nil {
			return bad(err.Error())
		}
		objs[i].id, crc[i] = objectID(typ, data), t.crc.Sum32()
	}
	p.setIndex(objs, at, crc)
	return nil
}

func objectHead(r io.ByteReader) (typ byte, size int64, err error) {
	b, err := r.ReadByte()
	typ, size = b>>4&7, int64(b&15)
	for shift := 4; err == nil && b&0x80 != 0; shift += 7 {
		b, err = r.ReadByte()
		size |= int64(b&0x7f) << shift
	}
	return typ, size, err
}

// object opens the object at off. A delta is applied in memory; only Git makes
// deltas.
func (p *Pack) object(h *Objects, off int64) (typ byte, size int64, r io.Reader, err error) {
	br := bufio.NewReader(io.NewSectionReader(p.f, off, p.size-off))
	if typ, size, err = objectHead(br); err != nil {
		return 0, 0, nil, err
	}
	// Whole objects are streamed, so a large file is never held in memory.
	if typ < typOfs {
		z, err := zlib.NewReader(br)
		return typ, size, z, err
	}
	var base []byte
	if typ == typOfs {
		b, _ := br.ReadByte()
		back := int64(b & 0x7f)
		for b&0x80 != 0 {
			b, _ = br.ReadByte()
			// Git adds one per byte, so that no distance has two encodings.
			back = (back+1)<<7 | int64(b&0x7f)
		}
		var br2 io.Reader
		if typ, _, br2, err = p.object(h, off-back); err == nil {
			base, err = io.ReadAll(br2)
		}
	} else {
		var id fsys.Hash
		if _, err = io.ReadFull(br, id[:]); err == nil {
			typ, base, err = h.read(id)
		}
	}
	if err != nil {
		return 0, 0, nil, err
	}
	z, err := zlib.NewReader(br)
	if err != nil {
		return 0, 0, nil, err
	}
	d, err := io.ReadAll(z)
	if err != nil {
		return 0, 0, nil, err
	}
	out, err := applyDelta(base, d)
	return typ, int64(len(out)), bytes.NewReader(out), err
}

// applyDelta applies a delta of Git to base.
func applyDelta(base, d []byte) ([]byte, error) {
	bad := fmt.Errorf("a delta in the history does not apply")
	r := bytes.NewReader(d)
	from, _ := binary.ReadUvarint(r)
	to, err := binary.ReadUvarint(r)
	if err != nil || from != uint64(len(base)) {
		return nil, bad
	}
	// The size comes from the file, so it must not decide how much memory is taken.
	out := make([]byte, 0, min(to, 1<<30))
	for r.Len() > 0 {
		c, _ := r.ReadByte()
		// Without the high bit: the next c bytes are new. With it: copy a part of base, whose bits say which bytes
		// follow.
		if c&0x80 == 0 {
			b := make([]byte, c)
			if _, err := io.ReadFull(r, b); err != nil || c == 0 {
				return nil, bad
			}
			out = append(out, b...)
			continue
		}
		var v [7]byte
		for i := range v {
			if c&(1<<i) != 0 {
				v[i], _ = r.ReadByte()
			}
		}
		at := int(binary.LittleEndian.Uint32(v[:4]))
		n := int(v[4]) | int(v[5])<<8 | int(v[6])<<16
		if n == 0 {
			n = 0x10000
		}
		if at+n > len(base) {
			return nil, bad
		}
		out = append(out, base[at:at+n]...)
	}
	if uint64(len(out)) != to {
		return nil, bad
	}
	return out, nil
}

// Sync syncs the pack.
func (p *Pack) Sync() error { return p.f.Sync() }

// Close closes the file of the pack.
func (p *Pack) Close() error { return p.f.Close() }
