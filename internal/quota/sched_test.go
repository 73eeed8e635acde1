package quota

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// The mutants that these tests kill, each tried by hand:
//
//	window.go    what is taken back is taken from now               TestNeverMore
//	window.go    slots are forgotten early                          TestScenario35
//	bucket.go    the minute is not looked at                        TestNeverMore, TestLargeCall, TestLearned
//	bucket.go    a released call is not counted down                every test that ends
//	bucket.go    a refused request is not counted                   TestNeverMore
//	bucket.go    output is not counted when it ends                 TestNeverMore
//	bucket.go    a pause ends early                                 TestNeverMore
//	bucket.go    no burst; nothing kept for urgent calls            TestUrgent
//	sched.go     blocked buckets are not remembered                 TestNeverMore
//	sched.go     a new call does not enter the queue                TestLargeCall
//	sched.go     what was not taken is not given back               TestShares
//	queue.go     a share that comes back has saved up               TestShareComesBack
//	queue.go     classes do not age                                 TestAgeing, TestOrder
//	queue.go     turns are not charged                              TestOrder
//	queue.go     no share is forgotten                              TestManyKeys
//	queue.go     a new priority resets the age                      TestNeverMore
//	sched.go     setPriority moves no call, or only the first       TestSetPriority
//	backoff.go   every 429 of one burst counts                      TestRateLimited
//	backoff.go   all go at once after a pause                       TestRateLimited
//	backoff.go   margin or ceiling is not learned                   TestMargin
//	backoff.go   what others use is not seen                        TestLearned
//	estimate.go  bounds are counted as they are                     TestEstimate
//	quota.go     a turn that comes too late is lost                 TestTurnAndEnd
//	quota.go     a turn can be given back twice                     TestConcurrency
//	quota.go     a diverted call gives a turn back                  TestBackoffAndEnd
//	quota.go     a stale timer sets another                         TestOneTimer
//	bucket.go    a call that ended leaves something                 every test that ends
//	bucket.go    what is told raises what is configured             TestLimit
//	backoff.go   headers are never too old                          TestOldHeaders
//	backoff.go   a call on its way ends the pauses                  TestOnTheirWay
//	backoff.go   back-off stays at what is asked for                TestPauseLength
//	backoff.go   one overload is enough, or never is                TestBreakdowns
//	backoff.go   all go at once when a pause is over                TestAfterPause
//	estimate.go  what is counted ahead is not unlearned             TestLearnAhead
//	limits.go    a model may take more than its key                 TestWithin
//	queue.go     a share that came back is kept                     TestForgotten
//	sched.go     an empty queue keeps its timer                     TestBackoffAndEnd
//	window.go    a slot on the border is not taken back             TestRemove

// A judge counts what goes as a provider does: each call when it goes, with
// what it may take, and with what it took from when it ended; or its output
// only when it ends.
type judge struct {
	went   []*judged // all that did
	now    int64
	paused map[string]int64
}

type judged struct {
	*call
	ended   int64 // 0: it runs
	in, out int64 // tokens it took
}

// sum is what a provider has counted in the minute before now: output when the
// call goes, or when it ends.
func (j *judge) sum(of func(*call) bool, late bool) (a amount) {
	for _, c := range j.went {
		if !of(c.call) {
			continue
		}
		fresh, done := j.now-c.call.startedAt < minute, c.ended > 0
		switch {
		case late && done:
			if fresh {
				a.add(&amount{1, c.in, c.in, 0})
			}
			if j.now-c.ended < minute {
				a.add(&amount{0, c.out, 0, c.out})
			}
		case fresh && done:
			w := amountOf(c.in, c.out)
			a.add(&w)
		case fresh && late:
			a.add(&amount{1, c.bound[input], c.bound[input], 0})
		case fresh:
			a.add(&c.bound)
		}
	}
	return a
}

func (j *judge) running(of func(*call) bool) (n int) {
	for _, c := range j.went {
		if c.ended == 0 && of(c.call) {
			n++
		}
	}
	return n
}

