package provider

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

	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/provider/sse"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/model"
)

// Bounds of what a provider may send.
const (
	maxErrorBody = 64 << 10
	maxAnswer    = 2 << 20   // text and arguments of one answer; the longest today are a third of it
	maxStream    = 256 << 20 // with a frame of some 300 bytes around each token
	maxCalls     = 1024      // calls in one answer
)

// A dialect is what one provider's protocol looks like on the wire.
type dialect interface {
	path() string
	sign(h http.Header, key string) // key may be empty
	encode(m *remote, r model.Request) ([]byte, error)
	// decode takes in one event. It sets a.over after the last.
	decode(a *answer, name string, data []byte) *model.Error
}

// A remote is a model behind HTTP.
type remote struct {
	dialect
	facts   model.Facts
	model   string // the name the provider knows
	line    *transport.Line
	idle    time.Duration // of silence within an answer, before it is given up
	now     func() time.Time
	counter tokens.Counter
}

func (m *remote) Facts() model.Facts        { return m.facts }
func (m *remote) Count(r model.Request) int { return m.count(namesOf(r.Tools).outward(r)) }

// count bounds the input tokens of r in the model's own vocabulary.
func (m *remote) count(r model.Request) int {
	n := model.CountRequest(model.Request{Messages: make([]model.Message, len(r.Messages)), Tools: make([]model.ToolSpec, len(r.Tools))})
	for _, x := range r.Messages {
		n += m.counter.Count(x.Text) + m.counter.Count(x.CallID)
		for _, c := range x.Calls {
			n += 8 + m.counter.Count(c.ID) + m.counter.Count(c.Name) + m.counter.Count(c.Args)
		}
	}
	for _, t := range r.Tools {
		n += m.counter.Count(t.Name) + m.counter.Count(t.Description) + m.counter.Count(string(t.Schema))
	}
	if len(r.Tools) > 0 && !m.counter.Exact() {
		n += 1000
	}
	return n
}

// String keeps a model that is printed to its name.
func (m *remote) String() string { return m.facts.Name }

var errIdle = errors.New("the provider fell silent")

// Stream sends r. It goes straight down: send, read events, finish.
func (m *remote) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
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
			a.quota = format.ReadQuota(resp.Header, m.now())
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
			if e := model.Stopped(outer, fail.Usage); e != nil {
				fail = e
			}
			if resp != nil {
				fail.Quota = a.quota
			}
			yield(model.Event{}, fail)
			return
		}
		m.finish(a, r, yield)
	}
}

// send posts r and returns an answer: a status of 200, or of its kin, which some
// servers have.
func (m *remote) send(ctx context.Context, r model.Request) (*http.Response, *model.Error) {
	body, err := m.encode(m, r)
	if err != nil {
		return nil, &model.Error{Kind: model.BadRequest, Message: m.clean(err.Error()), Usage: &model.Usage{}}
	}
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}, "User-Agent": {"kern"}}
	resp, err := m.line.Post(ctx, m.path(), h, body)
	if err != nil {
		return nil, far(m.lost(ctx, err), err)
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
func (m *remote) receive(ctx context.Context, resp *http.Response, body io.Reader, a *answer, yield func(model.Event, error) bool) (going bool, fail *model.Error) {
	kind := resp.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "text/html") {
		return true, &model.Error{Kind: model.Malformed, Message: "a web page is there, expected the answer of a model: look at the base URL, which may want a /v1 at its end"}
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
			return true, &model.Error{Kind: model.Malformed, Message: "the provider answered with JSON that is no answer, expected a stream"}
		}
		return a.flush(yield), nil
	}
	for events := sse.New(body); !a.over; {
		name, data, whole, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && a.ended:
			return true, nil
		case errors.Is(err, io.EOF):
			return true, &model.Error{Kind: model.Network, Message: "the stream was cut before its end"}
		case errors.Is(err, sse.ErrTooLong), errors.Is(err, errTooMuch):
			return true, &model.Error{Kind: model.Malformed, Message: err.Error()}
		case err != nil:
			return true, m.lost(ctx, err)
		}
		a.begun = true
		if fail := m.decode(a, name, data); fail != nil {
			if fail.Kind == model.Malformed && !whole {
				fail = &model.Error{Kind: model.Network, Message: "the stream was cut within an event"}
			}
			return true, m.scrub(fail)
		}
		if a.size() > maxAnswer {
			return true, &model.Error{Kind: model.Malformed, Message: fmt.Sprintf("the answer is longer than %d bytes", maxAnswer)}
		}
		if !a.flush(yield) {
			return false, nil
		}
	}
	return true, nil
}

