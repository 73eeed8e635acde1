package provider

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/model"
)

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		ref  string
		c    Config
		want string
	}{
		{"", Config{}, `model "", expected script:FILE, openai:NAME or anthropic:NAME`},
		{"gpt-5", Config{}, "expected script:FILE, openai:NAME"},
		{"openai:", Config{}, "expected script:FILE, openai:NAME"},
		{"openai: gpt-5", Config{}, "expected script:FILE, openai:NAME"},
		{"groq:llama", Config{}, `has the provider "groq", expected script, openai or anthropic`},
		{"script:none.yaml", Config{Dir: t.TempDir()}, "model script:none.yaml: open "},
		{"openai:gpt-5", Config{}, "needs a key: set the variable OPENAI_API_KEY"},
		{"anthropic:m", Config{Getenv: env("ANTHROPIC_API_KEY", "  ")}, "the key of the provider anthropic: the variable ANTHROPIC_API_KEY is empty"},
		{"openai:m", Config{Getenv: env("OPENAI_BASE_URL", "localhost:8080")}, "OPENAI_BASE_URL is not an address, expected something like https://api.openai.com/v1"},
		{"openai:m", Config{Getenv: env("OPENAI_BASE_URL", "http://user:pass@host/")}, "OPENAI_BASE_URL has a user, a query or a fragment"},
		{"openai:m", Config{Getenv: env("OPENAI_BASE_URL", "http://host/?key=1")}, "OPENAI_BASE_URL has a user, a query or a fragment"},
		{"openai:m", Config{Getenv: env("OPENAI_API_KEY", "a\nb")}, "the key of the provider openai: the variable OPENAI_API_KEY has characters that no key has"},
		{"openai:m", Config{Providers: map[string]Provider{"openai": {BaseURL: "ftp://x"}}}, "base URL of the provider openai is not an address"},
		{"openai:m", Config{Providers: map[string]Provider{"openai": {KeyEnv: "MY_KEY"}}}, "set the variable MY_KEY"},
		{"openai:m", Config{Getenv: env("OPENAI_API_KEY", "k"), Providers: map[string]Provider{"openai": {Lent: true}}}, "(key: program), and here is no program, expected key_env or key_file"},
		{"openai:m", Config{Providers: map[string]Provider{"openai": {KeyEnv: "MY_KEY", KeyFile: "f"}}}, "has 2 keys, expected one of key, key_env and key_file"},
		{"openai:m", Config{Providers: map[string]Provider{"openai": {KeyFile: filepath.Join(t.TempDir(), "key")}}}, "no such file"},
	} {
		if c.c.Getenv == nil {
			c.c.Getenv = env()
		}
		m, err := Open(c.ref, c.c)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want %s", c.ref, m, err, c.want)
		}
	}
}

