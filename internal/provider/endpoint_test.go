package provider

import (
	"strings"
	"testing"
)

func noVariables(string) string { return "" }

// TestWhoIsAsked: a model that several providers list is asked for at the usual
// one; and a provider that cannot be opened, in whose place another is to be
// asked or which is to be asked in another's, does not keep that one from it.
func TestWhoIsAsked(t *testing.T) {
	p := map[string]Provider{
		"azure":  {Format: "openai", BaseURL: "http://a", Models: map[string]Listed{"m": {}, "own": {}}},
		"zed":    {Format: "openai", BaseURL: "http://z", Models: map[string]Listed{"m": {}, "own": {}}},
		"shut":   {Format: "openai", BaseURL: "http://s", KeyEnv: "NOT_SET"},
		"openai": {BaseURL: "http://o", Models: map[string]Listed{"m": {}}, Fallback: []string{"shut", "azure"}},
	}
	for name, want := range map[string]string{"m": "openai azure", "own": "azure", "azure/m": "azure", "zed/own": "zed", "unlisted": "openai azure"} {
		routes, err := Config{Getenv: noVariables, Providers: p}.Routes("openai", name)
		var got []string
		for _, r := range routes {
			got = append(got, r.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s goes to %v, %v, want %s", name, got, err, want)
		}
	}
	if r, err := (Config{Getenv: noVariables, Providers: p}).Routes("openai", "shut/m"); err == nil {
		t.Errorf("one that cannot be opened is asked: %+v", r)
	}
}