func (m *remote) finish(a *answer, r model.Request, yield func(model.Event, error) bool) {
	calls := a.whole()
	for i := range calls {
		if !yield(model.Event{Call: &calls[i]}, nil) {
			return
		}
	}
	stop := a.stop
	if len(calls) > 0 && (stop == "" || stop == model.StopEnd) {
		stop = model.StopTools
	}
	if stop == "" || stop == model.StopTools && len(calls) == 0 {
		stop = model.StopEnd
	}
	yield(model.Event{Done: &model.Done{Stop: stop, Usage: m.usage(a, r), Reported: a.reported, Quota: a.quota}}, nil)
}

// usage is what the provider reported, and what we count where it did not.
func (m *remote) usage(a *answer, r model.Request) model.Usage {
	u := a.usage
	if !a.hasInput {
		u.Input = int64(m.count(r))
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
func far(e *model.Error, err error) *model.Error {
	var lost *transport.Lost
	if errors.As(err, &lost) {
		if e.Unreached = lost.Unreached; !lost.Seen {
			e.Usage = &model.Usage{} // nobody saw it
		}
	}
	return e
}

// lost is a request or answer that did not arrive whole.
func (m *remote) lost(ctx context.Context, err error) *model.Error {
	if errors.Is(err, errTooMuch) {
		return &model.Error{Kind: model.Malformed, Message: err.Error()}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errIdle) {
		err = fmt.Errorf("%w for %v", errIdle, m.idle)
	}
	kind := model.Network
	if strings.Contains(err.Error(), "malformed HTTP") {
		kind = model.Malformed
	}
	return &model.Error{Kind: kind, Message: m.clean(err.Error())}
}

// refused is an answer with an error status. Providers do not bill those.
func (m *remote) refused(status int, h http.Header, body []byte) *model.Error {
	e := &model.Error{Status: status, Usage: &model.Usage{}, Quota: format.ReadQuota(h, m.now())}
	e.Kind, e.Message = format.ReadProblem(status, body)
	e.Message = cmp.Or(e.Message, string(body), http.StatusText(status))
	if status >= 300 && status < 400 {
		e.Message = "redirects are not followed, for they would carry the key elsewhere; set the base URL to where this leads"
	}
	if e.Retryable() {
		e.RetryAfter = format.RetryAfter(h, m.now())
	}
	return m.scrub(e)
}

func (m *remote) scrub(e *model.Error) *model.Error {
	e.Message = m.clean(e.Message)
	return e
}

// clean takes the key out of words that came from elsewhere, and then makes
// them short and printable; in this order, so that no half of a key is left.
func (m *remote) clean(s string) string { return format.Tidy(m.line.Redact(s)) }

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

	quota              model.Quota
	usage              model.Usage
	hasInput, reported bool // usage has input; usage has the final output
	stop               model.Stop
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

func (a *answer) open(c *partialCall) *model.Error {
	if len(a.calls) >= maxCalls {
		return &model.Error{Kind: model.Malformed, Message: fmt.Sprintf("more than %d calls in one answer", maxCalls)}
	}
	a.calls = append(a.calls, c)
	return nil
}

// flush yields the text that has come, and says whether to go on.
func (a *answer) flush(yield func(model.Event, error) bool) bool {
	for _, s := range a.pending {
		if !yield(model.Event{Text: s}, nil) {
			return false
		}
	}
	a.pending = a.pending[:0]
	return true
}

// whole returns the calls that are complete: where the answer was cut off, one
// whose arguments are not JSON is half a call. A call without an id, or with
// the id of another, gets one that is the same at every replay.
func (a *answer) whole() []model.ToolCall {
	var calls []model.ToolCall
	seen := map[string]bool{}
	for i, c := range a.calls {
		t := model.ToolCall{ID: c.ID, Name: a.names.inward(c.Name), Args: c.args.String()}
		if t.Args == "" {
			t.Args = "{}" // how both providers write a call without arguments
		}
		if (a.stop == model.StopLength || a.stop == model.StopFilter) && !json.Valid([]byte(t.Args)) {
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
func unreadable(data []byte, err error) *model.Error {
	return &model.Error{Kind: model.Malformed, Message: fmt.Sprintf("the provider's event cannot be read: %v: %s", err, data)}
}
