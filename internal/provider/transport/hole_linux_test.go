package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A peer is a provider of which each connection is served by hand.
type peer struct {
	t *testing.T
	l net.Listener
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &peer{t, l}
}

// heard is the next connection, and a request read from it.
func (p *peer) heard() *net.TCPConn {
	c, err := p.l.Accept()
	if err != nil {
		p.t.Error(err)
		return nil
	}
	p.t.Cleanup(func() { c.Close() })
	p.read(c)
	return c.(*net.TCPConn)
}

func (p *peer) read(c net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		p.t.Error(err)
	}
}

func (p *peer) say(c net.Conn, words string) {
	if _, err := io.WriteString(c, words); err != nil {
		p.t.Error(err)
	}
}

// vanish has the machine behind a connection gone: whatever comes is dropped
// before anybody sees it, and nothing is answered, not even with a refusal.
func (p *peer) vanish(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		p.t.Error(err)
		return
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	if err := errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
	}), err); err != nil {
		p.t.Error(err)
	}
}

// lineTo has connections given up after two seconds in place of minutes.
func lineTo(p *peer) *Line {
	c := client(2 * time.Second)
	p.t.Cleanup(c.CloseIdleConnections)
	return &Line{Base: "http://" + p.l.Addr().String(), Sign: bearer, Client: c}
}

// post asks, with a minute to find out; no test waits for that long.
func post(t *testing.T, l *Line, body string) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	resp, err := l.Post(ctx, "/", http.Header{}, []byte(body))
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

const answered = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 4\r\n\r\n"

// TestVanished: a provider whose machine is gone in the middle of a request, which
// nobody tells us, is given up; and what may have come there counts as seen.
//
// Mutants that die here: connections are not probed; what was sent is waited for
// as long as the system does.
func TestVanished(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(p *peer)
		first bool // another request goes before
		begun bool // an answer begins
	}{
		{"while it thinks", func(p *peer) { p.vanish(p.heard()) }, false, false},
		{"in the middle of its answer", func(p *peer) {
			c := p.heard()
			p.say(c, answered+"ab")
			p.vanish(c)
		}, false, true},
		{"before the request", func(p *peer) {
			c := p.heard()
			p.say(c, answered+"abcd")
			p.vanish(c)
		}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t)
			l := lineTo(p)
			served := make(chan struct{})
			go func() { c.serve(p); close(served) }()
			if c.first {
				resp, err := post(t, l, "first")
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(resp.Body); string(b) != "abcd" || err != nil {
					t.Fatalf("%q %v", b, err)
				}
				<-served
			}
			resp, err := post(t, l, "second")
			if c.begun {
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				if string(b) != "ab" || !errors.Is(err, syscall.ETIMEDOUT) {
					t.Errorf("%q %v, want ab and a connection that timed out", b, err)
				}
				return
			}
			var lost *Lost
			if !errors.As(err, &lost) || !errors.Is(err, syscall.ETIMEDOUT) || !lost.Seen || lost.Unreached {
				t.Errorf("%v %+v, want a connection that timed out, and a request that may have been seen", resp, err)
			}
		})
	}
}

// TestSilence: a provider that is there and says nothing is waited for, however
// often it is asked whether it is: three times as long here as one that is gone.
//
// Mutants that die here: a bound on silence in place of the machine's.
func TestSilence(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	l := lineTo(p)
	go func() {
		c := p.heard()
		<-time.After(6 * time.Second) // of the system's own clock, which no bubble has
		p.say(c, answered+"well")
	}()
	resp, err := post(t, l, "think")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "well" || err != nil {
		t.Errorf("%q %v", b, err)
	}
}
