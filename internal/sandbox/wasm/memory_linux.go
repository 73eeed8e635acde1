package wasm

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/sandbox/wasm/image"
)

// A picture is the image's memory in a sealed memory file. Nothing can change it any
// more, not even a change of the files it came from.
type picture struct {
	fd      int
	size    uint64
	content []byte   // read-only
	pages   *os.File // the page map of this process; nil: the kernel shows none
}

func newPicture(p *image.Packed, load func([]byte) error) (*picture, error) {
	fd, err := unix.MemfdCreate("kern-python", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("sandbox wasm: memfd_create: %w", err)
	}
	pic := &picture{fd: fd, size: uint64(p.MemorySize)}
	if err := pic.fill(load); err != nil {
		pic.close()
		return nil, fmt.Errorf("sandbox wasm: the image: %w", err)
	}
	pic.pages, _ = os.Open("/proc/self/pagemap")
	return pic, nil
}

func (p *picture) fill(load func([]byte) error) error {
	if err := unix.Ftruncate(p.fd, int64(p.size)); err != nil {
		return err
	}
	b, err := unix.Mmap(p.fd, 0, int(p.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	err = load(b)
	if e := unix.Munmap(b); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	// All instances share these pages. The seals keep this process and any other from changing them.
	_, err = unix.FcntlInt(uintptr(p.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	if err == nil {
		p.content, err = unix.Mmap(p.fd, 0, int(p.size), unix.PROT_READ, unix.MAP_SHARED)
	}
	return err
}

func (p *picture) close() {
	if p.content != nil {
		unix.Munmap(p.content)
	}
	if p.pages != nil {
		p.pages.Close()
	}
	unix.Close(p.fd)
}

// A memory belongs to one instance. It reserves all addresses that wasm has. Its first
// part is a private view of the picture, where a page takes memory once it is written.
type memory struct {
	of     *picture
	space  []byte
	image  uint64
	size   uint64 // readable and writable
	limit  uint64
	denied bool
}

func (p *picture) memory() (*memory, error) {
	// Reserving all that 32 bits address keeps the memory in place when it grows.
	space, err := unix.Mmap(-1, 0, maxMemory, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("sandbox wasm: address space for an instance: %w", err)
	}
	m := &memory{of: p, space: space, image: p.size, size: p.size, limit: p.size}
	_, err = unix.MmapPtr(p.fd, 0, unsafe.Pointer(&space[0]), uintptr(p.size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		m.Free()
		return nil, fmt.Errorf("sandbox wasm: view of the image: %w", err)
	}
	return m, nil
}

func (m *memory) grow(size uint64) []byte {
	if size > m.size {
		if unix.Mprotect(m.space[m.size:size], unix.PROT_READ|unix.PROT_WRITE) != nil {
			m.denied = true
			return nil
		}
		m.size = size
	}
	return m.space[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() {
	if m.space != nil {
		unix.Munmap(m.space)
		m.space = nil
	}
}

// reset restores the content of the picture, and reports whether it could. Written
// pages in hot get their content back and keep their memory, because the next run
// writes them too. All other written pages lose their memory.
func (m *memory) reset(hot touched) bool {
	// The memory of wasm cannot shrink, so an instance that grew is replaced.
	if m.size != m.image {
		return false
	}
	states := m.states()
	// Without the page map every page is dropped, and the hot ones are copied again.
	if states == nil {
		if unix.Madvise(m.space[:m.size], unix.MADV_DONTNEED) != nil {
			return false
		}
		m.prefault(hot)
		return true
	}
	var drop []span
	for i, own := 0, 0; i*8 < len(states); i++ {
		if pageState(states, i) != pageOwn {
			continue
		}
		at := i * hostPage
		for own < len(hot.written) && hot.written[own].to <= at {
			own++
		}
		if own < len(hot.written) && hot.written[own].from <= at {
			// Copying is cheaper than dropping the page and taking a fault in the next run.
			copy(m.space[at:at+hostPage], m.of.content[at:])
		} else {
			drop = extend(drop, at)
		}
	}
	return m.advise(drop, unix.MADV_DONTNEED)
}

// The states of a page.
const (
	pageUnknown = iota // not touched
	pageRead           // of the image
	pageOwn            // a copy of this instance
)

// states reads the page map, eight bytes for each page; nil if there is none.
func (m *memory) states() []byte {
	if m.of.pages == nil {
		return nil
	}
	b := make([]byte, m.image/hostPage*8)
	if n, err := m.of.pages.ReadAt(b, int64(uintptr(unsafe.Pointer(&m.space[0]))/hostPage*8)); err != nil || n != len(b) {
		return nil
	}
	return b
}

func pageState(states []byte, i int) int {
	const present, swapped, ofFile = 1 << 63, 1 << 62, 1 << 61
	v := binary.LittleEndian.Uint64(states[i*8:])
	switch {
	case v&(present|swapped) == 0:
		return pageUnknown
	case v&ofFile != 0:
		return pageRead
	}
	return pageOwn
}

// touched lists the pages that a run read and, separately, the pages that it wrote.
func (m *memory) touched() (t touched) {
	states := m.states()
	for i := 0; i*8 < len(states); i++ {
		switch pageState(states, i) {
		case pageRead:
			t.read = extend(t.read, i*hostPage)
		case pageOwn:
			t.written = extend(t.written, i*hostPage)
		}
	}
	return t
}

func extend(s []span, at int) []span {
	if n := len(s); n > 0 && s[n-1].to == at {
		s[n-1].to += hostPage
		return s
	}
	return append(s, span{at, at + hostPage})
}

// prefault makes pages ready before a run needs them. An older kernel cannot do that;
// there each page comes at its first use.
func (m *memory) prefault(t touched) {
	m.advise(t.read, unix.MADV_POPULATE_READ)
	m.advise(t.written, unix.MADV_POPULATE_WRITE)
}

func (m *memory) advise(spans []span, advice int) bool {
	for _, s := range spans {
		if unix.Madvise(m.space[s.from:s.to], advice) != nil {
			return false
		}
	}
	return true
}
