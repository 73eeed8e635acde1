package model

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// A line is a connection to a provider that carries one request after the
// other, and on which one can hang up without a word of the next being lost.
type line struct {
	*net.TCPConn
	mu   sync.Mutex
	n    uint64 // how often it was written to
	hung bool
}

// dialed makes lines of the connections of dial. One with TLS above it is no
// line to who sends requests on it: it may carry many at a time.
func dialed(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			return &line{TCPConn: tcp}, nil
		}
		return c, err
	}
}

var errHung = errors.New("the line was hung up")

// Write writes nothing on a line that was hung up: then the request is sent on
// another.
func (l *line) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hung {
		return 0, errHung
	}
	l.n++
	return l.TCPConn.Write(b)
}

// ReadFrom is Write, for whoever would go round it.
func (l *line) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{l}, r)
}

func (l *line) writes() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// A passage is how far a request came on its way.
type passage struct{ sought, had, seen atomic.Bool }

// watched is ctx for a request whose passage it is to be.
func (p *passage) watched(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { p.sought.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { p.had.Store(true) },
		WroteHeaders: func() { p.seen.Store(true) },
	})
}

// ended says of a request that failed how far it had come.
func (p *passage) ended(ctx context.Context, e *Error) *Error {
	if !p.seen.Load() {
		e.Usage = &Usage{} // nobody saw it
	}
	e.Unreached = p.sought.Load() && !p.had.Load() && ctx.Err() == nil
	return e
}

// A call is the body of an answer that comes on a line.
type call struct {
	io.ReadCloser
	line *line
	n    uint64 // writes to the line until the answer began
}

// HangUp tells the provider that nobody listens any more, where that can be
// said of this answer alone. What was written before still comes, and then the
// end: that much, and no more, was said.
func HangUp(body io.Reader) (told bool) {
	c, ok := body.(*call)
	if !ok {
		return false
	}
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hung || l.n != c.n { // the next request is on its way
		return false
	}
	l.hung = true
	return l.CloseWrite() == nil
}
