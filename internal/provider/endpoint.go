package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/model"
)

// An Endpoint is one model at one provider, with the address, the key and the
// facts of the model. [Endpoint.Post] sends a request in the provider's format.
type Endpoint struct {
	Facts  model.Facts
	Format string        // openai or anthropic
	Name   string        // the provider's name in the configuration
	Model  string        // the name of the model at the provider
	Free   []string      // see [Provider]
	Idle   time.Duration // silence after which the built-in loop ends an answer

	line transport.Line
	lent bool // each program sends its own key
	now  func() time.Time
}

// format returns the format of a provider. It is empty if there is no such
// provider.
func (c *Config) format(provider string) string {
	if _, usual := vendors[provider]; usual {
		return provider
	}
	return c.Providers[provider].Format
}

// providers lists the names of all providers for an error.
func (c *Config) providers() string {
	names := slices.Sorted(maps.Keys(c.Providers))
	names = slices.DeleteFunc(names, func(n string) bool { return n == "openai" || n == "anthropic" })
	return strings.Join(append(names, "openai or anthropic"), ", ")
}

// endpoint returns the Endpoint of a model at a provider. ref becomes the name in
// its Facts.
func (c *Config) endpoint(ref, provider, name string) (*Endpoint, error) {
	format := c.format(provider)
	v, p := vendors[format], c.Providers[provider]
	base, where := p.BaseURL, "base URL of the provider "+provider
	if base == "" && format == provider {
		base, where = c.Getenv(v.envBase), v.envBase
	}
	if base == "" && format != provider {
		return nil, fmt.Errorf("the provider %s has no base URL", provider)
	}
	if format == "anthropic" { // because the paths of this format begin with /v1
		base = strings.TrimSuffix(strings.TrimRight(base, "/"), "/v1")
	}
	base, place, err := v.place(provider, base, where)
	if err != nil {
		return nil, err
	}
	// The key depends on the address, because the vendor's key must not go elsewhere.
	key, err := c.key(provider, p, v, place == format)
	if err != nil {
		return nil, err
	}
	headers, err := c.headers(provider, p, format)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{Format: format, Name: provider, Model: name, Free: p.Free, Idle: c.Idle, lent: p.Lent, now: c.Now,
		line: transport.Line{Base: base, Key: key, Sign: v.sign, Headers: headers, Client: c.HTTP}}
	// The configuration overrides the price tables.
	listed, has := p.Models[name]
	e.Model = cmp.Or(listed.Alias, name)
	e.Facts = c.facts(ref, place, e.Model)
	if has {
		listed.over(&e.Facts)
	}
	if format == "anthropic" && e.Facts.MaxOutput == 0 {
		e.Facts.MaxOutput = messagesOutput
	}
	return e, nil
}

// facts returns the facts of a model from the price tables.
func (c *Config) facts(ref, place, name string) model.Facts {
	f := model.Facts{Name: ref, Provider: place, MinOutput: 16}
	if x, ok := catalog.Find(c.Prices, place, name, c.Now()); ok {
		f.Price, f.Priced, f.Window, f.MaxOutput = x.Price, true, x.Window, x.MaxOutput
		f.Long, f.Beyond = x.Long, x.Beyond
	}
	return f
}

// over replaces facts of the price tables by the values of the configuration.
func (l *Listed) over(f *model.Facts) {
	if l.Priced {
		f.Price, f.Priced = l.Price, true
		f.Long, f.Beyond = model.Price{}, 0
	}
	f.Window, f.MaxOutput = cmp.Or(l.Window, f.Window), cmp.Or(l.MaxOutput, f.MaxOutput)
}

// Routes returns the routes of a request in a format, in the order of attempts:
// the named model first, then its fallbacks. The name is a model that a provider
// lists, PROVIDER/NAME, or any model of the vendor of the format.
func (c Config) Routes(format, name string) ([]*Endpoint, error) {
	c = c.filled()
	provider, name := c.locate(format, name)
	if f := c.format(provider); f != format {
		return nil, fmt.Errorf("the provider %s speaks like %s, and the request is written for %s", provider, f, format)
	}
	first, err := c.endpoint(provider+":"+name, provider, name)
	if err != nil {
		return nil, err
	}
	routes := []*Endpoint{first}
	for _, ref := range c.Fallbacks(first.Facts.Name) {
		p, n, _ := strings.Cut(ref, ":")
		if e, err := c.endpoint(ref, p, n); err == nil { // the check of the configuration reports a bad fallback
			routes = append(routes, e)
		}
	}
	return routes, nil
}

