package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// An outcome is a whole stream.
type outcome struct {
	events []Event
	text   string
	calls  []ToolCall
	done   *Done
	err    *Error
}

// run reads a stream and holds it to the contract: one kind of content per
// event, exactly one end, nothing after it.
func run(t testing.TB, m Model, r Request) outcome {
	t.Helper()
	return runContext(t, context.Background(), m, r)
}

func runContext(t testing.TB, ctx context.Context, m Model, r Request) (o outcome) {
	t.Helper()
	for e, err := range m.Stream(ctx, r) {
		if o.done != nil || o.err != nil {
			t.Fatalf("an event after the end: %+v, %v", e, err)
		}
		if err != nil {
			if !errors.As(err, &o.err) {
				t.Fatalf("%T is not a *model.Error: %v", err, err)
			}
			if e != (Event{}) {
				t.Fatalf("an event beside an error: %+v", e)
			}
			continue
		}
		set := 0
		if e.Text != "" {
			set++
			o.text += e.Text
		}
		if e.Call != nil {
			set++
			o.calls = append(o.calls, *e.Call)
		}
		if e.Done != nil {
			set++
			o.done = e.Done
		}
		if set != 1 {
			t.Fatalf("an event with %d contents: %+v", set, e)
		}
		o.events = append(o.events, e)
	}
	if o.done == nil && o.err == nil {
		t.Fatal("the stream ended with neither Done nor an error")
	}
	return o
}

// String is one line per event, as the expected files have it.
func (o outcome) String() string {
	var b strings.Builder
	for _, e := range o.events {
		line, _ := json.Marshal(e)
		fmt.Fprintf(&b, "%s\n", line)
	}
	if o.err != nil {
		line, _ := json.Marshal(o.err)
		fmt.Fprintf(&b, "error %s\n", line)
	}
	return b.String()
}
