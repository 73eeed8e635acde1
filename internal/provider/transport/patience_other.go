//go:build !linux

package transport

import (
	"syscall"
	"time"
)

// bounded: what was sent and is not acknowledged is waited for as long as this
// system does.
func bounded(time.Duration) func(network, addr string, c syscall.RawConn) error { return nil }
