package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
)

// hasty is a listener whose connections take every deadline to be twenty times
// nearer, so that a test of patience needs little of it.
type hasty struct{ net.Listener }

func (h hasty) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err == nil {
		// Small buffers: who does not read is soon noticed.
		err = errors.Join(c.(*net.TCPConn).SetWriteBuffer(4<<10), c.(*net.TCPConn).SetReadBuffer(4<<10))
	}
	return hastyConn{c}, err
}

type hastyConn struct{ net.Conn }

func nearer(t time.Time) time.Time {
	if d := time.Until(t); d > 0 {
		return time.Now().Add(d / 20)
	}
	return t
}

func (c hastyConn) SetDeadline(t time.Time) error      { return c.Conn.SetDeadline(nearer(t)) }
func (c hastyConn) SetReadDeadline(t time.Time) error  { return c.Conn.SetReadDeadline(nearer(t)) }
func (c hastyConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(nearer(t)) }

// serve starts the gateway's own server, with its limits on size and time.
func (r *rig) serve(wrap func(net.Listener) net.Listener) net.Addr {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	at := l.Addr()
	if wrap != nil {
		l = wrap(l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := r.kernel.Gateway.Server(ctx)
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	r.t.Cleanup(func() {
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			r.t.Error("a connection is left:", errors.Join(err, s.Close()))
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			r.t.Error(err)
		}
	})
	return at
}

// dial opens a connection that the test writes to by hand.
func dial(t testing.TB, at net.Addr) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil { // a test that hangs says where
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// theEnd is a request behind all others: its answer closes the connection.
const theEnd = "GET /the-end HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

// raw sends bytes as they are, and returns the answers up to the connection's
// end, but for the one to theEnd.
func raw(t testing.TB, at net.Addr, request string) (list []got) {
	t.Helper()
	c := dial(t, at)
	var sent sync.WaitGroup
	defer sent.Wait()
	defer c.Close()
	sent.Go(func() { _, _ = io.WriteString(c, request+theEnd) }) // what is refused early is not read to its end
	for br := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				t.Errorf("the connection is still open after %.300q", request)
			}
			break
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			break
		}
		list = append(list, got{resp.StatusCode, resp.Header, string(b)})
		if resp.Close {
			break
		}
	}
	if n := len(list); n > 1 && list[n-1].status == http.StatusUnauthorized {
		list = list[:n-1]
	}
	return list
}

// byHand is a request as it goes over the wire.
func byHand(key, host, path, headers, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n%s\r\n%s", path, host, key, len(body), headers, body)
}

// TestSlowClients are those that never come to the end of what they say. None
// of them holds a connection for long, and none reaches the provider.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	at := r.serve(func(l net.Listener) net.Listener { return hasty{l} })
	open := make(map[string]net.Conn)
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + k.Key + "\r\n"
	for name, said := range map[string]string{
		"half a line":         "POST /v1/chat",
		"half a head":         head,
		"no body":             head + "Content-Length: 100\r\n\r\n",
		"half a body":         head + "Content-Length: 100\r\n\r\n{\"model\":",
		"half a chunk":        head + "Transfer-Encoding: chunked\r\n\r\n64\r\n{\"model\":",
		"chunks without end":  head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"nothing":             "",
		"a body to count":     strings.Replace(head, "/chat/completions", "/messages/count_tokens", 1) + "Content-Length: 100\r\n\r\n{",
		"a body for a key":    strings.Replace(head, "/v1/chat/completions", "/kern/v1/keys", 1) + "Content-Length: 100\r\n\r\n{",
		"a body without key":  "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
		"one that goes on to": head + "Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
	} {
		c := dial(t, at)
		if _, err := io.WriteString(c, said); err != nil {
			t.Fatal(err)
		}
		open[name] = c
	}
	for name, c := range open { // all of them wait at the same time
		b, err := io.ReadAll(c)
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			t.Fatalf("%s: the connection is still open; it said %q", name, b)
		}
		if strings.Contains(string(b), " 200 ") {
			t.Errorf("%s: it was answered with %q", name, b)
		}
	}
	if n := r.mock.Stats().Requests; n != 0 {
		t.Errorf("%d requests reached the provider", n)
	}
	if i := r.info(k.Pid); i.Used != (abi.Usage{}) || i.Reserved != (abi.Usage{}) {
		t.Errorf("%+v was taken", i)
	}
}

