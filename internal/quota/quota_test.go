package quota

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/model"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// one is a provider p that takes so many calls at one time.
func one(n int) map[string]Config {
	return map[string]Config{"p": {Limits: Limits{Concurrency: n}}}
}

func take(t *testing.T, turns *Turns, a Demand) *Turn {
	t.Helper()
	turn, err := turns.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// empty fails when a wait or a turn left something behind.
func empty(t *testing.T, turns *Turns) {
	t.Helper()
	for _, all := range []map[string]*bucket{turns.scheduler.buckets, turns.scheduler.parents} {
		for name, b := range all {
			if b.running != 0 || b.waiters != nil && (b.waiters.waiting != 0 || b.waiters.some != [2]uint64{}) || len(b.blocked) != 0 {
				t.Errorf("%s: %d running, waiters %+v, blocked %d", name, b.running, b.waiters, len(b.blocked))
			}
			if b.slack != (amount{}) || b.outputs != (outputs{}) || b.waiters != nil && b.waiters.free != 0 {
				t.Errorf("%s: of calls that ended, %v and %+v are kept", name, b.slack, b.outputs)
			}
			if b.owners == nil {
				continue
			}
			for _, o := range b.owners.children {
				if o.calls != 0 || len(o.queues) != 0 {
					t.Errorf("%s: owner %s is busy %d, queues %d", name, o.name, o.calls, len(o.queues))
				}
			}
		}
	}
	if len(turns.timers) != 0 {
		t.Errorf("%d timers left", len(turns.timers))
	}
}

// TestConcurrency takes turns from many goroutines and counts how many hold one.
func TestConcurrency(t *testing.T) {
	turns := Turns{Configs: one(4)}
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			turn, err := turns.Acquire(t.Context(), Demand{Resource: "p/m", Owner: string(rune('a' + i%3)), Pid: int64(i), Priority: i % 20, In: 10})
			if err != nil {
				t.Error(err)
				return
			}
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			now.Add(-1)
			turn.Release(Feedback{In: 5})
			turn.Release(Feedback{In: 5}) // counts once
		})
	}
	wg.Wait()
	if most.Load() > 4 {
		t.Errorf("%d at once, limit 4", most.Load())
	}
	empty(t, &turns)
}

// TestOrder lets callers of several priorities arrive while the only turn is
// taken, and rechecks at the order in which they get it.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Configs: one(1)}
		hold := take(t, &turns, Demand{Resource: "p"})
		var mu sync.Mutex
		var order []string
		arrive := func(name string, a Demand) {
			go func() {
				a.Resource = "p"
				turn, err := turns.Acquire(t.Context(), a)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				turn.Release(Feedback{In: a.In})
			}()
			synctest.Wait()
		}
		arrive("old bulk", Demand{Owner: "a", Priority: 12})
		time.Sleep(40 * time.Second) // virtual: it ages by eight levels
		arrive("bulk of a", Demand{Owner: "a", Pid: 1, Priority: 10, In: 100})
		arrive("more of a", Demand{Owner: "a", Pid: 1, Priority: 10, In: 100})
		arrive("other process of a", Demand{Owner: "a", Pid: 2, Priority: 10, In: 100})
		arrive("bulk of b", Demand{Owner: "b", Pid: 3, Priority: 10, In: 10})
		arrive("more of b", Demand{Owner: "b", Pid: 3, Priority: 10, In: 10})
		arrive("still more of b", Demand{Owner: "b", Pid: 3, Priority: 10, In: 10})
		arrive("made urgent", Demand{Owner: "d", Pid: 5, Priority: 10})
		arrive("urgent by now", Demand{Owner: "c", Pid: 4, Priority: 10, CurrentPriority: func() int { return 1 }})
		arrive("urgent", Demand{Owner: "a"})
		turns.SetPriority(5, 2)
		hold.Release(Feedback{})
		synctest.Wait()
		want := []string{"urgent", "urgent by now", "made urgent", "old bulk", "bulk of b", "bulk of a", "more of b", "still more of b", "other process of a", "more of a"}
		if !slices.Equal(order, want) {
			t.Errorf("order %q\nwant  %q", order, want)
		}
		empty(t, &turns)
	})
}