// TestNeverMore asks, gives back, cancels and waits at random, and rechecks after
// each step whether any limit is passed, as a provider counts, and in the end
// whether everybody had a turn.
func TestNeverMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := Limits{Requests: rapid.Int64Range(3, 40).Draw(t, "rpm"), Tokens: rapid.Int64Range(500, 5000).Draw(t, "tpm"), Concurrency: rapid.IntRange(1, 20).Draw(t, "at a time")}
		some := Limits{Input: rapid.Int64Range(200, 3000).Draw(t, "itpm"), Output: rapid.Int64Range(100, 2000).Draw(t, "otpm"), Concurrency: rapid.IntRange(1, 10).Draw(t, "of m")}
		s := &scheduler{configs: map[string]Config{"p": {Limits: all, Models: map[string]Limits{"m": some}}}}
		j := &judge{now: second, paused: map[string]int64{}}
		var waiting []*call
		went := func(gone []*call) {
			for _, c := range gone {
				i := slices.Index(waiting, c)
				if i < 0 {
					t.Fatalf("a call goes that does not wait")
				}
				waiting = slices.Delete(waiting, i, i+1)
				if j.now < j.paused[c.resource] {
					t.Fatalf("%s was asked within its pause", c.resource)
				}
				j.went = append(j.went, &judged{call: c})
				j.check(t, all, some, c)
			}
		}
		ask := func(t *rapid.T) {
			c := &call{resource: rapid.SampledFrom([]string{"p/m", "p/n", "p/o"}).Draw(t, "model"), owner: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
				pid: rapid.Int64Range(1, 3).Draw(t, "pid"), priority: rapid.IntRange(0, 12).Draw(t, "priority"),
				bound: amountOf(rapid.Int64Range(0, 199).Draw(t, "in"), rapid.Int64Range(0, 99).Draw(t, "out"))}
			waiting = append(waiting, c)
			went(s.enqueue(j.now, c))
		}
		release := func(t *rapid.T, status Status) {
			var open []*judged
			for _, c := range j.went {
				if c.ended == 0 {
					open = append(open, c)
				}
			}
			if len(open) == 0 {
				return
			}
			c := rapid.SampledFrom(open).Draw(t, "call")
			f := &report{status: status}
			if status == Served {
				f.in, f.out = c.bound[input], rapid.Int64Range(0, c.bound[output]).Draw(t, "gave")
			} else {
				f.after = rapid.Int64Range(0, 20*second).Draw(t, "after")
				j.paused[c.resource] = max(j.paused[c.resource], j.now+f.after)
			}
			c.ended, c.in, c.out = j.now, f.in, f.out
			went(s.release(j.now, c.call, f))
		}
		later := func(d int64) {
			j.now += d
			for _, b := range s.buckets {
				if b.waiters.checkAt <= j.now {
					b.waiters.checkAt = never
					went(s.giveTurns(j.now, b))
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask":  ask,
			"ask ": ask,
			"done": func(t *rapid.T) { release(t, Served) },
			"slow": func(t *rapid.T) { release(t, RateLimited) },
			"time": func(t *rapid.T) { later(rapid.Int64Range(1, 10*second).Draw(t, "time")) },
			"rank": func(t *rapid.T) {
				went(s.setPriority(j.now, rapid.Int64Range(1, 3).Draw(t, "pid"), rapid.IntRange(0, 12).Draw(t, "priority")))
				for _, c := range waiting {
					if k := c.bucket.waiters.classes[c.priority]; k.oldest == nil || k.oldest.seq > c.seq || k.newest.seq < c.seq {
						t.Fatalf("call %d is not within the ages of its priorityClass", c.seq)
					}
				}
			},
			"cancel": func(t *rapid.T) {
				if len(waiting) > 0 {
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "call")
					c := waiting[i]
					waiting = slices.Delete(waiting, i, i+1)
					went(s.cancel(j.now, c))
				}
			},
		})
		for range 10_000 { // everybody gets a turn
			for _, c := range j.went {
				if c.ended == 0 {
					c.ended, c.in, c.out = j.now, c.bound[input], c.bound[output]
					went(s.release(j.now, c.call, &report{in: c.in, out: c.out}))
				}
			}
			if len(waiting) == 0 {
				break
			}
			next := never
			for _, b := range s.buckets {
				next = min(next, b.waiters.checkAt)
			}
			if next == never && j.running(func(*call) bool { return true }) == 0 {
				t.Fatalf("%d wait, nothing runs, and no time is set", len(waiting))
			}
			later(max(1, min(next-j.now, 100*second)))
		}
		if len(waiting) > 0 {
			t.Fatalf("%d never had a turn", len(waiting))
		}
	})
}

