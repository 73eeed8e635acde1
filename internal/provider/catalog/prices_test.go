// Mutants that a test here kills; each was tried:
//   - an absent cache price is free: TestLoadPrices
//   - the newest entry wins whatever the day: TestLookup
//   - the long price begins a token late, or is left out of what is known of a model: TestALongRequestCostsMore
package catalog

import (
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/model"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func day(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestBuiltinPrices(t *testing.T) {
	for model, list := range builtin().entries {
		provider, name, _ := strings.Cut(model, ":")
		if !modelName.MatchString(model) || name != strings.ToLower(name) || strings.HasSuffix(name, "-latest") {
			t.Errorf("%s is no name that requests send", model)
		}
		for i, e := range list {
			if e.From.Before(day("2023-01-01")) || i > 0 && !e.From.After(list[i-1].From) {
				t.Errorf("%s begins at an odd day: %+v", model, e)
			}
			if i > 0 && e.Price == list[i-1].Price && e.Window == list[i-1].Window {
				t.Errorf("%s is there twice: %+v", model, e)
			}
			odd(t, provider, e)
		}
		if got, ok := builtin().Lookup(provider, name, day("2099-01-01")); !ok || got != list[len(list)-1] {
			t.Errorf("%s is not found", model)
		}
	}
}

// odd holds what is true of every price that there ever was.
func odd(t *testing.T, provider string, e Entry) {
	embeds := strings.Contains(e.Model, "embedding")
	prices := []model.Price{e.Price}
	if e.Beyond > 0 {
		prices = append(prices, e.Long)
		if p, l := e.Price, e.Long; l.Input < p.Input || l.Output < p.Output || l.CacheRead < p.CacheRead || l.CacheWrite < p.CacheWrite || e.Beyond >= e.Window {
			t.Errorf("%s is cheaper beyond %d tokens: %+v", e.Model, e.Beyond, e)
		}
	} else if e.Long != (model.Price{}) {
		t.Errorf("%s has a long price that never holds", e.Model)
	}
	if e.Window < 8192 || e.MaxOutput > e.Window || (e.MaxOutput < 1024) != embeds {
		t.Errorf("%s has an odd window or maximum: %+v", e.Model, e)
	}
	for _, p := range prices {
		if p.Input <= 0 || p.Output < p.Input && !embeds || p.CacheRead > p.Input || p.CacheRead < 0 {
			t.Errorf("%s has an odd price: %+v", e.Model, p)
		}
		if p.CacheWrite != 0 && (p.CacheWrite < p.Input || p.CacheWrite > 2*p.Input) {
			t.Errorf("%s has an odd price of writing to the cache: %+v", e.Model, p)
		}
		if provider == "anthropic" && (p.CacheWrite <= p.Input || p.CacheRead >= p.Input/5) {
			t.Errorf("%s has odd cache prices: %+v", e.Model, p)
		}
	}
}

// The models that a stranger's agent asks for have a price, by the names that
// they are asked for.
func TestModelsOfToday(t *testing.T) {
	for name, want := range map[string]struct{ input, output, read, write, beyond int64 }{
		"anthropic:claude-fable-5-2":          {8_000, 40_000, 200, 10_000, 0},
		"anthropic:claude-opus-5-5":           {4_000, 20_000, 200, 5_000, 0},
		"anthropic:claude-opus-4-8":           {5_000, 25_000, 500, 6_250, 0},
		"anthropic:claude-sonnet-5-5":         {2_000, 10_000, 100, 2_500, 0},
		"anthropic:claude-haiku-5-5":          {100, 500, 10, 125, 100_000},
		"anthropic:claude-haiku-4-5-20251001": {1_000, 5_000, 100, 1_250, 0},
		"openai:gpt-6.2-astra":                {8_000, 40_000, 400, 10_000, 272_000},
		"openai:gpt-6.2-sol":                  {2_000, 10_000, 100, 2_500, 272_000},
		"openai:gpt-6.1-terra":                {1_000, 5_000, 50, 1_250, 272_000},
		"openai:gpt-6-luna":                   {100, 500, 10, 125, 272_000},
		"openai:gpt-5.6":                      {4_000, 20_000, 400, 5_000, 272_000},
		"openai:gpt-5.5-2026-04-23":           {5_000, 30_000, 500, 0, 272_000},
		"openai:gpt-5.4-mini-2026-03-17":      {750, 4_500, 75, 0, 0},
		"openai:gpt-4o-mini":                  {150, 600, 75, 0, 0},
		"openai:text-embedding-3-small":       {20, 0, 20, 20, 0},
	} {
		provider, id, _ := strings.Cut(name, ":")
		e, ok := builtin().Lookup(provider, id, day("2026-11-21"))
		got := model.Price{Input: e.Price.Input / 1_000_000, Output: e.Price.Output / 1_000_000, CacheRead: e.Price.CacheRead / 1_000_000, CacheWrite: e.Price.CacheWrite / 1_000_000}
		if !ok || got != (model.Price{Input: want.input, Output: want.output, CacheRead: want.read, CacheWrite: want.write}) || int64(e.Beyond) != want.beyond {
			t.Errorf("%s: %v, %+v", name, ok, e)
		}
	}
}

