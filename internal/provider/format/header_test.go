package format

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/model"
)

func TestReadQuota(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, v := range []struct {
		h    map[string]string
		want model.Quota
	}{
		{nil, model.Quota{}},
		{map[string]string{"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-tokens": "149984"},
			model.Quota{At: now, Requests: model.Allowance{Limit: 60, Left: 59}, Tokens: model.Allowance{Limit: 150_000, Left: 149_984}}},
		{map[string]string{"anthropic-ratelimit-input-tokens-limit": "50000", "anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-output-tokens-limit": "8000", "anthropic-ratelimit-output-tokens-remaining": "8000"},
			model.Quota{At: now, Input: model.Allowance{Limit: 50_000, Left: 0}, Output: model.Allowance{Limit: 8000, Left: 8000}}},
		{map[string]string{"x-ratelimit-limit-requests": "60"}, model.Quota{}},
		{map[string]string{"x-ratelimit-limit-requests": "0", "x-ratelimit-remaining-requests": "0"}, model.Quota{}},
		{map[string]string{"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "61"}, model.Quota{}},
		{map[string]string{"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1"}, model.Quota{}},
		{map[string]string{"x-ratelimit-limit-tokens": "many", "x-ratelimit-remaining-tokens": "1"}, model.Quota{}},
	} {
		h := http.Header{}
		for name, value := range v.h {
			h.Set(name, value)
		}
		if got := ReadQuota(h, now); got != v.want {
			t.Errorf("%v is read as %+v, want %+v", v.h, got, v.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		header string // "Name: value" joined by "; "
		want   time.Duration
	}{
		{"", 0},
		{"Retry-After: 7", 7 * time.Second},
		{"Retry-After: 1.5", 1500 * time.Millisecond},
		{"Retry-After: -3", 0},
		{"Retry-After: NaN", 0},
		{"Retry-After: +Inf", 24 * time.Hour},
		{"Retry-After: 1e300", 24 * time.Hour},
		{"Retry-After: soon", 0},
		{"Retry-After: Sun, 01 Mar 2026 12:00:30 GMT", 30 * time.Second},
		{"Retry-After: Sun, 01 Mar 2026 11:00:30 GMT", 0},
		{"Date: Sun, 01 Mar 2026 10:00:00 GMT; Retry-After: Sun, 01 Mar 2026 10:00:30 GMT", 30 * time.Second},
		{"Date: Sun, 01 Mar 2026 14:00:00 GMT; Anthropic-Ratelimit-Requests-Reset: 2026-03-01T14:00:09Z", 9 * time.Second},
		{"Retry-After-Ms: 250; Retry-After: 1", 250 * time.Millisecond},
		{"X-Ratelimit-Reset-Requests: 1s; X-Ratelimit-Reset-Tokens: 6m0s", 6 * time.Minute},
		{"X-Ratelimit-Reset-Requests: 20ms; X-Ratelimit-Remaining-Requests: 0; X-Ratelimit-Reset-Tokens: 6m0s; X-Ratelimit-Remaining-Tokens: 900", 20 * time.Millisecond},
		{"Anthropic-Ratelimit-Input-Tokens-Reset: 2026-03-01T12:00:09Z; Anthropic-Ratelimit-Input-Tokens-Remaining: 0", 9 * time.Second},
		{"Retry-After: 2; X-Ratelimit-Reset-Requests: 1h", 2 * time.Second},
	} {
		h := http.Header{}
		for _, line := range strings.Split(c.header, "; ") {
			name, value, _ := strings.Cut(line, ": ")
			h.Set(name, value)
		}
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%s: got %v, want %v", c.header, got, c.want)
		}
	}
}
