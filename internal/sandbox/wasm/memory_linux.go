package wasm

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/sandbox/wasm/image"
)

// A picture is the image's memory in a sealed memory file: nobody can change
// it any more, whatever happens to the files it came from.
type picture struct {
	fd   int
	size uint64
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
	_, err = unix.FcntlInt(uintptr(p.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

func (p *picture) close() { unix.Close(p.fd) }

// A memory is one instance's: address space for all that wasm can address, of
// which the first part is a private view of the picture. A page takes memory
// of its own when it is first written.
type memory struct {
	space  []byte
	image  uint64
	size   uint64 // readable and writable
	limit  uint64
	denied bool
}

func (p *picture) memory() (*memory, error) {
	space, err := unix.Mmap(-1, 0, maxMemory, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("sandbox wasm: address space for an instance: %w", err)
	}
	m := &memory{space: space, image: p.size, size: p.size, limit: p.size}
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

// reset makes the memory the picture again, and reports whether it could.
func (m *memory) reset() bool {
	return m.size == m.image && unix.Madvise(m.space[:m.size], unix.MADV_DONTNEED) == nil
}

// written lists the parts that are this instance's own: pages that are there
// and not of the picture's file. Without /proc it lists none.
func (m *memory) written() []span {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	defer f.Close()
	const present, ofFile = 1 << 63, 1 << 61
	b := make([]byte, m.size/hostPage*8)
	if _, err := f.ReadAt(b, int64(uintptr(unsafe.Pointer(&m.space[0]))/hostPage*8)); err != nil {
		return nil
	}
	var out []span
	for i := 0; i*8 < len(b); i++ {
		if v := binary.LittleEndian.Uint64(b[i*8:]); v&present == 0 || v&ofFile != 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].to == i*hostPage {
			out[n-1].to += hostPage
		} else {
			out = append(out, span{i * hostPage, (i + 1) * hostPage})
		}
	}
	return out
}

// prefault makes parts this instance's own before they are needed.
func (m *memory) prefault(hot []span) {
	for _, s := range hot {
		if unix.Madvise(m.space[s.from:s.to], unix.MADV_POPULATE_WRITE) != nil {
			return // an older kernel: they come when they are needed
		}
	}
}