func TestALongRequestCostsMore(t *testing.T) {
	user, err := LoadPrices("p.yaml", []byte(`[{model: "openai:m", input: 2, output: 10, long: {beyond: 10, input: 4, output: 15}}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{Model: "openai:m", Price: model.Price{Input: 2e9, Output: 10e9, CacheRead: 2e9, CacheWrite: 2e9}, Long: model.Price{Input: 4e9, Output: 15e9, CacheRead: 4e9, CacheWrite: 4e9}, Beyond: 10}
	if e, _ := user.Lookup("openai", "m", day("2026-01-01")); e != want {
		t.Errorf("%+v", e)
	}
}

// OpenAI's regional hosts cost a tenth more; a price that is given for such a
// host is meant as it is.
func TestRegionsCostMore(t *testing.T) {
	user, err := LoadPrices("p.yaml", []byte(`[{model: "openai@us.api.openai.com:gpt-6.2-sol", input: 7, output: 8}]`))
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]model.Price{
		"openai":                   {Input: 2_000_000_000, Output: 10_000_000_000, CacheRead: 100_000_000, CacheWrite: 2_500_000_000},
		"openai@localhost:8080":    {Input: 2_000_000_000, Output: 10_000_000_000, CacheRead: 100_000_000, CacheWrite: 2_500_000_000},
		"openai@eu.api.openai.com": {Input: 2_200_000_000, Output: 11_000_000_000, CacheRead: 110_000_000, CacheWrite: 2_750_000_000},
		"openai@us.api.openai.com": {Input: 7_000_000_000, Output: 8_000_000_000, CacheRead: 7_000_000_000, CacheWrite: 7_000_000_000},
	} {
		if e, ok := Find(user, place, "gpt-6.2-sol", day("2026-11-21")); !ok || e.Price != want {
			t.Errorf("%s: %+v", place, e)
		} else if want.Input == 2_200_000_000 && e.Long.Input != 4_400_000_000 {
			t.Errorf("%s: %+v", place, e.Long)
		}
	}
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"claude-opus-6":     "anthropic:claude-opus-5-5",
		"claude-haiku-6":    "anthropic:claude-haiku-5-5",
		"claude-sonnet-5-6": "anthropic:claude-sonnet-5-5",
		"claude-tale-1":     "anthropic:claude-fable-5-2",
		"gpt-6.2-luna":      "openai:gpt-6.2-astra",
		"gpt-7":             "openai:gpt-6.2-astra",
		"llama3:8b":         "",
		"":                  "",
	} {
		provider := "openai@here"
		if strings.HasPrefix(name, "claude") {
			provider = "anthropic"
		}
		e, ok := Nearest(provider, name, day("2026-11-21"))
		if e.Model != want || ok != (want != "") {
			t.Errorf("%s: %s", name, e.Model)
		}
		if p, _, _ := strings.Cut(provider, "@"); name != "" {
			if _, known := builtin().Lookup(p, name, day("2026-11-21")); known {
				t.Errorf("%s is known", name)
			}
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
	if want := (model.Price{Input: 1_000_000_001, Output: 2_000_000_000, CacheRead: 0, CacheWrite: 1_000_000_001}); e.Price != want || e.Window != 10 || e.MaxOutput != 5 {
		t.Errorf("got %+v", e)
	}
	e, _ = p.Lookup("openai", "m", day("2024-06-01"))
	if want := (model.Price{Input: 7_000_000_000, Output: 8_000_000_000, CacheRead: 7_000_000_000, CacheWrite: 7_000_000_000}); e.Price != want {
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
		"- {model: 'openai:m', input: 1, output: 1, long: {input: 1, output: 1}}":                `long is incomplete, expected at least beyond, input and output`,
		"- {model: 'openai:m', input: 1, output: 1, long: {beyond: 1, input: 1}}":                `long is incomplete, expected at least beyond, input and output`,
		"- {model: 'openai:m', input: 1, output: 1}\n- {model: 'openai:m', input: 2, output: 2}": `openai:m has two prices from 0001-01-01`,
	} {
		if _, err := LoadPrices("p.yaml", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", in, err, want)
		}
	}
}
