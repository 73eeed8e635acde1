//go:build unix

package transport

import "syscall"

// Unread reports whether something has come that nobody has read yet: who gives
// up then is late himself.
func (c *call) Unread() (some bool) {
	raw, err := c.conn.SyscallConn()
	return err == nil && raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		some = err == nil && n > 0
	}) == nil && some
}
