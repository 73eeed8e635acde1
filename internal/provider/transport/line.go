// Package transport is how a request reaches a provider: at which address, with
// whose key and headers, over which connection; and, when it finds no answer,
// how far it came. It does not look at bodies or callers.
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

// A Line leads to a provider.
type Line struct {
	Base    string // the address; paths are added
	Key     Key
	Sign    func(h http.Header, key string) // puts the key, which may be empty, where the provider looks for it
	Headers []Header
	Client  *http.Client
}

// Post sends a request, to a path below the address. Where there is a key it is
// the one that goes along. Headers of the configuration go with all but a
// credential that h brings. The caller closes the answer's body. An error is a
// [*Lost].
func (l *Line) Post(ctx context.Context, path string, h http.Header, body []byte) (*http.Response, error) {
	p := &parcel{body: body}
	var way passage
	req, err := http.NewRequestWithContext(way.watched(ctx, p), http.MethodPost, l.Base+path, p.carrier())
	if err != nil {
		return nil, &Lost{Cause: err}
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(p.carrier()), nil }
	req.Header = maps.Clone(h)
	l.Sign(req.Header, l.Key.reveal())
	if h.Get("Authorization") == "" && h.Get("X-Api-Key") == "" { // else it is the program's own account
		for _, x := range l.Headers {
			x.set(req.Header)
		}
	}
	client := *l.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	p.drop()
	if err != nil {
		return nil, way.ended(ctx, err)
	}
	if c := way.line(); c != nil {
		resp.Body = &call{resp.Body, c, c.writes()}
	}
	return resp, nil
}

// Redact takes what is secret out of words that came from elsewhere.
func (l *Line) Redact(s string) string {
	s = redact(s, l.Key.reveal())
	for _, x := range l.Headers {
		for _, secret := range Words(x.key.reveal()) {
			s = redact(s, secret)
		}
	}
	return s
}

// Lost is a request that found no answer. The text of Cause may hold the key.
type Lost struct {
	Cause     error
	Seen      bool // the provider may have it
	Unreached bool // no connection was to be had
}

func (e *Lost) Error() string { return e.Cause.Error() }
func (e *Lost) Unwrap() error { return e.Cause }

// A passage is how far a request came on its way.
type passage struct {
	sought, had, seen atomic.Bool
	conn              atomic.Pointer[net.Conn]
}

// watched is ctx for a request whose passage it is to be.
func (w *passage) watched(ctx context.Context, p *parcel) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.sought.Store(true) },
		GotConn: func(i httptrace.GotConnInfo) {
			w.had.Store(true)
			w.conn.Store(&i.Conn)
			p.begun.Add(1)
		},
		WroteHeaders: func() { w.seen.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) { p.ended.Add(1) },
	})
}

// line is the connection that the request went by, if one can hang up on it.
func (w *passage) line() *conn {
	if c := w.conn.Load(); c != nil {
		l, _ := (*c).(*conn)
		return l
	}
	return nil
}

// ended says of a request that failed how far it had come.
func (w *passage) ended(ctx context.Context, err error) *Lost {
	return &Lost{Cause: err, Seen: w.seen.Load(), Unreached: w.sought.Load() && !w.had.Load() && ctx.Err() == nil}
}

// A parcel is the body of a request. It is let go of when the answer begins,
// which may take long to come to its end, and may be read by then.
type parcel struct {
	body     []byte
	carriers []*bytes.Reader
	begun    atomic.Int32
	ended    atomic.Int32 // of those that began to be sent
}

// carrier reads the body. It is of a type that [http.Transport] knows to have
// everything there, so that the head does not go ahead of it.
func (p *parcel) carrier() *bytes.Reader {
	r := bytes.NewReader(p.body)
	p.carriers = append(p.carriers, r)
	return r
}

// drop lets go of the body where nobody reads it any more.
func (p *parcel) drop() {
	p.body = nil
	if p.begun.Load() != p.ended.Load() {
		return
	}
	for _, r := range p.carriers {
		r.Reset(nil)
	}
}

// dialTime is how long a connection may take to come about: three attempts that
// are lost on the way, or one name server that is dead.
const dialTime = 10 * time.Second

// Client keeps connections between requests, for all lines. It has no timeout of
// its own: a caller's context ends a request, and silence does.
var Client = sync.OnceValue(func() *http.Client { return client(patience) })

func client(patience time.Duration) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024    // as many as there are streams at a time
	t.ReadBufferSize, t.WriteBufferSize = 2<<10, 2<<10 // for each of them
	t.DialContext = dialed(dialer(patience).DialContext)
	return &http.Client{Transport: t}
}

// CloseIdle closes the connections to providers that nobody uses.
func CloseIdle() { Client().CloseIdleConnections() }
