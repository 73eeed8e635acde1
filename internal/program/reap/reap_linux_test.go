package reap

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestAdopt: who looks after others inherits them, and cannot be looked into by
// them, whoever they run as.
//
// Mutants that die here: each of the two left out.
func TestAdopt(t *testing.T) {
	was, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := Adopt(); err != nil {
		t.Fatal(err)
	}
	hidden, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || hidden != 0 {
		t.Errorf("it can be looked into: %d, %v", hidden, err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(was), 0, 0, 0); err != nil {
		t.Error(err)
	}
	var heir int32
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&heir)), 0, 0, 0); err != nil || heir != 1 {
		t.Errorf("it does not inherit: %d, %v", heir, err)
	}
}
