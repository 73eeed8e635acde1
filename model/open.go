package model

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Config is where models find what a reference does not say. The zero Config
// reads the environment and the disk.
type Config struct {
	Getenv    func(string) string          // nil: os.Getenv
	ReadFile  func(string) ([]byte, error) // nil: os.ReadFile
	Dir       string                       // where relative script files are; empty: the working directory
	HTTP      *http.Client                 // nil: one for all models
	Providers map[string]Provider          // by "openai" and "anthropic"; what is set here wins over the environment
	Prices    *Prices                      // looked at before the built-in table
	Now       func() time.Time             // nil: time.Now
	Idle      time.Duration                // of silence before an answer is given up; 0: ten minutes
}

// A Provider says where a provider is and which key opens it. At most one of
// Key, KeyEnv and KeyFile is set.
type Provider struct {
	BaseURL string
	Key     Key
	KeyEnv  string // the variable that holds the key
	KeyFile string // the file that holds the key
}

// A vendor is a protocol and its usual place.
type vendor struct {
	dialect
	base            string
	envBase, envKey string
}

var vendors = map[string]vendor{
	"openai":    {openAI{}, "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"},
	"anthropic": {anthropic{}, "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"},
}

// Open returns the model that ref names: script:FILE, openai:NAME or
// anthropic:NAME. Nothing is sent.
func Open(ref string, c Config) (Model, error) {
	c = c.filled()
	kind, name, ok := strings.Cut(ref, ":")
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return nil, fmt.Errorf("model %q, expected script:FILE, openai:NAME or anthropic:NAME", clip(ref))
	}
	if kind == "script" {
		return c.openScript(name)
	}
	v, ok := vendors[kind]
	if !ok {
		return nil, fmt.Errorf("model %q has the provider %q, expected script, openai or anthropic", clip(ref), clip(kind))
	}
	return c.openRemote(ref, kind, name, v)
}

func (c Config) filled() Config {
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.ReadFile == nil {
		c.ReadFile = os.ReadFile
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.HTTP == nil {
		c.HTTP = sharedClient()
	}
	if c.Idle <= 0 {
		c.Idle = 10 * time.Minute
	}
	return c
}

// sharedClient keeps connections between models. It has no timeout of its own:
// a caller's context ends a request, and silence does.
var sharedClient = sync.OnceValue(func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return &http.Client{Transport: t}
})

func (c Config) openScript(name string) (Model, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path)
	}
	data, err := c.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("model script:%s: %w", name, err)
	}
	return ParseScript(name, data)
}

func (c Config) openRemote(ref, kind, name string, v vendor) (Model, error) {
	p := c.Providers[kind]
	base, where := p.BaseURL, "base URL of the provider "+kind
	if base == "" {
		base, where = c.Getenv(v.envBase), v.envBase
	}
	base, provider, err := v.place(kind, base, where)
	if err != nil {
		return nil, err
	}
	key, err := c.key(kind, p, v, provider == kind)
	if err != nil {
		return nil, err
	}
	client := *c.HTTP
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	m := &remote{
		dialect: v.dialect, model: name, base: base, key: key, client: &client, idle: c.Idle, now: c.Now,
		facts: Facts{Name: ref, Provider: provider, MinOutput: 16},
	}
	if e, ok := find(c.Prices, provider, name, c.Now()); ok {
		m.facts.Price, m.facts.Priced = e.Price, true
		m.facts.Window, m.facts.MaxOutput = e.Window, e.MaxOutput
	}
	if kind == "anthropic" && m.facts.MaxOutput == 0 {
		m.facts.MaxOutput = anthropicOutput
	}
	m.count = bound
	if _, known := builtin().Lookup(kind, name, c.Now()); kind == "openai" && (known || provider == kind) {
		m.count = vocabularyOf(name).request
	}
	return m, nil
}

// place checks a base URL and names the provider that is there.
func (v vendor) place(kind, base, where string) (clean, provider string, err error) {
	if base == "" {
		return v.base, kind, nil
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", "", fmt.Errorf("%s is not an address, expected something like %s", where, v.base)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", "", fmt.Errorf("%s has a user, a query or a fragment, expected only scheme, host and path", where)
	}
	clean = strings.TrimRight(u.String(), "/")
	if clean == v.base {
		return clean, kind, nil
	}
	return clean, kind + "@" + strings.ToLower(u.Host), nil
}

// key finds the key. The usual address does not open without one. Another
// address is never sent the environment's key for the usual one, unless that
// address was put into the environment beside it.
func (c Config) key(kind string, p Provider, v vendor, usual bool) (Key, error) {
	given := 0
	for _, is := range []bool{p.Key.secret != nil, p.KeyEnv != "", p.KeyFile != ""} {
		if is {
			given++
		}
	}
	var from, secret string
	switch {
	case given > 1:
		return Key{}, fmt.Errorf("the provider %s has %d keys, expected one of key, key_env and key_file", kind, given)
	case p.Key.secret != nil:
		from, secret = "the key of the provider "+kind, p.Key.reveal()
	case p.KeyFile != "":
		b, err := c.ReadFile(p.KeyFile)
		if err != nil {
			return Key{}, fmt.Errorf("the key of the provider %s: %w", kind, err)
		}
		from, secret = "the key in "+p.KeyFile, string(b)
	case p.KeyEnv != "" || usual || p.BaseURL == "":
		name := cmp.Or(p.KeyEnv, v.envKey)
		from, secret = "the key in "+name, c.Getenv(name)
		if secret == "" && (usual || p.KeyEnv != "") {
			return Key{}, fmt.Errorf("the provider %s needs a key: set the variable %s", kind, name)
		}
	}
	secret = strings.TrimSpace(secret)
	if from != "" && secret == "" && usual {
		return Key{}, fmt.Errorf("%s is empty", from)
	}
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return Key{}, fmt.Errorf("%s has characters that no key has", from)
	}
	return NewKey(secret), nil
}
