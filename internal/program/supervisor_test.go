//go:build linux

package program

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/program/frame"
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

// TestOrder sends orders with every field set: they arrive as they were, also
// bytes that are no text.
func TestOrder(t *testing.T) {
	c, theirs, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(theirs) }()
	defer func() { _ = c.conn.Close() }()
	for _, in := range []order{
		{signal: 9, all: true},
		{job: &Job{Path: "/p", Argv: []string{"a\xff"}, Env: []string{"b=\xfe"}, Dir: "/d", Timeout: 1, Scratch: "/s", Jail: &confine.Plan{Dir: "/d", Port: 2},
			Bounds: cgroup.Bounds{Memory: 3, Processes: 4}}, attached: &attachment{true, 5}},
	} {
		var out order
		if err := c.conn.Send(&in); err != nil {
			t.Fatal(err)
		}
		if _, err := frame.Plain(theirs).Receive(&out); err != nil || !reflect.DeepEqual(in, out) {
			t.Errorf("want %+v, got %+v, %v", in, out, err)
		}
	}
}
