package provider

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

	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// Bounds of an answer, in bytes.
const (
	maxWhole  = 64 << 20  // an answer that is not streamed
	maxStream = 256 << 20 // a streamed answer, with some 300 bytes around each token
	maxError  = 256 << 10 // an answer with an error status
)

// A Client receives an answer as it comes. [Attempt.Read] calls its methods in its
// own goroutine.
type Client interface {
	// Pass takes bytes that the client may show now. If last is true, b ends a whole
	// answer, and the client shows b only after the answer is recorded.
	Pass(b []byte, last bool)
	// Admit decides on the tool calls of a whole answer before the client shows them.
	// The calls in refused are withheld, each with the reason. An error refuses all of
	// them and ends the attempt.
	Admit(ctx context.Context, calls []format.Call) (refused map[int]string, err error)
	// Held is called whenever bytes come while a tool call is held back.
	Held()
	// Gone reports that the client does not read any more.
	Gone() bool
}

// An Attempt is one request to one route. Only one goroutine may use it.
type Attempt struct {
	Endpoint  *Endpoint
	Request   *format.Request // from [Prepare] for the endpoint
	Bound     format.Bound    // of the request
	Granted   int64           // output tokens
	Unlimited bool            // no limit binds the output, so the request goes out unchanged
	Header    http.Header     // headers to send
	Query     string          // added to the path, with its question mark
	Idle      time.Duration   // silence that ends the answer; 0: no bound
	Client    Client          // nil: nothing is passed on, and no tool call is held back
	OnText    func(string)    // receives each piece of text; may be nil

	meter  *format.Meter
	drain  drain
	start  time.Time
	first  time.Duration
	read   int64
	silent atomic.Bool // the provider sent nothing for Idle
	stream bool
	ended  bool // the provider finished the answer
	over   bool // the provider sends nothing more
	quota  model.Quota
}

// Errors of [Attempt.Read] that do not come from the provider.
var (
	ErrOver  = errors.New("the model gave more than it was granted")
	errIdle  = errors.New("the provider fell silent")
	errLarge = &model.Error{Kind: model.Malformed, Message: "the answer is larger than 64 MiB"}
	errLong  = &model.Error{Kind: model.Malformed, Message: fmt.Sprintf("the answer takes more than %d bytes", maxStream)}
)

// Send sends the request and returns the head of the answer. When ctx ends, relay
// still reads the answer for a moment, because its end says what it used. The
// caller closes the body of the answer and calls [Attempt.Close].
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

// Close ends the attempt and releases its connection.
func (a *Attempt) Close() {
	if a.drain.cancel != nil {
		a.drain.stop()
		a.drain.cancel()
	}
}

// Refusal reads an answer with an error status and classifies it. The returned
// body has the key replaced. The body is nil if the client must not get it: it is
// compressed, or it is a redirect that would take the client's key along.
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

// Open prepares to read an answer. It fails if the meter cannot read the answer.
// Open releases the memory of the request, because many answers may run for long.
func (a *Attempt) Open(resp *http.Response) error {
	a.stream = streamed(resp.Header, a.Request.Stream)
	a.meter = a.Request.Meter(a.stream)
	a.meter.Hold = a.Client != nil
	a.meter.OnText(a.OnText)
	a.Request, a.Header = format.Answered(a.Request), nil
	return unreadable(resp.Header)
}

// Meter returns the meter of the answer. It is nil before [Attempt.Open].
func (a *Attempt) Meter() *format.Meter { return a.meter }

// Streamed reports whether the answer comes as events. It is valid after
// [Attempt.Open].
func (a *Attempt) Streamed() bool { return a.stream }

// streamed reports whether an answer comes as events. It does if the head says so.
// It also does if the request asked for a stream and the head does not say JSON.
func streamed(h http.Header, asked bool) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	media = strings.TrimSpace(media)
	return strings.EqualFold(media, "text/event-stream") || asked && !strings.EqualFold(media, "application/json")
}

// unreadable returns an error if the head of an answer shows that the meter cannot
// read the body.
func unreadable(h http.Header) error {
	switch coding := compressed(h); {
	case coding != "":
		return &model.Error{Kind: model.Malformed, Message: "the answer is compressed by " + format.Tidy(coding) + ", expected one that is not"}
	case strings.HasPrefix(h.Get("Content-Type"), "text/html"):
		return &model.Error{Kind: model.Malformed, Message: "a web page is there, expected the answer of a model: check the base URL, which may need a /v1 at its end"}
	}
	return nil
}

// compressed returns the compression of an answer, which the request did not ask
// for. It is empty for an uncompressed answer.
func compressed(h http.Header) string {
	if coding := h.Get("Content-Encoding"); !strings.EqualFold(coding, "identity") {
		return coding
	}
	return ""
}

// Read buffers. A streamed answer gets a small one from pieces, because many streams
// run for long. A whole answer gets a large one from wholes, because it ends soon.
var (
	pieces = sync.Pool{New: func() any { b := make([]byte, 2<<10); return &b }}
	wholes = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
)

// Read reads the answer to its end, or to the point where it must stop. The client
// gets each piece as soon as it may show the piece. The error is the failure of the
// answer or the error of [Client.Admit].
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
		case err != nil && (a.meter.Done() || a.meter.Failed()): // the provider said all, so the end of the body does not matter
			return nil
		case err != nil && a.silent.Load():
			return errIdle
		case err != nil:
			return err
		}
	}
}

// take meters b and passes on what the client may show.
func (a *Attempt) take(ctx context.Context, b []byte) error {
	if a.first == 0 {
		a.first = time.Since(a.start)
	}
	gone := a.Client != nil && a.Client.Gone()
	stopped := ctx.Err() != nil || gone
	a.drain.heard()
	// The bounds protect the memory of this process from a broken provider.
	switch a.read += int64(len(b)); {
	case !a.stream && a.read > maxWhole:
		return errLarge
	case a.read > maxStream:
		return errLong
	}
	forward, fail := a.meter.Write(b)
	if a.meter.Said() { // before Pass, because the client may disconnect when it sees the end
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
	// The client disconnected during Pass, so only the usage is still of interest.
	if a.Client != nil && a.Client.Gone() && !gone {
		a.drain.begin()
	}
	// The provider may ignore the output maximum, so take checks the grant itself.
	if !a.Unlimited && a.Granted > 0 && a.meter.Over(a.Granted) {
		return ErrOver
	}
	if a.meter.Done() || a.meter.Failed() {
		a.drain.last()
	}
	return nil
}

// end handles the end of the body.
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

// admit asks the client to admit the tool calls of a whole answer. It then passes
// on those that the client admits.
func (a *Attempt) admit(ctx context.Context, stopped bool) error {
	if stopped || a.Client == nil || a.meter.Held() == 0 || !a.meter.Done() {
		return nil
	}
	refused, err := a.Client.Admit(ctx, a.meter.Ready())
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		a.meter.Withhold(refused)
	}
	a.pass(a.meter.Release())
	return nil
}

// tidied replaces the key in the message of a meter error, because the provider
// wrote that message.
func (a *Attempt) tidied(err error) error {
	e, ok := err.(*model.Error)
	if !ok {
		return err
	}
	copied := *e
	copied.Message = a.Endpoint.Tidy(e.Message)
	return &copied
}

// A silence ends an attempt when the provider sends nothing for too long. Its timer
// does not run while the client is busy, because only the provider is measured.
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
