package model

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"
)

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
	c := Config{Getenv: keys, HTTP: &http.Client{Transport: tr}, Providers: map[string]Provider{"openai": {BaseURL: "http://" + l.Addr().String()}}}
	routes, err := c.Routes("openai", "m")
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(strings.Repeat("x", 2000))
	there := weak.Make(&body[0])
	resp, err := routes[0].Post(t.Context(), "/chat/completions", http.Header{}, body)
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

// TestWhoIsAsked: a model that several providers list is asked for at the usual
// one; and a provider that cannot be opened, in whose place another is to be
// asked or which is to be asked in another's, does not keep that one from it.
func TestWhoIsAsked(t *testing.T) {
	p := map[string]Provider{
		"azure":  {Format: "openai", BaseURL: "http://a", Models: map[string]Listed{"m": {}, "own": {}}},
		"zed":    {Format: "openai", BaseURL: "http://z", Models: map[string]Listed{"m": {}, "own": {}}},
		"shut":   {Format: "openai", BaseURL: "http://s", KeyEnv: "NOT_SET"},
		"openai": {BaseURL: "http://o", Models: map[string]Listed{"m": {}}, Fallback: []string{"shut", "azure"}},
	}
	for name, want := range map[string]string{"m": "openai azure", "own": "azure", "azure/m": "azure", "zed/own": "zed", "unlisted": "openai azure"} {
		routes, err := Config{Getenv: env(), Providers: p}.Routes("openai", name)
		var got []string
		for _, r := range routes {
			got = append(got, r.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s goes to %v, %v, want %s", name, got, err, want)
		}
	}
	if r, err := (Config{Getenv: env(), Providers: p}).Routes("openai", "shut/m"); err == nil {
		t.Errorf("one that cannot be opened is asked: %+v", r)
	}
}
