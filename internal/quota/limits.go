package quota

import (
	"fmt"
	"strings"
)

// Limits are the provider's limits by the minute, and the number of calls at
// one time. Zero means that no limit is known.
type Limits struct {
	Requests    int64 `json:"requests,omitempty"`
	Tokens      int64 `json:"tokens,omitempty"` // input and output together
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
		return "limits as the provider states them"
	}
	return strings.Join(all, ", ")
}

// within returns l with each value at most the value in m.
func (l Limits) within(m Limits) Limits {
	least := func(a, b int64) int64 {
		if a == 0 || b > 0 && b < a {
			return b
		}
		return a
	}
	return Limits{least(l.Requests, m.Requests), least(l.Tokens, m.Tokens), least(l.Input, m.Input), least(l.Output, m.Output), l.Concurrency}
}

// Beyond names the limit in which l exceeds all; empty if there is none.
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

// A Config holds the limits of one provider: for each key, and for each model
// and key. The limit on concurrency holds for the whole provider.
type Config struct {
	Limits
	Models map[string]Limits `json:"models,omitempty"`
}

// A Resource has limits of its own: a model, for a key, at a provider.
type Resource struct {
	Provider string // with "@host" if the address is not the usual one
	Key      string // empty for the daemon's own key; else a short name of the client's key
	Model    string
}

// String returns PROVIDER[#KEY][/MODEL].
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

// ParseResource reads the result of String.
func ParseResource(s string) (r Resource) {
	s, r.Model, _ = strings.Cut(s, "/")
	r.Provider, r.Key, _ = strings.Cut(s, "#")
	return r
}
