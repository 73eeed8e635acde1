package syscalls

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/model"
)

// Reply is the value of a model call.
type Reply struct {
	Text  string           `json:"text,omitempty"`
	Calls []model.ToolCall `json:"calls,omitempty"`
	Stop  model.Stop       `json:"stop,omitempty"`
	Model string           `json:"model,omitempty"` // the model of the fallback that answered; empty: the agent's model
}

// ModelArgs are the arguments of a model call.
type ModelArgs struct {
	Say       string `json:"say,omitempty"`        // a user message, added before the call
	MaxOutput int    `json:"max_output,omitempty"` // output tokens; 0: the model's own maximum
	Last      bool   `json:"last,omitempty"`       // last words: no tools are offered

	Relay *Relayed `json:"relay,omitempty"` // a request that a program outside wrote itself
}

// lastWordsOutput is the most output tokens of last words.
const lastWordsOutput = 1_024

// modelWork is a model call of the built-in loop on its way from plan to run.
type modelWork struct {
	routes []route
	way    quota.RoutePicker
	req    model.Request
	bound  tariff.Bound // of req, on the present route
}

// route returns the route of the next or present attempt.
func (m *modelWork) route() *route { return &m.routes[m.way.At] }

// planModel plans a model call. away returns how long a resource is still in backoff.
func (w *World) planModel(v kernel.View, c abi.Call, away func(string) time.Duration) (pl kernel.Plan, e *abi.Error) {
	a, e := decode[ModelArgs](c)
	if e != nil {
		return pl, e
	}
	if a.Relay != nil {
		return planExternal(v)
	}
	if pl, e = w.planRequest(&v, a, false, away); e != nil {
		return pl, e
	}
	return w.keepRoom(&v, a, pl, away)
}

// planRequest plans a call that sends the pages of the process, or a brief form of them.
func (w *World) planRequest(v *kernel.View, a ModelArgs, brief bool, away func(string) time.Duration) (pl kernel.Plan, e *abi.Error) {
	pl = kernel.Plan{Effect: abi.Irreversible, Intent: true, Attempts: cmp.Or(w.Attempts, 5), Last: a.Last, Say: []byte(a.Say)}
	l, err := w.Load(v.Spawn.Program)
	switch {
	case err != nil:
		return pl, &abi.Error{Code: abi.UnknownModel, Message: err.Error()}
	case len(l.routes) == 0:
		return pl, &abi.Error{Code: abi.UnknownModel, Message: "this process has no model"}
	case v.Limited && !l.routes[0].facts.Priced:
		return pl, Unpriced(&l.routes[0].facts, time.Now())
	}
	msgs, digest, err := w.Journal.Conversation(l, v.Pages, a.Say, brief)
	if err != nil {
		return pl, &abi.Error{Code: abi.StorageBroken, Message: err.Error()}
	}
	pl.Subject = digest[:]
	work := &modelWork{routes: l.routes, way: quota.RoutePicker{Of: len(l.routes)}, req: model.Request{Messages: msgs, Index: v.Index}}
	if before, ok := v.Before.(*modelWork); ok {
		work.way = before.way
	}
	if !a.Last {
		work.req.Tools = l.specs
	}
	work.choose(v, away, &pl)
	work.plan(&pl, a, cmp.Or(l.Agent.MinOutput, w.MinOutput))
	return pl, nil
}

// choose picks the route for the request and computes its bound there. It skips a
// fallback whose window is too small for the request.
func (m *modelWork) choose(v *kernel.View, away func(string) time.Duration, pl *kernel.Plan) {
	for small := make(map[int]bool); ; small[m.way.At] = true {
		pl.Source.Other = m.way.Choose(func(at int) time.Duration {
			r := &m.routes[at]
			if r.model == nil || small[at] {
				return quota.Closed
			}
			return Away(v, at, &r.facts, Resource(r.facts, ""), away)
		})
		r := m.route()
		m.bound = boundOf(r.model, m.req)
		if m.way.At == 0 || r.facts.Window == 0 || m.bound.Input < int64(r.facts.Window) {
			pl.Source.Resource = Resource(r.facts, "")
			return
		}
	}
}

