package quota

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The mutants that these tests kill, each tried by hand:
//
//	a rest does not double, or has no bound          TestOutagePauses
//	all look at the same time whether it is back     TestOutagePauses, TestOutage
//	a call without another place is kept waiting     TestOutagePauses
//	what was on its way counts as another failure    TestOutagePauses
//	what was stopped says that the provider is there TestOutagePauses
//	other models of the provider are still tried     TestOutagePauses
//	a waiting call is left there                    TestOutageEmptiesQueues
//	a look that was given up is never made again     TestProbeGivenUp
//	one failure is enough, or never is               TestFailing
//	an outage is remembered without a bound          TestFailing
//	what was refused counts as what calls take       TestNothingTaken
//	one call alone that is refused narrows the rest  TestRecovers
//	calls wait for a recovering one                 TestRecovers

// asks asks for a turn that could be had elsewhere and says whether it is.
func (s *bench) asks(model string) (c *call, here bool) {
	c = &call{resource: "p/" + model, priority: 10, bound: amountOf(1, 1), hasFallback: true}
	s.enqueue(s.now, c)
	return c, !c.diverted
}

// TestOutagePauses follows a provider that cannot be reached: what can go elsewhere
// does, and one call at a time rechecks whether it is back.
func TestOutagePauses(t *testing.T) {
	s := newBench(t, nil)
	early, late := s.goes(1, 1), s.goes(1, 1)
	s.now += second
	s.ends(early, report{status: Unreachable})
	for i, want := range []int64{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := s.bucket().readyAt(s.now) - s.now; got != want*second {
			t.Fatalf("rest %d is %s, want %d s", i+1, time.Duration(got), want)
		}
		for _, model := range []string{"m", "other"} {
			if _, here := s.asks(model); here {
				t.Fatalf("in rest %d a call of %s goes that could go elsewhere", i+1, model)
			}
		}
		s.ends(s.goes(1, 1), report{status: Unreachable}) // one that cannot: it tries, and says nothing new
		if got := s.bucket().readyAt(s.now) - s.now; got != want*second {
			t.Fatalf("a failure within rest %d makes it %s", i+1, time.Duration(got))
		}
		s.now = s.bucket().readyAt(s.now)
		probe, here := s.asks("other")
		if !here {
			t.Fatalf("nobody rechecks whether rest %d is over", i+1)
		}
		for _, model := range []string{"m", "other"} {
			if _, here := s.asks(model); here {
				t.Fatalf("two look whether rest %d is over", i+1)
			}
		}
		if got := s.bucket().readyAt(s.now) - s.now; got <= 0 {
			t.Fatalf("while one rechecks it is taken to be there")
		}
		s.now += 10 * second
		s.ends(probe, report{status: Unreachable})
	}
	s.ends(late, report{}) // it went before all that
	if _, here := s.asks("m"); here {
		t.Error("an answer to a call that went long ago ends the rest")
	}
	s.ends(s.goes(1, 1), report{status: Cut})
	s.ends(s.goes(1, 1), report{status: NotSent})
	if _, here := s.asks("m"); here {
		t.Error("a call that was stopped ends the rest")
	}
	before := s.goes(1, 1)
	s.now += second
	s.ends(s.goes(1, 1), report{status: RateLimited}) // a refusal shows that the provider is there
	for range 3 {
		c, here := s.asks("other")
		if !here {
			t.Fatal("it is back, and what could go elsewhere does")
		}
		s.ends(c, report{})
	}
	s.ends(before, report{status: Unreachable})
	if _, here := s.asks("other"); !here {
		t.Error("a call that went before somebody found it there makes it rest")
	}
	s.ends(s.goesAt("other"), report{status: Unreachable})
	if got := s.bucket().backoffUntil() - s.now; got != second {
		t.Errorf("the first rest of the next outage is %s", time.Duration(got))
	}
}

// goesAt lets a call of another model go.
func (s *bench) goesAt(model string) *call {
	s.t.Helper()
	c := &call{resource: "p/" + model, priority: 10, bound: amountOf(1, 1)}
	if s.enqueue(s.now, c); c.startedAt != s.now {
		s.t.Fatal("it does not go")
	}
	return c
}

