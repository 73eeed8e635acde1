package confine

import (
	"io"
	"net"
)

// relay forwards every connection to a socket until the listener is closed.
func relay(l net.Listener, socket string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go forward(c, socket)
	}
}

// forward forwards one connection. It closes the connection if the socket does not
// answer, for example during a restart of the daemon. The client then tries again.
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
		copyOneWay(c, up)
	}()
	copyOneWay(up, c)
	// Each direction may end alone, so the connection stays until both have.
	<-back
}

// copyOneWay copies one direction of a connection and passes its end on. An error ends
// both directions.
func copyOneWay(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	if w, ok := to.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
}
