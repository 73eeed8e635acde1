package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// Open returns the model that ref names: script:FILE, openai:NAME,
// anthropic:NAME, or PROVIDER:NAME for a provider of the configuration. Nothing
// is sent.
func Open(ref string, c Config) (model.Model, error) {
	if name, ok := strings.CutPrefix(ref, "script:"); ok && name == strings.TrimSpace(name) && name != "" {
		return c.Script(name)
	}
	e, err := c.Endpoint(ref)
	if err != nil {
		return nil, err
	}
	return &remote{e}, nil
}

// A remote is a model behind HTTP. It writes requests in the provider's format.
type remote struct{ endpoint *Endpoint }

func (m *remote) Facts() model.Facts { return m.endpoint.Facts }

// Count implements [model.Model].
func (m *remote) Count(r model.Request) int {
	b := m.Bound(r)
	return int(b.Input)
}

// Bound returns the most that r can use.
func (m *remote) Bound(r model.Request) format.Bound {
	q, err := m.request(r)
	if err != nil {
		return format.Bound{} // Stream returns the error
	}
	return q.Bound()
}

// String returns the name of the model, so that printing it shows no key.
func (m *remote) String() string { return m.endpoint.Facts.Name }

// request writes r in the provider's format.
func (m *remote) request(r model.Request) (*format.Request, error) {
	f := format.Chat
	if m.endpoint.Format == "anthropic" {
		f = format.Messages
	}
	q, err := format.WriteRequest(f, m.endpoint.Model, r)
	if err != nil {
		return nil, err
	}
	return Prepare(q, m.endpoint), nil
}

// Stream implements [model.Model].
func (m *remote) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		q, err := m.request(r)
		if err != nil {
			yield(model.Event{}, &model.Error{Kind: model.BadRequest, Message: m.endpoint.Clean(err.Error()), Usage: &model.Usage{}})
			return
		}
		l := &listener{yield: yield}
		granted := int64(r.MaxOutput)
		if granted == 0 && q.Format == format.Messages { // this format must say a maximum
			granted = int64(m.endpoint.Facts.MaxOutput)
		}
		a := &Attempt{Endpoint: m.endpoint, Request: q, Bound: q.Bound(), Granted: granted, Unlimited: granted == 0, Idle: m.endpoint.Idle, Client: l, OnText: l.text,
			Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"}, "User-Agent": {"kern"}}}
		defer a.Close()
		o, fail := a.ask(ctx)
		switch {
		case l.gone:
		case fail != nil:
			yield(model.Event{}, fail)
		default:
			finish(&o, format.NamesOf(r.Tools), r.Index, yield)
		}
	}
}

// ask sends the request and reads the whole answer. The Usage of an error is what
// the provider may bill for the attempt.
func (a *Attempt) ask(ctx context.Context) (Outcome, *model.Error) {
	resp, e := a.Send(ctx)
	if e != nil {
		if e.Usage == nil {
			u := a.Unanswered()
			if u.Output = a.unseen(0); a.Bound.Hidden { // the model may have thought in silence
				u.Output = max(u.Output, a.Granted)
			}
			e.Usage = &u
		}
		if stopped := model.Stopped(ctx, e.Usage); stopped != nil {
			e = stopped
		}
		return Outcome{}, e
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 { // because some servers answer with 201 and bill that too
		_, e := a.Refusal(resp)
		return Outcome{}, e
	}
	fail := a.Open(resp)
	if fail == nil {
		fail = a.Read(ctx, resp)
	}
	o := a.Outcome(fail)
	switch {
	// An answer beyond its grant keeps its text and loses its tool calls.
	case errors.Is(fail, ErrOver):
		o.Seen.Stop, o.Seen.Calls = model.StopLength, nil
		return o, nil
	case o.Seen.Failure == nil && fail == nil:
		return o, nil
	}
	// Unknown usage counts as all that was granted, because the provider may bill it.
	if !o.Known {
		o.Usage.Output = max(o.Usage.Output, a.Granted)
	}
	if e := model.Stopped(ctx, &o.Usage); e != nil && !o.Whole {
		e.Quota = o.Quota
		return o, e
	}
	e = failure(fail, &o, a)
	e.Usage, e.Quota = &o.Usage, o.Quota
	return o, e
}

// failure returns the error of an answer that began.
func failure(fail error, o *Outcome, a *Attempt) *model.Error {
	var e *model.Error
	switch {
	case o.Seen.Failure != nil:
		e = o.Seen.Failure
	case errors.Is(fail, errIdle):
		e = &model.Error{Kind: model.Network, Message: fmt.Sprintf("%v for %v", errIdle, a.Idle)}
	case errors.As(fail, &e):
		if e.Kind == model.Network && a.over && !a.stream { // the body is complete, so another try would not help
			e = &model.Error{Kind: model.Malformed, Message: "the provider answered with JSON that is no answer, expected a stream"}
		}
	default:
		e = &model.Error{Kind: model.Network, Message: a.Endpoint.Tidy(fail.Error())}
	}
	copied := *e // because the error may be shared by all attempts
	return &copied
}

// finish yields the tool calls of an answer and the final Done.
func finish(o *Outcome, names *format.ToolNames, index int, yield func(model.Event, error) bool) {
	calls := wholeCalls(&o.Seen, names, index)
	for i := range calls {
		if !yield(model.Event{Call: &calls[i]}, nil) {
			return
		}
	}
	stop := o.Seen.Stop
	switch {
	case len(calls) > 0 && (stop == "" || stop == model.StopEnd):
		stop = model.StopTools
	case stop == "", stop == model.StopTools && len(calls) == 0:
		stop = model.StopEnd
	}
	yield(model.Event{Done: &model.Done{Stop: stop, Usage: o.Usage, Reported: o.Seen.Reported, Quota: o.Quota, Claim: o.Claim}}, nil)
}

// wholeCalls returns the complete tool calls. In a cut answer it skips a call
// whose arguments are not JSON, because half of that call is missing. A call
// without an id, or with the id of another call, gets an id that is the same at
// every replay.
func wholeCalls(s *format.Seen, names *format.ToolNames, index int) (calls []model.ToolCall) {
	seen := map[string]bool{}
	for i, c := range s.Calls {
		t := model.ToolCall{ID: c.ID, Name: names.Inward(c.Name), Args: c.Args}
		if t.Args == "" {
			t.Args = "{}" // because the formats write no arguments that way
		}
		if (s.Stop == model.StopLength || s.Stop == model.StopFilter) && !json.Valid([]byte(t.Args)) {
			continue
		}
		if t.ID == "" || seen[t.ID] {
			t.ID = fmt.Sprintf("call_%d_%d", index, i)
		}
		seen[t.ID] = true
		calls = append(calls, t)
	}
	return calls
}

// A listener is the [Client] of the built-in loop: it yields each piece of text.
type listener struct {
	yield func(model.Event, error) bool
	gone  bool
}

func (l *listener) text(piece string) {
	if !l.gone {
		l.gone = !l.yield(model.Event{Text: piece}, nil)
	}
}

func (l *listener) Pass([]byte, bool)                                            {}
func (l *listener) Admit(context.Context, []format.Call) (map[int]string, error) { return nil, nil }
func (l *listener) Held()                                                        {}
func (l *listener) Gone() bool                                                   { return l.gone }