func (j *judge) check(t *rapid.T, all, some Limits, c *call) {
	every := func(*call) bool { return true }
	model := func(d *call) bool { return d.resource == "p/m" }
	for _, late := range []bool{false, true} {
		a, m := j.sum(every, late), j.sum(model, late)
		if a[requests] > all.Requests || a[tokens] > max(all.Tokens, c.bound[tokens]) {
			t.Fatalf("%v in a minute, limits %+v (output late: %v)", a, all, late)
		}
		if m[input] > max(some.Input, c.bound[input]) || m[output] > max(some.Output, c.bound[output]) {
			t.Fatalf("%v for the model in a minute, limits %+v (output late: %v)", m, some, late)
		}
	}
	if n, m := j.running(every), j.running(model); n > all.Concurrency || m > some.Concurrency {
		t.Fatalf("%d at one time, %d of the model; limits %d and %d", n, m, all.Concurrency, some.Concurrency)
	}
}

// inTurn runs calls one after the other through one bucket and says in which
// order they went.
func inTurn(s *scheduler, now int64, calls ...*call) (order []string) {
	hold := &call{resource: calls[0].resource, owner: "hold", bound: amountOf(0, 0)}
	s.enqueue(now, hold)
	for i, c := range calls {
		s.enqueue(now+int64(i), c)
	}
	next := s.release(now, hold, &report{})
	for len(next) > 0 {
		c := next[0]
		order = append(order, c.owner)
		next = append(next[1:], s.release(now, c, &report{in: c.bound[input], out: c.bound[output]})...)
	}
	return order
}

func single() *scheduler {
	return &scheduler{configs: map[string]Config{"p": {Limits: Limits{Concurrency: 1}}}}
}

// TestBackoff: an owner that comes late starts where the others are, and one that
// was away has saved nothing up.
func TestBackoff(t *testing.T) {
	s := single()
	for range 10 {
		inTurn(s, second, &call{resource: "p/m", owner: "old", pid: 1, bound: amountOf(100, 0)})
	}
	var calls []*call
	for range 4 {
		calls = append(calls, &call{resource: "p/m", owner: "old", pid: 1, bound: amountOf(100, 0)}, &call{resource: "p/m", owner: "new", pid: 2, bound: amountOf(100, 0)})
	}
	got := fmt.Sprint(inTurn(s, 2*second, calls...))
	if got != "[new old new old new old new old]" && got != "[old new old new old new old new]" {
		t.Error(got)
	}
}

// TestShareComesBack: an owner that had little, long ago, does not go before all others
// until it has had as much.
func TestShareComesBack(t *testing.T) {
	s := single()
	b := s.bucket(second, "p/m")
	b.parent.owners.child(shareKey{name: "stays"}).join() // somebody is always there, so nobody is forgotten
	inTurn(s, second, &call{resource: "p/m", owner: "back", pid: 1, bound: amountOf(1, 0)})
	back := b.parent.owners.child(shareKey{name: "back"})
	back.join()
	for range 50 {
		inTurn(s, second, &call{resource: "p/m", owner: "busy", pid: 2, bound: amountOf(100, 0)}, &call{resource: "p/m", owner: "also busy", pid: 3, bound: amountOf(100, 0)})
	}
	back.leave()
	var calls []*call
	for i := range 3 {
		calls = append(calls, &call{resource: "p/m", owner: "back", pid: 1, bound: amountOf(100, 0)}, &call{resource: "p/m", owner: "busy", pid: 2, bound: amountOf(100, 0)},
			&call{resource: "p/m", owner: "also busy", pid: 3, bound: amountOf(100, int64(i))})
	}
	order := inTurn(s, second, calls...)
	if n := slices.Index(order, "busy"); n < 0 || n > 2 {
		t.Error(order)
	}
}

