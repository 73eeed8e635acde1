package model

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/kern-run/kern/internal/provider/sse"
	"github.com/kern-run/kern/internal/provider/transport"
)

// Bounds of what a provider may send.
const (
	maxErrorBody = 64 << 10
	maxAnswer    = 2 << 20   // text and arguments of one answer; the longest today are a third of it
	maxStream    = 256 << 20 // with a frame of some 300 bytes around each token
	maxCalls     = 1024      // calls in one answer
	maxMessage   = 600       // bytes of a provider's words in an Error
)

// A dialect is what one provider's protocol looks like on the wire.
type dialect interface {
	path() string
	sign(h http.Header, key string) // key may be empty
	encode(m *remote, r Request) ([]byte, error)
	// decode takes in one event. It sets a.over after the last.
	decode(a *answer, name string, data []byte) *Error
	// classify reads the body of an error, or an error within a stream.
	classify(status int, body []byte) (Kind, string)
}

// A remote is a model behind HTTP.
type remote struct {
	dialect
	facts   Facts
	model   string // the name the provider knows
	line    *transport.Line
	idle    time.Duration // of silence within an answer, before it is given up
	now     func() time.Time
	counter Counter
}

func (m *remote) Facts() Facts        { return m.facts }
func (m *remote) Count(r Request) int { return m.counter.request(namesOf(r.Tools).outward(r)) }

// String keeps a model that is printed to its name.
func (m *remote) String() string { return m.facts.Name }

var errIdle = errors.New("the provider fell silent")

// Stream sends r. It goes straight down: send, read events, finish.
func (m *remote) Stream(ctx context.Context, r Request) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		a := &answer{index: r.Index, names: namesOf(r.Tools)}
		r := a.names.outward(r)
		outer := ctx
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(m.idle, func() { cancel(errIdle) })
		defer silence.Stop()

		resp, fail := m.send(ctx, r)
		silence.Stop()
		if fail == nil {
			defer resp.Body.Close()
			a.quota = ReadQuota(resp.Header, m.now())
			body := &cappedReader{r: resp.Body, left: maxStream, silence: silence, idle: m.idle}
			var going bool
			if going, fail = m.receive(ctx, resp, body, a, yield); !going {
				return
			}
		}
		if fail != nil {
			if fail.Usage == nil && a.begun {
				fail.Usage = new(m.usage(a, r))
			}
			if e := stopped(outer, fail.Usage); e != nil {
				fail = e
			}
			if resp != nil {
				fail.Quota = a.quota
			}
			yield(Event{}, fail)
			return
		}
		m.finish(a, r, yield)
	}
}

// send posts r and returns an answer: a status of 200, or of its kin, which some
// servers have.
func (m *remote) send(ctx context.Context, r Request) (*http.Response, *Error) {
	body, err := m.encode(m, r)
	if err != nil {
		return nil, &Error{Kind: BadRequest, Message: m.clean(err.Error()), Usage: &Usage{}}
	}
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}, "User-Agent": {"kern"}}
	resp, err := m.line.Post(ctx, m.path(), h, body)
	if err != nil {
		return nil, m.lost(ctx, err).far(err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return nil, m.refused(resp.StatusCode, resp.Header, b)
	}
	return resp, nil
}

// receive reads the answer's events and yields its text as it comes. going is
// false when the caller broke the loop.
func (m *remote) receive(ctx context.Context, resp *http.Response, body io.Reader, a *answer, yield func(Event, error) bool) (going bool, fail *Error) {
	kind := resp.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "text/html") {
		return true, &Error{Kind: Malformed, Message: "a web page is there, expected the answer of a model: look at the base URL, which may want a /v1 at its end"}
	}
	if strings.HasPrefix(kind, "application/json") {
		// A server that does not stream: its whole answer is one event.
		all, err := io.ReadAll(body)
		if err != nil {
			return true, m.lost(ctx, err)
		}
		a.begun = true
		if fail := m.decode(a, "", all); fail != nil {
			return true, m.scrub(fail)
		}
		if !a.ended {
			return true, &Error{Kind: Malformed, Message: "the provider answered with JSON that is no answer, expected a stream"}
		}
		return a.flush(yield), nil
	}
	for events := sse.New(body); !a.over; {
		name, data, whole, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && a.ended:
			return true, nil
		case errors.Is(err, io.EOF):
			return true, &Error{Kind: Network, Message: "the stream was cut before its end"}
		case errors.Is(err, sse.ErrTooLong), errors.Is(err, errTooMuch):
			return true, &Error{Kind: Malformed, Message: err.Error()}
		case err != nil:
			return true, m.lost(ctx, err)
		}
		a.begun = true
		if fail := m.decode(a, name, data); fail != nil {
			if fail.Kind == Malformed && !whole {
				fail = &Error{Kind: Network, Message: "the stream was cut within an event"}
			}
			return true, m.scrub(fail)
		}
		if a.size() > maxAnswer {
			return true, &Error{Kind: Malformed, Message: fmt.Sprintf("the answer is longer than %d bytes", maxAnswer)}
		}
		if !a.flush(yield) {
			return false, nil
		}
	}
	return true, nil
}

func (m *remote) finish(a *answer, r Request, yield func(Event, error) bool) {
	calls := a.whole()
	for i := range calls {
		if !yield(Event{Call: &calls[i]}, nil) {
			return
		}
	}
	stop := a.stop
	if len(calls) > 0 && (stop == "" || stop == StopEnd) {
		stop = StopTools
	}
	if stop == "" || stop == StopTools && len(calls) == 0 {
		stop = StopEnd
	}
	yield(Event{Done: &Done{Stop: stop, Usage: m.usage(a, r), Reported: a.reported, Quota: a.quota}}, nil)
}

