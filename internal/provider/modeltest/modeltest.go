// Package modeltest holds models to the contract of [model.Model] in tests.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/model"
)

// An Outcome is a whole stream.
type Outcome struct {
	Events []model.Event
	Text   string
	Calls  []model.ToolCall
	Done   *model.Done
	Err    *model.Error
}

// Run reads a stream and holds it to the contract: an event has one kind of content,
// and the stream has one end, with nothing after it.
func Run(t testing.TB, ctx context.Context, m model.Model, r model.Request) (o Outcome) {
	t.Helper()
	for e, err := range m.Stream(ctx, r) {
		if o.Done != nil || o.Err != nil {
			t.Fatalf("an event after the end: %+v, %v", e, err)
		}
		if err != nil {
			if !errors.As(err, &o.Err) {
				t.Fatalf("%T is not a *model.Error: %v", err, err)
			}
			if e != (model.Event{}) {
				t.Fatalf("an event beside an error: %+v", e)
			}
			continue
		}
		set := 0
		if e.Text != "" {
			set++
			o.Text += e.Text
		}
		if e.Call != nil {
			set++
			o.Calls = append(o.Calls, *e.Call)
		}
		if e.Done != nil {
			set++
			o.Done = e.Done
		}
		if set != 1 {
			t.Fatalf("an event with %d contents: %+v", set, e)
		}
		o.Events = append(o.Events, e)
	}
	if o.Done == nil && o.Err == nil {
		t.Fatal("the stream ended with neither Done nor an error")
	}
	return o
}

// String writes a line for each event, as expected files have it.
func (o Outcome) String() string {
	var b strings.Builder
	for _, e := range o.Events {
		line, _ := json.Marshal(e) // an event always encodes
		fmt.Fprintf(&b, "%s\n", line)
	}
	if o.Err != nil {
		line, _ := json.Marshal(o.Err) // an error always encodes
		fmt.Fprintf(&b, "error %s\n", line)
	}
	return b.String()
}

// AddSeeds adds every file that matches a pattern as a seed of a fuzz test.
func AddSeeds(f *testing.F, add func([]byte), pattern string) {
	f.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds in %s, %v", pattern, err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		add(b)
	}
}