// TestShares: what counts is what was taken, not what was asked for.
func TestShares(t *testing.T) {
	s := single()
	hold := &call{resource: "p/m", owner: "hold"}
	s.enqueue(second, hold)
	for range 6 {
		s.enqueue(second, &call{resource: "p/m", owner: "careful", pid: 1, bound: amountOf(10, 0)})
		s.enqueue(second, &call{resource: "p/m", owner: "generous", pid: 2, bound: amountOf(10, 1000)})
	}
	first := 0
	for next, n := s.release(second, hold, &report{}), 0; len(next) > 0 && n < 6; n++ {
		if next[0].owner == "generous" {
			first++
		}
		next = s.release(second, next[0], &report{in: 10})
	}
	if first != 3 {
		t.Errorf("%d of the first 6 turns went to the one that asks for more than it takes, want 3", first)
	}
}

// TestUrgent: bulk goes no faster than the limit's slope, and leaves a little
// of each limit to urgent calls.
func TestUrgent(t *testing.T) {
	for _, v := range []struct {
		name  string
		l     Limits
		size  int64
		least int // bulk calls that go at once
		most  int
	}{
		{"the moment", Limits{Requests: 6000}, 1, 24, 27},
		{"the minute", Limits{Tokens: 1000}, 199, 2, 2},
		{"at one time", Limits{Concurrency: 32}, 1, 30, 30},
	} {
		s := &scheduler{configs: map[string]Config{"p": {Limits: v.l}}}
		now, went := second, 0
		var last *call
		for i := range 100 {
			c := &call{resource: "p/m", owner: "bulk", pid: int64(i), priority: 10, bound: amountOf(v.size, 0)}
			if i == 0 || last != nil && last.startedAt > 0 {
				s.enqueue(now, c)
				if c.startedAt > 0 {
					went++
				}
				last = c
			}
		}
		if went < v.least || went > v.most {
			t.Errorf("%s: %d went at once, want %d to %d", v.name, went, v.least, v.most)
		}
		for b := s.bucket(now, "p/m"); v.l.Tokens > 0 && now < 50*second; { // until the minute is full
			switch {
			case last.startedAt > 0:
				last = &call{resource: "p/m", owner: "bulk", pid: 1, priority: 10, bound: amountOf(v.size, 0)}
				s.enqueue(now, last)
			case b.waiters.checkAt > 50*second:
				now = 50 * second
			default:
				now, b.waiters.checkAt = b.waiters.checkAt, never
				s.giveTurns(now, b)
			}
		}
		if last.startedAt > 0 {
			t.Fatalf("%s: bulk never waits", v.name)
		}
		u := &call{resource: "p/m", owner: "urgent", bound: amountOf(12, 0)}
		if s.enqueue(now, u); u.startedAt != now {
			t.Errorf("%s: the urgent call waits for %s", v.name, s.bucket(now, "p/m").waiters.why)
		}
	}
}

// TestLargeCall: a call that needs the whole quota is not kept waiting by small
// ones that come after it, and they not by it for longer than it takes.
func TestLargeCall(t *testing.T) {
	s := &scheduler{configs: map[string]Config{"p": {Limits: Limits{Tokens: 1000}}}}
	now := second
	first := &call{resource: "p/m", owner: "b", bound: amountOf(200, 0)}
	if len(s.enqueue(now, first)) != 1 {
		t.Fatal("the first waits")
	}
	s.release(now, first, &report{in: 200})
	large := &call{resource: "p/m", owner: "a", bound: amountOf(2000, 0)}
	if len(s.enqueue(now, large)) != 0 {
		t.Fatal("it does not wait")
	}
	for i := range 10 {
		if len(s.enqueue(now, &call{resource: "p/m", owner: "a", pid: int64(i), bound: amountOf(10, 0)})) != 0 {
			t.Fatal("a small one overtakes")
		}
	}
	b := s.bucket(now, "p/m")
	for b.waiters.checkAt < never && large.startedAt == 0 {
		now = b.waiters.checkAt
		b.waiters.checkAt = never
		s.giveTurns(now, b)
	}
	if large.startedAt == 0 || large.startedAt > 62*second {
		t.Errorf("it went at %d s", large.startedAt/second)
	}
}

