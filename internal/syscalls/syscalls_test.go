package syscalls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

func TestMain(m *testing.M) {
	program.Main()
	leaktest.Main(m)
}

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
		{"nothing is known", model.Facts{}, ModelArgs{}, 1, 16_384},
		{"the model's maximum", model.Facts{MaxOutput: 500, MinOutput: 16}, ModelArgs{}, 16, 500},
		{"as asked", model.Facts{MaxOutput: 500}, ModelArgs{MaxOutput: 40}, 40, 40},
		{"what the window leaves", model.Facts{Window: 1200, MaxOutput: 500}, ModelArgs{}, 1, 200},
		{"the window leaves nothing", model.Facts{Window: 900, MaxOutput: 500, MinOutput: 16}, ModelArgs{}, 16, 900 / 16},
		{"last words are short", model.Facts{MaxOutput: 50_000}, ModelArgs{Last: true}, 1, lastWordsOutput},
		{"last words of a small model", model.Facts{MaxOutput: 50}, ModelArgs{Last: true}, 1, 50},
	} {
		c.facts.Price = price
		m := &modelWork{routes: []route{{facts: c.facts}}, bound: boundOf(stated{count: 1000}, model.Request{})}
		var pl kernel.Plan
		m.plan(&pl, c.args, "")
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
	j := &kernel.Job{Granted: 1000, Plan: kernel.Plan{Work: &modelWork{routes: []route{{model: f}}, bound: tariff.Bound{Input: 10}}, Reserve: abi.Usage{abi.Steps: 1}}}
	d := (&World{}).runModel(t.Context(), j)
	if d.Err != nil || f.given > 20 || d.Usage[abi.OutputTokens] < 1000 || d.Usage[abi.OutputTokens] > 1000+2*countEvery {
		t.Errorf("%v after %d pieces, booked %v", d.Err, f.given, d.Usage)
	}
	var r Reply
	if err := json.Unmarshal(d.Value, &r); err != nil || r.Stop != model.StopLength {
		t.Errorf("%+v %v", r.Stop, err)
	}
}

// TestLongAnswerIsCountedSeldom: to count all of an answer at each of its
// beginnings would take the square of its length.
func TestLongAnswerIsCountedSeldom(t *testing.T) {
	const size, granted = 1 << 20, 300_000
	work := 0
	for at := again(0, 0, granted); at < size; at = again(at, at/4, granted) {
		work += at
	}
	if work < size/2 || work > 8*size {
		t.Errorf("%d bytes are counted of an answer of %d", work, size)
	}
	if at := again(size, granted-1, granted); at != size+countEvery {
		t.Errorf("one that is nearly too long is looked at after %d bytes", at-size)
	}
}

// TestBrokenStreamIsBooked: what came before a stream broke is paid, and so is
// its input; what the model itself says it used goes before.
func TestBrokenStreamIsBooked(t *testing.T) {
	for _, c := range []struct {
		pieces        int
		usage         *model.Usage
		input, output int64
	}{
		{3, nil, 10, 3*200 + 1},
		{0, nil, 10, 0},
		{3, &model.Usage{Input: 7, Output: 5}, 7, 5},
		{0, &model.Usage{}, 0, 0},
	} {
		f := &flood{pieces: c.pieces, last: &model.Error{Kind: model.Network, Message: "it broke off", Usage: c.usage}}
		j := &kernel.Job{Granted: 100_000, Plan: kernel.Plan{Work: &modelWork{routes: []route{{model: f}}, bound: tariff.Bound{Input: 10}}}}
		d := (&World{}).runModel(t.Context(), j)
		if d.Err == nil || d.Err.Code != abi.ModelNetwork || d.Usage[abi.InputTokens] != c.input || d.Usage[abi.OutputTokens] != c.output || d.Usage[abi.ModelCalls] != 1 {
			t.Errorf("%+v: %+v, booked %v", c, d.Err, d.Usage)
		}
	}
}

