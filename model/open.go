package model

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Config is where models find what a reference does not say. The zero Config
// reads the environment and the disk.
type Config struct {
	Getenv    func(string) string          // nil: os.Getenv
	ReadFile  func(string) ([]byte, error) // nil: os.ReadFile
	Dir       string                       // where relative script files are; empty: the working directory
	HTTP      *http.Client                 // nil: one for all models
	Providers map[string]Provider          // by name; what is set here for "openai" and "anthropic" wins over the environment
	Prices    *Prices                      // looked at before the built-in table
	Now       func() time.Time             // nil: time.Now
	Idle      time.Duration                // of silence before an answer is given up; 0: ten minutes
}

// A Provider says where a provider is and which key opens it. At most one of
// Key, KeyEnv and KeyFile is set. One that is neither "openai" nor "anthropic"
// says which of the two it speaks like, and where it is.
type Provider struct {
	Format   string // "openai" or "anthropic"; empty for those two
	BaseURL  string
	Key      Key
	KeyEnv   string      // the variable that holds the key
	KeyFile  string      // the file that holds the key
	Lent     bool        // each program shows its own
	Headers  http.Header // that go with each request; see SetHeader
	Models   map[string]Listed
	Fallback []string // where a request goes when this one fails: PROVIDER, or PROVIDER/MODEL
	Free     []string // fields of a request that cost nothing here beside their words
}

// A Listed model is what a configuration says of one.
type Listed struct {
	Alias     string // what the provider calls it; empty: the same
	Price     Price
	Priced    bool
	Window    int // 0: as elsewhere known
	MaxOutput int // 0: as elsewhere known
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

// Open returns the model that ref names: script:FILE, openai:NAME,
// anthropic:NAME, or PROVIDER:NAME for a provider of the configuration. Nothing
// is sent.
func Open(ref string, c Config) (Model, error) {
	c = c.filled()
	kind, name, ok := strings.Cut(ref, ":")
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return nil, fmt.Errorf("model %q, expected script:FILE, openai:NAME or anthropic:NAME", clip(ref))
	}
	if kind == "script" {
		return c.openScript(name)
	}
	if c.format(kind) == "" {
		return nil, fmt.Errorf("model %q has the provider %q, expected script, %s", clip(ref), clip(kind), c.providers())
	}
	return c.openRemote(ref, kind, name)
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

// dialTime is how long a connection may take to come about: three attempts that
// are lost on the way, or one name server that is dead.
const dialTime = 10 * time.Second

// sharedClient keeps connections between models. It has no timeout of its own:
// a caller's context ends a request, and silence does.
var sharedClient = sync.OnceValue(func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024    // as many as there are streams at a time
	t.ReadBufferSize, t.WriteBufferSize = 2<<10, 2<<10 // for each of them
	t.DialContext = dialed((&net.Dialer{Timeout: dialTime}).DialContext)
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

func (c Config) openRemote(ref, kind, name string) (Model, error) {
	e, err := c.endpoint(ref, kind, name)
	if err != nil {
		return nil, err
	}
	if e.Wants() && e.lent {
		return nil, fmt.Errorf("the provider %s passes on the key of each program (key: program), and here is no program, expected key_env or key_file", kind)
	}
	if e.Wants() {
		return nil, fmt.Errorf("the provider %s %w: set the variable %s", kind, ErrNoKey, vendors[e.Format].envKey)
	}
	m := &remote{dialect: vendors[e.Format].dialect, model: e.Model, base: e.base, key: e.key, set: e.set, client: e.client, idle: c.Idle, now: c.Now, facts: e.Facts}
	m.counter = CounterOf(e.Facts.Provider, e.Model)
	return m, nil
}

// place checks a base URL and names the provider that is there.
func (v vendor) place(kind, base, where string) (clean, provider string, err error) {
	if base == "" {
		return v.base, kind, nil
	}
	u, err := v.address(base)
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
// does not repeat it: there are people who put a password into one.
func CheckBase(format, base string) error {
	_, err := vendors[format].address(base)
	return err
}

func (v vendor) address(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsFunc(base, unicode.IsSpace) {
		return nil, fmt.Errorf("is not an address, expected something like %s", v.base)
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return nil, errors.New("has a port that is none, expected 1 to 65535")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, errors.New("has a user, a query or a fragment, expected only scheme, host and path")
	}
	for _, path := range []string{"/chat/completions", "/responses", "/embeddings", "/messages"} {
		if strings.HasSuffix(strings.TrimRight(u.Path, "/"), path) {
			return nil, fmt.Errorf("ends with %s, expected the address that stands before it: paths are added", path)
		}
	}
	return u, nil
}

// ErrNoKey says that a provider's key is nowhere to be found.
var ErrNoKey = errors.New("needs a key")

// key finds the key, if there is one. Another than the usual
// address is never sent the environment's key for the usual one, unless that
// address was put into the environment beside it.
func (c Config) key(kind string, p Provider, v vendor, usual bool) (Key, error) {
	given := 0
	for _, is := range []bool{p.Key.secret != nil, p.KeyEnv != "", p.KeyFile != "", p.Lent} {
		if is {
			given++
		}
	}
	var from, secret string
	switch {
	case given == 1 && p.Lent:
		return Key{}, nil
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
		if secret == "" && p.KeyEnv != "" {
			return Key{}, fmt.Errorf("the provider %s %w: set the variable %s", kind, ErrNoKey, name)
		} else if secret == "" {
			return Key{}, nil
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