// TestDribble sends a body a byte at a time, for longer than a body may take.
func TestDribble(t *testing.T) {
	t.Parallel()
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	c := dial(t, r.serve(func(l net.Listener) net.Listener { return hasty{l} }))
	if _, err := io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+k.Key+"\r\nContent-Length: 1000000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(c) // it ends with an answer, a reset, or the deadline above
		ended <- b
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-tick.C {
		select {
		case b := <-ended:
			if strings.Contains(string(b), " 200 ") || r.mock.Stats().Requests != 0 {
				t.Errorf("it was answered with %q", b)
			}
			return
		default:
		}
		if time.Now().After(end) {
			t.Fatal("it still listens")
		}
		_, _ = io.WriteString(c, " ") // once the other side has closed there is an error, and an end
	}
}

// TestSlowReader asks for a long stream and reads nothing of it. The answer is
// given up, the provider's is stopped, and what came is booked.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	r := newRig(t, mockprovider.Config{Reply: strings.Repeat("word ", 400_000)},
		"providers: {openai: {base_url: \"$UP/v1\", key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 400000}}}}\n")
	k := r.key("")
	c := dial(t, r.serve(func(l net.Listener) net.Listener { return hasty{l} }))
	if err := c.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	body := `{"model":"m","stream":true,"max_tokens":400000,"messages":[{"role":"user","content":"x"}]}`
	if _, err := io.WriteString(c, byHand(k.Key, "localhost", "/v1/chat/completions", "", body)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call is settled", func() bool {
		i := r.info(k.Pid)
		return i.Used[abi.ModelCalls] == 1 && i.Reserved == (abi.Usage{})
	})
	eventually(t, "the provider's answer is stopped", func() bool { return r.mock.Stats().Aborted == 1 })
}

// endless is a body that never ends, and says how much was taken.
type endless struct {
	most, n int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n > e.most {
		return 0, errors.New("it takes everything")
	}
	for i := range p {
		p[i] = ' '
	}
	e.n += int64(len(p))
	return len(p), nil
}