// TestOutageEmptiesQueues: what waits for a provider that cannot be reached, of any
// of its models, goes elsewhere where it can.
func TestOutageEmptiesQueues(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Concurrency: 1}}})
	c := s.goes(1, 1)
	var wait []*call
	for _, model := range []string{"m", "m", "other"} {
		w, here := s.asks(model)
		if here = here && w.queue != nil; !here {
			t.Fatal("it does not wait")
		}
		wait = append(wait, w)
	}
	stays := &call{resource: "p/other", priority: 10}
	s.enqueue(s.now, stays)
	s.ends(c, report{status: Unreachable})
	for i, w := range wait {
		if !w.diverted || w.queue != nil {
			t.Errorf("%d is left there", i)
		}
	}
	if stays.diverted || stays.startedAt != s.now {
		t.Errorf("what has no other place to go does not go: %+v", stays)
	}
	s.ends(stays, report{})
}

// TestProbeGivenUp: when the one call that rechecks whether a provider is back is
// stopped, in the queue or on its way, the next one rechecks.
func TestProbeGivenUp(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Concurrency: 1}}})
	s.ends(s.goes(1, 1), report{status: Unreachable})
	s.now += second
	hold := s.goes(1, 1)
	for range 3 {
		c, here := s.asks("m")
		if !here || c.queue == nil {
			t.Fatal("it does not wait for its look")
		}
		if _, here := s.asks("m"); here {
			t.Fatal("another rechecks too")
		}
		s.cancel(s.now, c)
	}
	c, _ := s.asks("m")
	urgent := &call{resource: "p/m", priority: 1}
	s.enqueue(s.now, urgent)
	if s.ends(hold, report{status: Cut}); urgent.startedAt != s.now || c.diverted || c.queue == nil {
		t.Fatal("the probe is diverted by a stopped call")
	}
	if s.ends(urgent, report{status: Unreachable}); !c.diverted || c.queue != nil {
		t.Fatal("what was to look waits, and the provider rests")
	}
	s.now = s.bucket().backoffUntil()
	for range 3 {
		c, here := s.asks("m")
		if !here || c.queue != nil {
			t.Fatal("it does not look")
		}
		s.ends(c, report{status: Cut})
	}
}

// TestFailing: a model that answers with errors of its own rests after the second
// soon after another, for those that can go elsewhere; its neighbours do not.
func TestFailing(t *testing.T) {
	for heard, rests := range map[string]bool{"f": false, "ff": true, "f.f": false, "f.ff": true, "f....f": false, "......ff": true, "fs": false, "of": true} {
		s := newBench(t, nil)
		for _, w := range heard {
			s.ends(s.goes(1, 1), report{status: map[rune]Status{'f': Failing, 'o': Overloaded, 's': RateLimited}[w]})
			s.pass()
		}
		if got := s.bucket().outage.failed > 0; got != rests {
			t.Errorf("%s: rests %v", heard, got)
		}
	}
	s := newBench(t, nil)
	s.ends(s.goes(1, 1), report{status: Failing})
	s.ends(s.goes(1, 1), report{status: Failing})
	if _, here := s.asks("m"); here {
		t.Error("a call that could go elsewhere goes")
	}
	if _, here := s.asks("other"); !here {
		t.Error("another model rests too")
	}
	s.ends(s.goes(1, 1), report{}) // no pause for what has no other place to go
	if _, here := s.asks("m"); !here {
		t.Error("it answered, and rests")
	}
	s.ends(s.goes(1, 1), report{status: Failing})
	if _, here := s.asks("m"); here {
		t.Error("just out of an outage one error is not enough")
	}
	for range 100 {
		s.now = s.bucket().backoffUntil()
		s.ends(s.goes(1, 1), report{status: Failing})
	}
	s.now = s.bucket().backoffUntil()
	for range breakdownBound {
		s.ends(s.goes(1, 1), report{})
	}
	s.ends(s.goes(1, 1), report{status: Failing})
	if _, here := s.asks("m"); !here {
		t.Error("an outage that was long is held against it when it is long over")
	}
}

// TestNothingTaken: calls that were refused, or that reached nobody, do not teach
// that calls take nothing; and those that reached nobody used up nothing.
func TestNothingTaken(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Tokens: 1_000_000}}})
	for range 20 {
		s.ends(s.goes(1000, 1000), report{status: Unreachable})
		s.now = s.bucket().backoffUntil()
	}
	if sum := s.bucket().window.sum; sum != (amount{}) {
		t.Errorf("%v were used by calls that reached nobody", sum)
	}
	for range 20 {
		s.ends(s.goes(1000, 1000), report{})
		s.now += second
	}
	if got := s.bucket().estimate.amount(&amount{1, 2000, 1000, 1000}, 0)[tokens]; got != 2000 {
		t.Errorf("a call that may take 2000 tokens is taken to take %d", got)
	}
}

