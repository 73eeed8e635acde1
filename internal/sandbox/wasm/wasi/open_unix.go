//go:build unix

package wasi

import "syscall"

// openQuietly keeps an open from waiting at a FIFO or taking a terminal.
const openQuietly = syscall.O_NONBLOCK | syscall.O_NOCTTY
