package transport

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bounded has the system give up a connection on which something that was sent
// was not acknowledged for so long: probes are sent only where nothing is on its
// way. It is a bound of what one waits for, so a connection without it will do.
func bounded(patience time.Duration) func(network, addr string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds()))
		})
	}
}
