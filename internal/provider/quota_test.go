package provider

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/model"
)

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
	if o := run(t, m, hello); o.Done == nil || o.Done.Quota.Requests != want || o.Done.Quota.At.IsZero() {
		t.Errorf("a whole answer: %s %+v", o, o.Done)
	}
	status = http.StatusTooManyRequests
	if o := run(t, m, hello); o.Err == nil || o.Err.Quota.Requests != want {
		t.Errorf("a refusal: %s %+v", o, o.Err)
	}
}
