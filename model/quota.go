package model

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Quota is how the limits of a key stood when a provider answered. The zero
// Quota says nothing.
type Quota struct {
	At       time.Time // when it came
	Requests Allowance
	Tokens   Allowance // in and out together
	Input    Allowance // tokens
	Output   Allowance // tokens
}

// An Allowance is a limit, and what is left of it. Limit 0: not told.
type Allowance struct{ Limit, Left int64 }

// ReadQuota reads the headers with which OpenAI, Anthropic and those that
// imitate them tell how their limits stand.
func ReadQuota(h http.Header, now time.Time) Quota {
	q := Quota{
		Requests: allowance(h, "Requests"), Tokens: allowance(h, "Tokens"),
		Input: allowance(h, "Input-Tokens"), Output: allowance(h, "Output-Tokens"),
	}
	if q != (Quota{}) {
		q.At = now
	}
	return q
}

// RetryAfter is how long the headers of an answer ask to wait; 0 if they do not
// say.
func RetryAfter(h http.Header, now time.Time) time.Duration { return retryAfter(h, now) }

func allowance(h http.Header, name string) (a Allowance) {
	for limit, left := range map[string]string{
		"X-Ratelimit-Limit-" + name:              "X-Ratelimit-Remaining-" + name,
		"Anthropic-Ratelimit-" + name + "-Limit": "Anthropic-Ratelimit-" + name + "-Remaining",
	} {
		l, err1 := strconv.ParseInt(strings.TrimSpace(h.Get(limit)), 10, 64)
		r, err2 := strconv.ParseInt(strings.TrimSpace(h.Get(left)), 10, 64)
		if err1 == nil && err2 == nil && l > 0 && r >= 0 && r <= l {
			a = Allowance{l, r}
		}
	}
	return a
}
