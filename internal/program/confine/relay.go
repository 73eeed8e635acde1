package confine

import (
	"io"
	"net"
)

// relay forwards every connection to a socket, until the listener is closed.
func relay(l net.Listener, socket string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go forward(c, socket)
	}
}

// forward forwards one connection. Where nobody answers, which is so while a
// daemon is started again, it is closed, and the client tries again.
func forward(c net.Conn, socket string) {
	defer c.Close()
	up, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer up.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		pass(c, up)
	}()
	pass(up, c)
	<-back
}

// pass copies one way, and passes the end of it on. A way that breaks ends both.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	if w, ok := to.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
}
