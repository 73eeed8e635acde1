package relay

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// unknownMaxOutput is how many output tokens are reserved for a model whose
// maximum is not known.
const unknownMaxOutput = 16_384

// Prepare returns q as it is asked of an endpoint.
func Prepare(q *format.Request, e *provider.Endpoint) *format.Request {
	q = q.WithModel(e.Model)
	q.Count = catalog.CounterOf(e.Facts.Provider, e.Model)
	q.MaxField, q.Free = maxField(e.Facts.Provider), e.Free
	q.Mutes = e.Facts.Provider == "anthropic" // and no other provider of that format
	return q
}

// maxField is how a provider's Chat calls the output maximum, where its own
// name tells; empty: as the name of the model tells.
func maxField(provider string) string {
	_, host, _ := strings.Cut(provider, "@")
	if provider == "openai" || strings.Contains(host, ".azure.com") || strings.HasSuffix(host, ".api.openai.com") {
		return "max_completion_tokens"
	}
	return ""
}

// Input is how many input tokens a request with this bound may use. Where that is
// not known it is the whole window, because there are models that take it full.
func Input(b *format.Bound, f *model.Facts) int64 {
	if b.Known {
		return b.Input
	}
	return max(b.Input, int64(f.Window))
}

// Output is the least and the most output that a request may be granted: as much
// as it asks for, or as the model can give. The room that the input leaves in
// the window is known from below only, so it lowers neither the asked output nor
// the rest to nothing.
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

// An Outcome is what an attempt came to.
type Outcome struct {
	Seen  format.Seen
	First time.Duration // to the first byte of the answer
	Whole bool          // the provider brought the answer to its end
	Usage model.Usage   // what it used; of a cut answer, what it may be billed for
	Hour  int64         // of Usage.CacheWrite: kept for an hour or longer
	Quota model.Quota   // of the provider, as the head of the answer told

	// Known is false when an answer was cut and nobody knows what it used: the
	// model may have thought in silence, or its pace is not known.
	Known bool
}

// Outcome says what came of an answer that [Attempt.Read] ended with fail.
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
	return o
}

// unseen is what may have been said and not yet have come when an answer of n
// tokens was cut: a sixteenth of it, and a few words; and where the provider did
// not end it, what it says at its pace until it learns of that.
func (a *Attempt) unseen(n int64) int64 {
	const late = 500 * time.Millisecond
	m := n/16 + 16
	if !a.over && a.meter != nil {
		said := max(time.Millisecond, time.Since(a.start)-a.first)
		m += int64(float64(n) * float64(late) / float64(said))
	}
	return m
}

// Unanswered is what a request may be billed for that was sent and found no
// answer: its input.
func (a *Attempt) Unanswered() model.Usage { return model.Usage{Input: a.Bound.Input} }

// Broken is what the provider did not bring to its end, as it matters to its
// other callers; nil where it did, or was stopped.
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

// lost is a request that found no answer. Its Usage is nil when the provider may
// have read it.
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
