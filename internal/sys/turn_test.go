package sys

import (
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/traffic"
	"github.com/kern-run/kern/model"
)

// TestHear: what was turned away before it took anything waits for another
// turn; anything else that fails was an attempt.
func TestHear(t *testing.T) {
	const after = 3 * time.Second
	taken := abi.Usage{abi.ModelCalls: 1, abi.InputTokens: 10, abi.Tokens: 10}
	for _, v := range []struct {
		name  string
		e     *model.Error
		usage abi.Usage
		word  traffic.Word
		away  bool
	}{
		{"it went well", nil, taken, traffic.Fine, false},
		{"429", &model.Error{Kind: model.RateLimit, Status: 429, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Slow, true},
		{"503", &model.Error{Kind: model.Overloaded, Status: 503, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Overloaded, true},
		{"529", &model.Error{Kind: model.Overloaded, Status: 529, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Overloaded, true},
		{"a script's", &model.Error{Kind: model.Overloaded, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Overloaded, true},
		{"500 is the server's own error", &model.Error{Kind: model.Overloaded, Status: 500, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Fine, false},
		{"within a stream, it was billed", &model.Error{Kind: model.Overloaded, RetryAfter: after}, taken, traffic.Overloaded, false},
		{"a broken connection", &model.Error{Kind: model.Network, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Fine, false},
	} {
		d := kernel.Done{Usage: v.usage}
		if v.e != nil {
			v.e.Quota.Requests = model.Allowance{Limit: 7, Left: 3}
		}
		Hear(&d, v.e, model.Quota{Requests: model.Allowance{Limit: 7, Left: 3}})
		f, _ := d.Heard.(traffic.Feedback)
		if f.Word != v.word || d.Away != v.away || f.Quota.Requests.Left != 3 {
			t.Errorf("%s: %+v, away %v", v.name, f, d.Away)
		}
		if v.away != (d.Usage[abi.ModelCalls] == 0) || v.e != nil && (d.After != after || f.After != after) {
			t.Errorf("%s: %v, after %s", v.name, d.Usage, d.After)
		}
	}
}

// TestResource: each key is told apart, and no key is told.
func TestResource(t *testing.T) {
	f := model.Facts{Name: "local:llama3:8b", Provider: "local"}
	a, b, c := Resource(f, ""), Resource(f, "Bearer sk-secret-one"), Resource(f, "Bearer sk-secret-two")
	if a != "local/llama3:8b" || b == c || a == b || strings.Contains(b, "secret") {
		t.Error(a, b, c)
	}
	if r := traffic.ParseResource(b); r.Provider != "local" || r.Model != "llama3:8b" || len(r.Key) != 8 {
		t.Errorf("%+v", r)
	}
	if s := Resource(model.Facts{Name: "script:/some/where/replies.yaml", Provider: "script"}, ""); s != "script/replies.yaml" {
		t.Error(s)
	}
}
