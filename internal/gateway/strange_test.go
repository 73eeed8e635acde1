package gateway_test

import (
	"compress/gzip"
	"context"
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

// before is a rig before a provider that a test makes, of a model m.
func before(t *testing.T, up http.HandlerFunc) *rig {
	t.Helper()
	s := httptest.NewServer(up)
	t.Cleanup(s.Close)
	return newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: %q, key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 1000}}}}\n", s.URL+"/v1"))
}

// A streamed answer, and one that is not, which take 9 tokens of input and 5 of
// output.
const (
	oneByOne = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some words\"}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n"
	atOnce = `{"choices":[{"index":0,"message":{"content":"some words"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":5}}`
)

// TestOtherSuccess has providers that answer with another success than 200, or
// with nothing: what they say is given and booked, and what they do not say is
// in doubt.
//
// Mutants that die here: a status that makes an answer cost nothing.
func TestOtherSuccess(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusNonAuthoritativeInfo, http.StatusPartialContent, http.StatusAccepted, http.StatusNoContent} {
		for _, stream := range []bool{false, true} {
			r := before(t, func(w http.ResponseWriter, r *http.Request) {
				answer := atOnce
				w.Header().Set("Content-Type", "application/json")
				if stream {
					answer = oneByOne
					w.Header().Set("Content-Type", "Text/Event-Stream; charset=UTF-8")
				}
				if w.WriteHeader(status); status != http.StatusAccepted && status != http.StatusNoContent {
					_, _ = io.WriteString(w, answer)
				}
			})
			k := r.key("money=1")
			g := r.post(k.Key, "/v1/chat/completions", chat("x", fmt.Sprintf(`,"stream":%v,"stream_options":{"include_usage":true}`, stream)))
			i := r.info(k.Pid)
			switch {
			case status == http.StatusAccepted || status == http.StatusNoContent:
				if g.code() == "" || i.Used[abi.Money]+i.Doubt[abi.Money] == 0 {
					t.Errorf("%d, stream %v: %d %s; booked %v, in doubt %v", status, stream, g.status, g.body, i.Used, i.Doubt)
				}
			case g.status != http.StatusOK || !strings.Contains(g.body, "some words") || i.Used[abi.InputTokens] != 9 || i.Used[abi.OutputTokens] != 5 || i.Reserved != (abi.Usage{}):
				t.Errorf("%d, stream %v: %d %s; booked %v, reserved %v", status, stream, g.status, g.body, i.Used, i.Reserved)
			}
		}
	}
}

// TestCompressed has a provider that compresses what it was asked not to. What
// cannot be read cannot be metered: nothing of it is given, and all that was
// reserved stays so. An error takes nothing, and is told in words.
//
// Mutants that die here: a compressed stream taken for an empty one.
func TestCompressed(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		for _, stream := range []bool{false, true} {
			r := before(t, func(w http.ResponseWriter, r *http.Request) {
				answer := atOnce
				w.Header().Set("Content-Type", "application/json")
				if stream {
					answer = oneByOne
					w.Header().Set("Content-Type", "text/event-stream")
				}
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(status)
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, answer)
				_ = z.Close()
			})
			k := r.key("money=1")
			g := r.post(k.Key, "/v1/chat/completions", chat("x", fmt.Sprintf(`,"stream":%v`, stream)))
			want := abi.OutcomeUnknown
			if status != http.StatusOK {
				want = abi.ModelBadRequest
			}
			i := r.info(k.Pid)
			if g.code() != want || strings.Contains(g.body, "\x1f\x8b") || (i.Doubt[abi.OutputTokens] >= 1000) != (status == http.StatusOK) || i.Reserved != i.Doubt {
				t.Errorf("%d, stream %v: %d %q; booked %v, in doubt %v", status, stream, g.status, g.body, i.Used, i.Doubt)
			}
		}
	}
}

