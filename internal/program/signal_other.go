//go:build unix && !linux

package program

import "syscall"

// SignalName names a signal.
func SignalName(n int) string { return syscall.Signal(n).String() }
