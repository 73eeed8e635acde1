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
// turn; anything else that fails was an attempt, and says how the provider is.
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
		{"500 is the server's own error", &model.Error{Kind: model.Overloaded, Status: 500, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Failing, false},
		{"within a stream, it was billed", &model.Error{Kind: model.Overloaded, RetryAfter: after}, taken, traffic.Overloaded, false},
		{"a broken connection", &model.Error{Kind: model.Network, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Failing, false},
		{"no connection", &model.Error{Kind: model.Network, Unreached: true, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Gone, false},
		{"an error of ours", &model.Error{Kind: model.BadRequest, Status: 400, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, traffic.Fine, false},
	} {
		d := kernel.Done{Usage: v.usage}
		if v.e != nil {
			v.e.Quota.Requests = model.Allowance{Limit: 7, Left: 3}
		}
		Hear(&d, v.e, model.Quota{Requests: model.Allowance{Limit: 7, Left: 3}}, 4)
		f, _ := d.Heard.(traffic.Feedback)
		if f.Word != v.word || d.Away != v.away || f.Quota.Requests.Left != 3 || f.Cached != 4 {
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

// TestFailed: what failed at one provider is tried at the next where another may
// do better, and at once; who has nowhere to go waits as long as it was told.
func TestFailed(t *testing.T) {
	for _, c := range []struct {
		of     int
		kind   model.Kind
		want   int
		waited bool
	}{
		{2, model.Overloaded, 1, false}, {2, model.Network, 1, false}, {2, model.RateLimit, 0, false}, {2, model.Auth, 0, false},
		{1, model.Overloaded, 0, true}, {1, model.Network, 0, true},
	} {
		w, d := traffic.Way{Of: c.of}, kernel.Done{After: time.Second}
		Failed(&d, &w, &model.Error{Kind: c.kind})
		if w.At != c.want || (d.After > 0) != c.waited {
			t.Errorf("%s of %d: %d, waits %v", c.kind, c.of, w.At, d.After)
		}
	}
}

// TestAway: under a money limit a request goes to no model without a price in the
// place of the one that was asked for.
func TestAway(t *testing.T) {
	for _, c := range []struct {
		at              int
		limited, priced bool
		want            time.Duration
	}{{0, true, false, 7}, {1, true, false, traffic.Shut}, {1, true, true, 7}, {1, false, false, 7}} {
		got := Away(&kernel.View{Limited: c.limited}, c.at, &model.Facts{Priced: c.priced}, "p/m", func(r string) time.Duration { return time.Duration(len(r) + 4) })
		if got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
