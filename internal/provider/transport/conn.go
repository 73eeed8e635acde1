package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// A conn carries one request after the other to a provider, and one can hang up
// on it without a word of the next being lost.
type conn struct {
	*net.TCPConn
	mu   sync.Mutex
	n    uint64 // how often it was written to
	hung bool
}

// dialed makes these of the connections of dial. A connection with
// TLS above it may carry many requests at a time, so it cannot be hung up.
func dialed(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			return &conn{TCPConn: tcp}, nil
		}
		return c, err
	}
}

var errHung = errors.New("the line was hung up")

// Write writes nothing on a connection that was hung up: then the request is
// sent on another.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hung {
		return 0, errHung
	}
	c.n++
	return c.TCPConn.Write(b)
}

// ReadFrom is Write, so that [io.Copy] does not bypass it.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

func (c *conn) writes() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// A call is the body of an answer that comes on a connection.
type call struct {
	io.ReadCloser
	conn *conn
	n    uint64 // writes to it until the answer began
}

// HangUp tells the provider that nobody listens any more, where that can be
// said of this answer alone. The provider's earlier bytes still come, and
// then the end of the answer.
func HangUp(body io.Reader) (told bool) {
	l, ok := body.(*call)
	if !ok {
		return false
	}
	c := l.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hung || c.n != l.n { // the next request is on its way
		return false
	}
	c.hung = true
	return c.CloseWrite() == nil
}