// Fallbacks returns the references of the models to try when ref fails, in the
// order of attempts.
func (c Config) Fallbacks(ref string) (refs []string) {
	provider, name, _ := c.split(ref)
	for _, other := range c.Providers[provider].Fallback {
		p, n, ok := c.split(other)
		if !ok {
			p, n = other, name
		}
		refs = append(refs, p+":"+n)
	}
	return refs
}

// locate finds the provider and the model for the name in a request: MODEL,
// PROVIDER/MODEL or PROVIDER:MODEL.
func (c *Config) locate(format, name string) (provider, model string) {
	if p, n, ok := c.split(name); ok && n != "" && c.format(p) != "" {
		return p, n
	}
	names := slices.Sorted(maps.Keys(c.Providers))
	for _, p := range append([]string{format}, names...) { // another provider may list the vendor's names and so replace the vendor
		if _, has := c.Providers[p].Models[name]; has && c.format(p) == format {
			return p, name
		}
	}
	if c.reachable(format) {
		return format, name
	}
	names = slices.DeleteFunc(names, func(p string) bool { return c.format(p) != format })
	if len(names) == 1 {
		return names[0], name
	}
	return format, name
}

// reachable reports whether the configuration or the environment sets up the
// vendor of a format.
func (c *Config) reachable(format string) bool {
	_, configured := c.Providers[format]
	v := vendors[format]
	return configured || c.Getenv(v.envBase) != "" || c.Getenv(v.envKey) != ""
}

// A Way is the route of requests that name no provider, in one format.
type Way struct {
	Base  string `json:"base"`  // base URL
	Keyed bool   `json:"keyed"` // the daemon has a key for it
	Own   bool   `json:"own"`   // a program need not send its own key
}

// Way returns the Way of a format.
func (c Config) Way(format string) Way {
	c = c.filled()
	provider, _ := c.locate(format, "")
	e, err := c.endpoint("", provider, "")
	if err != nil {
		return Way{Own: true}
	}
	return Way{e.line.Base, e.Keyed(), !e.Wants()}
}

// Models returns the sorted names of the models in a format: the configured ones. If
// requests reach the vendor, and the configuration lists no model of it, the price
// table lists them.
func (c Config) Models(format string) (names []string) {
	c = c.filled()
	for p, v := range c.Providers {
		for m := range v.Models {
			if c.format(p) == format {
				names = append(names, m)
			}
		}
	}
	if provider, _ := c.locate(format, ""); provider == format && len(c.Providers[format].Models) == 0 || len(names) == 0 {
		for _, e := range catalog.Known(c.Prices, c.Now()) {
			if name, ok := strings.CutPrefix(e.Model, format+":"); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Keyed reports whether Kern has a key for the endpoint.
func (e *Endpoint) Keyed() bool { return e.line.Key.Given() }

// Wants reports whether a request must bring its own key. That is so if Kern has
// no key, and the endpoint is at the vendor's own address or passes on the key of
// each program.
func (e *Endpoint) Wants() bool { return !e.Keyed() && (e.Facts.Provider == e.Format || e.lent) }

// Post sends a request in the provider's format; see [transport.Line.Post]. Its
// error is a [*model.Error].
func (e *Endpoint) Post(ctx context.Context, path string, h http.Header, body []byte) (*http.Response, error) {
	resp, err := e.line.Post(ctx, path, h, body)
	if err == nil {
		return resp, nil
	}
	x := &model.Error{Kind: model.Network, Message: e.Tidy(err.Error())}
	if strings.Contains(err.Error(), "malformed HTTP") {
		x.Kind = model.Malformed
	}
	var lost *transport.Lost
	if errors.As(err, &lost) {
		if x.Unreached = lost.Unreached; !lost.Seen {
			x.Usage = &model.Usage{} // the provider never saw the request and bills nothing
		}
	}
	return nil, x
}

// Refusal classifies an answer with an error status. Its Usage is zero, because
// providers do not bill such answers.
func (e *Endpoint) Refusal(status int, h http.Header, body []byte) *model.Error {
	x := &model.Error{Status: status, Usage: &model.Usage{}, Quota: format.ReadQuota(h, e.now())}
	x.Kind, x.Message = format.ReadProblem(status, body)
	x.Message = e.Tidy(cmp.Or(x.Message, string(body), http.StatusText(status)))
	if status >= 300 && status < 400 {
		x.Message = "redirects are not followed, for they would carry the key elsewhere; set the base URL to where this leads"
	}
	if x.Retryable() {
		x.RetryAfter = format.RetryAfter(h, e.now())
	}
	return x
}

// Clean replaces the key in text from outside.
func (e *Endpoint) Clean(s string) string { return e.line.Redact(s) }

// Tidy replaces the key in text from outside, then makes the text short and
// printable. The key goes first, because a cut could leave half of it.
func (e *Endpoint) Tidy(s string) string { return format.Tidy(e.line.Redact(s)) }
