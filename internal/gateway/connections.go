package gateway

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// connections bounds the connections to the gateway, because each takes a descriptor
// that the control socket and the connections to providers need too. At the bound the
// oldest connection that serves no request with a key is closed.
type connections struct {
	most int

	mu   sync.Mutex
	last uint64 // the number of the newest connection
	open map[net.Conn]*connection
}

// A connection is in use while it serves a request with a valid key.
type connection struct {
	conn net.Conn
	all  *connections
	n    uint64
	use  int
}

type connectionKey struct{}

// accept counts a new connection. It is a ConnContext of an [http.Server].
func (c *connections) accept(ctx context.Context, conn net.Conn) context.Context {
	x := &connection{conn: conn, all: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[net.Conn]*connection)
	}
	c.last++
	x.n = c.last
	c.open[conn] = x
	if len(c.open) > c.most {
		c.evict()
	}
	return context.WithValue(ctx, connectionKey{}, x)
}

// evict closes the oldest connection that is not in use, which is the new one if all
// others are in use. c.mu is held.
func (c *connections) evict() {
	var oldest *connection
	for _, x := range c.open {
		if x.use == 0 && (oldest == nil || x.n < oldest.n) {
			oldest = x
		}
	}
	_ = oldest.conn.Close() // the new one is not in use
	delete(c.open, oldest.conn)
}

// changed forgets a closed connection. It is a ConnState of an [http.Server].
func (c *connections) changed(conn net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// serving marks the connection of a request as in use, until the returned function is
// called.
func serving(r *http.Request) (done func()) {
	x, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	count := func(n int) {
		x.all.mu.Lock()
		defer x.all.mu.Unlock()
		x.use += n
	}
	count(1)
	return func() { count(-1) }
}

// Bounds of the connections.
const (
	keptFiles      = 32 // descriptors for the journal, the control socket and what clients start
	leastConns     = 4
	mostConns      = 8192
	filesPerClient = 3 // the connection, the connection to the provider, and a spare
)

// maxConnections returns how many connections the descriptors of this process allow.
func maxConnections() int {
	files := openFiles()
	if files == 0 {
		return mostConns
	}
	return min(max((files-keptFiles)/filesPerClient, leastConns), mostConns)
}
