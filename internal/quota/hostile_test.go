package quota

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/model"
	"pgregory.net/rapid"
)

// hostile is a scheduler whose providers say anything, and what is known of it
// from outside.
type hostile struct {
	scheduler
	now     int64
	checked int64 // time of the last search for calls that wait for nothing
	waiting []*call
	running []*call
	sent    int // elsewhere
}

// gone takes over the calls that go or are diverted.
func (h *hostile) gone(t *rapid.T, all []*call) {
	for _, c := range slices.Clone(all) {
		i := slices.Index(h.waiting, c)
		if i < 0 {
			t.Fatalf("a call goes that does not wait: %+v", *c)
		}
		h.waiting = slices.Delete(h.waiting, i, i+1)
		if c.diverted {
			if !c.hasFallback {
				t.Fatal("a call is sent elsewhere that cannot go there")
			}
			h.sent++
			continue
		}
		h.running = append(h.running, c)
	}
	h.rechecks = h.rechecks[:0]
}

// later lets the alarms ring that are set for a time.
func (h *hostile) later(t *rapid.T, d int64) {
	h.now += d
	for _, b := range h.models() {
		if b.waiters.checkAt <= h.now {
			b.waiters.checkAt = never
			h.gone(t, h.giveTurns(h.now, b))
		}
	}
}

// models are the buckets with lines, always in the same order.
func (h *hostile) models() []*bucket {
	return slices.SortedFunc(maps.Values(h.buckets), func(a, b *bucket) int { return strings.Compare(a.name, b.name) })
}

// check rechecks for a call that waits though nothing keeps it, and for sums that
// do not add up.
func (h *hostile) check(t *rapid.T) {
	for _, b := range h.models() {
		look, why := b.waiters.checkAt, b.waiters.why
		again := h.giveTurns(h.now, b)
		h.gone(t, again)
		if len(again) > 0 && h.checked == h.now { // else age has made another the next, or one so urgent that there is room
			t.Fatalf("%s: %d waited though there was room: for %q until %d, now %d", b.name, len(again), why, look, h.now)
		}
	}
	h.checked = h.now
	runs, waits, free := map[*bucket]int{}, map[*bucket]int{}, map[*bucket]int{}
	for _, c := range h.running {
		for b := c.bucket; b != nil; b = b.parent {
			runs[b]++
		}
	}
	for _, c := range h.waiting {
		if waits[c.bucket]++; c.hasFallback {
			free[c.bucket]++
		}
	}
	for _, b := range append(h.models(), slices.Collect(maps.Values(h.parents))...) {
		h.sums(t, b, runs[b])
		if l := b.waiters; l != nil && (l.waiting != waits[b] || l.free != free[b]) {
			t.Fatalf("%s: %d wait, counted %d; of these %d free, counted %d", b.name, waits[b], l.waiting, free[b], l.free)
		}
	}
}

// sums rechecks at one bucket at which so many run.
func (h *hostile) sums(t *rapid.T, b *bucket, runs int) {
	b.window.slide(h.now)
	for u := range b.window.sum {
		if b.window.sum[u] < 0 || b.slack[u] < 0 {
			t.Fatalf("%s: %v in the minute, %v open", b.name, b.window.sum, b.slack)
		}
		if l := b.limit(u); l < 0 || l == 0 && b.learned[u] > 0 {
			t.Fatalf("%s: the limit on %s is %d, told was %d", b.name, unitNames[u], l, b.learned[u])
		}
	}
	if b.running != runs || b.outputs.counted < 0 || b.outputs.bound < b.outputs.counted || runs == 0 && b.outputs != (outputs{}) {
		t.Fatalf("%s: %d run, counted %d, outputs %+v", b.name, runs, b.running, b.outputs)
	}
	if k := b.pace; k.width < 1000 || k.ceiling < 1000 || k.margin < 0 || k.margin > mostMargin {
		t.Fatalf("%s: %+v", b.name, k)
	}
	if p := b.outage.probe; p != nil && !slices.Contains(h.running, p) && !slices.Contains(h.waiting, p) {
		t.Fatalf("%s: a call rechecks whether it is back that is no more", b.name)
	}
}

// TestBeyondNumbers: a bound that is no number of tokens, and an answer that says
// anything, neither open a limit to others nor close it for ever. An agent may
// name any bound it likes.
//
// Mutants that die here: weigh believes all; report does.
func TestBeyondNumbers(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Tokens: 1000, Requests: math.MaxInt64}}})
	c := s.goes(100, math.MaxInt64)
	next := &call{resource: "p/m", owner: "other", bound: amountOf(600, 300)}
	if s.enqueue(s.now, next); next.queue == nil || c.bound[tokens] <= 0 || c.share.used <= 0 {
		t.Errorf("another goes beside it; it counts as %v, its owner had %d", c.bound, c.share.used)
	}
	f := Feedback{In: math.MaxInt64, Out: math.MaxInt64, Cached: math.MaxInt64, Quota: model.Quota{At: time.Now(),
		Requests: model.Allowance{Limit: math.MaxInt64}, Tokens: model.Allowance{Limit: 1_000_000, Left: 5}}}
	n := f.report()
	if n.levels[requests] != (level{}) || n.levels[tokens] != (level{1_000_000, 5}) {
		t.Errorf("of the limits it is believed %v", n.levels)
	}
	s.ends(c, n)
	b := s.bucket()
	for u, sum := range b.window.sum {
		if sum < 0 || c.share.used <= 0 {
			t.Errorf("%s used: %d, its owner had %d", unitNames[u], sum, c.share.used)
		}
	}
	s.now += 3 * minute
	if s.giveTurns(s.now, b); next.startedAt != s.now {
		t.Errorf("then nobody goes: %q", b.waiters.why)
	}
	s.ends(next, report{})
}

