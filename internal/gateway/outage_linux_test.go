package gateway_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
)

// A door is a port of this machine that is taken, and refuses connections until
// it is opened.
type door struct {
	t  *testing.T
	fd int
	at string
}

func newDoor(t *testing.T) *door {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, fd: fd}
	t.Cleanup(func() {
		if d.fd >= 0 { // else open gave it away
			syscall.Close(d.fd)
		}
	})
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	d.at = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	return d
}

// listen has it take connections, so many of which wait to be served.
func (d *door) listen(waiting int) {
	d.t.Helper()
	if err := syscall.Listen(d.fd, waiting); err != nil {
		d.t.Fatal(err)
	}
}

// open has a provider behind it.
func (d *door) open(h http.Handler) {
	d.t.Helper()
	d.listen(128)
	f := os.NewFile(uintptr(d.fd), "door")
	l, err := net.FileListener(f)
	if d.fd = -1; err != nil {
		d.t.Fatal(err)
	}
	f.Close()
	s := &http.Server{Handler: h}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	d.t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			d.t.Error(err)
		}
	})
}

// hole makes it a black hole: who knocks hears nothing.
func (d *door) hole() {
	d.t.Helper()
	d.listen(0)
	for range 10 {
		c, err := net.DialTimeout("tcp", d.at, 300*time.Millisecond)
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return
		}
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { c.Close() })
	}
	d.t.Fatal("connections still come about")
}

// before is a rig whose first provider is behind the door, and whose second is
// not.
func (d *door) before(fallback string) *rig {
	return newRig(d.t, mockprovider.Config{Reply: "from the second"}, fmt.Sprintf("providers:\n  openai: {base_url: \"http://%s/v1\", key_env: UP_KEY%s}\n  second: {format: openai, base_url: \"$UP/v1\"}\n", d.at, fallback))
}

// lost counts the attempts of a process that found no answer.
func (r *rig) lost(pid abi.Pid) (n int) {
	for _, rec := range r.records(pid) {
		if rec.Answer != nil && rec.Answer.Err != nil && rec.Answer.Err.Code == abi.ModelNetwork {
			n++
		}
	}
	return n
}

// TestUnreachable: a provider that refuses connections is tried by one call in a
// while, all others go to the next at once, and it is used again when it is back.
func TestUnreachable(t *testing.T) {
	d := newDoor(t)
	r := d.before(", fallback: [second]")
	k := r.key("")
	start := time.Now()
	for range 12 {
		if g := r.ok(k.Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the second") {
			t.Fatalf("%s", g.body)
		}
	}
	took := time.Since(start)
	if n := r.lost(k.Pid); n == 0 || n > 1+int(took/time.Second) {
		t.Errorf("in %s it was tried %d times, want once, and at most once in each second behind that", took, n)
	}
	v := r.kernel.Traffic()
	if len(v) != 2 || v[0].Rests != "cannot be reached" || !strings.HasPrefix(v[0].Next(), "cannot be reached, tried ") || v[1].Next() != "" {
		t.Errorf("%+v", v)
	}
	d.open(mockprovider.New(mockprovider.Config{Reply: "from the first"}))
	eventually(t, "it is used again", func() bool {
		return strings.Contains(r.ok(k.Key, "/v1/chat/completions", chat("x")).body, "from the first")
	})
	for range 5 {
		if g := r.ok(k.Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the first") {
			t.Errorf("%s", g.body)
		}
	}
	if v := r.kernel.Traffic(); v[0].Next() != "" {
		t.Errorf("%+v", v)
	}
}

// TestUnreachableAlone: without another provider it is as it always was: some
// attempts with pauses between them, and then the error, whatever others found.
func TestUnreachableAlone(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	r := d.before("")
	k := r.key("")
	for range 2 {
		r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.ModelNetwork, http.StatusBadGateway)
	}
	if n := r.lost(k.Pid); n != 10 {
		t.Errorf("%d attempts, want 5 for each of two calls", n)
	}
	d.open(mockprovider.New(mockprovider.Config{Reply: "from the first"}))
	if g := r.ok(k.Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the first") {
		t.Errorf("%s", g.body)
	}
	if n := r.lost(k.Pid); n != 10 {
		t.Errorf("it is back, and was not asked at once")
	}
}

// TestBlackHole: a provider where connections neither come about nor fail costs
// those that were the first to know their patience, and then one at a time.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.hole()
	r := d.before(", fallback: [second]")
	k := r.key("")
	ask := func(n int) {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				if g := r.ok(k.Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the second") {
					t.Errorf("%s", g.body)
				}
			})
		}
		wg.Wait()
	}
	ask(3)
	if n := r.lost(k.Pid); n == 0 || n > 3 {
		t.Errorf("three calls waited %d times for a connection", n)
	}
	ask(40)
	if n := r.lost(k.Pid); n > 5 {
		t.Errorf("43 calls waited %d times for a connection, want the three that were first, and one or two that looked", n)
	}
}
