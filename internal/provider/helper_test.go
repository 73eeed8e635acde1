package provider

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/model"
)

var update = flag.Bool("update", false, "rewrite the expected files")

func TestMain(m *testing.M) { leaktest.Main(m) }

// canary is the key of every model that is opened here. It must show nowhere.
const canary = `sk-canary/"9f8e7d6c5b4a`

// An outcome is a whole stream.
type outcome struct {
	events []model.Event
	text   string
	calls  []model.ToolCall
	done   *model.Done
	output int64 // of an answer that was cut: it depends on the time that the answer took
	err    *model.Error
}

// run reads a stream and holds it to the contract: one kind of content per
// event, exactly one end, nothing after it.
func run(t testing.TB, m model.Model, r model.Request) outcome {
	t.Helper()
	return runContext(t, context.Background(), m, r)
}

func runContext(t testing.TB, ctx context.Context, m model.Model, r model.Request) (o outcome) {
	t.Helper()
	for e, err := range m.Stream(ctx, r) {
		if o.done != nil || o.err != nil {
			t.Fatalf("an event after the end: %+v, %v", e, err)
		}
		if err != nil {
			if !errors.As(err, &o.err) {
				t.Fatalf("%T is not a *model.Error: %v", err, err)
			}
			if e != (model.Event{}) {
				t.Fatalf("an event beside an error: %+v", e)
			}
			for _, s := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", o.err)} {
				if strings.Contains(s, canary) {
					t.Fatalf("the key is in an error: %s", s)
				}
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
	if o.err != nil && o.err.Usage != nil && (o.err.Kind == model.Malformed || o.err.Kind == model.Network) {
		o.output, o.err.Usage.Output = o.err.Usage.Output, 0
	}
	return o
}

// same reports that two outcomes are equal, but for what depends on time.
func same(a, b outcome) bool {
	a.output, b.output = 0, 0
	return reflect.DeepEqual(a, b)
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

// golden compares got with a file, or writes it under -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\ngot\n%s\nwant\n%s", path, got, want)
	}
}

// A tape is a RoundTripper that answers every request with the same bytes, in
// the given pieces.
type tape struct {
	status int
	header http.Header
	pieces []string
	end    error // nil: io.EOF
	asked  []byte
}

func (p *tape) RoundTrip(req *http.Request) (*http.Response, error) {
	p.asked, _ = io.ReadAll(req.Body)
	h := p.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/event-stream")
	}
	status := p.status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Header: h, Body: &tapeBody{slices.Clone(p.pieces), p.end}, Request: req}, nil
}

type tapeBody struct {
	pieces []string
	end    error
}

func (b *tapeBody) Read(p []byte) (int, error) {
	if len(b.pieces) == 0 {
		if b.end != nil {
			return 0, b.end
		}
		return 0, io.EOF
	}
	n := copy(p, b.pieces[0])
	if b.pieces[0] = b.pieces[0][n:]; b.pieces[0] == "" {
		b.pieces = b.pieces[1:]
	}
	return n, nil
}

func (b *tapeBody) Close() error { return nil }

// env is a Getenv.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

var keys = env("OPENAI_API_KEY", canary, "ANTHROPIC_API_KEY", canary)

// over opens ref with its traffic going through rt.
func over(t testing.TB, ref string, rt http.RoundTripper) model.Model {
	t.Helper()
	m, err := Open(ref, Config{Getenv: keys, HTTP: &http.Client{Transport: rt}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var hello = model.Request{Messages: []model.Message{{Role: model.User, Text: "hello"}}, MaxOutput: 100, Index: 3}
