package wasm

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The image cannot be changed below the instances that look at it.
func TestTrapImageIsSealed(t *testing.T) {
	fd := common.engine.picture.fd
	if n, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Errorf("wrote %d bytes into the image", n)
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("cut the image short")
	}
	if b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		unix.Munmap(b)
		t.Error("mapped the image to write to it")
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if want := unix.F_SEAL_SEAL | unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW; err != nil || seals != want {
		t.Errorf("seals %#x, %v; want %#x", seals, err, want)
	}
}
