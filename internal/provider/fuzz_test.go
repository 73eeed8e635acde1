package provider

import (
	"encoding/json"
	"github.com/kern-run/kern/model"
	"os"
	"path/filepath"
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
		if split := run(t, over(t, providers[dir], &tape{pieces: pieces}), hello); !same(split, whole) {
			t.Fatalf("split at %d: %s, whole: %s", i, split, whole)
		}
		o := run(t, over(t, providers[dir], &tape{status: 400 + int(cut)%200, pieces: pieces}), hello)
		if o.err == nil || o.err.Kind == "" {
			t.Fatalf("an error status gives %s", o)
		}
		// What came can be sent again as part of a conversation.
		back := model.Request{Messages: []model.Message{{Role: model.Assistant, Text: whole.text, Calls: whole.calls}}}
		q, err := m.(*remote).request(back)
		if err != nil {
			t.Fatal(err)
		}
		if body := q.Bytes(0); !json.Valid(body) {
			t.Fatalf("%v, %s", err, body)
		}
	})
}

func FuzzOpenAIStream(f *testing.F)    { fuzzStream(f, "openai") }
func FuzzAnthropicStream(f *testing.F) { fuzzStream(f, "anthropic") }
