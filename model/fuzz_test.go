package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// seeds adds every file that matches as a seed.
func seeds(f *testing.F, add func([]byte), pattern string) {
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

// fuzzStream holds any bytes to the contract that run checks, and the same
// bytes in two pieces to the same outcome.
func fuzzStream(f *testing.F, dir string) {
	seeds(f, func(b []byte) { f.Add(b, uint16(len(b)/2)) }, filepath.Join("testdata", dir, "*.sse"))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		m := over(t, providers[dir], &tape{pieces: []string{string(data)}})
		whole := run(t, m, hello)
		if whole.done != nil {
			if u := whole.done.Usage; u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 {
				t.Fatalf("usage %+v", u)
			}
		}
		ids := map[string]bool{}
		for _, c := range whole.calls {
			if c.ID == "" || ids[c.ID] {
				t.Fatalf("calls without ids of their own: %+v", whole.calls)
			}
			ids[c.ID] = true
		}
		i := min(int(cut), len(data))
		pieces := []string{string(data[:i]), string(data[i:])}
		if split := run(t, over(t, providers[dir], &tape{pieces: pieces}), hello); !reflect.DeepEqual(split, whole) {
			t.Fatalf("split at %d: %s, whole: %s", i, split, whole)
		}
		o := run(t, over(t, providers[dir], &tape{status: 400 + int(cut)%200, pieces: pieces}), hello)
		if o.err == nil || o.err.Kind == "" {
			t.Fatalf("an error status gives %s", o)
		}
		// What came can be sent again as part of a conversation.
		back := Request{Messages: []Message{{Role: Assistant, Text: whole.text, Calls: whole.calls}}}
		body, err := m.(*remote).encode(m.(*remote), back)
		if err != nil || !json.Valid(body) {
			t.Fatalf("%v, %s", err, body)
		}
	})
}

func FuzzOpenAIStream(f *testing.F)    { fuzzStream(f, "openai") }
func FuzzAnthropicStream(f *testing.F) { fuzzStream(f, "anthropic") }

func FuzzScript(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) }, "testdata/*.yaml")
	for _, s := range []string{
		"replies: [{calls: [{tool: t, args: {a: &x [1, {b: c}], d: *x}}]}]", "repeat: true\nreplies:\n- text: |\n    a\n   \n    b\n",
		"replies: [{usage: {input: 0x1, output: 1_0}}]", "? replies\n: []", "replies: &a\n  - *a", "{replies: [{text: 'it''s'}], price: {input: .5}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseScript("s.yaml", data)
		again, err2 := ParseScript("s.yaml", data)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("parsed once: %v, and again: %v", err, err2)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "s.yaml:") {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		for i := range min(len(s.Replies)+1, 4) {
			s.Latency, again.Latency = 0, 0
			r := Request{Index: i, MaxOutput: 10}
			o := run(t, s, r)
			if !reflect.DeepEqual(o, run(t, again, r)) {
				t.Fatal("the same bytes give two scripts")
			}
			if o.done != nil && (o.done.Usage.Output > 10 || o.done.Usage.Input != int64(s.Count(r))) {
				t.Fatalf("%s", o)
			}
			for _, c := range s.reply(i).Calls {
				if strings.HasPrefix(c.Args, "{") && strings.Contains(string(data), "args: {") && !strings.ContainsAny(string(data), "'\"|>") && !json.Valid([]byte(c.Args)) {
					t.Fatalf("the mapping became %s", c.Args)
				}
			}
		}
	})
}

func FuzzPrices(f *testing.F) {
	f.Add(builtinYAML)
	f.Add([]byte("- {model: 'openai@h:1:m', from: 2025-01-01, input: 1.000000001, output: 2, cache_read: 0}"))
	f.Add([]byte("- model: openai:m\n  input: 01.10\n  output: 1_000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := LoadPrices("p.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "p.yaml:") {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		for _, list := range p.entries {
			for i, e := range list {
				if e.Price.Input < 0 || e.Price.Output < 0 || e.Price.CacheRead < 0 || e.Price.CacheWrite < 0 || e.Window < 0 || e.MaxOutput < 0 {
					t.Fatalf("%+v", e)
				}
				if i > 0 && !list[i-1].From.Before(e.From) {
					t.Fatal("the entries are not in order")
				}
			}
		}
	})
}
