package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// A Local serves a control API inside this process, without a socket.
type Local struct {
	*Client
	http     *http.Server
	listener *pipeListener
}

// ServeLocal serves an API to a client in this process. Requests end with ctx.
func ServeLocal(ctx context.Context, s *Server) *Local {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	local := &Local{http: NewHTTPServer(ctx, s.Handler()), listener: l}
	c := &connection{version: s.About.Version}
	c.http.Transport = &http.Transport{DialContext: l.dial}
	local.Client = newClient(c)
	go func() { _ = local.http.Serve(l) }() // ends with Close
	return local
}

// Close ends every request.
func (l *Local) Close() {
	l.Client.Close()
	_ = l.http.Close() // no connection is left to report an error
}

// A pipeListener accepts connections from this process.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, errors.Join(net.ErrClosed, http.ErrServerClosed)
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