// TestAgeing: bulk gets its turns also when urgent calls never end.
func TestAgeing(t *testing.T) {
	s := single()
	now := second
	hold := &call{resource: "p/m", owner: "u", bound: amountOf(10, 0)}
	s.enqueue(now, hold)
	bulk := &call{resource: "p/m", owner: "bulk", priority: 10, bound: amountOf(10, 0)}
	s.enqueue(now, bulk)
	for bulk.startedAt == 0 && now < 100*second {
		next := &call{resource: "p/m", owner: "u", bound: amountOf(10, 0)}
		s.enqueue(now, next)
		now += second
		if gone := s.release(now, hold, &report{in: 10}); len(gone) == 1 {
			hold = gone[0]
		}
	}
	if w := bulk.startedAt - bulk.queuedAt; w < 45*second || w > 55*second {
		t.Errorf("it waited %d s", w/second)
	}
}

// TestSetPriority: a call that waits goes by its new priority as if it had come with
// it: before those that came later, and with all its age.
func TestSetPriority(t *testing.T) {
	s := single()
	hold := &call{resource: "p/m", owner: "hold", bound: amountOf(1, 0)}
	s.enqueue(second, hold)
	for i, owner := range []string{"a", "b", "c", "d", "e", "b"} {
		s.enqueue(second+int64(i), &call{resource: "p/m", owner: owner, pid: int64(owner[0] - 'a'), priority: 10, bound: amountOf(1, 0)})
	}
	u := &call{resource: "p/m", owner: "urgent", pid: 9, priority: 3, bound: amountOf(1, 0)}
	s.enqueue(2*second, u)
	if gone := append(s.setPriority(2*second, 1, 3), s.setPriority(2*second, 3, 3)...); len(gone) > 0 { // b and d came before the urgent one
		t.Fatal("somebody goes while the turn is taken")
	}
	s.setPriority(2*second, 0, 20)
	now := 2*second + 6*ageStep // by now 20 is as urgent as 14, and both 3 and 5 as 0
	s.setPriority(now, 9, 5)
	var order []string
	for c := hold; ; {
		next := s.release(now, c, &report{in: 1})
		if len(next) == 0 {
			break
		}
		c = next[0]
		order = append(order, c.owner)
	}
	if want := []string{"b", "d", "urgent", "b", "c", "e", "a"}; !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	if l := s.bucket(now, "p/m").waiters; l.waiting != 0 || l.some != [2]uint64{} {
		t.Errorf("%d wait, at %b", l.waiting, l.some)
	}
}

// TestManyKeys: what nobody uses any more is forgotten.
func TestManyKeys(t *testing.T) {
	s := &scheduler{}
	now := second
	for i := range 12 * manyBuckets {
		now += second / 10
		c := &call{resource: fmt.Sprintf("p#key%d/m", i), owner: "a", bound: amountOf(10, 0)}
		s.enqueue(now, c)
		s.release(now, c, &report{in: 10})
	}
	if n := len(s.buckets) + len(s.parents); n > 8*manyBuckets {
		t.Errorf("%d buckets are kept", n)
	}
	owners := &scheduler{}
	for i := range 20_000 {
		c := &call{resource: "p/m", owner: fmt.Sprint(i), pid: int64(i), bound: amountOf(10, 0)}
		owners.enqueue(second, c)
		owners.release(second, c, &report{in: 10})
	}
	if n := len(owners.parents["p#"].owners.children); n > 100 {
		t.Errorf("%d owners are kept", n)
	}
}

func BenchmarkTurn(b *testing.B) {
	for _, v := range []struct {
		name string
		c    map[string]Config
	}{{"unlimited", nil}, {"limited", map[string]Config{"p": {Limits: Limits{Requests: 1e9, Tokens: 1e12, Concurrency: 64}}}}} {
		b.Run(v.name, func(b *testing.B) {
			turns := Turns{Configs: v.c}
			b.ReportAllocs()
			for b.Loop() {
				turn, err := turns.Acquire(b.Context(), Demand{Resource: "p/m", Owner: "a", Pid: 1, Priority: 10, In: 100, Out: 100})
				if err != nil {
					b.Fatal(err)
				}
				turn.Release(Feedback{In: 100, Out: 50})
			}
		})
	}
}

