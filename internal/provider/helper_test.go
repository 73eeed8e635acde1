package provider

import (
	"context"
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
	"github.com/kern-run/kern/internal/provider/modeltest"
	"github.com/kern-run/kern/model"
)

var update = flag.Bool("update", false, "rewrite the expected files")

func TestMain(m *testing.M) { leaktest.Main(m) }

// canary is the key of every model that is opened here. It must show nowhere.
const canary = `sk-canary/"9f8e7d6c5b4a`

// An outcome is a whole stream.
type outcome struct {
	modeltest.Outcome
	output int64 // of an answer that was cut: it depends on the time that the answer took
}

// run reads a stream and holds it to the contract. The key must not be in an error.
func run(t testing.TB, m model.Model, r model.Request) outcome {
	t.Helper()
	return runContext(t, context.Background(), m, r)
}

func runContext(t testing.TB, ctx context.Context, m model.Model, r model.Request) outcome {
	t.Helper()
	o := outcome{Outcome: modeltest.Run(t, ctx, m, r)}
	if o.Err == nil {
		return o
	}
	for _, s := range []string{o.Err.Error(), fmt.Sprintf("%+v", o.Err), fmt.Sprintf("%#v", o.Err)} {
		if strings.Contains(s, canary) {
			t.Fatalf("the key is in an error: %s", s)
		}
	}
	if o.Err.Usage != nil && (o.Err.Kind == model.Malformed || o.Err.Kind == model.Network) {
		o.output, o.Err.Usage.Output = o.Err.Usage.Output, 0
	}
	return o
}

// same reports that two outcomes are equal, but for what depends on time.
func same(a, b outcome) bool {
	a.output, b.output = 0, 0
	return reflect.DeepEqual(a, b)
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