// TestCountsEarly has a provider that counts the input first, and says more than
// it was granted: it is cut off all the same.
//
// Mutants that die here: a count of the input that is taken for that of all.
func TestCountsEarly(t *testing.T) {
	r := before(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, err := io.WriteString(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":0}}\n\n")
		for i := 0; i < 20_000 && err == nil; i++ {
			_, err = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some words \"}}]}\n\n")
		}
	})
	k := r.key("output_tokens=100")
	g := r.post(k.Key, "/v1/chat/completions", chat("x", `,"stream":true`))
	if n := strings.Count(g.body, "some words"); g.code() != abi.LimitOutputTokens || n > 10_000 {
		t.Errorf("%d pieces came, then %s", n, g.code())
	}
}

// TestCredentialThatStays shows a credential that does not travel: the request
// names it as one of its connection, or there is a key of Kern's beside it. Who
// pays is the host then, and the program has no say in whose account that is.
//
// Mutants that die here: a credential that is seen and not sent taken for the
// program's own account.
func TestCredentialThatStays(t *testing.T) {
	p := &recorder{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	r := newRig(t, mockprovider.Config{}, fmt.Sprintf("providers: {openai: {base_url: \"%s/v1\", headers: {X-Title: the-hosts}}, lent: {format: openai, base_url: \"%[1]s/v1\", key: program}}\n", up.URL))
	k := r.key("")
	at := r.serve(nil)
	for name, headers := range map[string]string{
		"named by Connection": "Connection: Authorization\r\n",
		"beside Kern's":       "Authorization: Bearer " + k.Key + "\r\n",
	} {
		for _, model := range []string{"m", "lent/m"} {
			before := len(p.all())
			body := strings.Replace(chat("x"), `"m"`, `"`+model+`"`, 1)
			list := raw(t, at, byHand("the-programs-own", "localhost", "/k/"+k.Key+"/v1/chat/completions?project=the-programs", headers+"X-Nobody-Knows: the-programs-choice\r\n", body))
			sent := p.all()[before:]
			switch {
			case len(list) != 1:
				t.Errorf("%s: %d answers", name, len(list))
			case model == "lent/m" && (sent != "" || list[0].code() != abi.ModelAuth):
				t.Errorf("%s: without a credential it was sent: %s", name, sent)
			case model == "m" && (strings.Contains(sent, "the-programs") || !strings.Contains(sent, "X-Title: the-hosts")):
				t.Errorf("%s: the program has a say in who pays: %s", name, sent)
			}
		}
	}
}

// mute is a client that takes nothing, and does not go.
type mute struct{ *httptest.ResponseRecorder }

func (mute) FlushError() error { return errors.New("it reads nothing") }

// TestTakesNothing: the provider is stopped when not even the head of an answer
// can be given.
//
// Mutants that die here: a client that is lost before the first event, and that
// nobody tells the provider of.
func TestTakesNothing(t *testing.T) {
	stopped := make(chan struct{})
	r := before(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server looks for the end of the connection behind it
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": it comes\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(stopped)
	})
	k := r.key("money=1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(chat("x", `,"stream":true`)))
	q.Header.Set("Authorization", "Bearer "+k.Key)
	served := make(chan struct{})
	go func() {
		r.kernel.Gateway.ServeHTTP(mute{httptest.NewRecorder()}, q)
		close(served)
	}()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Error("the provider goes on")
	}
	cancel()
	<-served
	if i := r.info(k.Pid); i.Reserved != i.Doubt || i.Used[abi.ModelCalls]+i.Doubt[abi.ModelCalls] != 1 {
		t.Errorf("%+v", i)
	}
}

// closing is a listener of one connection, and tells when the server closes it.
type closing struct {
	net.Listener
	closed chan struct{}
}

func (l closing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &closingConn{Conn: c, closed: l.closed}, err
}

type closingConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestNeverReads asks again and again, and reads no answer. The connection is
// given up.
//
// Mutants that die here: an answer of our own that may be written for ever.
func TestNeverReads(t *testing.T) {
	t.Parallel()
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	for _, request := range []string{
		byHand("no-key", "localhost", "/v1/chat/completions", "", "{}"),
		"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + k.Key + "\r\n\r\n",
	} {
		closed := make(chan struct{})
		c := dial(t, r.serve(func(l net.Listener) net.Listener { return closing{hasty{l}, closed} }))
		if err := c.SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		var asked sync.WaitGroup
		asked.Go(func() {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, request)
			}
		})
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Errorf("the connection is still open after %.60q", request)
		}
		c.Close()
		asked.Wait()
	}
}

// TestUnenforceable refuses limits for a child that nothing enforces, by header
// and by derived key, and those that two readers could take for different ones.
//
// Mutants that die here: a limit that is written down and binds nobody, one that
// is said twice, a name of the scheme in another case.
func TestUnenforceable(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("money=1")
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.InvalidArguments, http.StatusBadRequest, "X-Kern-Child", "kid", "X-Kern-Limits", "money=0.1,cpu=1s")
	r.refused(k.Key, "/kern/v1/keys", `{"limits":{"cpu":"1s"}}`, abi.InvalidArguments, http.StatusBadRequest)
	for _, twice := range []string{`{"limits":{"money":0.1},"limits":{}}`, `{"limits":{"money":0.1},"Limits":{}}`, `{"owner":"me"}`, `[]`, `7`, `{"limits":{"money":0.1}}{}`, `{"limits":{"money":0.1}`} {
		r.refused(k.Key, "/kern/v1/keys", twice, abi.InvalidArguments, http.StatusBadRequest)
	}
	r.ok("", "/kern/v1/keys", `{"limits":{"wall":"1m","context":1000}}`, "Authorization", "bearer "+k.Key)
	if kids := r.info(k.Pid).Children; len(kids) != 1 {
		t.Errorf("%d children", len(kids))
	}
}

// TestResultTooEarly brings the result of a call that has not begun, as where a
// server gives the same ids in every answer, and goes away. Nobody waits for
// the call to begin in its place.
//
// Mutants that die here: a request that outlives its client.
func TestResultTooEarly(t *testing.T) {
	const call = `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	asked, said := make(chan struct{}, 1), make(chan struct{})
	r := before(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-said
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":`+call+`,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":5}}`)
	})
	k := r.key("")
	answer := make(chan got, 1)
	go func() { answer <- r.post(k.Key, "/v1/chat/completions", chat("x")) }()
	<-asked
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Stop, "test"); err != nil {
		t.Fatal(err)
	}
	close(said)
	eventually(t, "the call waits", func() bool {
		i, err := r.kernel.Info(k.Pid)
		return err == nil && len(i.Waits) == 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[`+call+`,{"role":"tool","tool_call_id":"a","content":"done"}]}`))
	q.Header.Set("Authorization", "Bearer "+k.Key)
	served := make(chan struct{})
	go func() {
		r.kernel.Gateway.ServeHTTP(httptest.NewRecorder(), q)
		close(served)
	}()
	select {
	case <-served:
	case <-time.After(time.Minute):
		t.Error("it waits, and nobody with it")
	}
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Cont, "test"); err != nil {
		t.Fatal(err)
	}
	<-served
	if g := <-answer; g.status != http.StatusOK {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestNoWords asks for an output of nothing, as programs do to fill a cache. It
// is not taken for a wish without bound.
//
// Mutants that die here: a maximum of 0 that is raised to all that is left.
func TestNoWords(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000")
	const body = `{"model":"m","max_tokens":0,"messages":[]}`
	r.refused(r.key("money=1").Key, "/v1/messages", body, abi.InvalidArguments, http.StatusBadRequest)
	if r.ok(r.key("").Key, "/v1/messages", body); p.last() != body {
		t.Errorf("without a limit it was sent as %s", p.last())
	}
}