// TestUnreachable ends the wait of a caller, and sees that its turn is not lost.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Configs: one(1)}
		hold := take(t, &turns, Demand{Resource: "p"})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := turns.Acquire(ctx, Demand{Resource: "p", In: 7})
			left <- err
		}()
		synctest.Wait()
		if why := turns.WaitReason("p"); why != "concurrency" {
			t.Errorf("it waits for %q", why)
		}
		cancel()
		if err := <-left; err != context.Canceled {
			t.Errorf("got %v", err)
		}
		hold.Release(Feedback{})
		take(t, &turns, Demand{Resource: "p"}).Release(Feedback{})
		empty(t, &turns)
	})
}

// TestCancelRaces ends waits at the very moment that turns come.
func TestCancelRaces(t *testing.T) {
	turns := Turns{Configs: one(2)}
	var wg sync.WaitGroup
	var held atomic.Int64
	for i := range 500 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 0 {
				go cancel()
			}
			turn, err := turns.Acquire(ctx, Demand{Resource: "p/m", Pid: int64(i)})
			if err != nil {
				return
			}
			if n := held.Add(1); n > 2 {
				t.Errorf("%d at once", n)
			}
			held.Add(-1)
			turn.Release(Feedback{})
		})
	}
	wg.Wait()
	empty(t, &turns)
}

// TestTurnAndEnd: a wait that ends at the moment when its turn comes, whichever
// is seen first, loses none.
func TestTurnAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Configs: one(1)}
		for i := range 200 {
			hold := take(t, &turns, Demand{Resource: "p"})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if turn, err := turns.Acquire(ctx, Demand{Resource: "p"}); err == nil {
					turn.Release(Feedback{})
				}
			}()
			synctest.Wait()
			if i%2 == 0 {
				cancel()
			}
			hold.Release(Feedback{})
			cancel()
			synctest.Wait()
		}
		empty(t, &turns)
	})
}

// TestMinute spreads the calls of a busy caller over the minute, and gives back
// what was not taken.
func TestMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Configs: map[string]Config{"p": {Limits: Limits{Requests: 60, Tokens: 60_000}}}}
		start := time.Now()
		for range 120 {
			take(t, &turns, Demand{Resource: "p/m", In: 400, Out: 4000}).Release(Feedback{In: 400, Out: 100})
		}
		if d := time.Since(start); d < time.Minute || d > 125*time.Second {
			t.Errorf("120 calls at 60 a minute took %s", d)
		}
		empty(t, &turns)
	})
}

// TestKinds holds a provider at another address to the limits of its kind,
// unless it has its own, and a model to what the provider grants.
func TestKinds(t *testing.T) {
	s := scheduler{configs: map[string]Config{
		"openai":             {Limits: Limits{Concurrency: 3, Tokens: 1000}, Models: map[string]Limits{"small": {Tokens: 50, Requests: 7}}},
		"openai@own.example": {Limits: Limits{Concurrency: 2}},
	}}
	for resource, want := range map[string][3]int64{
		"openai/gpt": {3, 0, 1000}, "openai/small": {3, 7, 50}, "openai#key/small": {3, 7, 50}, "openai@other.example:80/gpt/x": {3, 0, 1000},
		"openai@own.example/gpt": {2, 0, 0}, "anthropic/claude": {0, 0, 0},
	} {
		b := s.bucket(0, resource)
		if got := [3]int64{int64(b.parent.parent.maxRunning), b.configured[requests], b.configured[tokens]}; got != want {
			t.Errorf("%s: %v, want %v", resource, got, want)
		}
		if r := ParseResource(resource); r.String() != resource {
			t.Errorf("%q is read as %+v", resource, r)
		}
	}
	if a, b := s.bucket(0, "openai/gpt"), s.bucket(0, "openai#key/gpt"); a.parent == b.parent || a.parent.parent != b.parent.parent {
		t.Error("two keys share limits, or one provider is two")
	}
}

