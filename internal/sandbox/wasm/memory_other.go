//go:build !linux

package wasm

import "github.com/kern-run/kern/internal/sandbox/wasm/image"

// A picture is the image's memory. Each instance copies it, which only makes the start
// slower than on Linux.
type picture struct{ b []byte }

func newPicture(p *image.Packed, load func([]byte) error) (*picture, error) {
	pic := &picture{make([]byte, p.MemorySize)}
	return pic, load(pic.b)
}

func (p *picture) close() { p.b = nil }

// A memory belongs to one instance.
type memory struct {
	space  []byte
	of     *picture
	size   uint64
	limit  uint64
	denied bool
}

func (p *picture) memory() (*memory, error) {
	n := uint64(len(p.b))
	return &memory{space: append([]byte(nil), p.b...), of: p, size: n, limit: n}, nil
}

func (m *memory) grow(size uint64) []byte {
	if size > m.size {
		m.space = append(m.space, make([]byte, size-m.size)...)
		m.size = size
	}
	return m.space[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() { m.space = nil }

func (m *memory) reset(touched) bool {
	return m.size == uint64(len(m.of.b)) && copy(m.space, m.of.b) == len(m.space)
}

func (m *memory) touched() touched { return touched{} }

func (m *memory) prefault(touched) {}
