package kern

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

	"github.com/kern-run/kern/internal/strict"
	"github.com/kern-run/kern/model"
)

var providerName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

// formats are what a provider can speak.
var formats = []string{"openai", "anthropic"}

// readProviders reads the providers, each under its name. The two usual ones
// need not say what they speak, nor where they are.
func (s *Settings) readProviders(d *strict.Document, n ast.Node, what string) error {
	keys := make(map[string]ast.Node)
	err := d.Entries(n, what, func(name string, key, value ast.Node) error {
		keys[name] = key
		if !providerName.MatchString(name) || name == "script" {
			return d.Errorf(key, "the provider %q, expected a name of small letters, digits, - and _, a letter first, and not script", strict.Clip(name))
		}
		return s.readProvider(d, name, value)
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		for _, to := range s.Providers[name].Fallback {
			other, _, _ := strings.Cut(to, "/")
			switch {
			case s.speaks(other) == "":
				return d.Errorf(keys[name], "the provider %s falls back to %q, and there is no such provider", name, strict.Clip(to))
			case s.speaks(other) != s.speaks(name):
				return d.Errorf(keys[name], "the provider %s speaks like %s and falls back to %q, which speaks like %s: requests are not translated",
					name, s.speaks(name), strict.Clip(to), s.speaks(other))
			}
		}
	}
	return nil
}

// speaks is the format of a provider; empty: there is none of that name.
func (s *Settings) speaks(name string) string {
	if slices.Contains(formats, name) {
		return name
	}
	return s.Providers[name].Format
}

func (s *Settings) readProvider(d *strict.Document, name string, n ast.Node) error {
	var p model.Provider
	t := Traffic{Models: make(map[string]TrafficLimits)}
	conc := 0
	err := d.Mapping(n, "the provider "+name, []string{"format", "base_url", "key_env", "key_file", "concurrency", "limits", "models", "fallback"}, map[string]strict.Field{
		"format":   strict.Into(&p.Format, d.Text),
		"base_url": strict.Into(&p.BaseURL, d.Text), "key_env": strict.Into(&p.KeyEnv, d.Text), "key_file": strict.Into(&p.KeyFile, d.Text),
		"concurrency": strict.Into(&conc, d.Count), // how limits: {concurrency: } is written shortly
		"limits": func(n ast.Node, what string) (err error) {
			t.Limits, err = readLimits(d, n, what)
			return err
		},
		"models": func(n ast.Node, what string) (err error) {
			p.Models, err = readModels(d, n, what, t.Models)
			return err
		},
		"fallback": func(n ast.Node, what string) error {
			return d.List(n, what, strict.AppendTo(&p.Fallback, func(n ast.Node) (string, error) { return d.Text(n, what) }))
		},
	})
	if err != nil {
		return err
	}
	usual := slices.Contains(formats, name)
	switch {
	case usual && p.Format != "" && p.Format != name:
		return d.Errorf(n, "the provider %s has the format %q, expected none: it speaks like itself", name, p.Format)
	case !usual && !slices.Contains(formats, p.Format):
		return d.Errorf(n, "the provider %s has the format %q, expected openai or anthropic: which of the two it speaks like", name, strict.Clip(p.Format))
	case !usual && p.BaseURL == "":
		return d.Errorf(n, "the provider %s has no base_url, expected its address", name)
	}
	t.Concurrency = cmp.Or(t.Concurrency, conc)
	s.Traffic[name] = t
	s.Providers[name] = p
	return nil
}

// readModels reads what is said of a provider's models. Prices are dollars per
// million tokens; a cache price that is absent is the input price.
func readModels(d *strict.Document, n ast.Node, what string, limits map[string]TrafficLimits) (map[string]model.Listed, error) {
	all := make(map[string]model.Listed)
	return all, d.Entries(n, what, func(name string, key, value ast.Node) error {
		if name == "" || strings.TrimSpace(name) != name {
			return d.Errorf(key, "the model %q, expected a name", strict.Clip(name))
		}
		const none = -1
		l := model.Listed{Price: model.Price{Input: none, Output: none, CacheRead: none, CacheWrite: none}}
		p := &l.Price
		err := d.Mapping(value, "the model "+name, []string{"alias", "input", "output", "cache_read", "cache_write", "window", "max_output", "limits"}, map[string]strict.Field{
			"alias": strict.Into(&l.Alias, d.Text), "input": strict.Into(&p.Input, d.Dollars), "output": strict.Into(&p.Output, d.Dollars),
			"cache_read": strict.Into(&p.CacheRead, d.Dollars), "cache_write": strict.Into(&p.CacheWrite, d.Dollars),
			"window": strict.Into(&l.Window, d.Count), "max_output": strict.Into(&l.MaxOutput, d.Count),
			"limits": func(n ast.Node, what string) (err error) {
				limits[name], err = readLimits(d, n, what)
				return err
			},
		})
		switch {
		case err != nil:
			return err
		case *p == model.Price{Input: none, Output: none, CacheRead: none, CacheWrite: none}:
			*p = model.Price{}
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

// A Gateway is where programs outside reach it: an address on loopback that is
// remembered where none is given. Beyond loopback it wants a certificate, or
// the word that it is meant to be without.
type Gateway struct {
	Listen          string
	TLSCert, TLSKey string // files
	InsecurePublic  bool
}

func (s *Settings) readGateway(d *strict.Document, n ast.Node, what string) error {
	g := &s.Gateway
	err := d.Mapping(n, what, []string{"listen", "tls_cert", "tls_key", "insecure_public"}, map[string]strict.Field{
		"listen": strict.Into(&g.Listen, d.Text), "tls_cert": strict.Into(&g.TLSCert, d.Text), "tls_key": strict.Into(&g.TLSKey, d.Text),
		"insecure_public": strict.Into(&g.InsecurePublic, d.Boolean),
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

// String says where, and how.
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

// loopback says whether only this machine reaches a host; none is loopback.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || err == nil && ip.IsLoopback()
}