// Where a request goes, and with which key.
func TestOpenFindsTheProvider(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := env("OPENAI_API_KEY", "from-env", "MY_KEY", "from-my-env", "OPENAI_BASE_URL", "")
	for _, c := range []struct {
		p              Provider
		getenv         func(string) string
		provider       string
		url, authority string
	}{
		{Provider{}, vars, "openai", "https://api.openai.com/v1/chat/completions", "Bearer from-env"},
		{Provider{KeyFile: file}, vars, "openai", "https://api.openai.com/v1/chat/completions", "Bearer from-file"},
		{Provider{KeyEnv: "MY_KEY"}, vars, "openai", "https://api.openai.com/v1/chat/completions", "Bearer from-my-env"},
		{Provider{Key: transport.NewKey("given")}, vars, "openai", "https://api.openai.com/v1/chat/completions", "Bearer given"},
		{Provider{BaseURL: "https://LOCAL:1/x/"}, vars, "openai@local:1", "https://LOCAL:1/x/chat/completions", ""},
		{Provider{BaseURL: "https://local:1/x", KeyEnv: "MY_KEY"}, vars, "openai@local:1", "https://local:1/x/chat/completions", "Bearer from-my-env"},
		{Provider{}, env("OPENAI_BASE_URL", "http://e:2", "OPENAI_API_KEY", "k"), "openai@e:2", "http://e:2/chat/completions", "Bearer k"},
		{Provider{}, env("OPENAI_BASE_URL", "http://e:2"), "openai@e:2", "http://e:2/chat/completions", ""},
	} {
		var got *http.Request
		rt := roundTrip(func(r *http.Request) (*http.Response, error) { got = r; return nil, errors.New("seen") })
		m, err := Open("openai:m", Config{Getenv: c.getenv, Providers: map[string]Provider{"openai": c.p}, HTTP: &http.Client{Transport: rt}})
		if err != nil {
			t.Errorf("%+v: %v", c.p, err)
			continue
		}
		run(t, m, hello)
		if m.Facts().Provider != c.provider || got.URL.String() != c.url || got.Header.Get("Authorization") != c.authority {
			t.Errorf("%+v: %s %s %q", c.p, m.Facts().Provider, got.URL, got.Header.Get("Authorization"))
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestOpenFacts(t *testing.T) {
	for ref, want := range map[string]model.Facts{
		"openai:gpt-5":                        {Provider: "openai", Price: model.Price{Input: 1_250_000_000, Output: 10_000_000_000, CacheRead: 125_000_000, CacheWrite: 0}, Priced: true, Window: 400000, MaxOutput: 128000, MinOutput: 16},
		"anthropic:claude-haiku-4-5-20251001": {Provider: "anthropic", Price: model.Price{Input: 1_000_000_000, Output: 5_000_000_000, CacheRead: 100_000_000, CacheWrite: 1_250_000_000}, Priced: true, Window: 200000, MaxOutput: 64000, MinOutput: 16},
		"openai:unheard-of":                   {Provider: "openai", MinOutput: 16},
		"anthropic:unheard-of":                {Provider: "anthropic", MaxOutput: 4096, MinOutput: 16},
	} {
		want.Name = ref
		if got := over(t, ref, nil).Facts(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestHeadersGoAlong: headers of the configuration go with each request of ours.
func TestHeadersGoAlong(t *testing.T) {
	var p Provider
	for name, value := range map[string]string{"OpenAI-Organization": "org-1", "x-title": "an application"} {
		if err := p.Headers.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var got *http.Request
	rt := roundTrip(func(r *http.Request) (*http.Response, error) { got = r; return nil, errors.New("seen") })
	m, err := Open("openai:m", Config{Getenv: env("OPENAI_API_KEY", "k"), Providers: map[string]Provider{"openai": p}, HTTP: &http.Client{Transport: rt}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, m, hello)
	if got.Header.Get("Openai-Organization") != "org-1" || got.Header.Get("X-Title") != "an application" || got.Header.Get("Authorization") != "Bearer k" {
		t.Errorf("%v", got.Header)
	}
}

// TestSecretHeadersGoAlong: those that hold a secret go with each request of ours,
// whoever wrote it, and not beside a program's own credential. They show nowhere,
// also where the provider sends them back.
func TestSecretHeadersGoAlong(t *testing.T) {
	const token = "0123456789abcdef"
	for format, own := range map[string]string{"openai": "Authorization", "anthropic": "X-Api-Key"} {
		p := Provider{Format: format, BaseURL: "http://p"}
		if err := p.Headers.SetSecret("Cf-Access", transport.Source{Env: "CF"}); err != nil {
			t.Fatal(err)
		}
		var got http.Header
		rt := roundTrip(func(r *http.Request) (*http.Response, error) {
			got = r.Header.Clone()
			return &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"error":{"message":"bad ` + token + `"}}`)), Request: r}, nil
		})
		c := Config{Getenv: env("CF", "Bearer "+token), Providers: map[string]Provider{"corp": p}, HTTP: &http.Client{Transport: rt}}
		m, err := Open("corp:m", c)
		if err != nil {
			t.Fatal(err)
		}
		o := run(t, m, hello)
		if got.Get("Cf-Access") != "Bearer "+token || o.Err == nil || strings.Contains(o.Err.Message, token) || !strings.Contains(o.Err.Message, "bad [key]") {
			t.Errorf("%s: %v, %v", format, got, o.Err)
		}
		routes, err := c.Routes(format, "corp/m")
		if err != nil {
			t.Fatal(err)
		}
		for header, want := range map[string]string{"X-Other": "Bearer " + token, own: ""} {
			resp, err := routes[0].Post(t.Context(), "/", http.Header{header: {"a program's"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if e := routes[0].Refusal(400, resp.Header, body); got.Get("Cf-Access") != want || strings.Contains(e.Message, token) || strings.Contains(routes[0].Clean(string(body)), token) {
				t.Errorf("%s beside %s: %q, %v", format, header, got.Get("Cf-Access"), e)
			}
		}
		if s := fmt.Sprintf("%+v %#v %+v %+v", c.Providers, c.Providers, routes[0], m); strings.Contains(s, token) {
			t.Errorf("%s", s)
		}

		c.Getenv = env()
		if _, err := Open("corp:m", c); !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "the provider corp: needs a key: the header Cf-Access: there is nothing in the variable CF") {
			t.Errorf("%s: %v", format, err)
		}
		if err := p.Headers.SetSecret(own, transport.Source{Env: "CF"}); err != nil {
			t.Fatal(err)
		}
		c.Getenv, c.Providers["corp"] = env("CF", token), p
		if _, err := Open("corp:m", c); err == nil || !strings.Contains(err.Error(), own+" is where the key goes") {
			t.Errorf("%s: %v", format, err)
		}
	}
}
