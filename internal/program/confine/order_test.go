//go:build linux

package confine

import (
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/frame"
)

// TestMessages sends each message with every field set: it arrives as it was.
func TestMessages(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	for _, v := range []struct{ in, out frame.Packed }{
		{&Order{Argv: []string{"a", ""}, Env: []string{"b=c"}, Shown: []string{}, Filter: "\x00\xff", Landlock: 6, Root: true, Lent: true, Dir: "/d", Links: 2, Warm: true, Tasks: 3, Gate: true, Group: "g", Groups: 3, Probe: true, Bounds: Bounds{1, 2, 3, 4, 5, 6}}, &Order{}},
		{&Note{"k", "e", true, -1, "s", true, "o", 7, 8}, &Note{}},
		{&Claim{true, true, "/d", Bounds{1 << 40, 2, 3, 4, 5, 6}}, &Claim{}},
	} {
		if err := frame.Plain(fds[0]).Send(v.in); err != nil {
			t.Fatal(err)
		}
		if _, err := frame.Plain(fds[1]).Receive(v.out); err != nil || !reflect.DeepEqual(v.in, v.out) {
			t.Errorf("want %+v, got %+v, %v", v.in, v.out, err)
		}
	}
}

// TestAttest reads rights back from the kernel: those of this thread are not cut.
func TestAttest(t *testing.T) {
	if err := attest(); err == nil || !strings.Contains(err.Error(), "the kernel says") {
		t.Errorf("want a thread with all its rights refused, got %v", err)
	}
	if err := inGroup("kern-jail-not-there", 1); err == nil {
		t.Error("want a thread outside of its cgroup refused")
	}
}
