// Package relay sends one request to a provider, meters the answer as it passes
// and says what it used. The gateway and the built-in loop both ask models by
// it, so what a request may use and what it used are computed in one place.
//
//	relay.go   one attempt: send, read, what came of it
//	bound.go   what a request may use, and what a cut answer may be billed for
//	drain.go   how long a stopped answer is read on
//	model.go   a provider as a [model.Model], for the built-in loop
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// Bounds of what a provider may send.
const (
	maxWhole  = 64 << 20  // of an answer that is not streamed
	maxStream = 256 << 20 // with a frame of some 300 bytes around each token
	maxError  = 256 << 10 // of an answer that is an error
)

// A Client takes an answer as it comes. Its methods are called in the goroutine
// of [Attempt.Read].
type Client interface {
	// Pass takes what may be shown now. last: the end of a whole answer, which may
	// be shown only when the answer is recorded.
	Pass(b []byte, last bool)
	// Admit is asked for the tool calls of a whole answer before they are shown.
	Admit(ctx context.Context, calls []format.Call) error
	// Held is told, whenever more comes, that a tool call is held back.
	Held()
	// Gone reports that the client does not read any more.
	Gone() bool
}

// An Attempt is one request to one route. It is for one goroutine.
type Attempt struct {
	Endpoint  *provider.Endpoint
	Request   *format.Request // as [Prepare] made it for the endpoint
	Bound     format.Bound    // of the request
	Granted   int64           // output tokens
	Unlimited bool            // no limit binds the output: the request is sent as it asks
	Header    http.Header     // to send
	Query     string          // behind the path, with its question mark
	Idle      time.Duration   // of silence before the answer is given up; 0: no bound
	Client    Client          // nil: nothing is passed on, and no tool call is held back
	OnText    func(string)    // gets each piece of text; may be nil

	meter  *format.Meter
	drain  drain
	start  time.Time
	first  time.Duration
	read   int64
	silent atomic.Bool // the provider sent nothing for Idle
	stream bool
	ended  bool // the provider brought the answer to its end
	over   bool // the provider has nothing more on its way
	quota  model.Quota
}

// Errors of [Attempt.Read] that are not of the provider.
var (
	ErrOver  = errors.New("the model gave more than it was granted")
	errIdle  = errors.New("the provider fell silent")
	errLarge = &model.Error{Kind: model.Malformed, Message: "the answer is larger than 64 MiB"}
	errLong  = &model.Error{Kind: model.Malformed, Message: fmt.Sprintf("the answer takes more than %d bytes", maxStream)}
)

// Send sends the request and returns the head of the answer. When ctx ends, the
// answer is read on for a moment, because its end says what it used. The caller
// calls [Attempt.Close], and closes the body of the answer.
func (a *Attempt) Send(ctx context.Context) (*http.Response, *model.Error) {
	a.start = time.Now()
	if ctx.Err() != nil {
		return nil, &model.Error{Kind: model.Network, Message: "stopped before it was sent", Usage: &model.Usage{}}
	}
	up, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.drain.cancel = cancel
	a.drain.stop = context.AfterFunc(ctx, a.drain.begin)
	granted := a.Granted
	if a.Unlimited {
		granted = 0
	}
	silence := a.newSilence()
	defer silence.stop()
	resp, err := a.Endpoint.Post(up, a.Request.Format.Path()+a.Query, a.Header, a.Request.Bytes(granted))
	if err != nil {
		return nil, a.lost(err)
	}
	a.quota = format.ReadQuota(resp.Header, time.Now())
	a.drain.open(resp.Body)
	return resp, nil
}

// Close ends the attempt.
func (a *Attempt) Close() {
	if a.drain.cancel != nil {
		a.drain.stop()
		a.drain.cancel()
	}
}

// Refusal reads an answer whose status is an error, and classifies it. body is
// what came without the key; nil where the client must not have it, because it
// is compressed, or is a redirect that would take the client's key along.
// Providers do not bill such answers.
func (a *Attempt) Refusal(resp *http.Response) (body []byte, e *model.Error) {
	if compressed(resp.Header) == "" {
		body, _ = io.ReadAll(io.LimitReader(resp.Body, maxError))
	}
	e = a.Endpoint.Refusal(resp.StatusCode, resp.Header, body)
	if body == nil || resp.StatusCode < http.StatusBadRequest {
		return nil, e
	}
	return []byte(a.Endpoint.Clean(string(body))), e
}

// Open prepares to read an answer. Its error says that nothing of the answer can
// be metered. The request is let go of: an answer may take long, and there may be
// many.
func (a *Attempt) Open(resp *http.Response) error {
	a.stream = streamed(resp.Header, a.Request.Stream)
	a.meter = a.Request.Meter(a.stream)
	a.meter.Hold = a.Client != nil
	a.meter.OnText(a.OnText)
	a.Request, a.Header = format.Answered(a.Request), nil
	return unreadable(resp.Header)
}

// Meter returns the meter of the answer, once it is open.
func (a *Attempt) Meter() *format.Meter { return a.meter }

// Streamed reports that the answer comes as events, once it is open.
func (a *Attempt) Streamed() bool { return a.stream }

// streamed reports that an answer comes as events: when its head says so, or when
// a stream was asked for and the head does not say that it is one object.
func streamed(h http.Header, asked bool) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	media = strings.TrimSpace(media)
	return strings.EqualFold(media, "text/event-stream") || asked && !strings.EqualFold(media, "application/json")
}

