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

// told are the headers with which OpenAI, Anthropic and those that imitate them
// tell how their limits stand.
var told = [...]struct {
	limit, left string
	of          func(*Quota) *Allowance
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

func ofRequests(q *Quota) *Allowance { return &q.Requests }
func ofTokens(q *Quota) *Allowance   { return &q.Tokens }
func ofInput(q *Quota) *Allowance    { return &q.Input }
func ofOutput(q *Quota) *Allowance   { return &q.Output }

// ReadQuota reads the headers of an answer.
func ReadQuota(h http.Header, now time.Time) (q Quota) {
	for i := range told {
		x := &told[i]
		if h[x.limit] == nil {
			continue
		}
		limit, err1 := strconv.ParseInt(strings.TrimSpace(h.Get(x.limit)), 10, 64)
		left, err2 := strconv.ParseInt(strings.TrimSpace(h.Get(x.left)), 10, 64)
		if err1 == nil && err2 == nil && limit > 0 && left >= 0 && left <= limit {
			*x.of(&q), q.At = Allowance{limit, left}, now
		}
	}
	return q
}