// TestRateLimited: a provider that says 429 is left alone as long as it asks, and then
// asked by few; no waiting call is told.
func TestRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var all []*Turn
		for range 16 {
			all = append(all, take(t, &turns, Demand{Resource: "p/m"}))
		}
		for _, u := range all {
			u.Release(Feedback{Status: RateLimited, RetryAfter: 20 * time.Second})
		}
		start := time.Now()
		var went []time.Duration
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				turn, err := turns.Acquire(t.Context(), Demand{Resource: "p/m"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				went = append(went, time.Since(start))
				mu.Unlock()
				time.Sleep(time.Second)
				turn.Release(Feedback{})
			})
		}
		synctest.Wait()
		if why := turns.WaitReason("p/m"); why != "asked to slow down, 20s" {
			t.Errorf("they wait for %q", why)
		}
		wg.Wait()
		slices.Sort(went)
		if went[0] != 20*time.Second || went[1] == went[0] {
			t.Errorf("the first went after %s and %s", went[0], went[1])
		}
		if went[39] > 30*time.Second {
			t.Errorf("the last went after %s", went[39])
		}
		empty(t, &turns)
	})
}

// TestMargin: what a 429 leads to follows from what is left: of a minute that is
// used up a margin is kept; else the moment, or the number at one time, was too
// much. Both are forgotten in time.
func TestMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Configs: map[string]Config{"p": {Limits: Limits{Requests: 6000}}}}
		b := func() *bucket { return turns.scheduler.buckets["p/m"] }
		refuse := func(left int64) {
			var all []*Turn
			for range 10 {
				all = append(all, take(t, &turns, Demand{Resource: "p/m"}))
			}
			for _, u := range all {
				u.Release(Feedback{Status: RateLimited, Quota: model.Quota{At: time.Now(), Requests: model.Allowance{Limit: 6000, Left: left}}})
			}
		}
		refuse(0)
		if k := b().pace; k.margin == 0 || k.width != mostWidth*1000 {
			t.Errorf("after an empty minute: %+v", k)
		}
		first := b().pace.margin
		time.Sleep(2 * time.Minute)
		refuse(0)
		if k := b().pace; k.margin <= first {
			t.Errorf("after the second: %+v", k)
		}
		time.Sleep(2 * time.Minute)
		margin := b().pace.margin
		refuse(3000)
		if k := b().pace; k.margin > margin || k.ceiling != 9000 || k.width != 9000 {
			t.Errorf("after a moment that was too much: %+v", k)
		}
		for range 60 {
			time.Sleep(time.Minute)
			take(t, &turns, Demand{Resource: "p/m"}).Release(Feedback{})
		}
		if k := b().pace; k.margin > 2 || k.ceiling < 50_000 {
			t.Errorf("an hour later: %+v", k)
		}
		empty(t, &turns)
	})
}

// TestLearned: limits that only the provider's headers tell are kept, and what
// others use of them is left to them.
func TestLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		say := func(left int64) Feedback {
			return Feedback{Quota: model.Quota{At: time.Now(), Requests: model.Allowance{Limit: 600, Left: left}}}
		}
		take(t, &turns, Demand{Resource: "p/m"}).Release(say(100)) // 499 were somebody else's
		start := time.Now()
		n := 0
		for time.Since(start) < 59*time.Second {
			u := take(t, &turns, Demand{Resource: "p/m"})
			if n++; time.Since(start) < 59*time.Second && n > 100 {
				t.Fatalf("%d calls in %s", n, time.Since(start))
			}
			u.Release(say(max(0, 100-int64(n))))
		}
		if v := turns.Snapshots(); len(v) != 1 || v[0].Name != "p/m" || v[0].Learned["requests"] != 600 {
			t.Errorf("%+v", v)
		}
		empty(t, &turns)
	})
}

