package api

import (
	"net"

	"golang.org/x/sys/unix"
)

// wake continues the process at the other end of a socket, if it is stopped.
func wake(c net.Conn) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && peer.Pid > 0 { // 0: the process is in another pid namespace
			_ = unix.Kill(int(peer.Pid), unix.SIGCONT)
		}
	})
}
