package mock

import (
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
			return sum(at, minute)+n <= limit && (w.slope == 0 || rush == 0 || rush+n <= w.slope)
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
	g := &gates{limits: Limits{Tokens: 100}}
	now := time.Unix(1_700_000_000, 0)
	first, _, over := g.enter("k", "m", now, 40, 60)
	if over != nil {
		t.Fatal("the whole minute's tokens are refused:", over)
	}
	if _, _, over := g.enter("k", "m", now, 1, 0); over == nil || over.what != tokens || over.wait != minute {
		t.Fatalf("a token too many: %+v, expected a wait of a minute for tokens", over)
	}
	g.leave(first, model.Usage{Input: 40, Output: 10})
	if _, l, over := g.enter("k", "m", now, 50, 0); over != nil || l[tokens].left != 0 {
		t.Fatalf("50 of 100 were given back, yet: %+v, left %d", over, l[tokens].left)
	}
	g.leave(first, model.Usage{}) // as if it were late: nothing may break
	if _, l, _ := g.enter("k", "m", now.Add(minute), 0, 0); l[tokens].left != 100 {
		t.Errorf("after a minute %d are left, expected all", l[tokens].left)
	}
}

func TestRefusedUsesNothing(t *testing.T) {
	g := &gates{limits: Limits{Requests: 5, Tokens: 10}}
	now := time.Unix(1_700_000_000, 0)
	for range 20 {
		if _, _, over := g.enter("k", "m", now, 11, 0); over == nil || over.what != tokens {
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
	g := &gates{limits: Limits{Concurrency: 1}}
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
	g := &gates{limits: Limits{Ban: 3}}
	now := time.Unix(1_700_000_000, 0)
	g.refused("k", now)
	g.refused("k", now.Add(time.Second))
	g.refused("k", now.Add(minute)) // the first is forgotten
	if g.banned("k") {
		t.Fatal("banned for two 429s within a minute, expected three")
	}
	g.refused("k", now.Add(minute+time.Millisecond))
	if !g.banned("k") || g.banned("other") {
		t.Error("three 429s within a minute, and the key is not banned, or another is")
	}
}

func TestPrice(t *testing.T) {
	c := Config{Price: model.Price{Input: 1}, Script: &model.Script{Price: model.Price{Input: 2}}, Scripts: map[string]*model.Script{"m": {Price: model.Price{Input: 3}}}}
	if c.priceOf("m").Input != 3 || c.priceOf("other").Input != 2 {
		t.Error("the price is not that of the script which answers")
	}
}
