// Package provider is the one way to ask a model. It finds the model, sends one
// request, meters the answer as it passes and returns its usage. The gateway and the
// built-in loop both use it, so one place computes the bound and the usage of every
// request.
//
// [Config.Endpoint] reads a reference such as "openai:gpt-5". [Config.Routes] lists
// the routes of a request that is already in a provider's format. Nothing here
// retries, waits for a turn or counts money. The caller admits each attempt, and a
// [model.Error] tells the caller what failed.
//
//	open.go       the configuration of providers, their keys and headers
//	endpoint.go   where a model is, and how it is reached
//	relay.go      one attempt: send the request, read the answer
//	bound.go      the bound of a request, and the usage of a cut answer
//	drain.go      how long a stopped answer is read
//	model.go      a provider as a [model.Model], for the built-in loop
package provider

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/model"
)

// Config supplies what a model reference does not say: addresses, keys, prices and
// the clock. The zero Config reads the environment and the disk.
type Config struct {
	Getenv    func(string) string          // nil: os.Getenv
	ReadFile  func(string) ([]byte, error) // nil: os.ReadFile
	Dir       string                       // base of relative script files; empty: the working directory
	HTTP      *http.Client                 // nil: the client that all models share
	Providers map[string]Provider          // by name; settings for "openai" and "anthropic" override the environment
	Prices    *catalog.Prices              // searched before the built-in table
	Now       func() time.Time             // nil: time.Now
	Idle      time.Duration                // silence that ends an answer; 0: ten minutes
}

// A Provider is the configuration of one provider. At most one of Key, KeyEnv and
// KeyFile is set. A provider with a name other than "openai" and "anthropic" must
// set Format and BaseURL.
type Provider struct {
	Format   string // "openai" or "anthropic"; empty for those two
	BaseURL  string
	Key      transport.Key
	KeyEnv   string // the variable that holds the key
	KeyFile  string // the file that holds the key
	Lent     bool   // each program sends its own key
	Headers  transport.Headers
	Models   map[string]Listed
	Fallback []string // routes to try when this provider fails: PROVIDER, or PROVIDER/MODEL
	Free     []string // request fields that cost nothing here beyond their text
}

// A Listed is the configuration of one model.
type Listed struct {
	Alias     string // the model's name at the provider; empty: the same name
	Price     model.Price
	Priced    bool
	Window    int // 0: from the price tables
	MaxOutput int // 0: from the price tables
}

// A vendor is a company whose format Kern writes: its address, its environment
// variables and its way to send the key.
type vendor struct {
	sign            func(h http.Header, key string) // key may be empty
	base            string
	envBase, envKey string
}

var vendors = map[string]vendor{
	"openai":    {signOpenAI, "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"},
	"anthropic": {signAnthropic, "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"},
}

func signOpenAI(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

func signAnthropic(h http.Header, key string) {
	if h.Get("Anthropic-Version") == "" { // a program may have chosen the version
		h.Set("Anthropic-Version", "2023-06-01")
	}
	if key != "" {
		h.Set("X-Api-Key", key)
	}
}

// messagesOutput is the output maximum of an Anthropic model without a table
// entry. The format requires a maximum, and every model accepts this one.
const messagesOutput = 4096

// Endpoint returns the model that ref names: openai:NAME, anthropic:NAME, or
// PROVIDER:NAME for a provider of the configuration. It fails if the
// endpoint needs a key and Kern has none.
func (c Config) Endpoint(ref string) (*Endpoint, error) {
	c = c.filled()
	provider, name, ok := c.split(ref)
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return nil, fmt.Errorf("model %q, expected script:FILE, openai:NAME or anthropic:NAME", jsontext.Clip(ref))
	}
	if c.format(provider) == "" {
		return nil, fmt.Errorf("model %q has the provider %q, expected script, %s", jsontext.Clip(ref), jsontext.Clip(provider), c.providers())
	}
	e, err := c.endpoint(provider+":"+name, provider, name)
	switch {
	case err != nil:
		return nil, err
	case e.Wants() && e.lent:
		return nil, fmt.Errorf("the provider %s passes on the key of each program (key: program), and here is no program, expected key_env or key_file", provider)
	case e.Wants():
		return nil, fmt.Errorf("the provider %s %w: set the variable %s", provider, ErrNoKey, vendors[e.Format].envKey)
	}
	return e, nil
}

