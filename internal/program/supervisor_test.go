//go:build linux

package program

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNobodyWaits starts a supervisor whose caller died after it sent a job. The
// job does not begin.
func TestNobodyWaits(t *testing.T) {
	dir := t.TempDir()
	c, theirs, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile(null)
	file, scratch, fd := filepath.Join(dir, "ran"), filepath.Join(dir, "scratch"), null.Fd()
	j := &Job{Path: "/bin/sh", Argv: []string{"/bin/sh", "-c", "echo ran >" + file}, Dir: dir, Timeout: time.Second, Scratch: scratch}
	if err := c.conn.Send(&order{job: j}, int(fd), int(fd), int(fd)); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.launch(nil, &syscall.ProcAttr{Env: []string{settings(3, false, false)}, Files: []uintptr{fd, fd, fd, uintptr(theirs)}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(theirs); err != nil {
		t.Fatal(err)
	}
	if state, err := c.keeper.Wait(); err != nil || !state.Success() {
		t.Errorf("%v, %v", state, err)
	}
	for _, f := range []string{file, scratch} {
		if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", f, err)
		}
	}
}

// TestCloseOnExec tests the replacement of close_range on older systems.
func TestCloseOnExec(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	closeOnExec(3)
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor %d has flags %#x (%v)", fd, flags, err)
	}
}
