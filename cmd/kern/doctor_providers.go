package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/config"
)

// reachTime is how long the doctor waits for a connection to a provider.
const reachTime = 5 * time.Second

// reached says whether a connection to a provider comes about.
type reached struct {
	OK   bool   `json:"ok"`
	Note string `json:"note"`
}

// row is what stands of it behind the rest that is said of a provider.
func (r reached) row(t *cli.Terminal) string {
	switch {
	case r.Note == "":
		return ""
	case r.OK:
		return "; " + cli.Clean(r.Note)
	}
	return "; " + t.Paint(cli.Red, "NOT reachable") + ": " + cli.Clean(r.Note)
}

// reachable connects to the providers that were set up, all at one time. Nothing
// is asked of them, so it costs nothing.
func reachable(ctx context.Context, v config.SettingsView) map[string]reached {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	all := make(map[string]reached)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, p := range v.Providers {
		if !p.SetUp {
			continue
		}
		wg.Go(func() {
			r := reach(ctx, p.BaseURL)
			mu.Lock()
			defer mu.Unlock()
			all[name] = r
		})
	}
	wg.Wait()
	return all
}

// reach connects to where requests for an address go first.
func reach(ctx context.Context, base string) reached {
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" {
		return reached{Note: "it is not an address"}
	}
	note := "reachable"
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		u, note = proxy, "its proxy "+proxy.Host+" is reachable"
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	dial := new(net.Dialer).DialContext
	if u.Scheme == "https" {
		dial = new(tls.Dialer).DialContext
	}
	c, err := dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return reached{Note: err.Error()}
	}
	_ = c.Close() // it was only to come about
	return reached{true, note}
}
