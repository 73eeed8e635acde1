package provider

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/kern-run/kern/internal/provider/modeltest"
	"github.com/kern-run/kern/model"
)

// fuzzStream holds any bytes to the contract that run checks, and the same
// bytes in two pieces to the same outcome.
func fuzzStream(f *testing.F, dir string) {
	modeltest.AddSeeds(f, func(b []byte) { f.Add(b, uint16(len(b)/2)) }, filepath.Join("testdata", dir, "*.sse"))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		m := over(t, providers[dir], &tape{pieces: []string{string(data)}})
		whole := run(t, m, hello)
		if whole.Done != nil {
			if u := whole.Done.Usage; u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 {
				t.Fatalf("usage %+v", u)
			}
		}
		ids := map[string]bool{}
		for _, c := range whole.Calls {
			if c.ID == "" || ids[c.ID] {
				t.Fatalf("calls without ids of their own: %+v", whole.Calls)
			}
			ids[c.ID] = true
		}
		i := min(int(cut), len(data))
		pieces := []string{string(data[:i]), string(data[i:])}
		if split := run(t, over(t, providers[dir], &tape{pieces: pieces}), hello); !same(split, whole) {
			t.Fatalf("split at %d: %s, whole: %s", i, split, whole)
		}
		o := run(t, over(t, providers[dir], &tape{status: 400 + int(cut)%200, pieces: pieces}), hello)
		if o.Err == nil || o.Err.Kind == "" {
			t.Fatalf("an error status gives %s", o)
		}
		// What came can be sent again as part of a conversation.
		back := model.Request{Messages: []model.Message{{Role: model.Assistant, Text: whole.Text, Calls: whole.Calls}}}
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
