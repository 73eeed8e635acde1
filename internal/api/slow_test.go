package api

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A hurrying listener takes a time that is longer than most to be over at once,
// so that a test of patience needs none.
type hurrying struct {
	net.Listener
	most time.Duration
}

func (l hurrying) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return hurryingConn{c, l.most}, err
}

type hurryingConn struct {
	net.Conn
	most time.Duration
}

func (c hurryingConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) > c.most {
		t = time.Now()
	}
	return c.Conn.SetReadDeadline(t)
}

// TestSlowClients: who begins a request and does not go on, or keeps a connection
// and does not use it, is let go of.
//
// Mutants that die here: no bound on the time of each of them; one that is taken
// away before it is known that the body has come.
func TestSlowClients(t *testing.T) {
	for _, c := range []struct {
		name, said string
		most       time.Duration // what comes before is given its time
	}{
		{"a head", "GET /v1/daemon HTTP/1.1\r\nHost:", 0},
		{"a body", "POST /v1/processes/7/signal HTTP/1.1\r\nHost: kern\r\nContent-Length: 100\r\n\r\n{", 2 * headTime},
		{"the next request", "GET /v1/daemon HTTP/1.1\r\nHost: kern\r\n\r\n", 2 * bodyTime},
	} {
		l, err := Listen(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s := NewHTTPServer(t.Context(), newFake().api().Handler())
		done := make(chan error, 1)
		go func() { done <- s.Serve(hurrying{l, c.most}) }()
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, c.said) // it may be let go of before
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Error(err)
		}
		var late net.Error
		if b, err := io.ReadAll(conn); errors.As(err, &late) && late.Timeout() {
			t.Errorf("%s is waited for; so far it was answered %q", c.name, b)
		}
		conn.Close()
		s.Close()
		<-done
	}
}