// asked asks with a priority, for so many tokens.
func (s *bench) asked(key string, priority int, out int64) *call {
	c := &call{resource: key, owner: key, priority: priority, bound: amountOf(0, out)}
	s.enqueue(s.now, c)
	return c
}

// TestOtherModels: what waits for the minute of its key, and of its model that has
// the same, is not overtaken by what is less urgent at another model of that key.
//
// Mutant that dies here: of two that have room at the same time the lower is in
// the way.
func TestOtherModels(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Tokens: 300}}})
	s.ends(s.asked("p/n", 0, 100), report{out: 100})
	s.now += minute / 2
	s.ends(s.asked("p/n", 0, 200), report{out: 200})
	s.now += minute / 2
	urgent := s.asked("p/n", 0, 290)
	s.now += 2 * second // the first hundred are free again
	bulk := s.asked("p/m", 50, 80)
	if urgent.queue == nil || bulk.queue == nil {
		t.Errorf("the urgent one waits: %v, the other one: %v", urgent.queue != nil, bulk.queue != nil)
	}
	s.now = urgent.bucket.waiters.checkAt
	if s.giveTurns(s.now, urgent.bucket); urgent.startedAt != s.now {
		t.Errorf("the urgent one waits for %q", urgent.bucket.waiters.why)
	}
}

// TestOtherKeys: when a place at the provider is free again at one key, nobody at
// a more urgent call overtakes there.
//
// Mutant that dies here: best does not look at the key of what it has found.
func TestOtherKeys(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Tokens: 300, Concurrency: 1}}})
	first := s.asked("p/m", 0, 10)
	s.asked("p/n", 2, 300)
	s.ends(first, report{out: 10}) // now that one waits for the minute
	urgent, small := s.asked("p/m", 0, 300), s.asked("p/n", 1, 0)
	other := s.asked("p#k/m", 0, 0)
	if urgent.queue == nil || small.queue == nil || other.startedAt != s.now {
		t.Fatalf("urgent waits %v, small waits %v, other went at %d", urgent.queue != nil, small.queue != nil, other.startedAt)
	}
	if s.ends(other, report{}); small.queue == nil {
		t.Error("the small one overtakes the urgent one")
	}
}

// TestBehindTheDiverted: when those at the head of a queue go elsewhere, because
// their provider was not to be reached for another model, the calls behind them
// goes as soon as there is room for it.
//
// Mutant that dies here: only the queue of the call that found nobody is looked at.
func TestBehindTheDiverted(t *testing.T) {
	s := newBench(t, nil)
	hold := s.goes(1, 1)
	s.ends(s.asked("p/other", 0, 1), report{out: 1, levels: [units]level{output: {10, 0}}})
	large, behind := &call{resource: "p/other", hasFallback: true, bound: amountOf(0, 10)}, &call{resource: "p/other"}
	s.enqueue(s.now, large)
	if s.enqueue(s.now, behind); large.queue == nil || behind.queue == nil {
		t.Fatal("they do not wait")
	}
	if s.ends(hold, report{status: Unreachable}); !large.diverted || behind.startedAt != s.now {
		t.Errorf("the large one is away: %v; the one behind it went at %d, it is %d", large.diverted, behind.startedAt, s.now)
	}
}

// TestToldOnce: a limit that was told once, by whatever stood between, is forgotten
// when answers no longer tell of it; one that was configured stays, and failures
// say nothing.
//
// Mutants that die here: what was told stays for ever; is forgotten at once; any
// answer counts.
func TestToldOnce(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 5000}}})
	b := s.bucket()
	for i, step := range []struct {
		after int64
		f     report
		want  int64
	}{
		{0, report{in: 1, levels: [units]level{requests: {2, 2}}}, 2},
		{learnedFor, report{in: 1}, 2},
		{second, report{in: 1, status: Failing}, 2},
		{second, report{}, 2},
		{second, report{in: 1, levels: [units]level{tokens: {500, 500}}}, 5000},
		{second, report{in: 1, levels: [units]level{requests: {3, 3}}}, 3},
		{second, report{in: 1}, 3},
		{learnedFor, report{in: 1}, 5000},
	} {
		s.now += step.after
		b.learnLimits(s.now, &call{bucket: b, bound: amountOf(1, 0)}, &step.f)
		if got := b.limit(requests); got != step.want {
			t.Errorf("step %d: %d requests, want %d", i, got, step.want)
		}
	}
}

