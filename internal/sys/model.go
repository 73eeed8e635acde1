package sys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/model"
)

// Reply is the value of a model call.
type Reply struct {
	Text  string           `json:"text,omitempty"`
	Calls []model.ToolCall `json:"calls,omitempty"`
	Stop  model.Stop       `json:"stop,omitempty"`
}

// ModelArgs are the arguments of a model call.
type ModelArgs struct {
	Say       string `json:"say,omitempty"`        // a message that goes before
	MaxOutput int    `json:"max_output,omitempty"` // output tokens; 0: the model's own maximum
	Last      bool   `json:"last,omitempty"`       // last words: no tools are offered

	Relay *Relayed `json:"relay,omitempty"` // a request that a program outside wrote itself
}

// How many output tokens are reserved for a model whose maximum is not known,
// and how many at most for last words.
const (
	unknownMaxOutput = 16_384
	lastWordsOutput  = 1_024
)

type modelWork struct {
	model model.Model
	facts model.Facts
	req   model.Request
	input int64
}

func (w *World) planModel(v kernel.View, c abi.Call) (pl kernel.Plan, e *abi.Error) {
	a, e := decode[ModelArgs](c)
	if e != nil {
		return pl, e
	}
	if a.Relay != nil {
		return planRelay(w, v, c)
	}
	pl = kernel.Plan{Effect: abi.Irreversible, Intent: true, Attempts: w.Attempts, Last: a.Last, Say: []byte(a.Say)}
	if pl.Attempts == 0 {
		pl.Attempts = 5
	}
	l, err := w.Load(v.Spawn.Program)
	if err != nil {
		return pl, &abi.Error{Code: abi.UnknownModel, Message: err.Error()}
	}
	if l.Model == nil {
		return pl, &abi.Error{Code: abi.UnknownModel, Message: "this process has no model"}
	}
	f := l.Facts
	if v.Limited && !f.Priced {
		return pl, &abi.Error{Code: abi.UnknownPrice, Message: fmt.Sprintf("there is a money limit, and no price is known for %s", f.Name),
			Hint: "set its price in kern.yaml under prices:"}
	}
	msgs, digest, err := w.Conversation(l, v.Pages, a.Say)
	if err != nil {
		return pl, &abi.Error{Code: abi.StorageBroken, Message: err.Error()}
	}
	pl.Subject = digest[:]
	work := &modelWork{model: l.Model, facts: f, req: model.Request{Messages: msgs, Index: v.Index}}
	if !a.Last {
		work.req.Tools = l.specs
	}
	work.input = int64(l.Model.Count(work.req))
	work.bound(&pl, a)
	return pl, nil
}

// bound says what the request may take at most.
func (m *modelWork) bound(pl *kernel.Plan, a ModelArgs) {
	f := m.facts
	lo, hi := int64(max(1, f.MinOutput)), int64(f.MaxOutput)
	if hi == 0 {
		hi = unknownMaxOutput
	}
	if f.Window > 0 {
		hi = max(lo, min(hi, int64(f.Window)-m.input))
	}
	switch {
	case a.MaxOutput > 0:
		lo, hi = int64(a.MaxOutput), int64(a.MaxOutput)
	case a.Last:
		hi = max(lo, min(hi, lastWordsOutput))
	}
	pl.Price, pl.Context, pl.Window, pl.Resource, pl.Work = abi.Price(f.Price), m.input, int64(f.Window), Resource(f, ""), m
	pl.Reserve = abi.Usage{
		abi.Money:       f.Price.Cost(model.Usage{Input: m.input}),
		abi.Tokens:      m.input,
		abi.InputTokens: m.input,
		abi.Steps:       1,
		abi.ModelCalls:  1,
	}
	pl.Elastic = kernel.Elastic{Unit: abi.OutputTokens, Min: lo, Max: hi, Price: f.Price.Output, Tokens: true}
}

