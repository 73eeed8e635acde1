package provider

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/provider/transport"
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
		if got := format.ReadQuota(h, now); got != v.want {
			t.Errorf("%v is read as %+v, want %+v", v.h, got, v.want)
		}
	}
}

// TestQuotaComesAlong: an answer, whole or refused, tells how the limits stand.
func TestQuotaComesAlong(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Ratelimit-Limit-Requests", "60")
		w.Header().Set("X-Ratelimit-Remaining-Requests", "12")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(`{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`))
	}))
	defer s.Close()
	m, err := Open("openai:some", Config{Getenv: func(string) string { return "" }, Providers: map[string]Provider{"openai": {BaseURL: s.URL, Key: transport.NewKey("k")}}, HTTP: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	want := model.Allowance{Limit: 60, Left: 12}
	if o := run(t, m, hello); o.done == nil || o.done.Quota.Requests != want || o.done.Quota.At.IsZero() {
		t.Errorf("a whole answer: %s %+v", o, o.done)
	}
	status = http.StatusTooManyRequests
	if o := run(t, m, hello); o.err == nil || o.err.Quota.Requests != want {
		t.Errorf("a refusal: %s %+v", o, o.err)
	}
}
