package gateway_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
)

// here is the address at which a request came in.
var here = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

// give lets the gateway serve bytes as a server would that read them.
func (r *rig) give(request string) (g got, ok bool) {
	q, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
	if err != nil {
		return g, false
	}
	w := httptest.NewRecorder()
	r.kernel.Gateway.ServeHTTP(w, q.WithContext(context.WithValue(r.t.Context(), http.LocalAddrContextKey, here)))
	return got{w.Code, w.Header(), w.Body.String()}, true
}

// FuzzStranger is whoever has no key. Whatever is asked, the answer is that
// there is none, and nothing happens.
func FuzzStranger(f *testing.F) {
	for _, s := range []string{
		"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
		byHand("sk-kern-x", "localhost", "/v1/messages", "X-Api-Key: sk-kern-y\r\nX-Kern-Child: c\r\nX-Kern-Limits: money=1\r\n", chat("x")),
		"POST /k/sk-kern-x/v1/chat/completions?a=b HTTP/1.1\r\nHost: evil.example\r\nOrigin: null\r\n\r\n",
		"POST /k//kern/v1/keys HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		f.Add(s)
	}
	r := newRig(f, mockprovider.Config{}, "")
	r.key("money=1")
	f.Fuzz(func(t *testing.T, request string) {
		r.t = t
		defer func() { r.t = f }()
		g, ok := r.give(request)
		if !ok {
			return
		}
		if g.status != http.StatusUnauthorized || g.code() != abi.BadKey {
			t.Fatalf("%d %v %s", g.status, g.header, g.body)
		}
		if n := r.mock.Stats().Requests; n != 0 {
			t.Fatal("a request reached the provider")
		}
	})
}

// FuzzProgram is a program with a good key that sends anything. What is booked
// is what the provider billed, nothing stays reserved, and no secret comes
// back.
func FuzzProgram(f *testing.F) {
	paths := []string{"/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/messages/count_tokens"}
	for i, s := range []string{
		chat("x", `,"max_tokens":5`), `{"model":"m","input":"x","stream":true}`, `{"model":"m","input":["a","b"]}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`, `{"model":"m","messages":[]}`,
		chat("x", `,"n":2,"stream":true`), `{"model":"m","messages":[{"role":"tool","tool_call_id":"a","content":"b"},{"role":"assistant","tool_calls":[{"id":"a"}]}]}`,
	} {
		f.Add(uint8(i), s, "money=0.5")
	}
	r := newRig(f, mockprovider.Config{Price: price}, "")
	k := r.key("money=100000") // of a model without a price nothing would be booked
	f.Fuzz(func(t *testing.T, path uint8, body, limits string) {
		r.t = t
		defer func() { r.t = f }()
		if strings.ContainsAny(limits, "\r\n") || len(limits) > 200 {
			return
		}
		g, ok := r.give(byHand(k.Key, "localhost", paths[int(path)%len(paths)], "X-Kern-Limits: "+limits+"\r\n", body))
		if !ok {
			return
		}
		if g.status < 200 || g.status >= 500 && g.status != http.StatusBadGateway {
			t.Fatalf("%d %s", g.status, g.body)
		}
		if all := g.body + g.header.Get("X-Kern-Left"); strings.Contains(all, providerKey) || strings.Contains(all, k.Key) && !strings.Contains(body, k.Key) {
			t.Fatalf("a secret came back: %s", all)
		}
		if g.status == http.StatusOK && !strings.Contains(g.header.Get("Content-Type"), "json") && !strings.Contains(g.header.Get("Content-Type"), "event-stream") {
			t.Fatalf("%v %s", g.header, g.body)
		}
		r.books(k.Pid)
	})
}