// TestFallback: a call with a fallback does not wait for one that is
// overloaded or asks for an hour, neither when it comes then nor when it stood in
// queue already; a call without one waits. A pause that a limit by the minute explains is
// waited for by all.
func TestFallback(t *testing.T) {
	for _, v := range []struct {
		name string
		f    Feedback
		away time.Duration
	}{
		{"overloaded", Feedback{Status: Overloaded, RetryAfter: 7 * time.Second}, 7 * time.Second},
		{"an hour", Feedback{Status: RateLimited, RetryAfter: time.Hour}, time.Hour},
		{"a minute", Feedback{Status: RateLimited, RetryAfter: time.Minute}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			turns := Turns{Configs: one(1)}
			ask := func(elsewhere bool) (err error, after time.Duration) {
				start := time.Now()
				turn, err := turns.Acquire(t.Context(), Demand{Resource: "p/m", HasFallback: elsewhere})
				if err == nil {
					turn.Release(Feedback{})
				}
				return err, time.Since(start)
			}
			hold := take(t, &turns, Demand{Resource: "p/m", HasFallback: true})
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					err, after := ask(i%2 == 0)
					if free := i%2 == 0 && v.away > 0; free != (err == ErrBackoff) || free != (after == 0) {
						t.Errorf("%s: waiter %d ends with %v after %s", v.name, i, err, after)
					}
				})
			}
			synctest.Wait()
			if n := turns.scheduler.buckets["p/m"].waiters.free; n != 3 {
				t.Errorf("%s: %d can go elsewhere, want 3 of 6", v.name, n)
			}
			hold.Release(v.f)
			synctest.Wait()
			if got := turns.Backoff("p/m"); got != v.away {
				t.Errorf("%s: it is away for %s, want %s", v.name, got, v.away)
			}
			if err, after := ask(true); (err == ErrBackoff) != (v.away > 0) || err == ErrBackoff && after > 0 {
				t.Errorf("%s: a new one ends with %v after %s", v.name, err, after)
			}
			wg.Wait()
			time.Sleep(v.away)
			if err, _ := ask(true); err != nil {
				t.Errorf("%s: when it is back: %v", v.name, err)
			}
			empty(t, &turns)
		})
	}
}

// TestBackoffAndEnd: a wait that ends at the moment when its provider is found away,
// whichever is seen first, gives back no turn, for it had none.
func TestBackoffAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Configs: one(1)}
		for i := range 50 {
			hold := take(t, &turns, Demand{Resource: "p"})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if turn, err := turns.Acquire(ctx, Demand{Resource: "p", HasFallback: true}); turn != nil || err == nil {
					t.Errorf("it got a turn, %v", err)
				}
			}()
			synctest.Wait()
			if i%2 == 0 {
				cancel()
			}
			hold.Release(Feedback{Status: Overloaded, RetryAfter: time.Second})
			cancel()
			synctest.Wait()
			empty(t, &turns) // also of alarms
			time.Sleep(time.Second)
		}
	})
}

// TestOneTimer: an alarm that was on its way when another time was set changes
// nothing, and the waiters has the one that was set.
func TestOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Configs: map[string]Config{"p": {Limits: Limits{Requests: 1}}}}
		take(t, &turns, Demand{Resource: "p/m"}).Release(Feedback{})
		var wg sync.WaitGroup
		wg.Go(func() { take(t, &turns, Demand{Resource: "p/m"}).Release(Feedback{}) })
		synctest.Wait()
		b := turns.scheduler.buckets["p/m"]
		set := func() (int64, *time.Timer) {
			turns.mu.Lock()
			defer turns.mu.Unlock()
			return b.waiters.checkAt, turns.timers[b]
		}
		look, alarm := set()
		turns.recheck(b)
		if then, other := set(); then != look || alarm == nil || other != alarm {
			t.Errorf("it is looked at %v in place of %v, by another alarm", then, look)
		}
		wg.Wait()
		empty(t, &turns)
	})
}

