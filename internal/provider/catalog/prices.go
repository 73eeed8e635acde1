// Package catalog holds what Kern knows about a model by its name: prices, sizes and
// the vocabulary.
package catalog

import (
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/internal/yamlfile"
	"github.com/kern-run/kern/model"
)

// A document is a Kern file that is read strictly: unknown keys are errors.
type document struct{ *yamlfile.Document }

// Prices is a table of the prices and the sizes of models.
type Prices struct {
	entries map[string][]Entry // by "provider:model", oldest first
}

// An Entry holds the price and the sizes of a model from a day on, until a later
// Entry.
type Entry struct {
	Model     string      `json:"model"` // "openai:gpt-5"
	From      time.Time   `json:"from,omitzero"`
	Price     model.Price `json:"price"`
	Long      model.Price `json:"long,omitzero"`    // price of all tokens of a request with more than Beyond input tokens
	Beyond    int         `json:"beyond,omitempty"` // 0: every request has Price
	Window    int         `json:"window"`           // 0: unknown
	MaxOutput int         `json:"max_output"`       // 0: unknown
}

// Known returns the entries of all models at a time, sorted by name. An entry of the
// user's table replaces the built-in entry of the same name.
func Known(user *Prices, at time.Time) (list []Entry) {
	all := make(map[string]Entry)
	for _, table := range []*Prices{builtin(), user} {
		if table == nil {
			continue
		}
		for name := range table.entries {
			if e, ok := table.at(name, at); ok {
				all[name] = e
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

// Nearest returns the built-in entry whose name is most like a model that no table
// holds. It looks only within the family, and of equal matches it takes the newest.
// The entry is a guess to show to a person. It must not be used as a price.
func Nearest(provider, name string, at time.Time) (near Entry, ok bool) {
	vendor, _, _ := strings.Cut(provider, "@")
	most := 0
	for _, e := range Known(nil, at) {
		n := sharedPrefix(e.Model, vendor+":"+name) - len(vendor+":")
		// A shorter match would show the price of an unrelated model.
		if n >= family && (n > most || n == most && e.From.After(near.From)) {
			near, most = e, n
		}
	}
	return near, most > 0
}

// family is the length of the shared beginning that makes two names one family.
const family = len("gpt-")

// sharedPrefix returns the length of the beginning that a and b share.
func sharedPrefix(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
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
//   - {model: "openai:m", input: 2, output: 10, long: {beyond: 272000, input: 4, output: 15}}
//
// Prices are dollars per million tokens. A missing cache price is the input price,
// so an omission makes nothing free. A long price applies to every token of a
// request with more than beyond input tokens.
func LoadPrices(name string, data []byte) (*Prices, error) {
	sd, root, err := yamlfile.Parse(name, data)
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
		// Two prices from one day would make the price depend on their order in the file.
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
	price, fields := d.price(&e.Price)
	order := append(append([]string{"model", "from"}, price...), "long", "window", "max_output")
	fields["model"], fields["from"] = yamlfile.Into(&e.Model, d.modelName), yamlfile.Into(&e.From, d.day)
	fields["window"], fields["max_output"] = yamlfile.Into(&e.Window, d.Count), yamlfile.Into(&e.MaxOutput, d.Count)
	fields["long"] = func(n ast.Node, what string) error {
		price, fields := d.price(&e.Long)
		fields["beyond"] = yamlfile.Into(&e.Beyond, d.Count)
		if err := d.Mapping(n, what, append([]string{"beyond"}, price...), fields); err != nil {
			return err
		}
		// Without beyond, no request would ever have the long price.
		if !complete(&e.Long) || e.Beyond == 0 {
			return d.Errorf(n, "%s is incomplete, expected at least beyond, input and output", what)
		}
		return nil
	}
	if err = d.Mapping(n, "a price", order, fields); err != nil {
		return e, err
	}
	if e.Model == "" || !complete(&e.Price) {
		return e, d.Errorf(n, "a price is incomplete, expected at least model, input and output")
	}
	return e, nil
}

// missing marks a price that is missing in the file.
const missing = -1

// price returns the fields of a price in the file, and sets all of p to none.
func (d document) price(p *model.Price) (order []string, fields map[string]yamlfile.Field) {
	*p = model.Price{Input: missing, Output: missing, CacheRead: missing, CacheWrite: missing}
	return []string{"input", "output", "cache_read", "cache_write"}, map[string]yamlfile.Field{
		"input": yamlfile.Into(&p.Input, d.Dollars), "output": yamlfile.Into(&p.Output, d.Dollars),
		"cache_read": yamlfile.Into(&p.CacheRead, d.Dollars), "cache_write": yamlfile.Into(&p.CacheWrite, d.Dollars),
	}
}

// complete reports whether p has its required prices, and sets missing cache prices to
// the input price.
func complete(p *model.Price) bool {
	for _, cache := range []*int64{&p.CacheRead, &p.CacheWrite} {
		if *cache == missing {
			*cache = p.Input
		}
	}
	return p.Input != missing && p.Output != missing
}

func (d document) modelName(n ast.Node, what string) (string, error) {
	v, err := d.Text(n, what)
	if err == nil && !modelName.MatchString(v) {
		err = d.Errorf(n, "%s is %q, expected openai:NAME or anthropic:NAME, or openai@HOST:NAME for another server", what, jsontext.Clip(v))
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
		err = d.Errorf(n, "%s is %q, expected a day such as 2025-08-07", what, jsontext.Clip(v))
	}
	return t, err
}

// dated matches the end of a name that pins a snapshot or follows the newest one.
var dated = regexp.MustCompile(`(-20[0-9]{2}-?[01][0-9]-?[0-3][0-9]|-latest)$`)

// Lookup returns the entry of a model at a time. It tries the exact name first, then
// the name without the date of a snapshot. A nil table is empty.
func (p *Prices) Lookup(provider, name string, at time.Time) (Entry, bool) {
	if p == nil {
		return Entry{}, false
	}
	for _, n := range []string{name, dated.ReplaceAllString(name, "")} {
		if e, ok := p.at(provider+":"+n, at); ok {
			return e, true
		}
	}
	return Entry{}, false
}

// at returns the entry of a model at a time, by its exact name.
func (p *Prices) at(model string, at time.Time) (Entry, bool) {
	for _, e := range slices.Backward(p.entries[model]) {
		if !e.From.After(at) {
			return e, true
		}
	}
	return Entry{}, false
}

// knows reports whether the table has an entry of the model for any day.
func (p *Prices) knows(provider, name string) bool {
	return len(p.entries[provider+":"+name]) > 0 || len(p.entries[provider+":"+dated.ReplaceAllString(name, "")]) > 0
}

// Find returns the entry of a model from the user's table, else from the built-in
// table. Within a table it tries provider@host first, then the vendor alone.
func Find(user *Prices, provider, name string, at time.Time) (Entry, bool) {
	vendor, host, _ := strings.Cut(provider, "@")
	for _, table := range []*Prices{user, builtin()} {
		if e, ok := table.Lookup(provider, name, at); ok {
			return e, true
		}
		if e, ok := table.Lookup(vendor, name, at); ok {
			// An entry for the host itself already is the price there; only the vendor's is raised.
			if strings.HasSuffix(host, regional) {
				e.Price, e.Long = tenthMore(e.Price), tenthMore(e.Long)
			}
			return e, true
		}
	}
	return Entry{}, false
}

// CounterOf returns the token counter of a model. provider has the form of
// [model.Facts].
func CounterOf(provider, name string) tokens.Counter {
	vendor, _, _ := strings.Cut(provider, "@")
	// A server of the same format may run any model, and only OpenAI's own have these vocabularies.
	if vendor == "openai" && (provider == vendor || builtin().knows(vendor, name)) {
		return tokens.OpenAI(name)
	}
	return tokens.Other(name)
}

// regional is the suffix of OpenAI's hosts that keep a request within a region, such
// as eu.api.openai.com. They cost a tenth more. Models from before March 2026 do
// not, but a reservation that is too high does no harm.
const regional = ".api.openai.com"

func tenthMore(p model.Price) model.Price {
	more := func(n int64) int64 { return n + (n+9)/10 }
	return model.Price{Input: more(p.Input), Output: more(p.Output), CacheRead: more(p.CacheRead), CacheWrite: more(p.CacheWrite)}
}