// says is a model that gives these events, whatever becomes of its caller.
type says struct {
	model.Model
	events []model.Event
	err    error
}

func (m *says) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for _, e := range m.events {
			if !yield(e, nil) {
				return
			}
		}
		if m.err != nil {
			yield(model.Event{}, m.err)
		}
	}
}

// TestCutOff: an answer that a signal or a limit cuts off is told as cut, with
// what came of it, and booked as far as it came, calls and all. One that has
// said its last word is an answer.
func TestCutOff(t *testing.T) {
	text := model.Event{Text: "as far as I came"}
	call := model.Event{Call: &model.ToolCall{ID: "c", Name: "look", Args: `{"at":"everything"}`}}
	last := model.Event{Done: &model.Done{Stop: model.StopEnd, Usage: model.Usage{Input: 9, Output: 99}}}
	broke := &model.Error{Kind: model.Network, Message: "context canceled"}
	words := int64(tokens.CountText(text.Text))
	calls := int64(tokens.CountText(call.Call.Name) + tokens.CountText(call.Call.Args))
	for _, c := range []struct {
		name   string
		stop   bool
		events []model.Event
		err    error
		code   abi.Code
		got    string
		output int64
	}{
		{"within the text", true, []model.Event{text}, broke, abi.Interrupted, text.Text, words},
		{"within the calls", true, []model.Event{text, call}, broke, abi.Interrupted, text.Text, words + calls},
		{"without a word of why", true, []model.Event{text}, nil, abi.Interrupted, text.Text, words},
		{"after the last word", true, []model.Event{text, call, last}, nil, "", "", 99},
		{"not at all", false, []model.Event{text, call, last}, nil, "", "", 99},
		{"by an error of no kind", false, []model.Event{text, call}, errors.New("odd"), abi.ModelNetwork, "", words + calls},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.stop {
			cancel()
		}
		m := &says{events: c.events, err: c.err}
		j := &kernel.Job{Granted: 1000, Plan: kernel.Plan{Work: &modelWork{routes: []route{{m, model.Facts{Name: "script:x", Provider: "script"}}}, bound: tariff.Bound{Input: 9}}}}
		d := (&World{}).runModel(ctx, j)
		cancel()
		if d.Usage[abi.InputTokens] != 9 || d.Usage[abi.OutputTokens] != c.output || d.Usage[abi.ModelCalls] != 1 {
			t.Errorf("%s: booked %v, want %d of output", c.name, d.Usage, c.output)
		}
		var r Reply
		switch {
		case c.code != "":
			if d.Err == nil || d.Err.Code != c.code || d.Err.Got != c.got {
				t.Errorf("%s: %+v", c.name, d.Err)
			}
		case d.Err != nil || json.Unmarshal(d.Value, &r) != nil || r.Text != text.Text || len(r.Calls) != 1 || r.Stop != model.StopEnd:
			t.Errorf("%s: %+v %s", c.name, d.Err, d.Value)
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

// TestProgramsAreForgotten: every key has a program of its own, so what is kept
// of programs must not grow with the keys there were. One in use stays.
//
// Mutants that die here: nothing is forgotten, what is used is forgotten.
func TestProgramsAreForgotten(t *testing.T) {
	w := &World{Journal: Journal{Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil }}}
	load := func(name string) *Loaded {
		b, err := json.Marshal(abi.Agent{Name: name, Hosted: true})
		if err != nil {
			t.Fatal(err)
		}
		l, err := w.Load(abi.Data{Bytes: b, Size: int64(len(b))})
		if err != nil || l.Agent.Name != name {
			t.Fatalf("%s: %+v %v", name, l, err)
		}
		return l
	}
	used := load("in use")
	first := load("0")
	for i := range 3 * loadedMax {
		load(fmt.Sprint(i))
		if load("in use") != used {
			t.Fatalf("it was made again after %d others", i)
		}
	}
	if load("0") == first {
		t.Error("a program that nobody used is kept")
	}
}
