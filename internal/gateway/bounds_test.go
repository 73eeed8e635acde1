package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/mockprovider"
)

// grown returns how many bytes the files of the data directory gain while f runs.
func (r *rig) grown(f func()) (n int64) {
	r.t.Helper()
	size := func() (n int64) {
		err := filepath.WalkDir(r.dir, func(name string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if i, e := d.Info(); e == nil { // a file of the journal may have gone
					n += i.Size()
				}
			}
			return nil
		})
		if err != nil {
			r.t.Error(err)
		}
		return n
	}
	before := size()
	f()
	return size() - before
}

// noise is text that no compression and no equal part makes smaller.
func noise(size int) string {
	b := make([]byte, size/2)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// filler is so many bytes.
func filler(size int) io.Reader {
	return io.LimitReader(bytes.NewReader(make([]byte, size)), int64(size))
}

// A key that may ask nothing, or too little, cannot fill the disk: of a refused request
// the journal keeps the beginning, and the refusal is still there to read.
//
// Mutants that die here: the body of a refused call in the journal, whole.
func TestRefusalsAreSmall(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes", Price: price}, "")
	for _, l := range []string{"money=0", "steps=0", "tokens=0", "money=0.001", "input_tokens=3000"} {
		k := r.key(l)
		grown := r.grown(func() {
			for range 8 {
				g := r.post(k.Key, "/v1/chat/completions", chat(noise(8<<20)))
				if _, limit := abi.LimitOf(g.code()); !limit || g.status != http.StatusPaymentRequired {
					t.Errorf("%s: %d %s", l, g.status, g.body)
				}
			}
		})
		if grown > 200<<10 {
			t.Errorf("%s: 8 refused requests of 8 MiB grow the journal by %d bytes", l, grown)
		}
		refusals := 0
		for _, rec := range r.records(k.Pid) {
			if rec.Kind == abi.KindRefused {
				refusals++
			}
		}
		if refusals != 8 {
			t.Errorf("%s: %d refusals are recorded, want 8", l, refusals)
		}
	}
}

// A program that asks on at a limit, for ever, does not fill the journal with its
// refusals either.
func TestRefusalsEnd(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes", Price: price}, "")
	k := r.key("steps=0")
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 500 {
				r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.LimitSteps, http.StatusPaymentRequired)
			}
		})
	}
	asking.Wait()
	if n := len(r.records(k.Pid)); n > 2500 {
		t.Errorf("4000 refusals left %d records", n)
	}
}

// One key may not store without end, with all that it starts; others may.
func TestKeyFull(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes", Price: price}, "gateway: {bytes: 1MiB}\n"+`providers:
  openai: {base_url: "$UP/v1", key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 1000}}}
