package sys

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBound is what is reserved for a model call: the input, and as much output
// as was asked for, as the model gives, or as its window leaves.
func TestBound(t *testing.T) {
	price := model.Price{Input: 3_000_000_000, Output: 15_000_000_000}
	for _, c := range []struct {
		name     string
		facts    model.Facts
		args     ModelArgs
		min, max int64
	}{
		{"nothing is known", model.Facts{}, ModelArgs{}, 1, unknownMaxOutput},
		{"the model's maximum", model.Facts{MaxOutput: 500, MinOutput: 16}, ModelArgs{}, 16, 500},
		{"as asked", model.Facts{MaxOutput: 500}, ModelArgs{MaxOutput: 40}, 40, 40},
		{"what the window leaves", model.Facts{Window: 1200, MaxOutput: 500}, ModelArgs{}, 1, 200},
		{"the window leaves nothing", model.Facts{Window: 900, MaxOutput: 500, MinOutput: 16}, ModelArgs{}, 16, 16},
		{"last words are short", model.Facts{MaxOutput: 50_000}, ModelArgs{Last: true}, 1, lastWordsOutput},
		{"last words of a small model", model.Facts{MaxOutput: 50}, ModelArgs{Last: true}, 1, 50},
	} {
		c.facts.Price = price
		m := &modelWork{facts: c.facts, input: 1000}
		var pl kernel.Plan
		m.bound(&pl, c.args)
		want := abi.Usage{abi.Money: 3_000_000, abi.Tokens: 1000, abi.InputTokens: 1000, abi.Steps: 1, abi.ModelCalls: 1}
		if pl.Reserve != want || pl.Context != 1000 {
			t.Errorf("%s: reserves %v, context %d", c.name, pl.Reserve, pl.Context)
		}
		if e := pl.Elastic; e.Unit != abi.OutputTokens || e.Min != c.min || e.Max != c.max || e.Price != price.Output || !e.Tokens {
			t.Errorf("%s: %+v, want %d to %d", c.name, e, c.min, c.max)
		}
	}
}

// flood is a model that never stops of its own, and says so many bytes.
type flood struct {
	model.Model
	pieces int
	given  int
	last   *model.Error
}

func (f *flood) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for range f.pieces {
			f.given++
			if !yield(model.Event{Text: strings.Repeat("word ", 200)}, nil) {
				return
			}
		}
		if f.last != nil {
			yield(model.Event{}, f.last)
		}
	}
}

// TestFloodIsCut: a provider that does not keep to the maximum is not listened
// to for long, and what it gave is booked.
func TestFloodIsCut(t *testing.T) {
	f := &flood{pieces: 100_000}
	j := &kernel.Job{Granted: 1000, Plan: kernel.Plan{Work: &modelWork{model: f, input: 10}, Reserve: abi.Usage{abi.Steps: 1}}}
	d := (&World{}).runModel(t.Context(), j)
	if d.Err != nil || f.given > 20 || d.Usage[abi.OutputTokens] < 1000 || d.Usage[abi.OutputTokens] > 1000+2*countEvery {
		t.Errorf("%v after %d pieces, booked %v", d.Err, f.given, d.Usage)
	}
	var r Reply
	if err := json.Unmarshal(d.Value, &r); err != nil || r.Stop != model.StopLength {
		t.Errorf("%+v %v", r.Stop, err)
	}
}

// TestBrokenStreamIsBooked: what came before a stream broke is paid, and so is
// what was sent.
func TestBrokenStreamIsBooked(t *testing.T) {
	for _, c := range []struct {
		pieces int
		usage  *model.Usage
		input  int64
	}{{3, nil, 10}, {0, nil, 10}, {3, &model.Usage{Input: 7, Output: 5}, 7}} {
		f := &flood{pieces: c.pieces, last: &model.Error{Kind: model.Network, Message: "it broke off", Usage: c.usage}}
		j := &kernel.Job{Granted: 100_000, Plan: kernel.Plan{Work: &modelWork{model: f, input: 10}}}
		d := (&World{}).runModel(t.Context(), j)
		if d.Err == nil || d.Err.Code != abi.ModelNetwork || d.Usage[abi.InputTokens] != c.input || (d.Usage[abi.OutputTokens] > 0) != (c.pieces > 0) || d.Usage[abi.ModelCalls] != 1 {
			t.Errorf("%+v: %+v, booked %v", c, d.Err, d.Usage)
		}
	}
}

// TestTableIsWhole: every row can be given to a model with a closed schema, and
// has the name it is found by.
func TestTableIsWhole(t *testing.T) {
	for name, r := range Table(&World{}) {
		if r.Name != name || r.Doc == "" || r.Run == nil || r.Schema == nil {
			t.Errorf("row %s: %+v", name, r)
			continue
		}
		if v := r.Schema.Check([]byte(`{"surely_not_there":1}`)); v == nil {
			t.Errorf("row %s takes anything", name)
		}
	}
}
