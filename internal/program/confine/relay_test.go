package confine

import (
	"io"
	"net"
	"path/filepath"
	"testing"
)

// TestForward passes words both ways, and each end of them; when both have ended
// nothing is kept of the connection. One to nobody is closed.
func TestForward(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gate")
	gate, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	talk := func() (heard string, over chan struct{}) {
		client, err := net.Dial("tcp", door.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		inside, err := door.Accept()
		if err != nil {
			t.Fatal(err)
		}
		over = make(chan struct{})
		go func() {
			defer close(over)
			forward(inside, socket)
		}()
		_, _ = io.WriteString(client, "words")
		_ = client.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(client) // nobody's end may be a reset
		return string(b), over
	}
	go func() {
		for c, err := gate.Accept(); err == nil; c, err = gate.Accept() {
			b, _ := io.ReadAll(c) // to its end
			_, _ = c.Write(append(b, " back"...))
			_ = c.Close()
		}
	}()
	heard, over := talk()
	if <-over; heard != "words back" {
		t.Errorf("%q came back", heard)
	}
	_ = gate.Close()
	if heard, over = talk(); heard != "" {
		t.Errorf("nobody said %q", heard)
	}
	<-over
}
