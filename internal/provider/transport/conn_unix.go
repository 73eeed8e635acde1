//go:build unix

package transport

import "syscall"

// Unread reports whether bytes have arrived that this process has not read yet.
// The provider is not silent then, because this process is the slow side.
func (c *call) Unread() (unread bool) {
	raw, err := c.conn.SyscallConn()
	return err == nil && raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		unread = err == nil && n > 0
	}) == nil && unread
}
