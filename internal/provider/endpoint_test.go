package provider

import (
	"bufio"
	"context"
	"errors"
	"github.com/kern-run/kern/model"
	"net"
	"net/http"
	"strings"
	"testing"
)

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
		routes, err := Config{Getenv: env(), Providers: p}.Routes("openai", name)
		var got []string
		for _, r := range routes {
			got = append(got, r.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s goes to %v, %v, want %s", name, got, err, want)
		}
	}
	if r, err := (Config{Getenv: env(), Providers: p}).Routes("openai", "shut/m"); err == nil {
		t.Errorf("one that cannot be opened is asked: %+v", r)
	}
}

// TestUnreached: of a request that found no answer it is known how far it came,
// whoever wrote it.
func TestUnreached(t *testing.T) {
	gone := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	breaks := func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(there))
			there.Close()
		}()
		return here, nil
	}
	for name, c := range map[string]struct {
		dial              func(context.Context, string, string) (net.Conn, error)
		unreached, unseen bool
	}{"no connection": {gone, true, true}, "it has read it, and hangs up": {breaks, false, false}} {
		conf := Config{Getenv: env(), HTTP: &http.Client{Transport: &http.Transport{DialContext: c.dial}}, Providers: map[string]Provider{"openai": {BaseURL: "http://p"}}}
		routes, err := conf.Routes("openai", "m")
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open("openai:m", conf)
		if err != nil {
			t.Fatal(err)
		}
		_, err = routes[0].Post(t.Context(), "/", http.Header{}, []byte("{}"))
		var posted *model.Error
		if !errors.As(err, &posted) {
			t.Fatalf("%s: %v", name, err)
		}
		for way, e := range map[string]*model.Error{"posted": posted, "streamed": run(t, m, hello).err} {
			if e == nil || e.Kind != model.Network || e.Unreached != c.unreached || (e.Usage != nil) != c.unseen {
				t.Errorf("%s, %s: %+v", name, way, e)
			}
		}
	}
}
