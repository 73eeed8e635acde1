package provider

import (
	"testing"
	"time"

	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/model"
)

func day(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

// TestLongPriceBegins: a request with more input than a price says costs the
// long price, all of it.
func TestLongPriceBegins(t *testing.T) {
	m, err := Open("openai:gpt-6.2-sol", Config{Getenv: env("OPENAI_API_KEY", canary), Now: func() time.Time { return day("2026-11-21") }})
	if err != nil {
		t.Fatal(err)
	}
	f := m.Facts()
	if f.At(272_000).Input != 2_000_000_000 || f.At(272_001).Input != 4_000_000_000 || f.At(272_001).Output != 15_000_000_000 {
		t.Errorf("%+v", f)
	}
	if b := m.(*remote).Bound(hello); b.CostOf(1000, f.Price) != 1000*2500 {
		t.Errorf("a write to the cache that nobody asked for is not reserved: %d", b.CostOf(1000, f.Price))
	}
	claude := over(t, "anthropic:claude-sonnet-4-5", nil).(*remote).Bound(hello)
	if got := claude.CostOf(1_000_000, model.Price{Input: 2, CacheWrite: 3}); got != 2 {
		t.Errorf("a request that asks for no caching reserves %d", got)
	}
}

// TestUserPricesComeFirst: the table of the user wins over the built-in one.
func TestUserPricesComeFirst(t *testing.T) {
	user, err := catalog.LoadPrices("p.yaml", []byte(`
- {model: "openai:gpt-5", input: 9, output: 9, window: 9000}
- {model: "openai@localhost:8080:gpt-5", input: 4, output: 4}
- {model: "openai:mine", input: 5, output: 5}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		base, name string
		input      int64
		priced     bool
	}{
		{"", "gpt-5", 9_000_000_000, true},
		{"", "gpt-5-mini", 250_000_000, true},
		{"", "mine", 5_000_000_000, true},
		{"http://localhost:8080/v1", "gpt-5", 4_000_000_000, true},
		{"http://localhost:8080/v1", "gpt-4o", 2_500_000_000, true},
		{"http://localhost:9/v1", "gpt-5", 9_000_000_000, true},
		{"", "theirs", 0, false},
	} {
		m, err := Open("openai:"+c.name, Config{Prices: user, Getenv: env("OPENAI_BASE_URL", c.base, "OPENAI_API_KEY", canary), Now: func() time.Time { return day("2026-01-01") }})
		if err != nil {
			t.Fatal(err)
		}
		if f := m.Facts(); f.Price.Input != c.input || f.Priced != c.priced {
			t.Errorf("%s at %q: %+v", c.name, c.base, f)
		}
	}
}
