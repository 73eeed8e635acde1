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

// Resource is what a call to a model waits for its turn at. A provider limits
// each key by itself: a credential that is not the daemon's own is told apart
// from others by a short hash.
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

// Hear puts into d what an answer tells of the provider's limits: q, and e when
// it is an error; and how much of its input was in the provider's cache. A call that was turned away before anything was taken for it
// is no attempt and no model call: it goes back and waits for another turn.
func Hear(d *kernel.Done, e *model.Error, q model.Quota, cached int64) {
	f := quota.Feedback{Quota: q, Cached: cached}
	if e != nil {
		f.Status, f.RetryAfter, d.After = statusOf(e), e.RetryAfter, e.RetryAfter
		if !e.Quota.At.IsZero() {
			f.Quota = e.Quota
		}
	}
	d.Feedback = f
	if (f.Status == quota.RateLimited || f.Status == quota.Overloaded) && d.Usage[abi.Money] == 0 && d.Usage[abi.Tokens] == 0 {
		d.Away, d.Usage[abi.ModelCalls] = true, 0
	}
}

// statusOf is what an error says of the provider. An error without an HTTP status came within
// a stream, or from a script.
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

// Failed notes that a call failed with e on its way: the next attempt takes
// another route when the provider was overloaded or could not be reached, and
// waits only where all have been asked.
func Failed(d *kernel.Done, w *quota.RoutePicker, e *model.Error) {
	if w.Of > 1 {
		d.After = 0 // the turn knows who rests for how long
		if e.Kind == model.Overloaded || e.Kind == model.Network {
			d.Fresh = w.Next()
		}
	}
}

// Away is how long a route is away, as away has it of its resource. Another than
// the first, which was asked for, must have a price under a money limit.
func Away(v *kernel.View, at int, f *model.Facts, resource string, away func(string) time.Duration) time.Duration {
	if at > 0 && v.Limited && !f.Priced {
		return quota.Closed
	}
	return away(resource)
}
