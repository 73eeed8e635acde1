// Package transport sends a request to a provider: it holds the address, the key,
// the headers and the connections. When no answer comes, it says how far the
// request came. Transport does not look at bodies or callers.
package transport

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// A Line holds what a request to one provider needs: address, key and headers.
type Line struct {
	Base    string // base URL; Post appends a path
	Key     Key
	Sign    func(h http.Header, key string) // writes the key into the header that the provider reads; key may be empty
	Headers []Header
	Client  *http.Client
}

// Post sends a request to a path below the base URL. The Line's key, if given,
// replaces a credential in h. Post adds the configured headers unless h brings a
// credential of its own. The caller closes the answer's body. An error is a
// [*Lost].
func (l *Line) Post(ctx context.Context, path string, h http.Header, body []byte) (*http.Response, error) {
	p := &requestBody{body: body}
	var reached progress
	req, err := http.NewRequestWithContext(reached.watched(ctx, p), http.MethodPost, l.Base+path, p.reader())
	if err != nil {
		return nil, &Lost{Cause: err}
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(p.reader()), nil }
	// The caller may send the same headers again to a fallback, so the key must not stay in them.
	req.Header = maps.Clone(h)
	l.Sign(req.Header, l.Key.reveal())
	if h.Get("Authorization") == "" && h.Get("X-Api-Key") == "" { // a program's own credential means the program's own account
		for _, x := range l.Headers {
			x.set(req.Header)
		}
	}
	client := *l.Client
	// A redirect would carry the key and the request to another address.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	// The answer has begun or the request failed, so the body is not sent again.
	p.drop()
	if err != nil {
		return nil, reached.lost(ctx, err)
	}
	if c := reached.connection(); c != nil {
		resp.Body = &call{resp.Body, c, c.writes()}
	}
	return resp, nil
}

// Redact replaces the key and the secret headers in text from outside.
func (l *Line) Redact(s string) string {
	s = redact(s, l.Key.reveal())
	for _, x := range l.Headers {
		for _, secret := range Words(x.key.reveal()) {
			s = redact(s, secret)
		}
	}
	return s
}

// Lost is the error of a request without an answer. The text of Cause may hold
// the key, so callers redact it.
type Lost struct {
	Cause     error
	Seen      bool // the provider may have received the request
	Unreached bool // no connection could be made
}

func (e *Lost) Error() string { return e.Cause.Error() }
func (e *Lost) Unwrap() error { return e.Cause }

// A progress records how far a request came: it wanted a connection, had one, and
// wrote its headers.
type progress struct {
	wanted, connected, headersSent atomic.Bool
	conn                           atomic.Pointer[net.Conn]
}

// watched returns ctx with a trace that records the request in w and p.
func (w *progress) watched(ctx context.Context, p *requestBody) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.wanted.Store(true) },
		GotConn: func(i httptrace.GotConnInfo) {
			w.connected.Store(true)
			w.conn.Store(&i.Conn)
			p.sendsBegun.Add(1)
		},
		WroteHeaders: func() { w.headersSent.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) { p.sendsEnded.Add(1) },
	})
}

// connection returns the connection of the request; nil if [HangUp] cannot close it.
func (w *progress) connection() *conn {
	if c := w.conn.Load(); c != nil {
		l, _ := (*c).(*conn)
		return l
	}
	return nil
}

// lost returns the error of a failed request, with how far the request came.
func (w *progress) lost(ctx context.Context, err error) *Lost {
	// A caller that gave up while it waited for a connection learned nothing about the provider.
	return &Lost{Cause: err, Seen: w.headersSent.Load(), Unreached: w.wanted.Load() && !w.connected.Load() && ctx.Err() == nil}
}

// A requestBody is the body of a request. drop releases its memory when the answer
// begins, because the rest of the answer may take long.
type requestBody struct {
	body       []byte
	readers    []*bytes.Reader
	sendsBegun atomic.Int32 // sends that began
	sendsEnded atomic.Int32 // sends that ended
}

// reader returns a reader of the body. It is a [bytes.Reader], because
// [http.Transport] then sends the head and the body together.
func (p *requestBody) reader() *bytes.Reader {
	r := bytes.NewReader(p.body)
	p.readers = append(p.readers, r)
	return r
}

// drop releases the body. It keeps the readers while a send is still running.
func (p *requestBody) drop() {
	p.body = nil
	// The transport may still read the body after the answer began.
	if p.sendsBegun.Load() != p.sendsEnded.Load() {
		return
	}
	for _, r := range p.readers {
		r.Reset(nil)
	}
}

// dialTime bounds the time to make a connection. It allows for three lost
// attempts or one dead name server.
const dialTime = 10 * time.Second

// Client returns the HTTP client of all Lines. It keeps connections between
// requests. It has no timeout, because a request ends by the caller's context or
// by silence.
var Client = sync.OnceValue(func() *http.Client { return client(patience) })

func client(patience time.Duration) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024    // one for each concurrent stream
	t.ReadBufferSize, t.WriteBufferSize = 2<<10, 2<<10 // per connection, so they are small
	t.DialContext = dialed(dialer(patience).DialContext)
	return &http.Client{Transport: t}
}

// CloseIdle closes the unused connections to providers.
func CloseIdle() { Client().CloseIdleConnections() }
