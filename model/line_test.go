package model

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// posted is an endpoint before a handler, over the client that all models share.
func posted(t *testing.T, h http.HandlerFunc) func(body string) *http.Response {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { CloseIdle(); s.Close() })
	c := Config{Getenv: env("OPENAI_BASE_URL", s.URL, "OPENAI_API_KEY", canary)}.filled()
	e, err := c.endpoint("openai:m", "openai", "m")
	if err != nil {
		t.Fatal(err)
	}
	return func(body string) *http.Response {
		t.Helper()
		resp, err := e.Post(t.Context(), "/", http.Header{}, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
}

// TestHangUp tells the provider in the middle of an answer: it stops, and all
// that it wrote until then comes. The next request is not harmed.
//
// Mutants that die here: a provider that is not told, a line that was hung up
// and is used again.
func TestHangUp(t *testing.T) {
	stopped := make(chan int, 1)
	post := posted(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) != "talk" {
			_, _ = w.Write(b)
			return
		}
		for n := 0; ; n++ {
			if r.Context().Err() != nil {
				stopped <- n
				return
			}
			_, _ = io.WriteString(w, "word\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	for range 20 {
		resp := post("talk")
		if !HangUp(resp.Body) {
			t.Fatal("it cannot be told")
		}
		b, _ := io.ReadAll(resp.Body)
		if wrote, came := <-stopped, strings.Count(string(b), "\n"); wrote != came {
			t.Errorf("it wrote %d words, and %d came", wrote, came)
		}
		if HangUp(resp.Body) {
			t.Error("hung up twice")
		}
		CloseIdle() // else the next may find the line before its end is seen, and is asked again
		if b, err := io.ReadAll(post("echo").Body); string(b) != "echo" || err != nil {
			t.Errorf("the next request: %q %v", b, err)
		}
	}
}

// TestHangUpLate comes when the line has the next request on it: that one goes
// on.
//
// Mutants that die here: one that does not look whether it was written to.
func TestHangUpLate(t *testing.T) {
	more := make(chan bool)
	post := posted(t, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) == "second" {
			_, _ = io.WriteString(w, "a\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "b\n")
	})
	first := post("first")
	if _, err := io.ReadAll(first.Body); err != nil {
		t.Fatal(err)
	}
	second := post("second")
	if first.Body.(*call).line != second.Body.(*call).line {
		t.Fatal("the line was not used again")
	}
	if HangUp(first.Body) {
		t.Error("the line of another request was hung up")
	}
	close(more)
	lines := bufio.NewScanner(second.Body)
	for _, want := range []string{"a", "b"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, want %s: %v", lines.Text(), want, lines.Err())
		}
	}
}

// TestUnreached tells a request that found no connection from one that was lost
// on its way, or was never to be sent.
//
// Mutants that die here: any lost request is one that found none, as is one that
// the caller stopped, or that could not be written down.
func TestUnreached(t *testing.T) {
	dial := func(err error) http.RoundTripper {
		return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, err }}
	}
	waits := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }}
	refuses := &http.Transport{DialContext: func(ctx context.Context, network, at string) (net.Conn, error) {
		here, there := net.Pipe()
		there.Close()
		return here, nil
	}}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		rt     http.RoundTripper
		base   string
		header string
		want   bool
	}{
		{"refused", t.Context(), dial(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), "http://p", "x", true},
		{"no such name", t.Context(), dial(&net.DNSError{Err: "no such host", IsNotFound: true}), "http://p", "x", true},
		{"it hangs up in the middle of TLS", t.Context(), refuses, "https://p", "x", true},
		{"it hangs up", t.Context(), refuses, "http://p", "x", false},
		{"the caller stopped", stopped, waits, "http://p", "x", false},
		{"a header that cannot be sent", t.Context(), dial(errors.New("nobody asks")), "http://p", "a\nb", false},
	} {
		conf := Config{Getenv: env(), HTTP: &http.Client{Transport: c.rt}, Providers: map[string]Provider{"openai": {BaseURL: c.base}}}
		routes, err := conf.Routes("openai", "m")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := routes[0].Post(c.ctx, "/", http.Header{"X": {c.header}}, []byte("{}"))
		var e *Error
		if !errors.As(err, &e) || e.Unreached != c.want || e.Kind != Network {
			t.Errorf("%s: posted: %v %+v", c.name, resp, err)
		}
		if c.header != "x" {
			continue // ours alone go there
		}
		m, err := Open("openai:m", conf)
		if err != nil {
			t.Fatal(err)
		}
		if o := runContext(t, c.ctx, m, hello); o.err == nil || o.err.Unreached != c.want {
			t.Errorf("%s: streamed: %+v", c.name, o.err)
		}
	}
}

// TestUnread holds an answer back, and sends it: that it has come is known before
// anybody reads it, and not afterwards.
//
// Mutants that die here: one that takes what it looks at.
func TestUnread(t *testing.T) {
	more := make(chan bool)
	post := posted(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "words")
		_ = http.NewResponseController(w).Flush()
		<-more
	})
	resp := post("")
	body, ok := resp.Body.(interface{ Unread() bool })
	if !ok || body.Unread() {
		t.Error("something came before it was sent")
	}
	more <- true
	for end := time.Now().Add(time.Minute); !body.Unread(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
	b := make([]byte, 9)
	if n, err := io.ReadFull(resp.Body, b[:5]); string(b[:n]) != "words" || err != nil || body.Unread() {
		t.Errorf("%q %v, more to read: %v", b[:n], err, body.Unread())
	}
	close(more)
}
