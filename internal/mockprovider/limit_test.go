package mockprovider

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/model"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	an entry leaves the window a second early                   TestWindow
//	the burst of a second is not bounded                        TestWindow
//	a correction is not taken over                              TestCorrection
//	a refused request uses up the window                        TestRefusedUsesNothing
//	Retry-After is a moment too short                           TestWindow
//	a key is banned for a 429 of an hour ago                    TestBan
//	errors of the script come again after they were had         TestScriptedErrors
//	what a client that hung up was sent is not billed           TestHangUp
//	the bill of an aborted stream is the whole answer           TestHangUp
//	a correction counts beyond its second, or its minute        TestLateCorrection
//	one limit counts what another does; the shortest is told    TestGates
//	a header is missing, or tells another moment                TestHeaders
//	one provider answers in the words of the other              TestErrorsOfBoth
//	a script that is repeated forgets its errors                TestRounds
//	images or choices are not counted                           TestSizes
//	delays of the script, of bytes, of the spread are not kept  TestFaultTimes
//	the stats miss a disconnect, a time, or the calls at once     TestBooks
//	a flag sets another's field                                 TestEachFlag

// TestWindow compares the window with the plain meaning of its words: at any
// time, what was let in during the last minute and second is within the limits,
// and what was sent away was told the first moment at which it fits.
func TestWindow(t *testing.T) {
	type let struct {
		at time.Time
		n  int64
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 50).Draw(t, "limit")
		w := newWindow(limit, rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "burst"))
		now := time.Unix(1_700_000_000, 0)
		var all []let
		sum := func(at time.Time, span time.Duration) (n int64) {
			for _, l := range all {
				if at.Sub(l.at) < span {
					n += l.n
				}
			}
			return n
		}
		fits := func(at time.Time, n int64) bool {
			rush := sum(at, time.Second)
			return sum(at, minute)+n <= limit && (w.perSecond == 0 || rush == 0 || rush+n <= w.perSecond)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			ms := rapid.OneOf(rapid.IntRange(0, 2000), rapid.IntRange(58_000, 61_000), rapid.SampledFrom([]int{0, 999, 1000, 20_000, 59_500, 60_000}))
			now = now.Add(time.Duration(ms.Draw(t, "ms")) * time.Millisecond)
			n := rapid.Int64Range(0, limit+1).Draw(t, "n")
			wait := w.room(now, n)
			if got := w.left(now).left; got != limit-sum(now, minute) {
				t.Fatalf("left %d, expected %d", got, limit-sum(now, minute))
			}
			if (wait == 0) != fits(now, n) {
				t.Fatalf("%d of %d: wait %s, but fits is %v", n, limit, wait, fits(now, n))
			}
			if wait == 0 {
				w.add(now, n)
				all = append(all, let{now, n})
				continue
			}
			if n <= limit && (!fits(now.Add(wait), n) || fits(now.Add(wait-time.Nanosecond), n)) {
				t.Fatalf("%d of %d: %s is not the first moment", n, limit, wait)
			}
		}
	})
}

func TestCorrection(t *testing.T) {
	g := &limiter{limits: Limits{Tokens: 100}}
	now := time.Unix(1_700_000_000, 0)
	first, _, over := g.enter("k", "m", now, 40, 60)
	if over != nil {
		t.Fatal("the whole minute's tokens are refused:", over)
	}
	if _, _, over := g.enter("k", "m", now, 1, 0); over == nil || over.what != allTokens || over.wait != minute {
		t.Fatalf("a token too many: %+v, expected a wait of a minute for tokens", over)
	}
	g.leave(first, model.Usage{Input: 40, Output: 10})
	if _, l, over := g.enter("k", "m", now, 50, 0); over != nil || l[allTokens].left != 0 {
		t.Fatalf("50 of 100 were given back, yet: %+v, left %d", over, l[allTokens].left)
	}
	g.leave(first, model.Usage{}) // as if it were late: nothing may break
	if _, l, _ := g.enter("k", "m", now.Add(minute), 0, 0); l[allTokens].left != 100 {
		t.Errorf("after a minute %d are left, expected all", l[allTokens].left)
	}
}