// Unpriced returns the error for a model without a known price. Its hint is the line of
// kern.yaml that sets the price. The hint shows the price of the most similar model,
// but does not apply it, because a person must set the price.
func Unpriced(f *model.Facts, now time.Time) *abi.Error {
	provider, name, _ := strings.Cut(f.Name, ":")
	is, price := "its price", "input: DOLLARS, output: DOLLARS"
	if e, ok := catalog.Nearest(f.Provider, name, now); ok {
		_, near, _ := strings.Cut(e.Model, ":")
		p := e.Price
		if e.Beyond > 0 {
			p = e.Long // that line can hold one price only, so it is the highest
		}
		is = "a price, such as the highest of " + near + ","
		price = fmt.Sprintf("input: %s, output: %s, cache_read: %s, cache_write: %s, window: %d, max_output: %d", abi.FormatMoney(p.Input), abi.FormatMoney(p.Output),
			abi.FormatMoney(p.CacheRead), abi.FormatMoney(p.CacheWrite), e.Window, e.MaxOutput)
	}
	return &abi.Error{Code: abi.UnknownPrice, Message: "there is a money limit, and no price is known for " + f.Name,
		Hint: fmt.Sprintf("add %s to kern.yaml, in dollars per million tokens, and restart the daemon (kern stop-daemon): providers: {%s: {models: {%q: {%s}}}}", is, provider, name, price)}
}

// plan fills in the most that the request can use.
func (m *modelWork) plan(pl *kernel.Plan, a ModelArgs, minimum abi.MinOutput) {
	f := &m.route().facts
	ReserveRequest(pl, &m.bound, f, minimum)
	pl.Window, pl.Work = int64(f.Window), m
	e := &pl.Elastic
	switch {
	case a.MaxOutput > 0: // the call gets all of it or is refused
		e.Min, e.Max = int64(a.MaxOutput), int64(a.MaxOutput)
	case a.Last:
		e.Max = max(e.Min, min(e.Max, lastWordsOutput))
		e.Floor = minimum.Of(e.Max, 1)
	}
}

// ReserveRequest fills the reservation of pl with the most that a request to a model
// can use. b is the bound of the request, and f describes the model. A limit that
// leaves less than minimum refuses the call.
func ReserveRequest(pl *kernel.Plan, b *tariff.Bound, f *model.Facts, minimum abi.MinOutput) {
	in := provider.Input(b, f)
	p := f.At(in)
	pl.Price, pl.Source.Model, pl.Context = abi.Price(p), f.Name, in
	pl.Reserve = abi.Usage{abi.Money: b.CostOf(in, p), abi.Tokens: in, abi.InputTokens: in, abi.Steps: 1, abi.ModelCalls: 1}
	if b.Choices > 0 {
		least, most := provider.Output(b, f, in)
		pl.Elastic = kernel.Elastic{Unit: abi.OutputTokens, Min: least, Max: most, Floor: minimum.Of(most, b.Choices), Price: p.Output, Tokens: true}
	}
}

// boundOf returns the bound of r. A model without a Bound method is part of this
// program, and bills exactly the input that it counts.
func boundOf(m model.Model, r model.Request) tariff.Bound {
	if m, ok := m.(interface {
		Bound(r model.Request) tariff.Bound
	}); ok {
		return m.Bound(r)
	}
	return tariff.Bound{Known: true, Input: int64(m.Count(r)), Choices: 1, Least: 1, Cached: true}
}

