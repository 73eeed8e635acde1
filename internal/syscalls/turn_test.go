package syscalls

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/storetest"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/quota"
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
		word  quota.Status
		away  bool
	}{
		{"it went well", nil, taken, quota.Served, false},
		{"429", &model.Error{Kind: model.RateLimit, Status: 429, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.RateLimited, true},
		{"503", &model.Error{Kind: model.Overloaded, Status: 503, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.Overloaded, true},
		{"529", &model.Error{Kind: model.Overloaded, Status: 529, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.Overloaded, true},
		{"a script's", &model.Error{Kind: model.Overloaded, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.Overloaded, true},
		{"500 is the server's own error", &model.Error{Kind: model.Overloaded, Status: 500, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.Failing, false},
		{"within a stream, it was billed", &model.Error{Kind: model.Overloaded, RetryAfter: after}, taken, quota.Overloaded, false},
		{"a broken connection", &model.Error{Kind: model.Network, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.Failing, false},
		{"no connection", &model.Error{Kind: model.Network, Unreached: true, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.Unreachable, false},
		{"an error of ours", &model.Error{Kind: model.BadRequest, Status: 400, RetryAfter: after}, abi.Usage{abi.ModelCalls: 1}, quota.Served, false},
	} {
		d := kernel.Done{Usage: v.usage}
		if v.e != nil {
			v.e.Quota.Requests = model.Allowance{Limit: 7, Left: 3}
		}
		Hear(&d, v.e, model.Quota{Requests: model.Allowance{Limit: 7, Left: 3}}, 4)
		f, _ := d.Feedback.(quota.Feedback)
		if f.Status != v.word || d.Away != v.away || f.Quota.Requests.Left != 3 || f.Cached != 4 {
			t.Errorf("%s: %+v, away %v", v.name, f, d.Away)
		}
		if v.away != (d.Usage[abi.ModelCalls] == 0) || v.e != nil && (d.After != after || f.RetryAfter != after) {
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
	if r := quota.ParseResource(b); r.Provider != "local" || r.Model != "llama3:8b" || len(r.Key) != 8 {
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
		fresh  bool
	}{
		{2, model.Overloaded, 1, false, true}, {2, model.Network, 1, false, true}, {2, model.RateLimit, 0, false, false}, {2, model.Auth, 0, false, false},
		{1, model.Overloaded, 0, true, false}, {1, model.Network, 0, true, false},
	} {
		w, d := quota.RoutePicker{Of: c.of}, kernel.Done{After: time.Second}
		w.Choose(func(int) time.Duration { return 0 })
		Failed(&d, &w, &model.Error{Kind: c.kind})
		if w.At != c.want || (d.After > 0) != c.waited || d.Fresh != c.fresh {
			t.Errorf("%s of %d: %d, waits %v, fresh %v", c.kind, c.of, w.At, d.After, d.Fresh)
		}
	}
}

// failing is a model that cannot be had so many times, and keeps when it was
// asked.
type failing struct {
	stated
	times int
	with  model.Error
	asked func(name string)
}

func (f *failing) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		f.asked(f.facts.Name)
		if f.times--; f.times >= 0 {
			e := f.with
			yield(model.Event{}, &e)
			return
		}
		yield(model.Event{Done: &model.Done{Stop: model.StopEnd}}, nil)
	}
}

// TestFallbackIsAskedAtOnce: the call that finds out that a provider is not to be
// had asks the next in the same moment, and waits only before it asks one again.
//
// Mutants that die here: it pauses before the first fallback, or never.
func TestFallbackIsAskedAtOnce(t *testing.T) {
	unreached := model.Error{Kind: model.Network, Unreached: true, Usage: &model.Usage{}}
	broken := model.Error{Kind: model.Network}
	busy := model.Error{Kind: model.Overloaded, Status: 503, Usage: &model.Usage{}}
	for _, c := range []struct {
		name  string
		fails []int // how often each of them does
		with  model.Error
		want  string
	}{
		{"it cannot be reached", []int{9, 0}, unreached, "0s p, 0s q"},
		{"it breaks off", []int{9, 0}, broken, "0s p, 0s q"},
		{"it is overloaded", []int{9, 0}, busy, "0s p, 0s q"},
		{"there is no other", []int{2}, unreached, "0s p, 250ms p, 750ms p"},
		{"two of three cannot be had", []int{9, 9, 0}, unreached, "0s p, 0s q, 0s r"},
		{"none can", []int{2, 9}, unreached, "0s p, 0s q, 500ms p, 500ms q, 2.5s p"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			start := time.Now()
			models := map[string]*failing{}
			program := abi.Agent{Name: "asks"}
			for i, n := range c.fails {
				name := string(rune('p' + i))
				models[name+":m"] = &failing{stated{facts: model.Facts{Name: name + ":m", Provider: name}}, n, c.with, func(string) {
					got = append(got, fmt.Sprint(time.Since(start), " ", name))
				}}
				if f := (abi.Fallback{Model: name + ":m", Facts: &abi.ModelFacts{Window: 1000}}); i == 0 {
					program.Model, program.Facts = f.Model, f.Facts
				} else {
					program.Fallback = append(program.Fallback, f)
				}
			}
			if r := alone(t, models, program); r.Err != nil {
				t.Errorf("%s: %+v", c.name, r.Err)
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("%s: %s; want %s", c.name, s, c.want)
			}
		})
	}
}

// alone is the answer to the one model call of a process, in a kernel of its own.
func alone(t *testing.T, models map[string]*failing, p abi.Agent) abi.Result {
	t.Helper()
	store, lease := storetest.Mem()
	log := journal.NewLog(store, lease)
	defer func() { _ = log.Close() }()
	var k *kernel.Kernel
	w := &World{
		Open: func(p *abi.Agent) (model.Model, error) { return models[p.Model], nil },
		Away: func(string) time.Duration { return 0 },
		Journal: Journal{
			Bytes: func(d abi.Data) ([]byte, error) { return k.Bytes(d) },
			Record: func(pid abi.Pid, n uint64) (*abi.Record, error) {
				for r, err := range store.Records(pid, n-1) {
					return r, err
				}
				return nil, fmt.Errorf("process %d has no record %d", pid, n)
			},
		},
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if k, err = kernel.New(kernel.Config{Store: store, Log: log, Rows: Table(w)}); err != nil {
		t.Fatal(err)
	}
	s := kernel.Spawning{Program: b, Task: []byte("go")}
	s.Name, s.Rows = p.Name, []string{"model"}
	pid, err := k.Spawn(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	k.Resume(pid)
	return k.Do(t.Context(), abi.Call{Pid: pid, N: 1, Row: "model", Args: []byte(`{}`)})
}

// TestAway: under a money limit a request goes to no model without a price in the
// place of the one that was asked for.
func TestAway(t *testing.T) {
	for _, c := range []struct {
		at              int
		limited, priced bool
		want            time.Duration
	}{{0, true, false, 7}, {1, true, false, quota.Closed}, {1, true, true, 7}, {1, false, false, 7}} {
		got := Away(&kernel.View{Limited: c.limited}, c.at, &model.Facts{Priced: c.priced}, "p/m", func(r string) time.Duration { return time.Duration(len(r) + 4) })
		if got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
