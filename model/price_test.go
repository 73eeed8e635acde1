// Mutants that a test here kills; each was tried:
//   - the cost is rounded down, or each part is rounded up by itself: TestCost, TestCostIsExact
//   - overflow wraps: TestCost
//   - an absent cache price is free: TestLoadPrices
//   - the newest entry wins whatever the day: TestLookup
//   - the user's table does not come first: TestUserPricesComeFirst
package model

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func day(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestCost(t *testing.T) {
	three := Price{Input: 3_000_000_000, Output: 15_000_000_000, CacheRead: 300_000_000, CacheWrite: 3_750_000_000}
	for _, c := range []struct {
		p    Price
		u    Usage
		want int64
	}{
		{three, Usage{}, 0},
		{three, Usage{Input: 1}, 3000},
		{three, Usage{Input: 1_000_000, Output: 1_000_000}, 18_000_000_000},
		{three, Usage{Input: 120, Output: 30, CacheRead: 10, CacheWrite: 4}, 120*3000 + 30*15000 + 10*300 + 4*3750},
		{Price{Input: 1}, Usage{Input: 1}, 1},
		{Price{Input: 1, Output: 1}, Usage{Input: 1, Output: 1}, 1},
		{Price{Input: 1, Output: 1, CacheRead: 1, CacheWrite: 1}, Usage{500_000, 500_000, 500_000, 500_001}, 3},
		{Price{Input: math.MaxInt64}, Usage{Input: math.MaxInt64}, math.MaxInt64},
		{Price{Input: math.MaxInt64, Output: 1}, Usage{Input: million, Output: 1}, math.MaxInt64},
		{Price{Input: -1, Output: 1_000_000}, Usage{Input: 10, Output: 7}, 7},
		{Price{Input: 1_000_000}, Usage{Input: -7}, 0},
	} {
		if got := c.p.Cost(c.u); got != c.want {
			t.Errorf("%+v.Cost(%+v) = %d, want %d", c.p, c.u, got, c.want)
		}
	}
}

// The cost is the sum in exact arithmetic, rounded up once, or the largest
// number there is.
func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 { return rapid.Int64Min(0).Draw(t, name) }
		p, u := Price{n("pi"), n("po"), n("pr"), n("pw")}, Usage{n("ui"), n("uo"), n("ur"), n("uw")}
		sum := new(big.Int)
		for _, part := range [][2]int64{{p.Input, u.Input}, {p.Output, u.Output}, {p.CacheRead, u.CacheRead}, {p.CacheWrite, u.CacheWrite}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
		}
		sum.Add(sum, big.NewInt(million-1)).Div(sum, big.NewInt(million))
		want := int64(math.MaxInt64)
		if sum.IsInt64() && sum.Int64() <= math.MaxInt64-8 {
			want = sum.Int64()
		} else if sum.IsInt64() {
			return // the last few nano-dollars of nine billion dollars saturate early
		}
		if got := p.Cost(u); got != want {
			t.Fatalf("%+v.Cost(%+v) = %d, want %d", p, u, got, want)
		}
	})
}