// runModel asks the model. It stops reading when ctx ends or when the model exceeds
// the granted output. It settles the received part in both cases.
func (w *World) runModel(ctx context.Context, j *kernel.Job) kernel.Done {
	if r, ok := j.Plan.Work.(External); ok {
		return r.Run(ctx, j)
	}
	m := j.Plan.Work.(*modelWork)
	m.req.MaxOutput = int(j.Granted)
	s := stream{start: time.Now(), granted: int(j.Granted), publish: func(piece string) {
		w.Live.Publish(abi.LiveItem{Kind: abi.LiveText, Pid: j.Call.Pid, Call: j.Call.N, Attempt: j.Attempt, Text: piece})
	}}
	s.look = again(0, 0, s.granted)
	err := s.read(ctx, m)
	// The usage is settled first, because an answer with an error is billed too.
	d := kernel.Done{First: s.first, Usage: Booked(j, &m.route().facts, s.used(m, err))}
	var me *model.Error
	switch {
	case ctx.Err() != nil && s.done == nil:
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the answer was cut off by a signal or a limit", Got: abi.Clip(s.text.String())}
		if s.first == 0 {
			d.Feedback = quota.Feedback{Status: quota.Cut}
		}
	case errors.As(err, &me):
		d.Err = ModelError(me)
		Hear(&d, me, model.Quota{}, 0)
		Failed(&d, &m.way, me)
	case err != nil:
		d.Err = &abi.Error{Code: abi.ModelNetwork, Message: err.Error()}
	default:
		r := Reply{Text: s.text.String(), Calls: s.calls}
		if m.way.At > 0 {
			r.Model = m.route().facts.Name
		}
		if s.done != nil {
			r.Stop = s.done.Stop
			d.Cut = !j.Plan.Last && provider.Reached(s.done.Stop, s.done.Reported, s.done.Usage.Output, j.Granted)
			d.Claim = Claimed(s.done.Claim)
			Hear(&d, nil, s.done.Quota, s.done.Usage.CacheRead)
		}
		d.Value, _ = json.Marshal(r) // a value of texts always encodes
		d.Said = m.said(&r)
	}
	return d
}

// said returns what the watchdog compares of an answer in a conversation: the messages
// that the model had not read, and its text. The first answer, and an answer with tool
// calls, have nothing to compare.
func (m *modelWork) said(r *Reply) []byte {
	news := len(m.req.Messages)
	for news > 0 && m.req.Messages[news-1].Role != model.Assistant {
		news--
	}
	if news == 0 || len(r.Calls) > 0 || r.Text == "" {
		return nil
	}
	b, _ := json.Marshal(m.req.Messages[news:]) // messages of texts always encode
	return append(b, r.Text...)
}

// stream collects an answer while it arrives.
type stream struct {
	start   time.Time
	first   time.Duration
	granted int
	publish func(piece string)
	text    strings.Builder
	look    int // the size of the text, in bytes, at which read counts its tokens again
	calls   []model.ToolCall
	done    *model.Done
}

// countEvery is the fewest bytes of an answer between two counts of its tokens, because
// a count is expensive.
const countEvery = 4096

// again returns the size at which the tokens of an answer are counted again. size and
// tokens are its present size and count. A token has at least one byte, so the answer
// cannot exceed granted before that size, except by less than countEvery.
func again(size, tokens, granted int) int { return size + max(countEvery, granted-tokens) }

func (s *stream) read(ctx context.Context, m *modelWork) error {
	for ev, err := range m.route().model.Stream(ctx, m.req) {
		if err != nil {
			return err
		}
		if s.first == 0 {
			s.first = time.Since(s.start)
		}
		switch {
		case ev.Call != nil:
			s.calls = append(s.calls, *ev.Call)
		case ev.Done != nil:
			s.done = ev.Done
		default:
			s.text.WriteString(ev.Text)
			s.publish(ev.Text)
			if size := s.text.Len(); size > s.look {
				n := tokens.CountText(s.text.String())
				if n > s.granted {
					s.done = &model.Done{Stop: model.StopLength, Usage: s.received(m)}
					return nil
				}
				s.look = again(size, n, s.granted)
			}
		}
	}
	return nil
}