func TestRefusedUsesNothing(t *testing.T) {
	g := &limiter{limits: Limits{Requests: 5, Tokens: 10}}
	now := time.Unix(1_700_000_000, 0)
	for range 20 {
		if _, _, over := g.enter("k", "m", now, 11, 0); over == nil || over.what != allTokens {
			t.Fatalf("more than a minute's tokens at once: %+v", over)
		}
	}
	for i := range 6 {
		_, _, over := g.enter("k", "m", now, 1, 0)
		if (over != nil) != (i == 5) {
			t.Fatalf("request %d of 5: %+v", i+1, over)
		}
	}
	if _, _, over := g.enter("other", "m", now, 1, 0); over != nil {
		t.Errorf("another key is refused: %+v", over)
	}
	if _, _, over := g.enter("k", "other", now, 1, 0); over != nil {
		t.Errorf("another model is refused: %+v", over)
	}
}

func TestConcurrency(t *testing.T) {
	g := &limiter{limits: Limits{Concurrency: 1}}
	now := time.Unix(1_700_000_000, 0)
	first, _, over := g.enter("k", "m", now, 1, 0)
	if over != nil {
		t.Fatal(over)
	}
	if _, _, over := g.enter("k", "other", now, 1, 0); over == nil || over.what != concurrent {
		t.Fatalf("two at a time: %+v", over)
	}
	g.leave(first, model.Usage{})
	if _, _, over := g.enter("k", "m", now, 1, 0); over != nil {
		t.Errorf("one after the other: %+v", over)
	}
}

func TestBan(t *testing.T) {
	g := &limiter{limits: Limits{Ban: 3}}
	now := time.Unix(1_700_000_000, 0)
	g.countRefusal("k", now)
	g.countRefusal("k", now.Add(time.Second))
	g.countRefusal("k", now.Add(minute)) // the first is forgotten
	if g.banned("k") {
		t.Fatal("banned for two 429s within a minute, expected three")
	}
	g.countRefusal("k", now.Add(minute+time.Millisecond))
	if !g.banned("k") || g.banned("other") || len(g.refusals) > 0 {
		t.Error("three 429s within a minute, and the key is not banned, or another is, or they are still kept")
	}
}

func TestPrice(t *testing.T) {
	c := Config{Price: model.Price{Input: 1}, Script: &model.Script{Price: model.Price{Input: 2}}, Scripts: map[string]*model.Script{"m": {Price: model.Price{Input: 3}}}}
	if c.priceOf("m", 1).Input != 3 || c.priceOf("other", 1).Input != 2 {
		t.Error("the price is not that of the script which answers")
	}
}

// TestSlope: the share of a burst is rounded up, and the whole is no bound.
func TestSlope(t *testing.T) {
	for _, v := range []struct {
		limit int64
		burst float64
		want  int64
	}{{3, 0.1, 1}, {10, 0.25, 3}, {10, 0.8, 8}, {10, 1, 0}, {10, 0, 0}, {1_500_000, 0.05, 75_000}} {
		if got := newWindow(v.limit, v.burst).perSecond; got != v.want {
			t.Errorf("%v of %d: %d a second, want %d", v.burst, v.limit, got, v.want)
		}
	}
}

// TestLeft: what is told of a window is what is left, and when all of it will be.
func TestLeft(t *testing.T) {
	w := newWindow(10, 0)
	now := time.Unix(1_700_000_000, 0)
	if l := w.left(now); l != (level{10, 10, 0}) {
		t.Errorf("unused: %+v", l)
	}
	w.add(now, 3)
	w.add(now.Add(20*time.Second), 4)
	if l := w.left(now.Add(30 * time.Second)); l != (level{10, 3, 50 * time.Second}) {
		t.Errorf("in use: %+v", l)
	}
	if l := w.left(now.Add(60 * time.Second)); l != (level{10, 6, 20 * time.Second}) {
		t.Errorf("the first is forgotten: %+v", l)
	}
}

