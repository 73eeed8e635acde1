package model

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A problem is the error object of both providers, read loosely: servers that
// are merely compatible send strings, numbers or nothing.
type problem struct {
	Type, Code, Message string
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *problem) UnmarshalJSON(b []byte) error {
	var o struct{ Type, Code, Message any }
	if json.Unmarshal(b, &o) == nil {
		*p = problem{loose(o.Type), loose(o.Code), loose(o.Message)}
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}
	*p = problem{Message: s}
	return nil
}

func loose(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// readProblem finds the error object in a body.
func readProblem(body []byte) problem {
	var outer struct {
		Error   *problem
		Code    any
		Message string
		Detail  json.RawMessage
	}
	if json.Unmarshal(body, &outer) != nil {
		return problem{}
	}
	switch {
	case outer.Error != nil:
		outer.Error.Code = cmp.Or(outer.Error.Code, loose(outer.Code))
		return *outer.Error
	case outer.Message != "":
		return problem{Message: outer.Message}
	case len(outer.Detail) > 0:
		return problem{Message: string(outer.Detail)}
	}
	return problem{}
}

// tooLong are the words with which servers say that the window is too small.
var tooLong = []string{
	"context length", "context_length", "context window", "maximum context", "prompt is too long",
	"input is too long", "too many tokens", "exceed context limit", "exceeds the available context",
}

// noCredit are the words for an account that nobody has paid for.
var noCredit = []string{"insufficient_quota", "exceeded your current quota", "credit balance", "billing"}

// kindOfStatus classifies an HTTP status and the problem with it. Status 0 is
// a problem within a stream.
//
// An account without credit is Auth even where the status is 429: waiting does
// not mend it, a person must, as with a wrong key. A request that is larger
// than the account's whole rate is BadRequest for the same reason.
func kindOfStatus(status int, p problem) Kind {
	says := func(words []string) bool {
		all := strings.ToLower(p.Type + " " + p.Code + " " + p.Message)
		for _, w := range words {
			if strings.Contains(all, w) {
				return true
			}
		}
		return false
	}
	if code, err := strconv.Atoi(p.Code); status == 0 && err == nil && code >= 400 && code < 600 {
		status = code // what the status would have been, had the stream not begun
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return Auth
	case status == http.StatusTooManyRequests:
		switch {
		case says(noCredit):
			return Auth
		case says([]string{"request too large"}):
			return BadRequest
		}
		return RateLimit
	case status == http.StatusRequestEntityTooLarge:
		return Context
	case status == http.StatusRequestTimeout:
		return Network
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		return BadRequest
	case status >= 500:
		return Overloaded
	case status != 0 && says(tooLong):
		return Context
	case status == http.StatusBadRequest && says(noCredit):
		return Auth
	case status != 0:
		return BadRequest
	case says(tooLong):
		return Context
	case says(noCredit):
		return Auth
	}
	return kindOfType(p)
}

// kindOfType classifies a problem that came without a status.
func kindOfType(p problem) Kind {
	for _, t := range []string{p.Type, p.Code} {
		switch t {
		case "rate_limit_error", "rate_limit_exceeded", "requests", "tokens":
			return RateLimit
		case "authentication_error", "permission_error", "invalid_api_key":
			return Auth
		case "invalid_request_error", "not_found_error":
			return BadRequest
		case "request_too_large":
			return Context
		case "timeout_error":
			return Network
		}
	}
	return Overloaded // overloaded_error, api_error, server_error and what else goes wrong in a server's middle
}

// RetryAfter is how long the provider asks to wait, 0 if it does not say. A time
// that it names is one of its own clock, as is that of the answer.
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
	// A limit that still has something left is not the one that was hit; where
	// all have, it is not known which, and the longest is safe.
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

// until reads "6m0s", "1.5" seconds or a time.
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

// sane keeps a wait between nothing and a day; NaN is nothing.
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

// Classify reads an error of any provider: an answer with an error status, or,
// with status 0, an error within a stream. A request that was turned down took
// nothing; of an error within a stream nobody knows.
func Classify(status int, body []byte) *Error {
	kind, msg := openAI{}.classify(status, body)
	if msg == "" {
		msg = string(body)
	}
	e := &Error{Kind: kind, Message: tidy(msg), Status: status}
	if status != 0 {
		e.Usage = &Usage{}
	}
	return e
}