// received returns the usage of the received part of an answer that has no end.
func (s *stream) received(m *modelWork) model.Usage {
	out := tokens.CountText(s.text.String())
	for _, c := range s.calls {
		out += tokens.CountText(c.Name) + tokens.CountText(c.Args)
	}
	return model.Usage{Input: m.bound.Input, Output: int64(out)}
}

// used returns the usage of the attempt: the usage that the model reported, or else the
// usage of the received part.
func (s *stream) used(m *modelWork, err error) model.Usage {
	var me *model.Error
	switch {
	case s.done != nil:
		return s.done.Usage
	case errors.As(err, &me) && me.Usage != nil:
		return *me.Usage
	}
	return s.received(m)
}

// Booked converts the usage of a model call to the units of accounts. Tokens that were
// read from or written to the provider's cache are input too, at their own price.
func Booked(j *kernel.Job, f *model.Facts, t model.Usage) abi.Usage {
	in := t.Input + t.CacheRead + t.CacheWrite
	return abi.Usage{
		abi.Money:        f.At(in).Cost(t),
		abi.Tokens:       in + t.Output,
		abi.InputTokens:  in,
		abi.OutputTokens: t.Output,
		abi.Steps:        j.Plan.Reserve[abi.Steps],
		abi.ModelCalls:   1,
	}
}

// Claimed converts a usage that is not believed; nil for nil.
func Claimed(u *model.Usage) *abi.Claim {
	if u == nil {
		return nil
	}
	return &abi.Claim{Input: u.Input + u.CacheRead + u.CacheWrite, Output: u.Output}
}

var modelCodes = map[model.Kind]abi.Code{
	model.RateLimit:  abi.ModelRateLimit,
	model.Overloaded: abi.ModelOverloaded,
	model.Auth:       abi.ModelAuth,
	model.BadRequest: abi.ModelBadRequest,
	model.Context:    abi.ModelContext,
	model.Network:    abi.ModelNetwork,
	model.Malformed:  abi.ModelMalformed,
}

// ModelError converts an error of a provider to an error of the kernel.
func ModelError(e *model.Error) *abi.Error {
	return &abi.Error{Code: modelCodes[e.Kind], Message: e.Error()}
}

// SameRequest returns how the request of a model call differs from the recorded intent
// was; empty if it is the same. It sends nothing. It accepts every route of the agent,
// because the recorded choice depended on the backoff of the providers. The record also
// says whether the model was warned of its context limit. Last words may be brief or not,
// because the count of their tokens may have changed.
func (w *World) SameRequest(v kernel.View, c abi.Call, was *abi.Intent) string {
	a, e := decode[ModelArgs](c)
	if e != nil {
		return differs(&kernel.Plan{}, e, c, was)
	}
	if a.Say == "" && was.Say.Size > 0 {
		warning, err := w.Journal.Bytes(was.Say)
		if err != nil {
			return err.Error()
		}
		a.Say = string(warning)
	}
	now := func(string) time.Duration { return 0 }
	pl, e := w.planRequest(&v, a, false, now)
	why := differs(&pl, e, c, was)
	if why != "" && a.Last {
		if pl, e = w.planRequest(&v, a, true, now); differs(&pl, e, c, was) == "" {
			return ""
		}
	}
	return why
}

// differs returns how a planned call differs from its recorded intent was.
func differs(pl *kernel.Plan, e *abi.Error, c abi.Call, was *abi.Intent) string {
	switch {
	case e != nil && was.Reserve == (abi.Usage{}):
		return "" // it was refused then, as it is now
	case e != nil:
		return e.Message
	case process.KeyOf(c.Row, pl.Subject) != was.Key:
		return fmt.Sprintf("the request of call %d differs from the one that was recorded (then %d input tokens, now %d)", c.N, was.Reserve[abi.InputTokens], pl.Context)
	case was.Reserve != (abi.Usage{}) && !slices.ContainsFunc(pl.Work.(*modelWork).routes, func(r route) bool { return abi.Price(r.facts.At(pl.Context)) == was.Price }):
		return fmt.Sprintf("the price of call %d differs from the one that was recorded", c.N)
	}
	return ""
}