// usage is what the provider reported, and what we count where it did not.
func (m *remote) usage(a *answer, r Request) Usage {
	u := a.usage
	if !a.hasInput {
		u.Input = int64(m.counter.request(r))
	}
	if !a.reported {
		u.Output = max(u.Output, int64(m.counter.Said(a.said.String())))
		for _, c := range a.calls {
			u.Output += int64(m.counter.Said(c.Name) + m.counter.Said(c.args.String()))
		}
	}
	return u
}

// far says of a request that found no answer how far it came.
func (e *Error) far(err error) *Error {
	var lost *transport.Lost
	if errors.As(err, &lost) {
		if e.Unreached = lost.Unreached; !lost.Seen {
			e.Usage = &Usage{} // nobody saw it
		}
	}
	return e
}

// lost is a request or answer that did not arrive whole.
func (m *remote) lost(ctx context.Context, err error) *Error {
	if errors.Is(err, errTooMuch) {
		return &Error{Kind: Malformed, Message: err.Error()}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errIdle) {
		err = fmt.Errorf("%w for %v", errIdle, m.idle)
	}
	kind := Network
	if strings.Contains(err.Error(), "malformed HTTP") {
		kind = Malformed
	}
	return &Error{Kind: kind, Message: m.clean(err.Error())}
}

// refused is an answer with an error status. Providers do not bill those.
func (m *remote) refused(status int, h http.Header, body []byte) *Error {
	e := &Error{Status: status, Usage: &Usage{}, Quota: ReadQuota(h, m.now())}
	e.Kind, e.Message = m.classify(status, body)
	e.Message = cmp.Or(e.Message, string(body), http.StatusText(status))
	if status >= 300 && status < 400 {
		e.Message = "redirects are not followed, for they would carry the key elsewhere; set the base URL to where this leads"
	}
	if e.Retryable() {
		e.RetryAfter = RetryAfter(h, m.now())
	}
	return m.scrub(e)
}

func (m *remote) scrub(e *Error) *Error {
	e.Message = m.clean(e.Message)
	return e
}

// clean takes the key out of words that came from elsewhere, and then makes
// them short and printable; in this order, so that no half of a key is left.
func (m *remote) clean(s string) string { return tidy(m.line.Redact(s)) }

func tidy(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}

var errTooMuch = fmt.Errorf("the answer takes more than %d bytes", maxStream)

// A cappedReader does not read for ever, neither bytes nor time. The silence
// is the provider's alone: while the caller thinks, nothing runs.
type cappedReader struct {
	r       io.Reader
	left    int64
	silence *time.Timer
	idle    time.Duration
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	c.silence.Reset(c.idle)
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.silence.Stop()
	c.left -= int64(n)
	return n, err
}

// An answer is put together from a stream's events.
type answer struct {
	index   int
	names   *wireNames
	pending []string        // text not yet yielded
	said    strings.Builder // text and thoughts, for counting
	calls   []*partialCall
	argSize int

	quota              Quota
	usage              Usage
	hasInput, reported bool // usage has input; usage has the final output
	stop               Stop
	begun              bool // something came
	ended              bool // the stream may end now
	over               bool // nothing more is read
}

// A partialCall collects the pieces of a call.
type partialCall struct {
	at       int // the provider's index
	ID, Name string
	args     strings.Builder
}

func (a *answer) text(s string) {
	if s != "" {
		a.pending = append(a.pending, s)
		a.said.WriteString(s)
	}
}

func (a *answer) size() int { return a.said.Len() + a.argSize }

func (a *answer) add(c *partialCall, args string) {
	c.args.WriteString(args)
	a.argSize += len(args)
}

func (a *answer) open(c *partialCall) *Error {
	if len(a.calls) >= maxCalls {
		return &Error{Kind: Malformed, Message: fmt.Sprintf("more than %d calls in one answer", maxCalls)}
	}
	a.calls = append(a.calls, c)
	return nil
}

// flush yields the text that has come, and says whether to go on.
func (a *answer) flush(yield func(Event, error) bool) bool {
	for _, s := range a.pending {
		if !yield(Event{Text: s}, nil) {
			return false
		}
	}
	a.pending = a.pending[:0]
	return true
}

// whole returns the calls that are complete: where the answer was cut off, one
// whose arguments are not JSON is half a call. A call without an id, or with
// the id of another, gets one that is the same at every replay.
func (a *answer) whole() []ToolCall {
	var calls []ToolCall
	seen := map[string]bool{}
	for i, c := range a.calls {
		t := ToolCall{ID: c.ID, Name: a.names.inward(c.Name), Args: c.args.String()}
		if t.Args == "" {
			t.Args = "{}" // how both providers write a call without arguments
		}
		if (a.stop == StopLength || a.stop == StopFilter) && !json.Valid([]byte(t.Args)) {
			continue
		}
		if t.ID == "" || seen[t.ID] {
			t.ID = fmt.Sprintf("call_%d_%d", a.index, i)
		}
		seen[t.ID] = true
		calls = append(calls, t)
	}
	return calls
}

// unreadable is an event that is not what the protocol says.
func unreadable(data []byte, err error) *Error {
	return &Error{Kind: Malformed, Message: fmt.Sprintf("the provider's event cannot be read: %v: %s", err, data)}
}
