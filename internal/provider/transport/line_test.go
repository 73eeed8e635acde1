package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bearer signs as OpenAI's protocol wants it.
func bearer(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }

// writes counts the pieces that a connection is given.
type writes struct {
	net.Conn
	n *atomic.Int32
}

func (w writes) Write(b []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(b)
}

// TestPost: a request goes in one piece, and is let go of when its answer
// begins, however long that takes.
func TestPost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan string, 1)
	go func() { // answers without an end
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			t.Error(err)
			return
		}
		b, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
		served <- string(b)
		_, _ = io.Copy(io.Discard, c)
	}()
	t.Cleanup(func() { l.Close() })
	var pieces atomic.Int32
	tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return writes{c, &pieces}, err
	}}
	defer tr.CloseIdleConnections()
	to := Line{Base: "http://" + l.Addr().String(), Sign: bearer, Client: &http.Client{Transport: tr}}
	body := []byte(strings.Repeat("x", 2000))
	there := weak.Make(&body[0])
	resp, err := to.Post(t.Context(), "/chat/completions", http.Header{}, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := <-served; got != string(body) {
		t.Errorf("the provider read %d bytes, want %d", len(got), len(body))
	}
	if n := pieces.Load(); n != 1 {
		t.Errorf("the request came in %d pieces, want one", n)
	}
	body = nil
	for end := time.Now().Add(20 * time.Second); there.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the request is kept while its answer comes")
		}
	}
}

// TestLost tells a request that found no connection from one that was lost on
// its way, or was never to be sent.
//
// Mutants that die here: any lost request is one that found none, as is one that
// the caller stopped, or that could not be written down; any that found a
// connection was seen.
func TestLost(t *testing.T) {
	dial := func(err error) http.RoundTripper {
		return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, err }}
	}
	waits := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }}
	refuses := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		there.Close()
		return here, nil
	}}
	breaks := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(there))
			there.Close()
		}()
		return here, nil
	}}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		name            string
		ctx             context.Context
		rt              http.RoundTripper
		base            string
		header          string
		unreached, seen bool
	}{
		{"refused", t.Context(), dial(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), "http://p", "x", true, false},
		{"no such name", t.Context(), dial(&net.DNSError{Err: "no such host", IsNotFound: true}), "http://p", "x", true, false},
		{"it hangs up in the middle of TLS", t.Context(), refuses, "https://p", "x", true, false},
		{"it has read it, and hangs up", t.Context(), breaks, "http://p", "x", false, true},
		{"the caller stopped", stopped, waits, "http://p", "x", false, false},
		{"a header that cannot be sent", t.Context(), dial(errors.New("nobody asks")), "http://p", "a\nb", false, false},
		{"an address that is none", t.Context(), dial(errors.New("nobody asks")), "http://p:x", "x", false, false},
	} {
		l := Line{Base: c.base, Sign: bearer, Client: &http.Client{Transport: c.rt}}
		resp, err := l.Post(c.ctx, "/", http.Header{"X": {c.header}}, []byte("{}"))
		var lost *Lost
		if !errors.As(err, &lost) || lost.Unreached != c.unreached || lost.Seen != c.seen {
			t.Errorf("%s: %v %+v", c.name, resp, err)
		}
	}
}