// TestOutage has twenty callers go on for ten minutes by a first and a second
// provider, of which the first is a black hole for five: each connection to it
// fails after ten seconds, and nobody but those who were the first to know, and
// one in a while, waits for that.
func TestOutage(t *testing.T) {
	const callers, dial, think = 20, 10 * time.Second, 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		start := time.Now()
		gone := func() bool { at := time.Since(start); return at >= time.Minute && at < 6*time.Minute }
		var mu sync.Mutex
		lost, late, back := 0, 0, time.Duration(0)
		names := []string{"first/m", "second/m"}
		one := func(id int64) {
			w, began := RoutePicker{Of: 2}, time.Now()
			for {
				other := w.Choose(func(at int) time.Duration { return turns.Backoff(names[at]) })
				turn, err := turns.Acquire(t.Context(), Demand{Resource: names[w.At], Pid: id, HasFallback: other})
				if err == ErrBackoff {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if w.At == 0 && gone() {
					time.Sleep(dial)
					turn.Release(Feedback{Status: Unreachable})
					mu.Lock()
					lost++
					mu.Unlock()
					w.Next()
					continue
				}
				time.Sleep(think)
				turn.Release(Feedback{In: 10, Out: 10})
				mu.Lock()
				if time.Since(began) > think {
					late++
				}
				if w.At == 0 && back == 0 && time.Since(start) > 6*time.Minute {
					back = time.Since(start) - 6*time.Minute
				}
				mu.Unlock()
				return
			}
		}
		var all sync.WaitGroup
		for id := range int64(callers) {
			all.Go(func() {
				for n := id; time.Since(start) < 10*time.Minute; n += 7 {
					one(id)
					time.Sleep(time.Duration(n%100) * 10 * time.Millisecond)
				}
			})
		}
		all.Wait()
		if lost > callers+10 || late > callers+10 || lost < 5 {
			t.Errorf("%d connections were waited for in vain, %d calls came late; want the %d at first and one for each of some eight rests", lost, late, callers)
		}
		if back == 0 || back > time.Duration(longestOutage)+dial+2*think {
			t.Errorf("it is used again %s after it came back", back)
		}
		empty(t, &turns)
	})
}

// TestRecovers: a provider that comes back from an overload is as wide again as it was in a few
// rounds, however often one call alone found it still overloaded; and what has no
// place there meanwhile goes elsewhere.
func TestRecovers(t *testing.T) {
	s := newBench(t, nil)
	var many []*call
	for range 20 {
		many = append(many, s.goes(1, 1))
	}
	s.now += second
	for _, c := range many {
		s.ends(c, report{status: Overloaded})
	}
	for range 5 {
		s.pass()
		s.ends(s.goes(1, 1), report{status: Overloaded})
	}
	s.pass()
	b, rounds := s.bucket(), 0
	for ; b.pace.recovers(); rounds++ {
		var all []*call
		for b.running < b.slots(false) {
			c, here := s.asks("m")
			if !here || c.queue != nil {
				t.Fatalf("round %d: there is room, and it does not go", rounds)
			}
			all = append(all, c)
		}
		if _, here := s.asks("m"); here {
			t.Fatalf("round %d: it stands in a queue, and could go elsewhere", rounds)
		}
		stays := &call{resource: "p/m", priority: 10}
		if s.enqueue(s.now, stays); stays.queue == nil {
			t.Fatalf("round %d: what has no other place to go does not wait", rounds)
		}
		s.now += second
		for _, c := range append(all, stays) {
			s.ends(c, report{})
		}
		if rounds == 5 && b.pace.width < 9000 {
			t.Errorf("after six rounds it takes %d calls at one time, and took 20", b.pace.width/1000)
		}
	}
	if rounds > 60 || b.pace.width < firstWidth*1000 {
		t.Errorf("after %d rounds it takes %d calls at one time", rounds, b.pace.width/1000)
	}
	full := func(when string) {
		for b.running < b.slots(false) {
			many = append(many, s.goes(1, 1))
		}
		if c, here := s.asks("m"); !here || c.queue == nil {
			t.Errorf("%s its queue is not waited in", when)
		} else {
			s.cancel(s.now, c)
		}
	}
	many = nil
	full("it has recovered, and")
	for _, c := range many[1:] {
		s.ends(c, report{})
	}
	s.ends(many[0], report{status: RateLimited})
	s.pass()
	full("it was asked to slow down, and")
}
