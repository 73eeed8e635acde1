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

// reachability says whether a provider can be connected to.
type reachability struct {
	OK   bool   `json:"ok"`
	Note string `json:"note"`
}

// suffix is the end of the provider's line.
func (r reachability) suffix(t *cli.Terminal) string {
	switch {
	case r.Note == "":
		return ""
	case r.OK:
		return "; " + cli.Clean(r.Note)
	}
	return "; " + t.Paint(cli.Red, "NOT reachable") + ": " + cli.Clean(r.Note)
}

// connectAll connects to every configured provider at the same time. It sends no
// request, so it costs nothing.
func connectAll(ctx context.Context, v config.SettingsView) map[string]reachability {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	all := make(map[string]reachability)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, p := range v.Providers {
		if !p.SetUp {
			continue
		}
		wg.Go(func() {
			r := connectTo(ctx, p.BaseURL)
			mu.Lock()
			defer mu.Unlock()
			all[name] = r
		})
	}
	wg.Wait()
	return all
}

// connectTo connects to the host of a base URL, or to its proxy.
func connectTo(ctx context.Context, base string) reachability {
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" {
		return reachability{Note: "the base URL is not a URL"}
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
		return reachability{Note: err.Error()}
	}
	_ = c.Close() // only the connection was of interest
	return reachability{true, note}
}
