package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// Open returns the model that ref names: script:FILE, openai:NAME,
// anthropic:NAME, or PROVIDER:NAME for a provider of the configuration. Nothing
// is sent.
func Open(ref string, c provider.Config) (model.Model, error) {
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
type remote struct{ endpoint *provider.Endpoint }

func (m *remote) Facts() model.Facts { return m.endpoint.Facts }

// Count implements [model.Model].
func (m *remote) Count(r model.Request) int {
	b := m.Bound(r)
	return int(b.Input)
}

// Bound says what r may use at most.
func (m *remote) Bound(r model.Request) format.Bound {
	q, err := m.request(r)
	if err != nil {
		return format.Bound{} // Stream will say what is wrong
	}
	return q.Bound()
}

// String keeps a model that is printed to its name.
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
// the attempt may be billed for.
func (a *Attempt) ask(ctx context.Context) (Outcome, *model.Error) {
	resp, e := a.Send(ctx)
	if e != nil {
		if e.Usage == nil {
			u := a.Unanswered()
			if u.Output = a.unseen(0); a.Bound.Hidden { // it may have thought
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
	if resp.StatusCode/100 != 2 { // some servers answer with 201, and bill that too
		_, e := a.Refusal(resp)
		return Outcome{}, e
	}
	fail := a.Open(resp)
	if fail == nil {
		fail = a.Read(ctx, resp)
	}
	o := a.Outcome(fail)
	switch {
	case errors.Is(fail, ErrOver):
		o.Seen.Stop, o.Seen.Calls = model.StopLength, nil
		return o, nil
	case o.Seen.Failure == nil && fail == nil:
		return o, nil
	}
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

// failure is an error of an answer that began.
func failure(fail error, o *Outcome, a *Attempt) *model.Error {
	var e *model.Error
	switch {
	case o.Seen.Failure != nil:
		e = o.Seen.Failure
	case errors.Is(fail, errIdle):
		e = &model.Error{Kind: model.Network, Message: fmt.Sprintf("%v for %v", errIdle, a.Idle)}
	case errors.As(fail, &e):
		if e.Kind == model.Network && a.over && !a.stream { // all of it is here
			e = &model.Error{Kind: model.Malformed, Message: "the provider answered with JSON that is no answer, expected a stream"}
		}
	default:
		e = &model.Error{Kind: model.Network, Message: a.Endpoint.Tidy(fail.Error())}
	}
	copied := *e // it may be one for all attempts
	return &copied
}

// finish yields what comes at the end of an answer.
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
	yield(model.Event{Done: &model.Done{Stop: stop, Usage: o.Usage, Reported: o.Seen.Reported, Quota: o.Quota}}, nil)
}

// wholeCalls are the calls that are complete: where the answer was cut off, a
// call whose arguments are not JSON is half a call. A call without an id, or with
// the id of another, gets one that is the same at every replay.
func wholeCalls(s *format.Seen, names *format.ToolNames, index int) (calls []model.ToolCall) {
	seen := map[string]bool{}
	for i, c := range s.Calls {
		t := model.ToolCall{ID: c.ID, Name: names.Inward(c.Name), Args: c.Args}
		if t.Args == "" {
			t.Args = "{}" // how the formats write a call without arguments
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

// A listener is the client of an answer that the built-in loop asked for.
type listener struct {
	yield func(model.Event, error) bool
	gone  bool
}

func (l *listener) text(piece string) {
	if !l.gone {
		l.gone = !l.yield(model.Event{Text: piece}, nil)
	}
}

func (l *listener) Pass([]byte, bool)                          {}
func (l *listener) Admit(context.Context, []format.Call) error { return nil }
func (l *listener) Held()                                      {}
func (l *listener) Gone() bool                                 { return l.gone }
