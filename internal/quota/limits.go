package quota

import (
	"fmt"
	"strings"
)

// Limits are what a provider grants by the minute, and how many calls it takes
// at one time. Zero is no limit that is known.
type Limits struct {
	Requests    int64 `json:"requests,omitempty"`
	Tokens      int64 `json:"tokens,omitempty"` // in and out together
	Input       int64 `json:"input_tokens,omitempty"`
	Output      int64 `json:"output_tokens,omitempty"`
	Concurrency int   `json:"concurrency,omitempty"`
}

func (l *Limits) amount() amount { return amount{l.Requests, l.Tokens, l.Input, l.Output} }

func (l Limits) String() string {
	var all []string
	for u, n := range l.amount() {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d %s a minute", n, unitNames[u]))
		}
	}
	if l.Concurrency > 0 {
		all = append(all, fmt.Sprintf("at most %d calls at a time", l.Concurrency))
	}
	if all == nil {
		return "limits as it tells them"
	}
	return strings.Join(all, ", ")
}

// within is l where it is set, and at most what m allows.
func (l Limits) within(m Limits) Limits {
	least := func(a, b int64) int64 {
		if a == 0 || b > 0 && b < a {
			return b
		}
		return a
	}
	return Limits{least(l.Requests, m.Requests), least(l.Tokens, m.Tokens), least(l.Input, m.Input), least(l.Output, m.Output), l.Concurrency}
}

// Beyond says in which l is more than all that is granted; empty: in nothing.
func (l Limits) Beyond(all Limits) string {
	most := all.amount()
	for u, n := range l.amount() {
		if most[u] > 0 && n > most[u] {
			return fmt.Sprintf("%d %s a minute, expected no more than the %d", n, unitNames[u], most[u])
		}
	}
	if all.Concurrency > 0 && l.Concurrency > all.Concurrency {
		return fmt.Sprintf("%d calls at one time, expected no more than the %d", l.Concurrency, all.Concurrency)
	}
	return ""
}

// Config is what a host says of one provider: limits for each key there, and
// for each model and key. A limit on concurrency is one for the provider,
// whatever the key.
type Config struct {
	Limits
	Models map[string]Limits `json:"models,omitempty"`
}

// A Resource is what has limits of its own: a model, for a key of a provider.
type Resource struct {
	Provider string // with "@host" when the address is not the usual one
	Key      string // empty: the daemon's own; else a short name of the caller's
	Model    string
}

// String is PROVIDER[#KEY][/MODEL].
func (r Resource) String() string {
	s := r.Provider
	if r.Key != "" {
		s += "#" + r.Key
	}
	if r.Model != "" {
		s += "/" + r.Model
	}
	return s
}

// ParseResource reads what String wrote.
func ParseResource(s string) (r Resource) {
	s, r.Model, _ = strings.Cut(s, "/")
	r.Provider, r.Key, _ = strings.Cut(s, "#")
	return r
}