`)
	k := r.key("")
	ask := func(k string, h ...string) got { return r.post(k, "/v1/chat/completions", chat(noise(300<<10)), h...) }
	for i := range 4 {
		if g := ask(k.Key, "X-Kern-Child", fmt.Sprint("child", i)); g.status != http.StatusOK {
			t.Fatalf("%d %s", g.status, g.body)
		}
	}
	for _, h := range [][]string{nil, {"X-Kern-Child", "child1"}, {"X-Kern-Child", "another"}} {
		if g := ask(k.Key, h...); g.code() != abi.KeyFull || g.status != http.StatusForbidden || g.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%d %s", g.status, g.body)
		}
	}
	if g := ask(r.key("").Key); g.status != http.StatusOK {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// A body that is too large, or that comes for nothing, is read to its end, so that the
// program sees the answer and not a broken connection.
func TestRefusalIsRead(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	at := r.serve(nil)
	for name, c := range map[string]struct {
		limits string
		size   int
		status int
	}{"too large": {"", 80 << 20, http.StatusRequestEntityTooLarge}, "no money": {"money=0", 20 << 20, http.StatusPaymentRequired}} {
		k := r.key(c.limits)
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// All of the body is sent before a byte of the answer is read.
		head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", k.Key, c.size)
		if _, err := io.Copy(conn, io.MultiReader(strings.NewReader(head), filler(c.size))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		if want := fmt.Sprintf("HTTP/1.1 %d ", c.status); err != nil || !bytes.HasPrefix(b[:n], []byte(want)) {
			t.Errorf("%s: %v %.100s, want %s", name, err, b[:n], want)
		}
	}
}

// Bodies that are under way hold a bounded amount of memory, for each key and in all.
// Everybody else gets an error that says to ask again.
//
// Mutant that dies here: bytes that are never taken, or never given back.
func TestBodiesUnderWay(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	r.kernel.Gateway.HoldBodies(64<<20, 32<<20)
	at := r.serve(nil)
	send := func(k string, size int) net.Conn { // a body that never ends
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", k, 30<<20)
		if _, err := io.Copy(conn, io.MultiReader(strings.NewReader(head), filler(size))); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	one, two, three := r.key(""), r.key(""), r.key("")
	a := send(one.Key, 20<<20)
	eventually(t, "the first body is under way", func() bool { return r.kernel.Gateway.HeldBodies() == 30<<20+1 })
	big := chat(strings.Repeat("x", 4<<20))
	for _, h := range [][]string{nil, {"X-Kern-Child", "kid"}} { // a child shares what its tree may hold
		r.refused(one.Key, "/v1/chat/completions", big, abi.TooManyRequests, http.StatusTooManyRequests, h...)
	}
	r.ok(two.Key, "/v1/chat/completions", big)
	b := send(two.Key, 20<<20)
	eventually(t, "the second body is under way", func() bool { return r.kernel.Gateway.HeldBodies() == 60<<20+2 })
	g := r.refused(three.Key, "/v1/chat/completions", chat(strings.Repeat("x", 5<<20)), abi.DaemonBusy, http.StatusServiceUnavailable)
	if g.header.Get("X-Should-Retry") == "false" {
		t.Errorf("%v", g.header)
	}
	r.ok(three.Key, "/v1/chat/completions", chat("small")) // a small one always has room
	a.Close()
	b.Close()
	eventually(t, "everything is given back", func() bool { return r.kernel.Gateway.HeldBodies() == 0 })
	r.ok(one.Key, "/v1/chat/completions", big)
}

// Reading and parsing a large body takes a few times its size, whatever it holds.
func TestMemoryOfABody(t *testing.T) {
	small, long := `{"role":"user","content":"x"},`, `{"role":"user","content":"`+strings.Repeat("word ", 110)+`"},`
	for name, c := range map[string]struct {
		message string
		count   int
		code    abi.Code
		status  int
	}{"small messages": {small, 2_000_000, abi.InvalidArguments, http.StatusBadRequest}, "as many as are taken": {long, 99_999, abi.LimitMoney, http.StatusPaymentRequired}} {
		r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
		k := r.key("money=0.01")
		body := `{"model":"m","messages":[` + strings.Repeat(c.message, c.count) + `{"role":"user","content":"x"}]}`
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		ctx, cancel := context.WithCancel(t.Context())
		peak := make(chan uint64)
		go func() {
			most, tick := uint64(0), time.NewTicker(20*time.Millisecond)
			defer tick.Stop()
			for ; ctx.Err() == nil; <-tick.C {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
			peak <- most
		}()
		r.refused(k.Key, "/v1/chat/completions", body, c.code, c.status)
		cancel()
		grown := int64(<-peak) - int64(before.HeapInuse)
		if t.Logf("%s: a body of %d bytes takes %d", name, len(body), grown); grown > 8*int64(len(body)) {
			t.Errorf("%s: a body of %d bytes takes %d", name, len(body), grown)
		}
	}
}

// Connections are bounded: at the bound the oldest that serves no key makes room for a
// new one, and a request that is under way stays.
//
// Mutant that dies here: a bound that closes the new connection, or one in use.
func TestConnectionsAreBounded(t *testing.T) {
	release := make(chan struct{})
	r := answering(t, func(w http.ResponseWriter, q *http.Request) {
		<-release
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	})
	k := r.key("")
	s := r.kernel.Gateway.Server(t.Context())
	gateway.Bound(s, 4)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	dial := func(say string) net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, say); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	busy := dial(byHand(k.Key, "localhost", "/v1/chat/completions", "", chat("x")))
	eventually(t, "the request is under way", func() bool { return len(r.records(k.Pid)) == 2 })
	var idle []net.Conn
	for range 30 {
		idle = append(idle, dial("POST / HTTP/1.1\r\n")) // a head that never ends
	}
	for _, conn := range idle[:27] {
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("an old connection gives %d bytes", n)
		}
	}
	models := dial("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + k.Key + "\r\n\r\n")
	answered := func(conn net.Conn) {
		t.Helper()
		b := make([]byte, 100)
		if n, err := conn.Read(b); err != nil || !bytes.HasPrefix(b[:n], []byte("HTTP/1.1 200")) {
			t.Errorf("%v %s", err, b[:n])
		}
	}
	answered(models)
	close(release)
	answered(busy)
}

// The remembered port is in other hands: while programs know it, the gateway does not
// open, and says why. Otherwise it moves, and says so.
func TestPortInOtherHands(t *testing.T) {
	a := gateway.Address{Dir: t.TempDir()}
	l, lost, err := a.Open()
	if err != nil || lost != "" {
		t.Fatal(lost, err)
	}
	defer l.Close()
	at := l.Addr().String()
	a.Keyed = true
	if _, lost, err := a.Open(); lost != at || err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("%q, %v", lost, err)
	}
	a.Keyed = false
	other, lost, err := a.Open()
	if err != nil || lost != at || other.Addr().String() == at {
		t.Fatal(lost, err)
	}
	other.Close()
}