// TestLateCorrection: the true size of an answer counts in the second and in the
// minute it came in, as long as these last.
func TestLateCorrection(t *testing.T) {
	for _, v := range []struct {
		after           time.Duration
		sum, rush, then int64 // after the correction, and after another of one
	}{{0, 2, 2, 3}, {time.Second, 2, 0, 3}, {minute, 0, 0, 1}} {
		w := newWindow(100, 0.5)
		now := time.Unix(1_700_000_000, 0)
		u := w.add(now, 10)
		w.slide(now.Add(v.after))
		if w.correct(u, 2); w.sum != v.sum || w.recentSum != v.rush {
			t.Errorf("after %s: %d in the minute and %d in the second", v.after, w.sum, w.recentSum)
		}
		if w.add(now.Add(v.after), 1); w.sum != v.then {
			t.Errorf("after %s, and another: %d", v.after, w.sum)
		}
		if w.slide(now.Add(3 * minute)); w.sum != 0 || w.recentSum != 0 {
			t.Errorf("after %s, and long after: %d and %d are left", v.after, w.sum, w.recentSum)
		}
	}
}

// TestGates: each limit counts its own, what is in the way longest is told, and
// what an answer took is put in the place of what was asked for.
func TestGates(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, v := range []struct {
		limits Limits
		what   string
	}{
		{Limits{Requests: 1}, requests}, {Limits{Tokens: 100}, allTokens}, {Limits{Input: 60}, inputTokens}, {Limits{Output: 40}, outputTokens},
	} {
		g := &limiter{limits: v.limits}
		first, _, over := g.enter("k", "m", now, 60, 40)
		if over != nil {
			t.Fatalf("%s: all of the minute is refused: %+v", v.what, over)
		}
		if _, l, over := g.enter("k", "m", now, 1, 1); over == nil || over.what != v.what || l[v.what].left != 0 {
			t.Errorf("%s: one more: %+v", v.what, over)
		}
		g.leave(first, model.Usage{Input: 10, CacheRead: 20, CacheWrite: 5, Output: 15})
		left := map[string]int64{requests: 0, allTokens: 50, inputTokens: 25, outputTokens: 25}[v.what]
		if l := levelsOf(g.windowsOf("k", "m"), now); len(l) != 1 || l[v.what].left != left {
			t.Errorf("%s: %+v are left, want %d", v.what, l, left)
		}
	}
	g := &limiter{limits: Limits{Requests: 2, Output: 40}}
	g.enter("k", "m", now, 1, 39)
	g.enter("k", "m", now.Add(time.Second), 1, 1)
	if _, _, over := g.enter("k", "m", now.Add(2*time.Second), 1, 40); over == nil || over.what != outputTokens || over.wait != minute-time.Second {
		t.Errorf("two limits are reached: %+v", over)
	}
	g = &limiter{limits: Limits{Concurrency: 1}}
	g.enter("k", "m", now, 1, 1)
	if _, _, over := g.enter("k", "m", now, 1, 1); over == nil || over.wait != time.Second {
		t.Errorf("two at a time: %+v", over)
	}
	if p := (&excess{allTokens, level{limit: 10}, 11, minute}).problem("m"); !p.never || p.wait != minute {
		t.Errorf("more than a minute's: %+v", p)
	}
	if p := (&excess{allTokens, level{limit: 10}, 10, minute}).problem("m"); p.never {
		t.Errorf("a minute's: %+v", p)
	}
}

// TestWords: a text is parted after words, a long word between two characters.
func TestWords(t *testing.T) {
	for _, v := range []struct {
		text string
		n    int
		want int
	}{{"one two three", 1, 3}, {"one two three", 2, 7}, {" one two", 1, 4}, {strings.Repeat("x", 30), 1, 24}, {"x" + strings.Repeat("é", 30), 1, 25}, {"", 1, 0}} {
		if got := endOfWords(v.text, v.n); got != v.want {
			t.Errorf("%d words of %q end at %d, want %d", v.n, v.text, got, v.want)
		}
	}
}
