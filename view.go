package kern

import (
	"maps"
	"os"
	"slices"
)

// SettingsView is the effective configuration, without keys.
type SettingsView struct {
	File      string                  `json:"file"`
	Yield     string                  `json:"yield"`
	Prices    string                  `json:"prices"`
	Gateway   string                  `json:"gateway"` // where programs come in
	Providers map[string]ProviderView `json:"providers"`
	Spaces    Spaces                  `json:"workspaces"`
}

// ProviderView is what it comes to for one provider.
type ProviderView struct {
	Format      string   `json:"format"` // what it speaks
	Fallback    []string `json:"fallback,omitempty"`
	BaseURL     string   `json:"base_url"`
	Key         string   `json:"key"`         // where it comes from, and whether it is there
	Concurrency int      `json:"concurrency"` // calls at one time; 0: as many as it bears

	Limits Traffic `json:"limits"` // what it is said to grant
}

// View says what settings come to, together with the environment.
func (s *Settings) View(getenv func(string) string) SettingsView {
	v := SettingsView{File: s.File, Yield: s.Yield, Prices: s.PriceFile, Gateway: s.Gateway.String(), Spaces: s.Spaces, Providers: make(map[string]ProviderView)}
	if v.Yield == "" {
		v.Yield = "ask"
	}
	if v.Prices == "" {
		v.Prices = "built in"
	}
	envs := map[string]struct{ base, key, usual string }{
		"openai":    {"OPENAI_BASE_URL", "OPENAI_API_KEY", "https://api.openai.com/v1"},
		"anthropic": {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "https://api.anthropic.com"},
	}
	for _, name := range append(slices.Collect(maps.Keys(s.Providers)), slices.Collect(maps.Keys(envs))...) {
		env := envs[name]
		p := s.Providers[name]
		q := ProviderView{Format: s.speaks(name), Fallback: p.Fallback, BaseURL: p.BaseURL, Concurrency: s.Traffic[name].Concurrency, Limits: s.Traffic[name]}
		if q.BaseURL == "" {
			if q.BaseURL = getenv(env.base); q.BaseURL == "" {
				q.BaseURL = env.usual
			}
		}
		keyEnv := p.KeyEnv
		if keyEnv == "" {
			keyEnv = env.key
		}
		_, err := os.Stat(p.KeyFile)
		switch {
		case p.KeyFile != "" && err != nil:
			q.Key = "not there: the file " + p.KeyFile + " cannot be read"
		case p.KeyFile != "":
			q.Key = "from the file " + p.KeyFile
		case getenv(keyEnv) != "":
			q.Key = "from the variable " + keyEnv
		case keyEnv == "":
			q.Key = "none"
		default:
			q.Key = "not there: the variable " + keyEnv + " is not set"
		}
		v.Providers[name] = q
	}
	return v
}