// BenchmarkWaiting lets one go and another come while so many wait.
func BenchmarkWaiting(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := single()
			now := second
			running := &call{resource: "p/m", bound: amountOf(1, 0)}
			s.enqueue(now, running)
			come := func(i int) {
				now++
				s.enqueue(now, &call{resource: "p/m", owner: fmt.Sprint(i % 100), pid: int64(i), priority: 10, bound: amountOf(100, 100)})
			}
			for i := range n {
				come(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				come(i)
				gone := s.release(now, running, &report{in: 100, out: 50})
				if len(gone) != 1 {
					b.Fatalf("%d went", len(gone))
				}
				running = gone[0]
			}
		})
	}
}

// TestTooLarge: a call that may take more than the minute grants, and is turned
// away with all of the minute left, is told so, and nobody else is paused for it.
// It is not told so when others used the minute, nor when it may fit.
func TestTooLarge(t *testing.T) {
	told := func(limit, left int64) (l [units]level) {
		l[input].limit, l[input].left = limit, left
		return l
	}
	for _, v := range []struct {
		name   string
		set    Limits
		levels [units]level
		size   int64
		before int64 // used by another call
		want   string
	}{
		{"told", Limits{}, told(1000, 1000), 1001, 0, "it may take 1001 input tokens, and 1000 are granted a minute"},
		{"told, and nearly all left", Limits{}, told(1000, 980), 1001, 0, "it may take 1001 input tokens, and 1000 are granted a minute"},
		{"told, and used by others", Limits{}, told(1000, 979), 1001, 0, ""},
		{"told, and it fits", Limits{}, told(1000, 1000), 1000, 0, ""},
		{"configured", Limits{Input: 1000}, told(0, 0), 1001, 0, "it may take 1001 input tokens, and 1000 are granted a minute"},
		{"configured, and not alone", Limits{Input: 3000}, told(0, 0), 3001, 100, ""},
		{"configured, and told another", Limits{Input: 1000}, told(2000, 2000), 1001, 0, ""},
		{"nothing known", Limits{}, told(0, 0), 1001, 0, ""},
	} {
		s := &scheduler{configs: map[string]Config{"p": {Limits: v.set}}}
		now := second
		if v.before > 0 {
			for range 90 { // so that less than the bound is expected
				c := &call{resource: "p/m", bound: amountOf(100, 0)}
				s.enqueue(now, c)
				s.release(now, c, &report{in: 1})
				now += 2 * minute
			}
			c := &call{resource: "p/m", bound: amountOf(v.before, 0)}
			s.enqueue(now, c)
			s.release(now, c, &report{in: v.before})
		}
		c := &call{resource: "p/m", bound: amountOf(v.size, 0), priority: 10}
		s.enqueue(now, c)
		b := c.bucket
		for now = b.waiters.checkAt; c.startedAt == 0 && now < never; now = b.waiters.checkAt {
			b.waiters.checkAt = never
			s.giveTurns(now, b)
		}
		now = c.startedAt + second
		s.release(now, c, &report{status: RateLimited, after: minute, levels: v.levels})
		if c.tooLarge != v.want || (b.pace.paused > now) != (v.want == "") {
			t.Errorf("%s: %q, paused for %d s", v.name, c.tooLarge, (b.pace.paused-now)/second)
		}
	}
}

// TestForgotten: a share with more usage than the others is not forgotten, because it
// would start over with theirs. A share that came back and left again may be.
func TestForgotten(t *testing.T) {
	s := newBench(t, nil)
	owned := func(owner string, in int64) *call {
		c := &call{resource: "p/m", owner: owner, bound: amountOf(in, 0)}
		if s.enqueue(s.now, c); c.startedAt == 0 {
			t.Fatalf("%s does not go", owner)
		}
		return c
	}
	stays := owned("stays", 1) // so that they are never all away
	for i := range 9 {
		s.ends(owned("large"+strconv.Itoa(i), 1_000_000), report{in: 1_000_000})
	}
	s.ends(owned("again", 1), report{in: 1})
	again := owned("again", 1)
	for i := range 4 * keptShares { // each rechecks at two of those that left
		s.ends(owned("a"+strconv.Itoa(i), 1), report{in: 1})
	}
	s.ends(again, report{in: 1})
	kin := s.bucket().parent.owners
	for i := range 9 {
		if p := kin.children[shareKey{name: "large" + strconv.Itoa(i)}]; p == nil || p.used < 1_000_000 {
			t.Errorf("of the shares with the most usage %d is forgotten: %+v", i, p)
		}
	}
	if p := again.share.parent; !slices.Contains(kin.idle, p) {
		t.Errorf("a share that came back and left again is kept for ever: %+v", p)
	}
	s.ends(stays, report{in: 1})
}

