package transport

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bounded makes the system close a connection whose sent bytes stay
// unacknowledged for patience. Keep-alive probes do not cover that case, because
// the system sends them only on a connection with no bytes in flight. An error is
// ignored, because a connection without this bound still works.
func bounded(patience time.Duration) func(network, addr string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds()))
		})
	}
}
