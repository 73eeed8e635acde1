package syscalls

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/model"
)

// Resource returns the name of the bucket in which a model call waits for its turn: a
// model at a provider with one credential. A provider limits each credential by itself.
// So a credential that is not the daemon's own is part of the name, as a short hash.
func Resource(f model.Facts, credential string) string {
	_, name, _ := strings.Cut(f.Name, ":")
	if f.Provider == "script" {
		name = path.Base(filepath.ToSlash(name)) // a file
	}
	r := quota.Resource{Provider: f.Provider, Model: name}
	if credential != "" {
		sum := sha256.Sum256([]byte(credential))
		r.Key = hex.EncodeToString(sum[:4])
	}
	return r.String()
}

// Hear stores in d the feedback of an answer for the quota. q holds the limits of the
// provider, e is the error or nil, and cached is the input that came from the cache. A
// call that the provider rejected at no cost waits for another turn, and does not
// count as an attempt or as a model call.
func Hear(d *kernel.Done, e *model.Error, q model.Quota, cached int64) {
	f := quota.Feedback{Quota: q, Cached: cached}
	if e != nil {
		f.Status, f.RetryAfter, d.After, d.Status = statusOf(e), e.RetryAfter, e.RetryAfter, e.Status
		if !e.Quota.At.IsZero() {
			f.Quota = e.Quota
		}
	}
	d.Feedback = f
	if (f.Status == quota.RateLimited || f.Status == quota.Overloaded) && d.Usage[abi.Money] == 0 && d.Usage[abi.Tokens] == 0 {
		d.Away, d.Usage[abi.ModelCalls] = true, 0
	}
}

// statusOf returns the status of the provider after an error. An error without an
// HTTP status came within a stream, or from a script.
func statusOf(e *model.Error) quota.Status {
	switch {
	case e.Unreached:
		return quota.Unreachable
	case e.Kind == model.RateLimit:
		return quota.RateLimited
	case e.Kind == model.Overloaded && (e.Status == 0 || e.Status == 503 || e.Status == 529):
		return quota.Overloaded
	case e.Retryable():
		return quota.Failing
	}
	return quota.Served
}

// Failed picks the route for the next attempt after e. If the provider was overloaded
// or unreachable, the next attempt takes another route. It waits only after all
// routes were tried.
func Failed(d *kernel.Done, w *quota.RoutePicker, e *model.Error) {
	if w.Of > 1 {
		d.After = 0 // the turn knows the backoff of each route
		if e.Kind == model.Overloaded || e.Kind == model.Network {
			d.Fresh = w.Next()
		}
	}
}

// Away returns how long a route is in backoff. A fallback without a price is closed
// under a money limit.
func Away(v *kernel.View, at int, f *model.Facts, resource string, away func(string) time.Duration) time.Duration {
	if at > 0 && v.Limited && !f.Priced {
		return quota.Closed
	}
	return away(resource)
}
