package provider

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/kern-run/kern/model"
)

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
		for way, e := range map[string]*model.Error{"posted": posted, "streamed": run(t, m, hello).Err} {
			if e == nil || e.Kind != model.Network || e.Unreached != c.unreached || e.Usage != nil && (*e.Usage == model.Usage{}) != c.unseen {
				t.Errorf("%s, %s: %+v", name, way, e)
			}
		}
	}
}
