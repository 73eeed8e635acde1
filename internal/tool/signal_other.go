//go:build unix && !linux

package tool

import "syscall"

func signalName(n int) string { return syscall.Signal(n).String() }