// runModel asks the model, and stops listening when ctx ends or when the model
// gives more than it was granted. What was received is settled either way.
func (w *World) runModel(ctx context.Context, j *kernel.Job) kernel.Done {
	if r, ok := j.Plan.Work.(Relay); ok {
		return r.Run(ctx, j)
	}
	m := j.Plan.Work.(*modelWork)
	m.req.MaxOutput = int(j.Granted)
	s := stream{start: time.Now(), granted: int(j.Granted)}
	err := s.read(ctx, m)
	d := kernel.Done{First: s.first, Usage: m.usage(j, s.used(m, err))}
	var me *model.Error
	switch {
	case ctx.Err() != nil && s.done == nil:
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the answer was cut off by a signal or a limit", Got: clip(s.text.String())}
	case errors.As(err, &me):
		d.Err = ModelError(me)
		Hear(&d, me, model.Quota{})
	case err != nil:
		d.Err = &abi.Error{Code: abi.ModelNetwork, Message: err.Error()}
	default:
		r := Reply{Text: s.text.String(), Calls: s.calls}
		if s.done != nil {
			r.Stop = s.done.Stop
			Hear(&d, nil, s.done.Quota)
		}
		d.Value, err = json.Marshal(r)
		if err != nil {
			d.Err = &abi.Error{Code: abi.ModelMalformed, Message: err.Error()}
		}
	}
	return d
}

// stream is an answer as it comes.
type stream struct {
	start   time.Time
	first   time.Duration
	granted int
	text    strings.Builder
	counted int // bytes of text that were counted last
	calls   []model.ToolCall
	done    *model.Done
}

// countEvery is how many bytes of an answer may come between two looks at how
// many tokens they are.
const countEvery = 4096

func (s *stream) read(ctx context.Context, m *modelWork) error {
	for ev, err := range m.model.Stream(ctx, m.req) {
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
			if s.text.Len()-s.counted > countEvery {
				s.counted = s.text.Len()
				if model.CountText(s.text.String()) > s.granted {
					s.done = &model.Done{Stop: model.StopLength, Usage: s.received(m)}
					return nil
				}
			}
		}
	}
	return nil
}

// received is what an answer without a last word took, as far as it came.
func (s *stream) received(m *modelWork) model.Usage {
	out := model.CountText(s.text.String())
	for _, c := range s.calls {
		out += model.CountText(c.Name) + model.CountText(c.Args)
	}
	return model.Usage{Input: m.input, Output: int64(out)}
}

// used is what the attempt took: what the provider said, else what was
// received. A request that was turned down took nothing. One that was sent and
// never answered is taken to have been read: its input is paid for.
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

func (m *modelWork) usage(j *kernel.Job, t model.Usage) abi.Usage {
	return Booked(j, m.facts.Price, t)
}

// Booked is what a model call took, in the units of accounts. What the
// provider's cache gave or took is input too, at its own price.
func Booked(j *kernel.Job, p model.Price, t model.Usage) abi.Usage {
	in := t.Input + t.CacheRead + t.CacheWrite
	return abi.Usage{
		abi.Money:        p.Cost(t),
		abi.Tokens:       in + t.Output,
		abi.InputTokens:  in,
		abi.OutputTokens: t.Output,
		abi.Steps:        j.Plan.Reserve[abi.Steps],
		abi.ModelCalls:   1,
	}
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

// ModelError is a provider's failure in the words of the kernel.
func ModelError(e *model.Error) *abi.Error {
	return &abi.Error{Code: modelCodes[e.Kind], Message: e.Error()}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// SameRequest says in what the request of a model call would differ from the
// one that was recorded; empty: in nothing. Nothing is sent.
func (w *World) SameRequest(v kernel.View, c abi.Call, was *abi.Intent) string {
	pl, e := w.planModel(v, c)
	if e != nil {
		if was.Reserve == (abi.Usage{}) {
			return "" // it was refused then, as it is now
		}
		return e.Message
	}
	switch {
	case kernel.KeyOf(c.Row, pl.Subject) != was.Key:
		return fmt.Sprintf("the request of call %d differs from the one that was recorded (then %d input tokens, now %d)", c.N, was.Reserve[abi.InputTokens], pl.Context)
	case was.Reserve != (abi.Usage{}) && pl.Price != was.Price:
		return fmt.Sprintf("the price of call %d differs from the one that was recorded", c.N)
	}
	return ""
}
