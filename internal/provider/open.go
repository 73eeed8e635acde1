// Package provider knows where models are: the configuration of providers, the
// routes of a request, and the credentials that go with it.
//
// [Open] reads a reference such as "openai:gpt-5". [Config.Routes] lists where a
// request may go that is already written in a provider's format. Nothing here
// retries, waits for a turn or counts money: the caller admits each attempt, and
// an [model.Error] tells it what failed.
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

// Config is where models find what a reference does not say. The zero Config
// reads the environment and the disk.
type Config struct {
	Getenv    func(string) string          // nil: os.Getenv
	ReadFile  func(string) ([]byte, error) // nil: os.ReadFile
	Dir       string                       // where relative script files are; empty: the working directory
	HTTP      *http.Client                 // nil: one for all models
	Providers map[string]Provider          // by name; what is set here for "openai" and "anthropic" wins over the environment
	Prices    *catalog.Prices              // looked at before the built-in table
	Now       func() time.Time             // nil: time.Now
	Idle      time.Duration                // of silence before an answer is given up; 0: ten minutes
}

// A Provider says where a provider is and which key opens it. At most one of
// Key, KeyEnv and KeyFile is set. A provider with another name than
// "openai" and "anthropic" says which of the two formats it has, and where it is.
type Provider struct {
	Format   string // "openai" or "anthropic"; empty for those two
	BaseURL  string
	Key      transport.Key
	KeyEnv   string // the variable that holds the key
	KeyFile  string // the file that holds the key
	Lent     bool   // each program shows its own
	Headers  transport.Headers
	Models   map[string]Listed
	Fallback []string // where a request goes when this one fails: PROVIDER, or PROVIDER/MODEL
	Free     []string // fields of a request that cost nothing here beside their words
}

// A Listed model is what a configuration says of one.
type Listed struct {
	Alias     string // what the provider calls it; empty: the same
	Price     model.Price
	Priced    bool
	Window    int // 0: as elsewhere known
	MaxOutput int // 0: as elsewhere known
}

// A vendor is a seller of models: where it is, and how it wants its key.
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
	if h.Get("Anthropic-Version") == "" { // a program may have said which
		h.Set("Anthropic-Version", "2023-06-01")
	}
	if key != "" {
		h.Set("X-Api-Key", key)
	}
}

// messagesOutput is the output maximum of a model of Anthropic that no table
// knows: the format wants one, and every model grants this much.
const messagesOutput = 4096

// Endpoint returns the model that ref names: openai:NAME, anthropic:NAME, or
// PROVIDER:NAME for a provider of the configuration. It has a key, or needs none.
func (c Config) Endpoint(ref string) (*Endpoint, error) {
	c = c.filled()
	provider, name, ok := strings.Cut(ref, ":")
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return nil, fmt.Errorf("model %q, expected script:FILE, openai:NAME or anthropic:NAME", jsontext.Clip(ref))
	}
	if c.format(provider) == "" {
		return nil, fmt.Errorf("model %q has the provider %q, expected script, %s", jsontext.Clip(ref), jsontext.Clip(provider), c.providers())
	}
	e, err := c.endpoint(ref, provider, name)
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

// Script reads the script model of a file.
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

// place checks a base URL and names the provider that is there.
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

// CheckBase says what is wrong with the address of a provider of a format. It
// does not repeat it: some addresses hold a password.
func CheckBase(format, base string) error {
	_, err := transport.Address(base, vendors[format].base)
	return err
}

// CheckHeader says what is wrong with a header of a configuration for a provider
// of a format: its key has a place of its own.
func CheckHeader(format, name string) error {
	signed := make(http.Header)
	if vendors[format].sign(signed, "key"); signed.Get(name) != "" {
		return fmt.Errorf("%s is where the key goes, expected key_env or key_file of the provider itself", http.CanonicalHeaderKey(name))
	}
	return nil
}

// headers finds the values of those that a configuration sets.
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

// ErrNoKey says that a provider's key is nowhere to be found.
var ErrNoKey = errors.New("needs a key")

// key finds the key, if there is one. Another than the usual
// address is never sent the environment's key for the usual one, unless that
// address was put into the environment beside it.
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
