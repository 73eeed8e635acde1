package config

import (
	"encoding/hex"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/transport"
)

// SettingsView is the effective configuration, without keys.
type SettingsView struct {
	File      string                  `json:"file"`
	Sum       string                  `json:"sum"` // SHA-256 of kern.yaml and the price file
	Yield     string                  `json:"yield"`
	MinOutput abi.MinOutput           `json:"min_output,omitempty"`
	Prices    string                  `json:"prices"`
	Gateway   string                  `json:"gateway"` // its address
	Providers map[string]ProviderView `json:"providers"`
	Spaces    WorkspaceRules          `json:"workspaces"`
	Journal   JournalRules            `json:"journal"`
}

// ProviderView is the effective configuration of one provider.
type ProviderView struct {
	Format      string   `json:"format"` // openai or anthropic
	Fallback    []string `json:"fallback,omitempty"`
	SetUp       bool     `json:"set_up"` // by kern.yaml or the environment
	Free        []string `json:"free,omitempty"`
	BaseURL     string   `json:"base_url"`
	Key         string   `json:"key"`         // its source, and whether it can be read
	Concurrency int      `json:"concurrency"` // calls at one time; 0: no limit

	Headers map[string]string `json:"headers,omitempty"` // for a secret header, its source and whether it can be read
	Limits  Traffic           `json:"limits"`            // as configured
}

// Priced lists the prices and sizes of all models that these settings know. A model
// that a provider lists has the name PROVIDER:MODEL.
func (s *Settings) Priced(at time.Time) []catalog.Entry {
	list := catalog.Known(s.prices, at)
	for name, p := range s.Providers {
		for id, l := range p.Models {
			if l.Priced {
				e := catalog.Entry{Model: name + ":" + id, Price: l.Price, Window: l.Window, MaxOutput: l.MaxOutput}
				list = append(slices.DeleteFunc(list, func(o catalog.Entry) bool { return o.Model == e.Model }), e)
			}
		}
	}
	slices.SortFunc(list, func(a, b catalog.Entry) int { return strings.Compare(a.Model, b.Model) })
	return list
}

// envs are the variables and addresses of openai and anthropic, which the
// environment alone can set up.
var envs = map[string]struct{ base, key, usual string }{
	"openai":    {"OPENAI_BASE_URL", "OPENAI_API_KEY", "https://api.openai.com/v1"},
	"anthropic": {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "https://api.anthropic.com"},
}

// View returns the effective configuration: the settings together with the
// environment.
func (s *Settings) View(getenv func(string) string) SettingsView {
	v := SettingsView{File: s.File, Yield: s.Yield, MinOutput: s.MinOutput, Prices: s.PriceFile, Gateway: s.Gateway.String(), Spaces: s.Spaces, Journal: s.Journal, Providers: make(map[string]ProviderView)}
	if s.File != "" {
		v.Sum = hex.EncodeToString(s.sum[:])
	}
	if v.Yield == "" {
		v.Yield = "ask"
	}
	if v.Prices == "" {
		v.Prices = "built in"
	}
	for _, name := range append(slices.Collect(maps.Keys(s.Providers)), slices.Collect(maps.Keys(envs))...) {
		env := envs[name]
		p := s.Providers[name]
		q := ProviderView{Format: s.speaks(name), Fallback: p.Fallback, Free: p.Free, BaseURL: p.BaseURL, Concurrency: s.Traffic[name].Concurrency, Limits: s.Traffic[name]}
		if q.BaseURL == "" {
			if q.BaseURL = getenv(env.base); q.BaseURL == "" {
				q.BaseURL = env.usual
			}
		}
		_, named := s.Providers[name]
		q.SetUp = named || getenv(env.base) != "" || getenv(env.key) != ""
		keyEnv := p.KeyEnv
		if keyEnv == "" && (p.BaseURL == "" || strings.TrimRight(p.BaseURL, "/") == env.usual) {
			keyEnv = env.key
		}
		if q.Key = where(transport.Source{Env: keyEnv, File: p.KeyFile}, getenv); p.Lent {
			q.Key = "each program's own"
		} else if q.Key == nowhere && getenv(env.key) != "" {
			q.Key += ": " + env.key + " is for " + env.usual + ", and goes elsewhere where key_env names it"
		}
		for header, from := range p.Headers.Secrets() {
			if q.Headers == nil {
				q.Headers = make(map[string]string)
			}
			q.Headers[header] = where(from, getenv)
		}
		v.Providers[name] = q
	}
	return v
}

// nowhere is the text for a provider that needs no secret.
const nowhere = "none"

// notThere begins the text for a secret that cannot be read at its source.
const notThere = "not there: "

func missing(where string) bool { return strings.HasPrefix(where, notThere) }

// where describes the source of a secret, and whether it can be read there.
func where(from transport.Source, getenv func(string) string) string {
	_, err := os.Stat(from.File)
	switch {
	case from.File != "" && err != nil:
		return notThere + from.String() + " cannot be read"
	case from.Count() == 0:
		return nowhere
	case from.File == "" && getenv(from.Env) == "":
		return notThere + from.String() + " is not set"
	}
	return "from " + from.String()
}
