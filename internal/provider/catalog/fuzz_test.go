package catalog

import (
	"strings"
	"testing"
)

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