// TestTooLarge is refused, by what it says and by what it is.
func TestTooLarge(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	at := r.serve(nil)
	url := "http://" + at.String() + "/v1/chat/completions"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for name, size := range map[string]int64{"told": 65 << 20, "not told": -1, "a lie": 1 << 50} {
		q, err := http.NewRequestWithContext(t.Context(), "POST", url, io.NopCloser(&endless{most: 80 << 20}))
		if err != nil {
			t.Fatal(err)
		}
		q.ContentLength = size
		q.Header.Set("Authorization", "Bearer "+k.Key)
		resp, err := client.Do(q)
		if err != nil { // the answer may be lost in the noise of what is still sent
			if strings.Contains(err.Error(), "takes everything") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
	long := strings.Repeat("x", 100<<10)
	for name, request := range map[string]string{
		"a header":         byHand(k.Key, "localhost", "/v1/chat/completions", "X-Long: "+long+"\r\n", chat("x")),
		"headers":          byHand(k.Key, "localhost", "/v1/chat/completions", strings.Repeat("X-A: b\r\n", 20_000), chat("x")),
		"a path":           byHand(k.Key, "localhost", "/v1/"+long, "", chat("x")),
		"a key":            byHand(long, "localhost", "/v1/chat/completions", "", chat("x")),
		"a name":           byHand(k.Key, "localhost", "/v1/chat/completions", "X-Kern-Child: "+long[:2000]+"\r\n", chat("x")),
		"a compressed one": byHand(k.Key, "localhost", "/v1/chat/completions", "Content-Encoding: gzip\r\n", "\x1f\x8b\x08"),
		"many elements":    byHand(k.Key, "localhost", "/v1/chat/completions", "", `{"model":"m","messages":[`+strings.Repeat("0,", 2_000_000)+`0]}`),
		"a deep one":       byHand(k.Key, "localhost", "/v1/chat/completions", "", `{"model":"m","messages":`+strings.Repeat("[", 100_000)+`}`),
	} {
		for _, g := range raw(t, at, request) {
			if g.status < 400 || g.status > 431 {
				t.Errorf("%s: %d %s", name, g.status, g.body)
			}
		}
	}
	if n := r.mock.Stats().Requests; n != 0 {
		t.Errorf("%d requests reached the provider", n)
	}
}

// TestSmuggling sends what two readers could take for different requests. Each
// is refused, or is the one request that Go's own server reads in it; never is
// there a second one that no key was shown for.
func TestSmuggling(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	at := r.serve(nil)
	line := "POST /v1/chat/completions HTTP/1.1\r\n"
	auth := "Authorization: Bearer " + k.Key + "\r\n"
	body := chat("x")
	hidden := byHand("sk-kern-nobodys", "localhost", "/v1/chat/completions", "", body)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for name, c := range map[string]struct {
		request string
		most    int64 // requests that may reach the provider
	}{
		"two lengths":               {line + "Host: localhost\r\n" + auth + fmt.Sprintf("Content-Length: %d\r\nContent-Length: %d\r\n\r\n", len(body), len(body)+len(hidden)) + body + hidden, 0},
		"a list of lengths":         {line + "Host: localhost\r\n" + auth + fmt.Sprintf("Content-Length: %d, %d\r\n\r\n", len(body), len(body)+1) + body, 0},
		"a length with a sign":      {line + "Host: localhost\r\n" + auth + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(body)) + body, 0},
		"length and chunks":         {line + "Host: localhost\r\n" + auth + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + hidden, 1},
		"chunks by another name":    {line + "Host: localhost\r\n" + auth + "Transfer-Encoding: xchunked\r\n\r\n" + chunked, 0},
		"chunks twice":              {line + "Host: localhost\r\n" + auth + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked, 0},
		"a chunk with a bad length": {line + "Host: localhost\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + body + "\r\n0\r\n\r\n", 0},
		"a space before the colon":  {line + "Host: localhost\r\n" + auth + fmt.Sprintf("Content-Length : %d\r\n\r\n", len(body)) + body, 0},
		"a folded header":           {line + "Host: localhost\r\nX-A: b\r\n " + auth + "\r\n", 0},
		"a bare return in a header": {line + "Host: localhost\r\nX-A: b\r" + auth + "\r\n", 0},
		"a zero in a header":        {line + "Host: localhost\r\nX-A: b\x00\r\n" + auth + "\r\n", 0},
		"two hosts":                 {line + "Host: localhost\r\nHost: evil.example\r\n" + auth + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body, 0},
		"no host":                   {line + auth + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body, 0},
		"another host in the line":  {"POST http://evil.example/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + auth + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body, 0},
		"a request behind one":      {byHand(k.Key, "localhost", "/v1/chat/completions", "", body) + hidden, 1},
		"a request within one":      {byHand(k.Key, "localhost", "/v1/chat/completions", "", hidden), 0},
		"an unknown protocol":       {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden, 0},
		"a tunnel":                  {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n" + auth + "\r\n", 0},
		"a tunnel to here":          {"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n" + auth + "\r\n", 0},
		"an echo":                   {"TRACE /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 0},
		"a dot path":                {byHand(k.Key, "localhost", "/v1/../v1/./chat//completions", "", body), 0},
		"a coded slash":             {byHand(k.Key, "localhost", "/v1%2fchat%2fcompletions", "", body), 1},
		"a word for the next hop":   {byHand(k.Key, "localhost", "/v1/chat/completions", "Upgrade: websocket\r\nConnection: Upgrade\r\n", body), 1},
		"a key behind the body":     {line + "Host: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization, X-Kern-Key\r\n\r\n" + behind(chunked, auth+"X-Kern-Key: "+k.Key+"\r\n"), 0},
		"more behind the body":      {line + "Host: localhost\r\n" + auth + "Transfer-Encoding: chunked\r\nTrailer: X-Kern-Child\r\n\r\n" + behind(chunked, "X-Kern-Child: kid\r\nAuthorization: Bearer mine\r\n"), 1},
		"chunks with more to say":   {line + "Host: localhost\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n" + strings.Replace(chunked, "\r\n", ";a=\"b\";c\r\n", 1), 1},
		"chunks of another coding":  {line + "Host: localhost\r\n" + auth + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked, 0},
		"bare newlines":             {strings.ReplaceAll(byHand(k.Key, "localhost", "/v1/chat/completions", "", body), "\r\n", "\n"), 1},
		"this host in the line":     {"POST http://localhost/v1/chat/completions HTTP/1.1\r\nHost: evil.example\r\n" + auth + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body, 1},
		"two keys, the first good":  {line + "Host: localhost\r\n" + auth + "Authorization: Bearer sk-kern-nobodys\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body, 1},
		"two keys, the first bad":   {line + "Host: localhost\r\nAuthorization: Bearer sk-kern-nobodys\r\n" + auth + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body, 0},
		"two codings of a body":     {byHand(k.Key, "localhost", "/v1/chat/completions", "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\x00"), 0},
		"the next protocol":         {byHand(k.Key, "localhost", "/v1/chat/completions", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", body), 1},
		"a method in small letters": {strings.Replace(byHand(k.Key, "localhost", "/v1/chat/completions", "", body), "POST", "post", 1), 0},
		"a key in a coded path":     {byHand("", "localhost", "/k/"+strings.Replace(k.Key, "-", "%2d", 1)+"%2fv1%2fchat%2fcompletions", "", body), 1},
	} {
		before := r.mock.Stats().Requests
		answers := raw(t, at, c.request)
		reached := r.mock.Stats().Requests - before
		if int64(reached) > c.most {
			t.Errorf("%s: %d requests reached the provider", name, reached)
		}
		good := 0
		for _, g := range answers {
			if g.status == http.StatusOK {
				good++
			}
			if strings.Contains(g.body, k.Key) || strings.Contains(fmt.Sprint(g.header), k.Key) {
				t.Errorf("%s: the key comes back: %s", name, g.body)
			}
		}
		if good > int(reached) {
			t.Errorf("%s: %d good answers, %d asked for at the provider", name, good, reached)
		}
	}
	if kids := r.info(k.Pid).Children; len(kids) != 0 {
		t.Errorf("children %v were made", kids)
	}
}

// behind puts fields behind a body in chunks.
func behind(chunked, fields string) string {
	return strings.TrimSuffix(chunked, "\r\n") + fields + "\r\n"
}

// TestRebinding serves this machine's own names, and those alone; the answer
// to others is the same whether the key is good or not.
func TestRebinding(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	at := r.serve(nil)
	port := at.(*net.TCPAddr).Port
	for host, good := range map[string]bool{
		"localhost": true, fmt.Sprintf("localhost:%d", port): true, "127.0.0.1:1": true, "127.1.2.3": true, "[::1]:80": true, "[::1]": true,
		"evil.example": false, fmt.Sprintf("evil.example:%d", port): false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"localhost:80.evil.example": false, "10.0.0.1": false, "0.0.0.0": false, "169.254.169.254": false, "[::ffff:10.0.0.1]": false, "2130706433": false,
		"xn--localhost": false, "": false, "localhost,evil.example": false,
	} {
		for _, key := range []string{k.Key, "sk-kern-wrong"} {
			answers := raw(t, at, byHand(key, host, "/v1/chat/completions", "", chat("x")))
			served := len(answers) == 1 && answers[0].status == http.StatusOK
			if served != (good && key == k.Key) {
				t.Errorf("host %q, good key %v: %+v", host, key == k.Key, answers)
			}
			if !good && len(answers) == 1 && answers[0].status != http.StatusUnauthorized && answers[0].status != http.StatusBadRequest {
				t.Errorf("host %q: %+v", host, answers)
			}
		}
	}
	for origin, good := range map[string]bool{
		"http://localhost:3000": true, "https://127.0.0.1": true, "http://[::1]:8080": true,
		"null": false, "": false, "https://evil.example": false, "http://localhost.evil.example": false, "http://localhost@evil.example": false,
		"http://evil.example#localhost": false, "http://evil.example?localhost": false, "localhost": false, "file://": false, "http://127.0.0.1.evil.example": false,
		"http://localhost:80\r\nOrigin: https://evil.example": false,
	} {
		answers := raw(t, at, byHand(k.Key, "localhost", "/v1/chat/completions", "Origin: "+origin+"\r\n", chat("x")))
		if len(answers) != 1 || (answers[0].status == http.StatusOK) != good {
			t.Errorf("origin %q: %+v", origin, answers)
		}
	}
	// A page that asks first is not told that it may.
	pre := "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n"
	for _, g := range raw(t, at, pre) {
		if g.status < 400 || g.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%+v", g)
		}
	}
}

// anywhere is a listener at an address that is not opened.
type anywhere struct {
	net.Listener
	at net.TCPAddr
}

func (a anywhere) Addr() net.Addr { return &a.at }

// TestFound tells programs an address that they can reach.
func TestFound(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	for ip, want := range map[string]string{"0.0.0.0": "http://127.0.0.1:7", "::": "http://127.0.0.1:7", "127.0.0.1": "http://127.0.0.1:7", "::1": "http://[::1]:7", "10.0.0.1": "http://10.0.0.1:7"} {
		r.kernel.Gateway.Found(anywhere{at: net.TCPAddr{IP: net.ParseIP(ip), Port: 7}}, false)
		if got := r.kernel.Gateway.Base(); got != want {
			t.Errorf("%s: %s, want %s", ip, got, want)
		}
	}
	if r.kernel.Gateway.Found(anywhere{at: net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}}, true); r.kernel.Gateway.Base() != "https://10.0.0.1:7" {
		t.Error(r.kernel.Gateway.Base())
	}
}

// A recorder is a provider that keeps what it was sent.
type recorder struct {
	mu   sync.Mutex
	seen []*http.Request
	text string
}

func (p *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	_ = r.Write(&b)
	p.mu.Lock()
	p.seen, p.text = append(p.seen, r), p.text+b.String()
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Set-Cookie", "a=b")
	w.Header().Set("X-Kern-Left", "money=1000000")
	w.Header().Set("Connection", "X-Mine")
	w.Header().Set("X-Mine", "yes")
	w.Header().Set("X-Request-Id", "req_1")
	w.Header().Set("Openai-Organization", "org-1")
	_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
}

func (p *recorder) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// recorded is a rig before a recorder.
func recorded(t *testing.T) (*rig, *recorder) {
	t.Helper()
	p := &recorder{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	return newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q, key_env: UP_KEY, models: {m: {input: 1, output: 2}}}}\n", up.URL+"/v1")), p
}

// TestWhatTravels sends on what a provider may need, and nothing of the
// connection, of Kern, or of who the program is.
func TestWhatTravels(t *testing.T) {
	r, p := recorded(t)
	k := r.key("money=1")
	g := r.ok("", "/k/"+k.Key+"/v1/chat/completions?beta=1", chat("x"),
		"Authorization", "Bearer the-programs-own", "Cookie", "session=secret-cookie", "X-Kern-Child", "kid", "X-Kern-Anything", "mine",
		"X-Forwarded-For", "10.1.2.3", "Forwarded", "for=10.1.2.3", "Referer", "http://inside.example", "Proxy-Authorization", "Basic cHJveHk=",
		"Te", "trailers", "X-Note", "the key is "+k.Key, "Openai-Beta", "assistants=v2", "X-Stainless-Lang", "python")
	sent := p.all()
	for _, never := range []string{k.Key, "sk-kern-", "the-programs-own", "secret-cookie", "X-Kern", "10.1.2.3", "inside.example", "cHJveHk", "Te:", "localhost"} {
		if strings.Contains(sent, never) {
			t.Errorf("%q was sent on:\n%s", never, sent)
		}
	}
	for _, always := range []string{"Bearer " + providerKey, "Openai-Beta: assistants=v2", "X-Stainless-Lang: python", "?beta=1", "Accept-Encoding: identity"} {
		if !strings.Contains(sent, always) {
			t.Errorf("%q was not sent on:\n%s", always, sent)
		}
	}
	if g.header.Get("Set-Cookie") != "" || g.header.Get("X-Mine") != "" || strings.Contains(g.header.Get("X-Kern-Left"), "1000000") || g.header.Get("X-Request-Id") != "req_1" {
		t.Errorf("the provider's headers: %v", g.header)
	}
	r.ok(k.Key, "/v1/chat/completions?key="+k.Key+"&beta=2", chat("x"))
	r.ok(k.Key, "/v1/chat/completions?beta=3;"+strings.Replace(k.Key, "-", "%2D", 2), chat("x"))
	if sent := p.all(); strings.Contains(sent, k.Key) || strings.Contains(sent, strings.Replace(k.Key, "-", "%2D", 2)) {
		t.Errorf("a key in the query was sent on:\n%s", sent)
	}
	at := r.serve(nil)
	raw(t, at, byHand(k.Key, "localhost", "/v1/chat/completions", "Connection: X-Private, Authorization\r\nX-Private: between us\r\n", chat("x")))
	if sent := p.all(); strings.Contains(sent, "between us") || strings.Count(sent, "Bearer "+providerKey) != len(p.seen) {
		t.Errorf("what Connection names was sent on, or the key was not:\n%s", sent)
	}
}

// whose are headers with which a program could say who is to pay, or where the
// request goes on to with the daemon's key: of the providers themselves, and of
// what may stand before them.
var whose = []string{
	"Openai-Organization", "Openai-Project", "Chatgpt-Account-Id", "Anthropic-Workspace-Id", "Api-Key", "Ocp-Apim-Subscription-Key", "X-Ms-Region", "Azureml-Model-Deployment",
	"X-Goog-User-Project", "X-Goog-Api-Key", "X-Amz-Security-Token", "X-Amzn-Bedrock-Guardrailidentifier", "Http-Referer", "X-Title", "X-Openrouter-Provider",
	"Helicone-Target-Url", "Helicone-Auth", "X-Portkey-Virtual-Key", "X-Portkey-Custom-Host", "Cf-Aig-Authorization", "Cf-Aig-Byok-Alias", "X-Litellm-Api-Key", "X-Litellm-Customer-Id",
	"X-Auth-Token", "X-Nobody-Knows",
}

// TestWhosePays: with a key of the daemon's, or at a provider that wants none, the
// program has no say in whose account pays; what kern.yaml sets goes along, and the
// program does not learn of the account. With its own credential all passes, and
// what kern.yaml sets stays out of it; the provider behind that one gets nothing.
//
// Mutants that die here: headers that only kern.yaml may set, a query that names
// an account, headers of an account in an answer, any of them kept from a program
// that pays itself.
func TestWhosePays(t *testing.T) {
	p := &recorder{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	var all []string
	for _, name := range whose {
		all = append(all, name, "the-programs-choice")
	}
	all = append(all, "X-Stainless-Lang", "python", "Openai-Beta", "assistants=v2")
	r := newRig(t, mockprovider.Config{}, fmt.Sprintf(`providers:
  openai: {base_url: "%[1]s/v1", key_env: UP_KEY, headers: {OpenAI-Organization: the-hosts, X-Title: the-hosts-title}}
  local: {format: openai, base_url: "%[1]s/v1", headers: {openai-project: the-hosts}}
  lent: {format: openai, base_url: "%[1]s/v1", key: program, headers: {OpenAI-Project: the-hosts}}
  dead: {format: openai, base_url: "http://127.0.0.1:1/v1", key: program, fallback: [local]}
`, up.URL))
	k := r.key("")
	ask := func(model string) (sent string, got http.Header) {
		before := len(p.all())
		own := append(all, "Authorization", "Bearer the-programs-own")
		if model == "local/m" { // it wants no key, and would be shown one
			own = append(all, "Authorization", "Bearer "+k.Key)
		}
		g := r.ok("", "/k/"+k.Key+"/v1/chat/completions?api-version=7&subscription-key=mine&project=mine", strings.Replace(chat("x"), `"m"`, `"`+model+`"`, 1), own...)
		return p.all()[before:], g.header
	}
	for model, hosts := range map[string]string{"m": "X-Title: the-hosts-title", "local/m": "Openai-Project: the-hosts", "dead/m": "Openai-Project: the-hosts"} {
		sent, got := ask(model)
		if strings.Contains(sent, "the-programs") || strings.Contains(sent, "mine") || got.Get("Openai-Organization") != "" {
			t.Errorf("%s: it has a say in who pays, or learns who does: %s\n%v", model, sent, got)
		}
		for _, want := range []string{hosts, "?api-version=7 ", "X-Stainless-Lang: python", "Openai-Beta: assistants=v2"} {
			if !strings.Contains(sent, want) {
				t.Errorf("%s: %q is not sent: %s", model, want, sent)
			}
		}
	}
	sent, got := ask("lent/m")
	if n := strings.Count(sent, "the-programs-choice"); n != len(whose) || strings.Contains(sent, "the-hosts") || got.Get("Openai-Organization") != "org-1" {
		t.Errorf("it pays itself, and %d of %d headers are sent: %s\n%v", n, len(whose), sent, got)
	}
	if !strings.Contains(sent, "?api-version=7&subscription-key=mine&project=mine ") || !strings.Contains(sent, "Bearer the-programs-own") {
		t.Errorf("it pays itself, and its query or credential is not sent: %s", sent)
	}
}

// TestSecretHeader: a header of the host's that holds a secret opens the provider,
// and neither the program nor the journal learns it from a provider that repeats
// what it was sent.
func TestSecretHeader(t *testing.T) {
	var got http.Header
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		got = req.Header.Clone()
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"error":{"message":"not with %s"}}`, got.Get("Cf-Access-Client-Secret"))
	}))
	t.Cleanup(up.Close)
	r := newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q, headers: {CF-Access-Client-Secret: {key_env: UP_KEY}}, models: {m: {input: 1, output: 2}}}}\n", up.URL))
	k := r.key("")
	g := r.post(k.Key, "/v1/chat/completions", chat("x"), "Cf-Access-Client-Secret", "the-programs-choice")
	if got.Get("Cf-Access-Client-Secret") != providerKey || g.status < 400 || !strings.Contains(g.body, "not with [key]") || strings.Contains(g.body, providerKey) {
		t.Errorf("sent %q; %d %s", got.Get("Cf-Access-Client-Secret"), g.status, g.body)
	}
	for _, rec := range r.records(k.Pid) {
		b, err := json.Marshal(rec)
		if err != nil || strings.Contains(string(b), providerKey) {
			t.Errorf("%s %v", b, err)
		}
	}
}

// TestRedirect follows none: it would carry the key elsewhere.
func TestRedirect(t *testing.T) {
	p := &recorder{}
	elsewhere := httptest.NewServer(p)
	t.Cleanup(elsewhere.Close)
	up := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(up.Close)
	r := newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q, key_env: UP_KEY, models: {m: {input: 1, output: 2}}}}\n", up.URL))
	g := r.post(r.key("").Key, "/v1/chat/completions", chat("x"))
	if g.status < 400 || g.code() == "" || p.all() != "" || g.header.Get("Location") != "" {
		t.Errorf("%d %v %s\n%s", g.status, g.header, g.body, p.all())
	}
}

// TestOwnCredential goes nowhere but to a provider for which the daemon has no
// key, and is not written down when that provider repeats it.
func TestOwnCredential(t *testing.T) {
	const own = "sk-ant-oat01-the-programs-own"
	var mu sync.Mutex
	var sent []string
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Kern") {
				sent = append(sent, name)
			}
		}
		sent = append(sent, r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Api-Key")+" "+r.Header.Get("Cookie"))
		mu.Unlock()
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid key `+own+`"}}`)
	}))
	t.Cleanup(up.Close)
	r := newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q}, anthropic: {base_url: %q, key_env: UP_KEY}}\n", up.URL+"/v1", up.URL))
	k := r.key("")
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		g := r.post("", "/k/"+k.Key+path, chat("x", `,"max_tokens":9`), "Authorization", "Bearer "+own, "Cookie", "a="+own)
		if g.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, g.status, g.body)
		}
	}
	r.post("", "/v1/chat/completions", chat("x", `,"max_tokens":9`), "X-Kern-Key", k.Key, "Authorization", "Bearer "+own, "Cookie", "a="+own)
	mu.Lock()
	defer mu.Unlock()
	if len(sent) != 3 || sent[2] != sent[0] {
		t.Errorf("with the key in a header of its own: sent %q", sent)
	}
	if len(sent) < 2 || !strings.HasPrefix(sent[0], "/v1/chat/completions Bearer "+own) || sent[1] != "/v1/messages  "+providerKey+" " {
		t.Errorf("sent %q", sent)
	}
	for _, rec := range r.records(k.Pid) {
		if b, err := json.Marshal(rec); err != nil || strings.Contains(string(b), own) {
			t.Errorf("%v: it is written down: %s", err, b)
		}
	}
}

