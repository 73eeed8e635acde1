package provider

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// unknownMaxOutput is the output reservation, in tokens, for a model without a
// known maximum.
const unknownMaxOutput = 16_384

// Prepare returns a copy of q for an endpoint, with the model name, the token
// counter and the fields that the endpoint understands.
func Prepare(q *format.Request, e *Endpoint) *format.Request {
	q = q.WithModel(e.Model)
	q.Count = catalog.CounterOf(e.Facts.Provider, e.Model)
	q.MaxField, q.Free = maxField(e.Facts.Provider), e.Free
	q.Mutes = e.Facts.Provider == "anthropic" // only Anthropic itself accepts an output maximum of 0
	return q
}

// maxField returns the name of the output maximum in a provider's Chat format.
// It is empty if the model's name decides instead.
func maxField(provider string) string {
	_, host, _ := strings.Cut(provider, "@")
	if provider == "openai" || strings.Contains(host, ".azure.com") || strings.HasSuffix(host, ".api.openai.com") {
		return "max_completion_tokens"
	}
	return ""
}

// Input returns how many input tokens a request with this bound may use. If the
// bound is unknown, Input is at least the whole window, because a model may fill it.
func Input(b *format.Bound, f *model.Facts) int64 {
	if b.Known {
		return b.Input
	}
	return max(b.Input, int64(f.Window))
}

// Output returns the least and the most output tokens to grant to a request. The
// most is what the request asks for, or else what the model can give. The input is
// only an upper bound, so the room left in the window is only a lower bound. That
// room therefore never lowers an output that the request asks for, and it never
// lowers the model's maximum below a sixteenth of the window.
func Output(b *format.Bound, f *model.Facts, in int64) (least, most int64) {
	if most = b.Output; most == 0 {
		most = cmp.Or(int64(f.MaxOutput), unknownMaxOutput) * b.Choices
		if window := int64(f.Window); window > 0 {
			most = min(most, max(window-in, window/16)*b.Choices)
		}
	}
	least = max(b.Least, min(int64(f.MinOutput)*b.Choices, most))
	return least, max(least, most)
}

// An Outcome is the result of an attempt: what came, and what it used.
type Outcome struct {
	Seen  format.Seen
	First time.Duration // time to the first byte of the answer
	Whole bool          // the provider finished the answer
	Usage model.Usage   // what the answer used; for a cut answer, what the provider may bill
	Hour  int64         // the part of Usage.CacheWrite that is cached for an hour or longer
	Quota model.Quota   // from the headers of the answer

	// Known is false if the answer was cut and its usage cannot be computed: the
	// model may have thought in silence, or its pace is unknown.
	Known bool

	// Claim is the usage that the provider reported, if no request can have it. Usage
	// is then the bound.
	Claim *model.Usage
}

// Reached reports whether an answer ended at its output maximum. reported means that
// the provider counted the output. An answer that is clearly shorter filled the
// window of the model instead.
func Reached(stop model.Stop, reported bool, output, granted int64) bool {
	return stop == model.StopLength && (!reported || output >= granted-granted/16)
}

// Outcome returns the result of the attempt. fail is the error of [Attempt.Read].
func (a *Attempt) Outcome(fail error) Outcome {
	s := a.meter.Seen()
	if e := s.Failure; e != nil {
		s.Failure, _ = a.tidied(e).(*model.Error)
	}
	a.ended = a.ended || s.Done
	var me *model.Error
	garbled := errors.As(fail, &me) && me.Kind == model.Malformed
	cut := fail != nil || !a.ended
	o := Outcome{Seen: s, First: a.first, Whole: a.ended, Usage: s.Usage, Hour: s.Hour, Quota: a.quota,
		Known: !cut || s.Reported || !a.Bound.Hidden && a.stream && !garbled && (a.over || s.Output > 0)}
	u := &o.Usage
	if !s.HasInput || u.Input+u.CacheRead+u.CacheWrite == 0 {
		u.Input = a.Bound.Input
	}
	if !a.ended && !s.Reported {
		u.Output = max(u.Output, min(a.Granted, u.Output+a.unseen(u.Output)))
	}
	a.disbelieve(&o)
	return o
}

// How many times the bound, or the window of the model, a reported usage may be. The
// provider bills input several times for an answer in which it calls tools itself.
const (
	believable = 4
	manyTimes  = 16
	widest     = 1 << 20 // the window of a model whose window is not known
)

// disbelieve books the bound where the reported usage is impossible, because such a
// number would use up every limit for good.
func (a *Attempt) disbelieve(o *Outcome) {
	u, times := o.Usage, int64(believable)
	if len(a.Bound.Extras) > 0 || !a.Bound.Known {
		times = manyTimes
	}
	window := int64(cmp.Or(a.Endpoint.Facts.Window, widest))
	in, out := u.Input+u.CacheRead+u.CacheWrite, u.Output
	if in > times*max(a.Bound.Input, window) {
		o.Usage = model.Usage{Input: min(Input(&a.Bound, &a.Endpoint.Facts), in), Output: out}
		o.Hour, o.Seen.HasInput = 0, false
	}
	if out > times*max(a.Granted, window) {
		o.Usage.Output = a.Granted
	}
	if o.Usage != u {
		o.Claim, o.Seen.Usage, o.Seen.Output = &u, o.Usage, o.Usage.Output
	}
}

// unseen bounds the tokens that the model may have produced beyond the n that
// arrived before the cut. The bound is a sixteenth of n plus 16. If the provider
// did not end the answer, unseen adds half a second of output at the measured pace,
// because the provider learns of the cut late.
func (a *Attempt) unseen(n int64) int64 {
	const late = 500 * time.Millisecond
	m := n/16 + 16
	if !a.over && a.meter != nil {
		said := max(time.Millisecond, time.Since(a.start)-a.first)
		m += int64(float64(n) * float64(late) / float64(said))
	}
	return m
}

// Unanswered returns what a provider may bill for a sent request without an
// answer: its input.
func (a *Attempt) Unanswered() model.Usage { return model.Usage{Input: a.Bound.Input} }

// Broken returns the provider's failure to finish the answer. Other calls to the
// provider need it, because it shows the state of the provider. It is nil if the
// provider finished, or if Kern stopped the answer.
func (o *Outcome) Broken(stopped bool, fail error) *model.Error {
	var me *model.Error
	switch {
	case o.Seen.Failure != nil:
		return o.Seen.Failure
	case fail == nil, o.Whole, stopped, errors.As(fail, &me), errors.Is(fail, ErrOver):
		return nil
	}
	return &model.Error{Kind: model.Network}
}

// lost returns the error of a request without an answer. Its Usage is nil if the
// provider may have read the request.
func (a *Attempt) lost(err error) *model.Error {
	var e *model.Error
	if !errors.As(err, &e) {
		e = &model.Error{Kind: model.Network, Message: err.Error()}
	}
	if a.silent.Load() {
		e.Message = fmt.Sprintf("%v for %v", errIdle, a.Idle)
	}
	return e
}
