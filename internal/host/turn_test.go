package host_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/quota"
)

// TestFeedback: a call that broke down in Kern says nothing of its provider; what
// was taken or heard does.
//
// Mutant that dies here: it went well where nothing was heard.
func TestFeedback(t *testing.T) {
	e := &abi.Error{Code: abi.Internal}
	for name, c := range map[string]struct {
		d    *kernel.Done
		want quota.Status
	}{
		"not made":             {nil, quota.NotSent},
		"answered":             {&kernel.Done{}, quota.Served},
		"broken down":          {&kernel.Done{Err: e}, quota.Cut},
		"cut off in its midst": {&kernel.Done{Err: e, Usage: abi.Usage{abi.InputTokens: 5}}, quota.Served},
		"heard of":             {&kernel.Done{Err: e, Feedback: quota.Feedback{Status: quota.Unreachable}}, quota.Unreachable},
	} {
		if f := host.Feedback(c.d); f.Status != c.want {
			t.Errorf("%s: %d, want %d", name, f.Status, c.want)
		}
	}
}

// TestNobodyDiesOfARefusal: a provider that turns every conversation away a
// dozen times is waited for, in virtual time, by all the agents that ask it.
func TestNobodyDiesOfARefusal(t *testing.T) {
	w := newWorld(t, "replies:\n"+strings.Repeat("  - error: rate_limit\n", 7)+strings.Repeat("  - error: overloaded\n", 5)+"  - text: at last\n")
	synctest.Test(t, func(t *testing.T) {
		k, err := host.Open(host.Config{Dir: w.dir})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				r, err := k.Run(t.Context(), host.Agent{Name: fmt.Sprint(i), Model: "script:" + w.script, Limits: host.Limits{abi.ModelCalls: 1, abi.Steps: 1}}, "go")
				if err != nil || r.Exit != abi.ExitDone || r.Output != "at last" || r.Usage.ModelCalls != 1 {
					t.Errorf("%+v %v", r, err)
				}
			})
		}
		all.Wait()
		if d := time.Since(start); d < time.Minute || d > time.Hour {
			t.Errorf("it took %s", d)
		}
		for _, v := range k.Traffic() {
			if v.Running != 0 || v.Waiting != 0 {
				t.Errorf("%+v", v)
			}
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}
