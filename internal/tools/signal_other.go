//go:build unix && !linux

package tools

import "syscall"

func signalName(n int) string { return syscall.Signal(n).String() }