// split splits a reference PROVIDER:MODEL or PROVIDER/MODEL. The name of a model may
// contain both signs, so a provider that exists decides.
func (c *Config) split(ref string) (provider, name string, ok bool) {
	if p, n, cut := strings.Cut(ref, ":"); cut && c.format(p) != "" {
		return p, n, true
	}
	if p, n, cut := strings.Cut(ref, "/"); cut && c.format(p) != "" {
		return p, n, true
	}
	return strings.Cut(ref, ":")
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
		c.HTTP = transport.Client()
	}
	if c.Idle <= 0 {
		c.Idle = 10 * time.Minute
	}
	return c
}

// WithoutKeys returns a configuration whose models open without a key. It is for a
// replay, which sends nothing.
func (c Config) WithoutKeys() Config {
	c = c.filled()
	const none = "none"
	keys := make(map[string]bool)
	for _, v := range vendors {
		keys[v.envKey] = true
	}
	providers := make(map[string]Provider, len(c.Providers))
	for name, p := range c.Providers {
		p.Headers = transport.Headers{}
		if p.KeyFile != "" {
			p.KeyFile, p.KeyEnv = "", none
		}
		keys[p.KeyEnv] = true
		providers[name] = p
	}
	getenv := c.Getenv
	c.Providers, c.Getenv = providers, func(name string) string {
		if name != "" && keys[name] {
			return none
		}
		return getenv(name)
	}
	return c
}

// Script reads a script model from a file. A relative name is below c.Dir.
func (c Config) Script(name string) (*model.Script, error) {
	c = c.filled()
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path)
	}
	data, err := c.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("model script:%s: %w", name, err)
	}
	return model.ParseScript(name, data)
}

// place checks a base URL and names the provider at that address: kind alone at
// the vendor's own address, kind@HOST elsewhere.
func (v vendor) place(kind, base, where string) (clean, provider string, err error) {
	if base == "" {
		return v.base, kind, nil
	}
	u, err := transport.Address(base, v.base)
	if err != nil {
		return "", "", fmt.Errorf("%s %w", where, err)
	}
	clean = strings.TrimRight(u.String(), "/")
	switch {
	case clean == v.base, vendors[kind].base == "":
		return clean, kind, nil
	}
	return clean, kind + "@" + strings.ToLower(u.Host), nil
}

// CheckBase returns an error if base is not a valid base URL for a format. The
// error does not repeat base, because some addresses hold a password.
func CheckBase(format, base string) error {
	_, err := transport.Address(base, vendors[format].base)
	return err
}

// CheckHeader returns an error if a configured header is the header of the key in
// this format, because the key has its own setting.
func CheckHeader(format, name string) error {
	signed := make(http.Header)
	if vendors[format].sign(signed, "key"); signed.Get(name) != "" {
		return fmt.Errorf("%s is where the key goes, expected key_env or key_file of the provider itself", http.CanonicalHeaderKey(name))
	}
	return nil
}

// headers reads the values of the configured headers of a provider.
func (c Config) headers(kind string, p Provider, format string) ([]transport.Header, error) {
	list, err := p.Headers.Read(c.Getenv, c.ReadFile)
	if errors.Is(err, transport.ErrUnset) {
		err = fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	for _, x := range list {
		err = errors.Join(err, CheckHeader(format, x.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("the provider %s: %w", kind, err)
	}
	return list, nil
}

// ErrNoKey reports that a provider needs a key and Kern has none.
var ErrNoKey = errors.New("needs a key")

// key reads the key of a provider; it may be the zero Key. An address other than
// the vendor's own never gets the vendor's key of the environment, unless the
// environment sets that address too.
func (c Config) key(kind string, p Provider, v vendor, usual bool) (transport.Key, error) {
	from := transport.Source{Key: p.Key, Env: p.KeyEnv, File: p.KeyFile}
	given := from.Count()
	if p.Lent {
		given++
	}
	switch {
	case given > 1:
		return transport.Key{}, fmt.Errorf("the provider %s has %d keys, expected one of key, key_env and key_file", kind, given)
	case p.Lent, given == 0 && !usual && p.BaseURL != "":
		return transport.Key{}, nil
	case from.Env != "" && c.Getenv(from.Env) == "":
		return transport.Key{}, fmt.Errorf("the provider %s %w: set the variable %s", kind, ErrNoKey, from.Env)
	case given == 0:
		if from.Env = v.envKey; c.Getenv(from.Env) == "" {
			return transport.Key{}, nil
		}
	}
	key, err := from.Read(c.Getenv, c.ReadFile)
	if err == nil && !key.Given() && usual {
		err = fmt.Errorf("%s is empty", from)
	}
	if err != nil {
		return transport.Key{}, fmt.Errorf("the key of the provider %s: %w", kind, err)
	}
	return key, nil
}
