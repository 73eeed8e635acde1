// Package image holds the state from which an instance of the interpreter starts. It
// is a module and a copy of its memory from when the interpreter was ready.
//
// A packed image is
//
//	"KERNIMG1"
//	u32 length of the module, u32 length of the memory
//	for each MiB of the module, then of the memory: u32 length of its packed form
//	the packed forms
//
// with numbers in little endian. A packed form is a deflate stream; an empty one means
// zeros. Each part is packed separately, so that all parts can be unpacked in parallel.
package image

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
)

// An Image is a module and the memory of an instance of it.
type Image struct {
	Module []byte
	Memory []byte
}

const (
	magic = "KERNIMG1"
	part  = 1 << 20
)

// Pack returns the image in its packed form.
func Pack(i Image) ([]byte, error) {
	head := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(i.Module)))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(i.Memory)))
	var body []byte
	for _, whole := range [][]byte{i.Module, i.Memory} {
		for b := range parts(whole) {
			packed, err := deflate(b)
			if err != nil {
				return nil, err
			}
			head = binary.LittleEndian.AppendUint32(head, uint32(len(packed)))
			body = append(body, packed...)
		}
	}
	return append(head, body...), nil
}

// parts yields the pieces of b that are packed separately.
func parts(b []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for ; len(b) > 0; b = b[min(part, len(b)):] {
			if !yield(b[:min(part, len(b))]) {
				return
			}
		}
	}
}

// deflate returns the packed form of a part: nothing if the part is all zeros.
func deflate(b []byte) ([]byte, error) {
	if len(bytes.Trim(b, "\x00")) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// A Packed image unpacks its module and its memory separately, because they are needed
// at different times and places.
type Packed struct {
	ModuleSize, MemorySize int

	module, memory []string
}

// Open reads the head of a packed image. The result refers to the string and copies
// nothing.
func Open(packed string) (*Packed, error) {
	if len(packed) < len(magic)+8 || packed[:len(magic)] != magic {
		return nil, fmt.Errorf("image: want a file that begins with %q", magic)
	}
	rest := packed[len(magic):]
	u32 := func() int {
		if len(rest) < 4 {
			rest = ""
			return -1
		}
		n := binary.LittleEndian.Uint32([]byte(rest[:4]))
		rest = rest[4:]
		return int(n)
	}
	p := &Packed{ModuleSize: u32(), MemorySize: u32()}
	sizes := make([]int, count(p.ModuleSize)+count(p.MemorySize))
	if len(rest) < 4*len(sizes) {
		return nil, errors.New("image: cut short in its head")
	}
	for i := range sizes {
		sizes[i] = u32()
	}
	// Sizes come from the file. Each is checked before it cuts a piece, so a damaged file cannot crash the
	// process.
	for i, n := range sizes {
		if n > len(rest) {
			return nil, fmt.Errorf("image: cut short in part %d of %d", i, len(sizes))
		}
		if i < count(p.ModuleSize) {
			p.module = append(p.module, rest[:n])
		} else {
			p.memory = append(p.memory, rest[:n])
		}
		rest = rest[n:]
	}
	if rest != "" {
		return nil, fmt.Errorf("image: %d bytes too many", len(rest))
	}
	return p, nil
}

// count returns the number of parts of n bytes.
func count(n int) int { return (n + part - 1) / part }

// Module unpacks the module into b, which has room for ModuleSize bytes.
func (p *Packed) Module(b []byte) error {
	if len(b) != p.ModuleSize {
		return fmt.Errorf("image: want %d bytes for the module, got %d", p.ModuleSize, len(b))
	}
	return inflate(b, p.module)
}

// Memory unpacks the memory into b, which holds MemorySize zeros.
func (p *Packed) Memory(b []byte) error {
	if len(b) != p.MemorySize {
		return fmt.Errorf("image: want %d bytes for the memory, got %d", p.MemorySize, len(b))
	}
	return inflate(b, p.memory)
}

// inflate unpacks all parts into out, on all processors.
func inflate(out []byte, packed []string) error {
	var wg sync.WaitGroup
	work := make(chan int)
	errs := make([]error, len(packed))
	for range min(runtime.GOMAXPROCS(0), len(packed)) {
		wg.Go(func() {
			for i := range work {
				errs[i] = inflatePart(out[i*part:min((i+1)*part, len(out))], packed[i])
			}
		})
	}
	for i, s := range packed {
		if s != "" {
			work <- i
		}
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

func inflatePart(out []byte, packed string) error {
	r := flate.NewReader(strings.NewReader(packed))
	if _, err := io.ReadFull(r, out); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	// A part that goes on would be cut silently, and the interpreter would start from a wrong memory.
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return errors.New("image: a part is longer than it says")
	}
	return nil
}