func TestBuiltinPrices(t *testing.T) {
	for model, list := range builtin().entries {
		provider, name, _ := strings.Cut(model, ":")
		for _, e := range list {
			if e.Price.Input <= 0 || e.Price.Output < e.Price.Input || e.Price.CacheRead > e.Price.Input ||
				e.Window < e.MaxOutput || e.MaxOutput < 1024 || e.From.Before(day("2023-01-01")) {
				t.Errorf("%s has an odd entry: %+v", model, e)
			}
			if provider == "anthropic" && (e.Price.CacheWrite <= e.Price.Input || e.Price.CacheRead >= e.Price.Input/5) {
				t.Errorf("%s has odd cache prices: %+v", model, e.Price)
			}
		}
		if got, ok := builtin().Lookup(provider, name, day("2099-01-01")); !ok || got != list[len(list)-1] {
			t.Errorf("%s is not found", model)
		}
	}
}

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		provider, name, at string
		input              int64 // -1: not found
	}{
		{"openai", "gpt-5", "2026-01-01", 1_250_000_000},
		{"openai", "gpt-5-2025-08-07", "2026-01-01", 1_250_000_000},
		{"openai", "gpt-5-mini-2025-08-07", "2026-01-01", 250_000_000},
		{"openai", "gpt-5", "2025-08-06", -1},
		{"openai", "gpt-5-turbo-of-tomorrow", "2026-01-01", -1},
		{"openai", "gpt-5-20", "2026-01-01", -1},
		{"openai", "o3", "2025-06-09", 10_000_000_000},
		{"openai", "o3", "2025-06-10", 2_000_000_000},
		{"openai", "gpt-4o", "2026-01-01", 2_500_000_000},
		{"openai", "gpt-4o-2024-05-13", "2026-01-01", 5_000_000_000},
		{"openai", "gpt-4o-2024-11-20", "2026-01-01", 2_500_000_000},
		{"anthropic", "claude-sonnet-4-5", "2026-01-01", 3_000_000_000},
		{"anthropic", "claude-sonnet-4-5-20250929", "2026-01-01", 3_000_000_000},
		{"anthropic", "claude-3-7-sonnet-latest", "2026-01-01", 3_000_000_000},
		{"anthropic", "gpt-5", "2026-01-01", -1},
		{"openai", "", "2026-01-01", -1},
	} {
		e, ok := builtin().Lookup(c.provider, c.name, day(c.at))
		if ok != (c.input >= 0) || ok && e.Price.Input != c.input {
			t.Errorf("%s:%s at %s: got %d, %v, want %d", c.provider, c.name, c.at, e.Price.Input, ok, c.input)
		}
	}
	var none *Prices
	if _, ok := none.Lookup("openai", "gpt-5", time.Now()); ok {
		t.Error("no table knows a price")
	}
}

func TestLoadPrices(t *testing.T) {
	p, err := LoadPrices("p.yaml", []byte(`
- {model: "openai:m", from: 2025-01-01, input: 1.000000001, output: 2, cache_read: 0, window: 10, max_output: 5}
- {model: "openai:m", from: 2024-01-01, input: 7, output: 8}
- {model: "openai@host:8080:a/b:free", input: 0, output: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	e, _ := p.Lookup("openai", "m", day("2025-06-01"))
	if want := (Price{1_000_000_001, 2_000_000_000, 0, 1_000_000_001}); e.Price != want || e.Window != 10 || e.MaxOutput != 5 {
		t.Errorf("got %+v", e)
	}
	e, _ = p.Lookup("openai", "m", day("2024-06-01"))
	if want := (Price{7_000_000_000, 8_000_000_000, 7_000_000_000, 7_000_000_000}); e.Price != want {
		t.Errorf("got %+v", e)
	}
	if _, ok := p.Lookup("openai@host:8080", "a/b:free", day("1990-01-01")); !ok {
		t.Error("a model at another host is not found")
	}
	for in, want := range map[string]string{
		"":                                  "p.yaml:1:1: the file is empty",
		"a: 1":                              "p.yaml:1:2: a price table is a mapping, expected a list",
		"- {model: m, input: 1, output: 1}": `p.yaml:1:11: model is "m", expected openai:NAME or anthropic:NAME`,
		"- {model: 'script:m', input: 1, output: 1}":                                             `expected openai:NAME`,
		"- {model: 'openai:m', input: 1}":                                                        `expected at least model, input and output`,
		"- {input: 1, output: 1}":                                                                `expected at least model, input and output`,
		"- {model: 'openai:m', input: 1, output: free}":                                          `output is "free", expected dollars`,
		"- {model: 'openai:m', input: 1, output: 1, from: yesterday}":                            `from is "yesterday", expected a day such as 2025-08-07`,
		"- {model: 'openai:m', input: 1, output: 1, form: 2025-01-01}":                           `unknown key "form" in a price, expected model, from, input`,
		"- {model: 'openai:m', input: 1, output: 1}\n- {model: 'openai:m', input: 2, output: 2}": `openai:m has two prices from 0001-01-01`,
	} {
		if _, err := LoadPrices("p.yaml", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", in, err, want)
		}
	}
}

func TestUserPricesComeFirst(t *testing.T) {
	user, err := LoadPrices("p.yaml", []byte(`
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