// unreadable is what is wrong with the head of an answer: nothing behind it can
// be metered.
func unreadable(h http.Header) error {
	switch coding := compressed(h); {
	case coding != "":
		return &model.Error{Kind: model.Malformed, Message: "the answer is compressed by " + format.Tidy(coding) + ", expected one that is not"}
	case strings.HasPrefix(h.Get("Content-Type"), "text/html"):
		return &model.Error{Kind: model.Malformed, Message: "a web page is there, expected the answer of a model: check the base URL, which may need a /v1 at its end"}
	}
	return nil
}

// compressed names how an answer is compressed, though none was to be; empty if
// it is not.
func compressed(h http.Header) string {
	if coding := h.Get("Content-Encoding"); !strings.EqualFold(coding, "identity") {
		return coding
	}
	return ""
}

// Buffers for an answer that comes piece by piece, many at a time, and for one
// that comes at once and is soon gone.
var (
	pieces = sync.Pool{New: func() any { b := make([]byte, 2<<10); return &b }}
	wholes = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
)

// Read reads the answer to its end, or to where it must not go on. The client
// gets what may be shown as soon as it is there. An error is what the answer
// failed by, or what [Client.Admit] said.
func (a *Attempt) Read(ctx context.Context, resp *http.Response) error {
	if a.Client != nil && a.Client.Gone() {
		a.drain.begin()
	}
	pool := &wholes
	if a.stream {
		pool = &pieces
	}
	pooled := pool.Get().(*[]byte)
	defer pool.Put(pooled)
	silence := a.newSilence()
	defer silence.stop()
	for buf := *pooled; ; {
		silence.start()
		n, err := resp.Body.Read(buf)
		silence.stop()
		if n > 0 {
			if err := a.take(ctx, buf[:n]); err != nil {
				return a.tidied(err)
			}
		}
		a.over = err == io.EOF || err == io.ErrUnexpectedEOF
		switch {
		case err == io.EOF:
			return a.tidied(a.end(ctx))
		case err != nil && (a.meter.Done() || a.meter.Failed()): // the provider said all: how the body ends says nothing
			return nil
		case err != nil && a.silent.Load():
			return errIdle
		case err != nil:
			return err
		}
	}
}

// take meters what came, and hands on what may be shown.
func (a *Attempt) take(ctx context.Context, b []byte) error {
	if a.first == 0 {
		a.first = time.Since(a.start)
	}
	gone := a.Client != nil && a.Client.Gone()
	stopped := ctx.Err() != nil || gone
	a.drain.heard()
	switch a.read += int64(len(b)); {
	case !a.stream && a.read > maxWhole:
		return errLarge
	case a.read > maxStream:
		return errLong
	}
	forward, fail := a.meter.Write(b)
	if a.meter.Said() { // before the client learns of it, because it may go away then
		a.drain.said()
	}
	if a.Client != nil && !stopped {
		a.pass(forward)
		if a.meter.Held() > 0 {
			a.Client.Held()
		}
	}
	if fail != nil {
		return fail
	}
	if err := a.admit(ctx, stopped); err != nil {
		return err
	}
	if a.Client != nil && a.Client.Gone() && !gone {
		a.drain.begin()
	}
	if !a.Unlimited && a.Granted > 0 && a.meter.Over(a.Granted) {
		return ErrOver
	}
	if a.meter.Done() || a.meter.Failed() {
		a.drain.last()
	}
	return nil
}

// end takes in the end of the body.
func (a *Attempt) end(ctx context.Context) error {
	rest, fail := a.meter.End()
	a.ended = fail == nil
	a.pass(rest)
	if err := a.admit(ctx, ctx.Err() != nil || a.Client != nil && a.Client.Gone()); err != nil {
		return err
	}
	return fail
}

func (a *Attempt) pass(b []byte) {
	if a.Client != nil && len(b) > 0 {
		a.Client.Pass(b, a.meter.Done() && a.meter.Held() == 0)
	}
}

// admit asks the client for the tool calls of a whole answer, and lets all of
// them be seen or none.
func (a *Attempt) admit(ctx context.Context, stopped bool) error {
	if stopped || a.Client == nil || a.meter.Held() == 0 || !a.meter.Done() {
		return nil
	}
	if err := a.Client.Admit(ctx, a.meter.Ready()); err != nil {
		return err
	}
	a.pass(a.meter.Release())
	return nil
}

// tidied takes the key out of the words of a provider in an error of the meter.
func (a *Attempt) tidied(err error) error {
	e, ok := err.(*model.Error)
	if !ok {
		return err
	}
	copied := *e
	copied.Message = a.Endpoint.Tidy(e.Message)
	return &copied
}

// A silence ends an attempt when the provider sends nothing for too long. It is
// the provider's alone: while the client thinks, it does not run.
type silence struct {
	timer *time.Timer // nil: silence has no bound
	idle  time.Duration
}

func (a *Attempt) newSilence() silence {
	if a.Idle <= 0 {
		return silence{}
	}
	return silence{idle: a.Idle, timer: time.AfterFunc(a.Idle, func() {
		a.silent.Store(true)
		a.drain.cancel()
	})}
}

func (s *silence) start() {
	if s.timer != nil {
		s.timer.Reset(s.idle)
	}
}

func (s *silence) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}
