package model

import (
	_ "embed"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/internal/strict"
)

// A Price is what tokens cost, in nano-dollars per million tokens: three
// dollars are 3_000_000_000.
type Price struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

const million = 1_000_000

// Cost returns the nano-dollars that u costs, rounded up as a whole, and
// math.MaxInt64 where it would be more than that. It never returns less for
// more tokens. Negative numbers count as zero.
func (p Price) Cost(u Usage) int64 {
	var whole, rest int64
	for _, part := range [...]struct{ price, tokens int64 }{
		{p.Input, u.Input}, {p.Output, u.Output}, {p.CacheRead, u.CacheRead}, {p.CacheWrite, u.CacheWrite},
	} {
		w, r := timesMillionth(part.price, part.tokens)
		if w > math.MaxInt64-whole-4 {
			return math.MaxInt64
		}
		whole, rest = whole+w, rest+r
	}
	return whole + (rest+million-1)/million
}

// timesMillionth is a*b/1e6 as quotient and remainder.
func timesMillionth(a, b int64) (whole, rest int64) {
	if a <= 0 || b <= 0 {
		return 0, 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= million {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(hi, lo, million)
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return int64(q), int64(r)
}

// Prices is a table of what models cost and how large they are.
type Prices struct {
	entries map[string][]Entry // by "provider:model", oldest first
}

// An Entry is what holds for a model from a day on, until a later entry.
type Entry struct {
	Model     string // "openai:gpt-5"
	From      time.Time
	Price     Price
	Window    int // 0: unknown
	MaxOutput int // 0: unknown
}

//go:embed prices.yaml
var builtinYAML []byte

var builtin = sync.OnceValue(func() *Prices {
	p, err := LoadPrices("prices.yaml", builtinYAML)
	if err != nil {
		panic(err) // the file is part of the program, and a test reads it
	}
	return p
})

// LoadPrices reads a table of prices in the format of the built-in one:
//
//   - {model: "openai:gpt-5", from: 2025-08-07, input: 1.25, output: 10.00, cache_read: 0.125, window: 400000, max_output: 128000}
//
// Prices are dollars per million tokens. A cache price that is absent is the
// input price, so that nothing is free by omission.
func LoadPrices(name string, data []byte) (*Prices, error) {
	sd, root, err := strict.Parse(name, data)
	if err != nil {
		return nil, err
	}
	d := document{sd}
	p := &Prices{entries: map[string][]Entry{}}
	err = d.List(root, "a price table", func(n ast.Node) error {
		e, err := d.entry(n)
		if err != nil {
			return err
		}
		for _, other := range p.entries[e.Model] {
			if other.From.Equal(e.From) {
				return d.Errorf(n, "%s has two prices from %s", e.Model, e.From.Format(time.DateOnly))
			}
		}
		p.entries[e.Model] = append(p.entries[e.Model], e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, list := range p.entries {
		slices.SortFunc(list, func(a, b Entry) int { return a.From.Compare(b.From) })
	}
	return p, nil
}

var modelName = regexp.MustCompile(`^(openai|anthropic)(@[^\s:]+(:[0-9]+)?)?:\S+$`)

func (d document) entry(n ast.Node) (e Entry, err error) {
	const none = -1
	e.Price = Price{none, none, none, none}
	order := []string{"model", "from", "input", "output", "cache_read", "cache_write", "window", "max_output"}
	err = d.Mapping(n, "a price", order, map[string]strict.Field{
		"model": strict.Into(&e.Model, d.modelName), "from": strict.Into(&e.From, d.day),
		"input": strict.Into(&e.Price.Input, d.Dollars), "output": strict.Into(&e.Price.Output, d.Dollars),
		"cache_read": strict.Into(&e.Price.CacheRead, d.Dollars), "cache_write": strict.Into(&e.Price.CacheWrite, d.Dollars),
		"window": strict.Into(&e.Window, d.Count), "max_output": strict.Into(&e.MaxOutput, d.Count),
	})
	if err != nil {
		return e, err
	}
	if e.Model == "" || e.Price.Input == none || e.Price.Output == none {
		return e, d.Errorf(n, "a price is incomplete, expected at least model, input and output")
	}
	for _, cache := range []*int64{&e.Price.CacheRead, &e.Price.CacheWrite} {
		if *cache == none {
			*cache = e.Price.Input
		}
	}
	return e, nil
}

func (d document) modelName(n ast.Node, what string) (string, error) {
	v, err := d.Text(n, what)
	if err == nil && !modelName.MatchString(v) {
		err = d.Errorf(n, "%s is %q, expected openai:NAME or anthropic:NAME, or openai@HOST:NAME for another server", what, clip(v))
	}
	return v, err
}

func (d document) day(n ast.Node, what string) (time.Time, error) {
	v, err := d.Text(n, what)
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.DateOnly, v)
	if err != nil {
		err = d.Errorf(n, "%s is %q, expected a day such as 2025-08-07", what, clip(v))
	}
	return t, err
}

// dated is the end of a name that pins a snapshot or follows the newest.
var dated = regexp.MustCompile(`(-20[0-9]{2}-?[01][0-9]-?[0-3][0-9]|-latest)$`)

// Lookup finds what holds for a model at a time: by its exact name, else by
// its name without a snapshot's date. A nil table knows nothing.
func (p *Prices) Lookup(provider, name string, at time.Time) (Entry, bool) {
	if p == nil {
		return Entry{}, false
	}
	for _, n := range []string{name, dated.ReplaceAllString(name, "")} {
		list := p.entries[provider+":"+n]
		for _, e := range slices.Backward(list) {
			if !e.From.After(at) {
				return e, true
			}
		}
	}
	return Entry{}, false
}

// knows says whether the table ever had the model.
func (p *Prices) knows(provider, name string) bool {
	return len(p.entries[provider+":"+name]) > 0 || len(p.entries[provider+":"+dated.ReplaceAllString(name, "")]) > 0
}

// find looks for a model in the user's table, then in the built-in one; first
// as served by its own host, then as the provider's own.
func find(user *Prices, provider, name string, at time.Time) (Entry, bool) {
	vendor, _, _ := strings.Cut(provider, "@")
	for _, table := range []*Prices{user, builtin()} {
		for _, p := range []string{provider, vendor} {
			if e, ok := table.Lookup(p, name, at); ok {
				return e, true
			}
		}
	}
	return Entry{}, false
}
