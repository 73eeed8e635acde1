package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/internal/yamlfile"
	"github.com/kern-run/kern/model"
)

var providerName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

// formats are the values of a provider's format in kern.yaml.
var formats = []string{"openai", "anthropic"}

// readProviders reads the map of providers in kern.yaml. The providers openai and
// anthropic need no format and no base_url, because Kern knows both.
func (s *Settings) readProviders(d *yamlfile.Document, n ast.Node, what string) error {
	falls := make(map[string][]ast.Node)
	err := d.Entries(n, what, func(name string, key, value ast.Node) (err error) {
		if !providerName.MatchString(name) || name == "script" {
			return d.Errorf(key, "the provider %q, expected a name of small letters, digits, - and _, a letter first, and not script", jsontext.Clip(name))
		}
		falls[name], err = s.readProvider(d, name, value)
		return err
	})
	if err != nil {
		return err
	}
	// Fallbacks are checked last, because they may name providers that come later.
	for _, name := range slices.Sorted(maps.Keys(falls)) {
		for i, at := range falls[name] {
			if err := s.checkFallback(d, at, name, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFallback checks entry i in the fallback list of the provider name. A model
// that the other provider does not list is only a warning.
func (s *Settings) checkFallback(d *yamlfile.Document, at ast.Node, name string, i int) error {
	list := s.Providers[name].Fallback
	to := list[i]
	other, id, named := strings.Cut(to, "/")
	if p, m, ok := strings.Cut(to, ":"); ok && s.speaks(p) != "" {
		other, id, named = p, m, true
	}
	bad := func(format string, args ...any) error {
		return d.Errorf(at, "the provider %s falls back to %q, "+format, append([]any{name, jsontext.Clip(to)}, args...)...)
	}
	switch p := s.Providers[other]; {
	case s.speaks(other) == "":
		return bad("and there is no such provider: expected PROVIDER or PROVIDER/MODEL")
	case s.speaks(other) != s.speaks(name):
		return bad("which speaks like %s, and itself like %s: requests are not translated", s.speaks(other), s.speaks(name))
	case named && id == "", to == name, slices.Contains(list[:i], to):
		return bad("expected another provider or model, each once")
	case p.Lent:
		return bad("which takes each program's own key, and that of a program is shown to the first alone")
	case len(p.Models) > 0:
		for _, model := range s.asked(name, id) {
			if _, has := p.Models[model]; !has {
				s.notes = append(s.notes, bad("and no model %s is listed there: it has no price and no limits of its own", model).Error())
			}
		}
	}
	return nil
}

// asked returns the models that requests of the provider name ask a fallback for:
// the model id of the fallback, or every listed model if id is empty.
func (s *Settings) asked(name, id string) []string {
	if id != "" {
		return []string{id}
	}
	return slices.Sorted(maps.Keys(s.Providers[name].Models))
}

// speaks returns the format of a provider, or "" if no provider has that name.
func (s *Settings) speaks(name string) string {
	if slices.Contains(formats, name) {
		return name
	}
	return s.Providers[name].Format
}

// variable matches the name of an environment variable. An error does not quote a
// text that does not match, because that text may be a key.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// into returns a field that reads the name of an environment variable into to. The
// variable holds a secret; of is the provider or header that the secret is for.
func into(d *yamlfile.Document, to *string, of string) yamlfile.Field {
	return func(n ast.Node, what string) (err error) {
		if *to, err = d.Text(n, what); err == nil && !variable.MatchString(*to) {
			err = d.Errorf(n, "%s of %s is not the name of a variable, expected one such as MY_KEY: the key itself has no place here", what, of)
		}
		return err
	}
}

// readHeaders reads the headers that go with every request. A secret header has the
// source of its value instead of the value, as a key has. readHeaders puts the nodes
// of secret headers into secret, for later errors.
func (s *Settings) readHeaders(d *yamlfile.Document, n ast.Node, what string, h *transport.Headers, secret map[string]ast.Node) error {
	return d.Entries(n, what, func(name string, key, value ast.Node) error {
		value, err := d.Value(value)
		if err != nil {
			return err
		}
		if _, named := value.(ast.MapNode); named {
			var from transport.Source
			if from, err = s.readSecret(d, value, "the header "+jsontext.Clip(name)); err != nil {
				return err
			}
			secret[name], err = key, h.SetSecret(name, from)
		} else {
			var text string
			if text, err = d.Text(value, name); err != nil && !transport.ForSecret(name) {
				return err
			}
			err = h.Set(name, text)
		}
		if err != nil {
			return d.Errorf(key, "%s: %v", what, err)
		}
		return nil
	})
}

// readSecret reads the source of a secret: key_env or key_file.
func (s *Settings) readSecret(d *yamlfile.Document, n ast.Node, of string) (from transport.Source, err error) {
	err = d.Mapping(n, of, []string{"key_env", "key_file"}, map[string]yamlfile.Field{
		"key_env": into(d, &from.Env, of), "key_file": s.beside(d, &from.File),
	})
	if err == nil && from.Count() != 1 {
		err = d.Errorf(n, "%s has %d places for its value, expected one of key_env and key_file", of, from.Count())
	}
	return from, err
}

// sources returns the sources of a provider's secrets, the source of its key first.
func sources(p *provider.Provider) []transport.Source {
	return append([]transport.Source{{Env: p.KeyEnv, File: p.KeyFile}}, slices.Collect(maps.Values(p.Headers.Secrets()))...)
}

// readProvider reads one provider, and returns the nodes of its fallback list for
// [Settings.checkFallback].
func (s *Settings) readProvider(d *yamlfile.Document, name string, n ast.Node) (falls []ast.Node, err error) {
	var p provider.Provider
	var base ast.Node
	t := Traffic{Models: make(map[string]TrafficLimits)}
	conc, secret := 0, make(map[string]ast.Node)
	err = d.Mapping(n, "the provider "+name, []string{"format", "base_url", "key", "key_env", "key_file", "headers", "concurrency", "limits", "models", "fallback", "free"}, map[string]yamlfile.Field{
		"format": yamlfile.Into(&p.Format, d.Text), "key_file": s.beside(d, &p.KeyFile),
		"base_url": func(n ast.Node, what string) (err error) {
			base = n
			p.BaseURL, err = d.Text(n, what)
			return err
		},
		"key_env": into(d, &p.KeyEnv, "the provider "+name),
		"key": func(n ast.Node, what string) error {
			if of, err := d.Text(n, what); err != nil || of != "program" {
				return d.Errorf(n, "%s of the provider %s, expected program: each program's own credential is passed on (a key stands in a variable, named by key_env, or in a file, by key_file)", what, name)
			}
			p.Lent = true
			return nil
		},
		"headers": func(n ast.Node, what string) error {
			return s.readHeaders(d, n, what+" of the provider "+name, &p.Headers, secret)
		},
		"concurrency": func(n ast.Node, what string) (err error) { // short for limits: {concurrency: }
			conc, err = positive(d, n, what)
			return err
		},
		"limits": func(n ast.Node, what string) (err error) {
			t.Limits, err = readProviderLimits(d, n, what)
			return err
		},
		"models": func(n ast.Node, what string) (err error) {
			p.Models, err = readModels(d, n, what, t.Models)
			return err
		},
		"fallback": func(n ast.Node, what string) error {
			return d.List(n, what, yamlfile.AppendTo(&p.Fallback, func(n ast.Node) (string, error) {
				falls = append(falls, n)
				return d.Text(n, what)
			}))
		},
		"free": func(n ast.Node, what string) error {
			return d.List(n, what, yamlfile.AppendTo(&p.Free, func(n ast.Node) (string, error) { return d.Text(n, what) }))
		},
	})
	if err != nil {
		return nil, err
	}
	if conc > 0 && t.Concurrency > 0 {
		return nil, d.Errorf(n, "the provider %s has concurrency twice, expected it once: here or in limits", name)
	}
	t.Concurrency = cmp.Or(t.Concurrency, conc)
	if err := checkProvider(d, n, base, name, &p, &t); err != nil {
		return nil, err
	}
	// At most one header fails, because only one carries the key of this format.
	for header, at := range secret {
		if err := provider.CheckHeader(cmp.Or(p.Format, name), header); err != nil {
			return nil, d.Errorf(at, "headers of the provider %s: %v", name, err)
		}
	}
	s.Traffic[name] = t
	s.Providers[name] = p
	return falls, nil
}

// checkProvider checks the keys of a provider against each other.
func checkProvider(d *yamlfile.Document, n, base ast.Node, name string, p *provider.Provider, t *Traffic) error {
	usual := slices.Contains(formats, name)
	switch {
	case usual && p.Format != "" && p.Format != name:
		return d.Errorf(n, "the provider %s has the format %q, expected none: it speaks like itself", name, p.Format)
	case !usual && !slices.Contains(formats, p.Format):
		return d.Errorf(n, "the provider %s has the format %q, expected openai or anthropic: which of the two it speaks like", name, jsontext.Clip(p.Format))
	case !usual && base == nil:
		return d.Errorf(n, "the provider %s has no base_url, expected its address", name)
	case p.Lent && (p.KeyEnv != "" || p.KeyFile != ""), p.KeyEnv != "" && p.KeyFile != "":
		return d.Errorf(n, "the provider %s has more than one key, expected one of key, key_env and key_file", name)
	}
	if base != nil {
		if err := provider.CheckBase(cmp.Or(p.Format, name), p.BaseURL); err != nil {
			return d.Errorf(base, "base_url of the provider %s %v", name, err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.Models)) {
		if err := t.Models[id].Beyond(t.Limits); err != "" {
			return d.Errorf(n, "the model %s of the provider %s grants %s of the provider", id, name, err)
		}
	}
	return nil
}

// readModels reads the models of a provider. Prices are dollars per million tokens.
// An absent cache price is the input price.
func readModels(d *yamlfile.Document, n ast.Node, what string, limits map[string]TrafficLimits) (map[string]provider.Listed, error) {
	all := make(map[string]provider.Listed)
	return all, d.Entries(n, what, func(name string, key, value ast.Node) error {
		if name == "" || strings.TrimSpace(name) != name {
			return d.Errorf(key, "the model %q, expected a name", jsontext.Clip(name))
		}
		const none = -1 // marks an absent price, because 0 is a price too
		l := provider.Listed{Price: model.Price{Input: none, Output: none, CacheRead: none, CacheWrite: none}}
		p := &l.Price
		err := d.Mapping(value, "the model "+name, []string{"alias", "input", "output", "cache_read", "cache_write", "window", "max_output", "limits"}, map[string]yamlfile.Field{
			"alias": yamlfile.Into(&l.Alias, d.Text), "input": yamlfile.Into(&p.Input, d.Dollars), "output": yamlfile.Into(&p.Output, d.Dollars),
			"cache_read": yamlfile.Into(&p.CacheRead, d.Dollars), "cache_write": yamlfile.Into(&p.CacheWrite, d.Dollars),
			"window": yamlfile.Into(&l.Window, d.Count), "max_output": yamlfile.Into(&l.MaxOutput, d.Count),
			"limits": func(n ast.Node, what string) (err error) {
				limits[name], err = readProviderLimits(d, n, what)
				return err
			},
		})
		switch {
		case err != nil:
			return err
		case *p == model.Price{Input: none, Output: none, CacheRead: none, CacheWrite: none}:
			*p = model.Price{}
		case l.Window > 0 && l.MaxOutput > l.Window:
			return d.Errorf(value, "the model %s gives %d tokens at most in a window of %d, expected no more than the window", name, l.MaxOutput, l.Window)
		case p.Input == none || p.Output == none:
			return d.Errorf(value, "the price of the model %s is incomplete, expected input and output", name)
		default:
			l.Priced = true
			for _, cache := range []*int64{&p.CacheRead, &p.CacheWrite} {
				if *cache == none {
					*cache = p.Input
				}
			}
		}
		all[name] = l
		return nil
	})
}

// A Gateway is the configuration of the gateway. An empty Listen is a port on
// loopback that the data directory remembers. An address beyond loopback needs a
// certificate, or InsecurePublic.
type Gateway struct {
	Listen          string
	TLSCert, TLSKey string // files
	InsecurePublic  bool
	Bytes           int64 // of requests that one key may store in the journal; 0: the default
}

func (s *Settings) readGateway(d *yamlfile.Document, n ast.Node, what string) error {
	g := &s.Gateway
	err := d.Mapping(n, what, []string{"listen", "tls_cert", "tls_key", "insecure_public", "bytes"}, map[string]yamlfile.Field{
		"listen": yamlfile.Into(&g.Listen, d.Text), "tls_cert": s.beside(d, &g.TLSCert), "tls_key": s.beside(d, &g.TLSKey),
		"insecure_public": yamlfile.Into(&g.InsecurePublic, d.Boolean), "bytes": func(n ast.Node, what string) error {
			text, err := d.Scalar(n, what)
			if err == nil {
				g.Bytes, err = abi.ParseUnit(abi.OutputBytes, text)
			}
			if err != nil || g.Bytes < 1<<20 {
				return d.Errorf(n, "%s is %q, expected a size of at least 1MiB such as 4GiB", what, jsontext.Clip(text))
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(g.Listen)
	if num, perr := strconv.ParseUint(port, 10, 16); g.Listen != "" && (err != nil || host == "" || perr != nil || num == 0) {
		return d.Errorf(n, "%s: listen is %q, expected an address and a port such as 127.0.0.1:8100", what, g.Listen)
	}
	if (g.TLSCert == "") != (g.TLSKey == "") {
		return d.Errorf(n, "%s has one of tls_cert and tls_key, expected both or none", what)
	}
	if !loopback(host) && g.TLSCert == "" && !g.InsecurePublic {
		return d.Errorf(n, "%s: listen is %q, which others can reach: expected tls_cert and tls_key, or insecure_public: true", what, g.Listen)
	}
	return nil
}

// String describes the address of the gateway and its use of TLS.
func (g Gateway) String() string {
	where := cmp.Or(g.Listen, "a port of 127.0.0.1 that is remembered in the data directory")
	host, _, _ := net.SplitHostPort(g.Listen)
	switch {
	case g.TLSCert != "":
		return where + ", with TLS"
	case !loopback(host):
		return where + ", without TLS, as insecure_public says"
	}
	return where
}

// loopback reports whether only this machine reaches a host. An empty host is
// loopback.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || err == nil && ip.IsLoopback()
}
