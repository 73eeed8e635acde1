package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// A conn is a TCP connection that carries one request after another to a
// provider. [HangUp] closes it for writing without losing a byte of the next
// request.
type conn struct {
	*net.TCPConn
	mu          sync.Mutex
	n           uint64 // number of writes
	writeClosed bool
}

// dialed wraps dial so that each TCP connection becomes a [conn]. A connection
// under TLS may carry many requests at a time, so [HangUp] cannot close that one.
func dialed(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			return &conn{TCPConn: tcp}, nil
		}
		return c, err
	}
}

var errWriteClosed = errors.New("HangUp closed this connection for writing")

// Write refuses to write after [HangUp]. The HTTP transport then sends the
// request on another connection.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writeClosed {
		return 0, errWriteClosed
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

// A call is the body of an answer, with the connection that the answer comes on.
type call struct {
	io.ReadCloser
	conn *conn
	n    uint64 // writes to conn before the answer began
}

// HangUp tells the provider that nobody reads the answer any more, by closing
// the connection for writing. It returns false and does nothing if that would
// also stop another request. Bytes that the provider already sent still arrive,
// and then the end of the answer.
func HangUp(body io.Reader) (closed bool) {
	l, ok := body.(*call)
	if !ok {
		return false
	}
	c := l.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writeClosed || c.n != l.n { // the connection already carries the next request
		return false
	}
	// Set under the lock of Write: no request can begin between the check and the close.
	c.writeClosed = true
	return c.CloseWrite() == nil
}
