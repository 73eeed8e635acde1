//go:build linux

package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Mutants that were made by hand and die here: what no rule names is allowed.

func TestFilterIsAnAllowList(t *testing.T) {
	f, err := Strict()
	if err != nil {
		t.Fatal(err)
	}
	if len(f)%8 != 0 || len(f) < 8*300 {
		t.Fatalf("want a program for some 300 calls, got %d bytes", len(f))
	}
	last := binary.NativeEndian.Uint32([]byte(f[len(f)-4:]))
	if last&unix.SECCOMP_RET_ACTION_FULL != unix.SECCOMP_RET_ERRNO {
		t.Errorf("want what no rule names refused, got %#x", last)
	}
}