// TestHostile has providers say anything, and calls come, go, end and be moved in
// any order. Nobody waits for room that is there, all sums add up, and in the end
// everybody had a turn and nothing is left.
func TestHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &hostile{now: second}
		h.configs = map[string]Config{"p": {Limits: Limits{Concurrency: rapid.IntRange(0, 4).Draw(t, "at a time"), Tokens: rapid.SampledFrom([]int64{0, 300, 5000, math.MaxInt64}).Draw(t, "tpm")}}}
		ask := func(t *rapid.T) {
			// Owners have calls at one model only: at another model they would change the order here.
			c := &call{resource: rapid.SampledFrom([]string{"p/m", "p/n", "p#k/m", "q/m", "q#k/m"}).Draw(t, "model"), owner: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
				pid: rapid.Int64Range(1, 3).Draw(t, "pid"), priority: rapid.IntRange(0, 12).Draw(t, "priority"), hasFallback: rapid.Bool().Draw(t, "elsewhere"),
				bound: amountOf(rapid.SampledFrom([]int64{0, 10, 200, 100_000, math.MaxInt64}).Draw(t, "in"), rapid.SampledFrom([]int64{0, 10, 200, 100_000, math.MaxInt64}).Draw(t, "out"))}
			c.owner += c.resource
			h.waiting = append(h.waiting, c)
			h.gone(t, h.enqueue(h.now, c))
		}
		release := func(t *rapid.T) {
			if len(h.running) == 0 {
				return
			}
			i := rapid.IntRange(0, len(h.running)-1).Draw(t, "call")
			c := h.running[i]
			h.running = slices.Delete(h.running, i, i+1)
			f := &report{status: Status(rapid.IntRange(int(Served), int(Cut)).Draw(t, "word")), age: rapid.SampledFrom([]int64{0, second, minute, 100 * minute}).Draw(t, "age"),
				after: rapid.SampledFrom([]int64{0, 0, second, 61 * second, 24 * 60 * minute}).Draw(t, "after")}
			if f.status == Served || f.status == Failing {
				f.in = rapid.SampledFrom([]int64{0, 10, 1_000_000}).Draw(t, "took in")
				f.out = rapid.SampledFrom([]int64{0, 10, 1_000_000}).Draw(t, "took out")
				f.cached = rapid.SampledFrom([]int64{0, f.in / 2, f.in}).Draw(t, "cached")
			}
			for u := range f.levels {
				if l := rapid.SampledFrom([]int64{0, 0, 1, 50, 10_000, mostAmount}).Draw(t, "limit"); l > 0 {
					f.levels[u] = level{l, rapid.SampledFrom([]int64{0, l / 2, l}).Draw(t, "left")}
				}
			}
			h.gone(t, h.release(h.now, c, f))
		}
		t.Repeat(map[string]func(*rapid.T){
			"":         h.check,
			"ask":      ask,
			"ask ":     ask,
			"release":  release,
			"release ": release,
			"time":     func(t *rapid.T) { h.later(t, rapid.Int64Range(1, 10*second).Draw(t, "time")) },
			"long": func(t *rapid.T) {
				h.later(t, rapid.SampledFrom([]int64{minute, 10 * minute, 24 * 60 * minute}).Draw(t, "time"))
			},
			"rank": func(t *rapid.T) {
				h.gone(t, h.setPriority(h.now, rapid.Int64Range(1, 3).Draw(t, "pid"), rapid.IntRange(0, 120).Draw(t, "priority")))
			},
			"cancel": func(t *rapid.T) {
				if len(h.waiting) > 0 {
					i := rapid.IntRange(0, len(h.waiting)-1).Draw(t, "call")
					c := h.waiting[i]
					h.waiting = slices.Delete(h.waiting, i, i+1)
					h.gone(t, h.cancel(h.now, c))
				}
			},
		})
		for range 10_000 { // everybody gets a turn
			for len(h.running) > 0 {
				c := h.running[0]
				h.running = h.running[1:]
				h.gone(t, h.release(h.now, c, &report{in: c.bound[input], out: c.bound[output]}))
			}
			if len(h.waiting) == 0 {
				break
			}
			next := never
			for _, b := range h.models() {
				next = min(next, b.waiters.checkAt)
			}
			if next == never {
				t.Fatalf("%d wait, nothing runs, and no time is set", len(h.waiting))
			}
			h.later(t, max(1, next-h.now))
		}
		if len(h.waiting) > 0 {
			t.Fatalf("%d never had a turn", len(h.waiting))
		}
		h.check(t)
		h.later(t, 3*24*60*minute)
		h.scheduler.many = -manyBuckets
		for name, b := range h.buckets {
			if !b.idle(h.now) || b.waiters.checkAt != never || len(b.parent.blocked)+len(b.parent.parent.blocked) > 0 {
				t.Fatalf("%s is not forgotten: %+v", name, *b)
			}
		}
	})
}