// TestOldHeaders: what an answer's headers told more than a minute ago is not how
// the limits stand.
func TestOldHeaders(t *testing.T) {
	for age, want := range map[time.Duration]int64{time.Minute: 600, time.Minute + 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			var turns Turns
			u := take(t, &turns, Demand{Resource: "p/m"})
			at := time.Now()
			time.Sleep(age)
			u.Release(Feedback{Quota: model.Quota{At: at, Requests: model.Allowance{Limit: 600, Left: 100}}})
			v := turns.Snapshots()[0]
			if v.Learned["requests"] != want || (v.Used["requests"] >= 400) != (want > 0) {
				t.Errorf("after %s: learned %v, used %v", age, v.Learned, v.Used)
			}
		})
	}
}

// TestWithin: a model has its own limits as far as its key's allow them.
func TestWithin(t *testing.T) {
	for _, v := range []struct{ model, key, want Limits }{
		{Limits{Tokens: 50}, Limits{Tokens: 1000}, Limits{Tokens: 50}},
		{Limits{Tokens: 5000}, Limits{Tokens: 1000}, Limits{Tokens: 1000}},
		{Limits{Tokens: 50}, Limits{}, Limits{Tokens: 50}},
		{Limits{}, Limits{Tokens: 1000}, Limits{Tokens: 1000}},
		{Limits{Requests: 1, Tokens: 2, Input: 3, Output: 9, Concurrency: 5}, Limits{Requests: 4, Tokens: 1, Input: 2, Output: 7, Concurrency: 2},
			Limits{Requests: 1, Tokens: 1, Input: 2, Output: 7, Concurrency: 5}},
	} {
		if got := v.model.within(v.key); got != v.want {
			t.Errorf("%+v within %+v is %+v", v.model, v.key, got)
		}
	}
}

// TestExceededLimit: that a call is larger than the minute is said when its turn is given
// back, and not a second time.
func TestExceededLimit(t *testing.T) {
	var turns Turns
	u := take(t, &turns, Demand{Resource: "p/m", In: 1001})
	f := Feedback{Status: RateLimited, Quota: model.Quota{At: time.Now(), Input: model.Allowance{Limit: 1000, Left: 1000}}}
	if over := u.Release(f); over == "" {
		t.Error("nothing is said of it")
	}
	if over := u.Release(f); over != "" {
		t.Errorf("a second time: %s", over)
	}
}

// TestOthersOnce: what somebody else used is told by each of the answers that
// are on their way, and counted once.
func TestOthersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []Status{Served, RateLimited} {
			var turns Turns
			var all []*Turn
			for range 20 {
				all = append(all, take(t, &turns, Demand{Resource: "p/m", In: 10}))
			}
			for i, u := range all {
				f := Feedback{Status: status, In: 10, Quota: model.Quota{At: time.Now(), Requests: model.Allowance{Limit: 600, Left: 600 - 300 - int64(i) - 1}}}
				if status != Served {
					f.In, f.Quota.Requests.Left = 0, 600-300
				}
				u.Release(f)
			}
			if used := turns.Snapshots()[0].Used["requests"]; used < 300 || used > 320 {
				t.Errorf("%v: %d requests are counted, want 300 of others and 20", status, used)
			}
		}
	})
}

// TestRestarted: a kernel that starts after one that used the minute begins with a few calls
// how it stands, and not with many.
func TestRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Restarted: true}
		var asked atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				u := take(t, &turns, Demand{Resource: "p/m"})
				n := asked.Add(1)
				time.Sleep(time.Second)
				f := Feedback{Quota: model.Quota{At: time.Now(), Requests: model.Allowance{Limit: 600}}}
				if n <= fewRequests {
					f.Status, f.RetryAfter = RateLimited, 30*time.Second
				} else {
					f.Quota.Requests.Left = 600 - n
				}
				u.Release(f)
			})
		}
		time.Sleep(20 * time.Second)
		if n := asked.Load(); n != fewRequests {
			t.Errorf("%d were sent before it was known how it stands", n)
		}
		start := time.Now()
		wg.Wait()
		if d := time.Since(start); d > 100*time.Second {
			t.Errorf("the last went after %s", d)
		}
		empty(t, &turns)
	})
}
