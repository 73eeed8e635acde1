package format

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/model"
)

// told lists the headers in which OpenAI, Anthropic and compatible servers report
// their limits and how much is left of each limit.
var told = [...]struct {
	limit, left string
	of          func(*model.Quota) *model.Allowance
}{
	{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", ofRequests},
	{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", ofTokens},
	{"X-Ratelimit-Limit-Input-Tokens", "X-Ratelimit-Remaining-Input-Tokens", ofInput},
	{"X-Ratelimit-Limit-Output-Tokens", "X-Ratelimit-Remaining-Output-Tokens", ofOutput},
	{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", ofRequests},
	{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", ofTokens},
	{"Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", ofInput},
	{"Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", ofOutput},
}

// The functions below select the part of a Quota that a row of told fills.

func ofRequests(q *model.Quota) *model.Allowance { return &q.Requests }
func ofTokens(q *model.Quota) *model.Allowance   { return &q.Tokens }
func ofInput(q *model.Quota) *model.Allowance    { return &q.Input }
func ofOutput(q *model.Quota) *model.Allowance   { return &q.Output }

// ReadQuota reads the provider limits from the headers of an answer that arrived at
// now. It skips a pair of headers that is incomplete or contradicts itself.
func ReadQuota(h http.Header, now time.Time) (q model.Quota) {
	for i := range told {
		x := &told[i]
		if h[x.limit] == nil {
			continue
		}
		limit, err1 := strconv.ParseInt(strings.TrimSpace(h.Get(x.limit)), 10, 64)
		left, err2 := strconv.ParseInt(strings.TrimSpace(h.Get(x.left)), 10, 64)
		if err1 == nil && err2 == nil && limit > 0 && left >= 0 && left <= limit {
			*x.of(&q), q.At = model.Allowance{Limit: limit, Left: left}, now
		}
	}
	return q
}

// RetryAfter returns how long the provider asks to wait, or 0 if the headers do not
// say. It measures a named time from the Date header if there is one, because both
// times are from the provider's clock.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if there, err := http.ParseTime(h.Get("Date")); err == nil {
		now = there
	}
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return sane(ms / 1000)
	}
	if v := strings.TrimSpace(h.Get("Retry-After")); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			return sane(s)
		}
		if t, err := http.ParseTime(v); err == nil {
			return sane(t.Sub(now).Seconds())
		}
	}
	// The limit that refused the request has nothing left. If every limit has
	// something left, the cause is unknown, and the longest wait is safe.
	var hit, any time.Duration
	for _, name := range []string{"Requests", "Tokens", "Input-Tokens", "Output-Tokens"} {
		for reset, left := range map[string]string{
			"X-Ratelimit-Reset-" + name:              "X-Ratelimit-Remaining-" + name,
			"Anthropic-Ratelimit-" + name + "-Reset": "Anthropic-Ratelimit-" + name + "-Remaining",
		} {
			d := until(h.Get(reset), now)
			any = max(any, d)
			if h.Get(left) == "0" {
				hit = max(hit, d)
			}
		}
	}
	if hit > 0 {
		return hit
	}
	return any
}

// until returns the wait from now until a reset: "6m0s", "1.5" (seconds) or an RFC
// 3339 time. It returns 0 for anything else.
func until(s string, now time.Time) time.Duration {
	if d, err := time.ParseDuration(s); err == nil {
		return sane(d.Seconds())
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return sane(v)
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return sane(t.Sub(now).Seconds())
	}
	return 0
}

// sane converts seconds to a wait between 0 and one day. NaN becomes 0.
func sane(seconds float64) time.Duration {
	const day = 24 * time.Hour
	if !(seconds > 0) {
		return 0
	}
	if seconds >= day.Seconds() {
		return day
	}
	return time.Duration(seconds * float64(time.Second))
}