// TestStart: where a newcomer starts never goes back, though an urgent turn of
// one that had more stands between two others.
func TestStart(t *testing.T) {
	var top share
	a, b := top.child(shareKey{name: "a"}), top.child(shareKey{name: "b"})
	a.join()
	b.join()
	a.charge(100)
	a.start(1, 10)
	b.start(2, 10)
	if top.floor != 100 {
		t.Errorf("others start at %d, want 100", top.floor)
	}
}

// TestNotSent: a call that never reached the provider took nothing there, not even
// a request.
func TestNotSent(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 600}}})
	s.ends(s.goes(10, 10), report{status: NotSent})
	for b := s.bucket(); b != nil; b = b.parent {
		if b.window.sum != (amount{}) || b.running != 0 {
			t.Errorf("%s: %v, %d running", b.name, b.window.sum, b.running)
		}
	}
}

// TestQueues: models of one key have turns by turns what a process asks of them.
func TestQueues(t *testing.T) {
	s := single()
	hold := &call{resource: "p/m"}
	s.enqueue(second, hold)
	for _, key := range []string{"p/a", "p/a", "p/a", "p/b", "p/b", "p/b"} {
		s.enqueue(second, &call{resource: key, owner: "o", pid: 1, bound: amountOf(1, 0)})
	}
	var order []string
	for next := s.release(second, hold, &report{}); len(next) > 0; {
		order = append(order, next[0].resource)
		next = s.release(second, next[0], &report{in: 1})
	}
	if want := []string{"p/a", "p/b", "p/a", "p/b", "p/a", "p/b"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
}

// TestWaitReason: of several things in the way, what takes longest is told and
// waited for.
func TestWaitReason(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 1, Concurrency: 1}, Models: map[string]Limits{"m": {Tokens: 1000}}}})
	c := s.goes(10, 10)
	s.enqueue(s.now, &call{resource: "p/m", priority: 10, bound: amountOf(10, 10)})
	if l := s.bucket().waiters; l.why != "concurrency" || l.checkAt != never {
		t.Errorf("it waits for %s, until %d", l.why, l.checkAt)
	}
	s.ends(c, report{in: 10})
	if l := s.bucket().waiters; l.why != "requests" || l.checkAt < s.now+59*second {
		t.Errorf("then it waits for %s, until %d", l.why, l.checkAt)
	}
}

// TestProviderComesBack: a call with a fallback is let through again in the moment in which
// a provider is back.
func TestProviderComesBack(t *testing.T) {
	s := newBench(t, nil)
	paused := s.ends(s.goes(1, 1), report{status: Overloaded, after: second})
	for _, early := range []int64{1, 0} {
		c := &call{resource: "p/m", hasFallback: true}
		if s.enqueue(s.now+int64(paused)-early, c); c.diverted != (early > 0) || (c.startedAt > 0) == c.diverted {
			t.Errorf("%d ns before: away %v, went at %d", early, c.diverted, c.startedAt)
		}
	}
}

// TestRestartedKnown: where limits are configured a daemon that follows another need
// not feel its way.
func TestRestartedKnown(t *testing.T) {
	s := &scheduler{again: true, configs: map[string]Config{"p": {Limits: Limits{Requests: 6000}}}}
	if b := s.bucket(second, "p/m"); b.pace.width != mostWidth*1000 {
		t.Errorf("%d at one time", b.pace.width/1000)
	}
	if b := s.bucket(second, "q/m"); b.pace.width != fewRequests*1000 {
		t.Errorf("of an unknown one %d at one time", b.pace.width/1000)
	}
}
