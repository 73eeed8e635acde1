package program

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Conceal hides the memory and the environment of this process from programs of
// the same user, because they may hold keys. It also ends core dumps.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("this process cannot be hidden: %w", err)
	}
	return nil
}

// SignalName names a signal, such as SIGTERM.
func SignalName(n int) string { return unix.SignalName(syscall.Signal(n)) }