// TestLentCredential: a provider that is said to take each program's own gets
// nothing without one.
func TestLentCredential(t *testing.T) {
	m := mockprovider.Config{Keys: []string{"sk-of-the-program"}, Reply: "a word"}
	r := newRig(t, m, "")
	r = newRig(t, m, fmt.Sprintf("providers: {openai: {base_url: %q, key: program, models: {m: {input: 1, output: 2}}}}\n", r.up.URL+"/v1"))
	k := r.key("money=1")
	r.refused(k.Key, "/v1/chat/completions", chat("x", `,"max_tokens":9`), abi.ModelAuth, http.StatusUnauthorized)
	if g := r.post("", "/v1/chat/completions", chat("x", `,"max_tokens":9`), "X-Kern-Key", k.Key, "Authorization", "Bearer sk-of-the-program"); g.status != http.StatusOK {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestForeignProvider is one that sends what it should not. The program gets an
// error, and the books are whole.
func TestForeignProvider(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"headers without end": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: b\r\n", 400_000) + "\r\n",
		"not HTTP":            "SSH-2.0-OpenSSH\r\n\r\n",
		"a body too short":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{}",
		"a stream that is none": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" +
			"data: <html>\r\n\r\n",
		"deep JSON":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + strings.Repeat("[", 1<<20),
		"a bad length": "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var open sync.WaitGroup
			open.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					open.Go(func() {
						defer c.Close()
						if q, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
							_, _ = io.Copy(io.Discard, q.Body)
							_, _ = io.WriteString(c, answer)
						}
					})
				}
			})
			r := newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: \"http://%s\", key_env: UP_KEY, models: {m: {input: 1, output: 2}}}}\n", l.Addr()))
			t.Cleanup(func() { l.Close(); open.Wait() })
			k := r.key("wall=1m,money=1")
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			resp, err := r.request(ctx, k.Key, "/v1/chat/completions", chat("x"))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			g := got{resp.StatusCode, resp.Header, string(b)}
			if g.code() == "" || len(g.body) > 64<<10 || strings.Contains(g.body, providerKey) {
				t.Errorf("%d %.500s", g.status, g.body)
			}
			eventually(t, "nothing is held", func() bool { return r.info(k.Pid).Reserved == (abi.Usage{}) || r.info(k.Pid).Doubt != (abi.Usage{}) })
		})
	}
}

// TestPlainOnTLS and the like: what is not HTTP gets no answer that helps it.
func TestNotHTTP(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	at := r.serve(nil)
	c, err := tls.Dial("tcp", at.String(), &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		c.Close()
		t.Error("TLS where there is none")
	}
	for _, g := range raw(t, at, "\x16\x03\x01\x00\x00\r\n\r\n") {
		if g.status != http.StatusBadRequest {
			t.Errorf("%+v", g)
		}
	}
}
