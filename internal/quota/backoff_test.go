package quota

import (
	"testing"
	"time"
)

// bench lets calls go and end at times that a test names.
type bench struct {
	t *testing.T
	scheduler
	now int64
}

func newBench(t *testing.T, configs map[string]Config) *bench {
	return &bench{t: t, scheduler: scheduler{configs: configs}, now: second}
}

func (s *bench) bucket() *bucket { return s.scheduler.bucket(s.now, "p/m") }

// goes lets a call go that may take so much.
func (s *bench) goes(in, out int64) *call {
	s.t.Helper()
	c := &call{resource: "p/m", priority: 10, bound: amountOf(in, out)}
	if s.enqueue(s.now, c); c.startedAt != s.now {
		s.t.Fatalf("at %v it does not go", time.Duration(s.now))
	}
	return c
}

// ends ends a call and says for how long the bucket is paused from now on.
func (s *bench) ends(c *call, f report) (paused time.Duration) {
	s.release(s.now, c, &f)
	return time.Duration(max(0, s.bucket().pace.paused-s.now))
}

// pass waits for the end of the pause.
func (s *bench) pass() { s.now = max(s.now, s.bucket().pace.paused) + second }

// TestPauseLength: a provider that answers 429 again and again is paused longer each time,
// also when the provider asks for less, and never for longer than half a minute
// of its own.
func TestPauseLength(t *testing.T) {
	ms := func(all ...int64) (d []time.Duration) {
		for _, n := range all {
			d = append(d, time.Duration(n)*time.Millisecond)
		}
		return d
	}
	for _, v := range []struct {
		name  string
		after int64
		want  []time.Duration
	}{
		{"it does not say", 0, ms(1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000)},
		{"it says too little", second / 2, ms(500, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000)},
		{"it says enough", 20 * second, ms(20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 30_000, 30_000)},
		{"it says an hour", 60 * minute, ms(3_600_000, 3_600_000, 3_600_000, 3_600_000)},
	} {
		s := newBench(t, nil)
		for i, want := range v.want {
			if got := s.ends(s.goes(1, 1), report{status: RateLimited, after: v.after}); got != want {
				t.Errorf("%s: pause %d is %s, want %s", v.name, i+1, got, want)
			}
			s.pass()
		}
		s.ends(s.goes(1, 1), report{})
		if got := s.ends(s.goes(1, 1), report{status: RateLimited, after: v.after}); got != v.want[0] {
			t.Errorf("%s: after an answer it is paused for %s", v.name, got)
		}
	}
}

// TestOnTheirWay: answers to calls that went before a pause was ordered say
// nothing of it, neither that it is over nor that it was too short.
func TestOnTheirWay(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 6000}}}) // so that more than one goes after a pause
	early := s.goes(1, 1)
	pausedAt := s.goes(1, 1)
	another := s.goes(1, 1)
	s.now += second
	late := s.goes(1, 1) // in the moment of the pause
	if got := s.ends(pausedAt, report{status: RateLimited}); got != time.Second {
		t.Fatalf("the first pause is %s", got)
	}
	s.ends(early, report{})
	s.ends(late, report{})
	if got := s.ends(another, report{status: RateLimited}); got != time.Second {
		t.Errorf("a call that was on its way makes it %s", got)
	}
	s.pass()
	if got := s.ends(s.goes(1, 1), report{status: RateLimited}); got != 2*time.Second {
		t.Errorf("the second pause is %s, though nothing went well since the first", got)
	}
	s.pass()
	early, pausedAt = s.goes(1, 1), s.goes(1, 1)
	s.now += second
	s.ends(pausedAt, report{status: RateLimited})
	if got := s.ends(early, report{status: RateLimited, after: 48 * 60 * minute}); got != 24*time.Hour {
		t.Errorf("it is made %s, want what was asked for, and at most a day", got)
	}
}

// TestBreakdowns: one overload in a while is no reason to pause, and another soon after
// it is; so is one that comes with a word on how long.
func TestBreakdowns(t *testing.T) {
	for heard, paused := range map[string]bool{"o": false, "oo": true, "o.o": false, "o.oo": true, "o....o": false, "......oo": true, "a": true} {
		s := newBench(t, nil)
		var got time.Duration
		for _, w := range heard {
			f := map[rune]report{'o': {status: Overloaded}, 'a': {status: Overloaded, after: second}}[w]
			got = s.ends(s.goes(1, 1), f)
		}
		if (got > 0) != paused {
			t.Errorf("%s: paused for %s", heard, got)
		}
	}
}

// TestWidth: how many calls go at one time grows while they are needed, fast
// at first and by one in a round then; a pause narrows it as far as what is known
// of the limits says that their number was the reason.
func TestWidth(t *testing.T) {
	for _, v := range []struct {
		name                            string
		running                         int
		width, threshold, ceiling, want int64
	}{
		{"half of it is used", 1, 4000, 8000, 1 << 20, 5000},
		{"less is used", 0, 4000, 8000, 1 << 20, 4000},
		{"above the threshold", 9, 8000, 8000, 1 << 20, 8125},
		{"at the ceiling", 9, 8000, 9000, 8000, 8000},
	} {
		b := newBucket("p/m", nil, Limits{})
		b.running, b.pace = v.running, pace{width: v.width, threshold: v.threshold, ceiling: v.ceiling}
		if b.recordSuccess(second, &call{}); b.pace.width != v.want {
			t.Errorf("%s: %d, want %d", v.name, b.pace.width, v.want)
		}
	}
	limited := Limits{Requests: 100}
	for _, v := range []struct {
		name                      string
		own, above                Limits
		why                       string
		rate                      bool
		width, threshold, ceiling int64
	}{
		{"nothing is known", Limits{}, Limits{}, whySlow, true, 1000, 8000, 99_000},
		{"the minute was too full", limited, Limits{}, whySlow, true, 32_000, 8000, 99_000},
		{"the key's minute was too full", Limits{}, limited, whySlow, true, 32_000, 8000, 99_000},
		{"the number was too large", limited, Limits{}, whySlow, false, 15_000, 8000, 15_000},
		{"overloaded", limited, Limits{}, whyBusy, false, 8000, 8000, 99_000},
	} {
		b := newBucket("p/m", newBucket("p#", nil, v.above), v.own)
		b.running, b.pace = 15, pace{width: 32_000, ceiling: 99_000, why: v.why}
		b.narrowWidth(v.rate)
		if k := b.pace; k.width != v.width || k.threshold != v.threshold || k.ceiling != v.ceiling {
			t.Errorf("%s: %+v", v.name, k)
		}
	}
}

// TestMarginShrinks: what was learned from a refusal is kept for a minute, and then
// given up step by step.
func TestMarginShrinks(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 600}}})
	s.now = 10 * minute
	s.ends(s.goes(1, 1), report{status: RateLimited})
	at, margin := s.now, s.bucket().pace.margin
	s.pass()
	if s.ends(s.goes(1, 1), report{}); margin == 0 || s.bucket().pace.margin != margin {
		t.Errorf("soon after: %d in place of %d", s.bucket().pace.margin, margin)
	}
	s.now = at + minute
	if s.ends(s.goes(1, 1), report{}); s.bucket().pace.margin != margin*3/4 {
		t.Errorf("a minute later: %d in place of %d", s.bucket().pace.margin, margin*3/4)
	}
}

// TestAfterPause: when a pause is over, the waiting calls go one after the other,
// as fast as the limit grants, and not as many as a moment would hold.
func TestAfterPause(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 6000}}})
	paused := s.ends(s.goes(1, 1), report{status: RateLimited, after: 10 * second})
	s.now += int64(paused)
	went := 0
	for range 10 {
		c := &call{resource: "p/m", priority: 10, bound: amountOf(1, 1)}
		if s.enqueue(s.now, c); c.startedAt > 0 {
			went++
		}
	}
	if went != 1 {
		t.Errorf("%d go at once", went)
	}
}

// TestHitMinuteLimit: it was the minute that was too full when less was left than the call
// takes, or nearly nothing, of anything; and when nothing is known.
func TestHitMinuteLimit(t *testing.T) {
	for _, v := range []struct {
		name   string
		levels [units]level
		want   bool
	}{
		{"nothing is known", [units]level{}, true},
		{"enough is left", [units]level{requests: {1000, 20}, tokens: {1000, 300}}, false},
		{"nearly nothing", [units]level{requests: {1000, 19}}, true},
		{"less than it takes", [units]level{requests: {1000, 500}, tokens: {1000, 299}}, true},
	} {
		b := newBucket("p/m", nil, Limits{})
		if got := b.hitMinuteLimit(&call{bound: amountOf(200, 100)}, &report{levels: v.levels}); got != v.want {
			t.Errorf("%s: %v", v.name, got)
		}
	}
}

// TestUncounted: of a call that was refused the provider counts nothing, and of one
// that it read the input as it is; of an output perhaps all.
func TestUncounted(t *testing.T) {
	for _, v := range []struct {
		f    report
		want amount
	}{
		{report{status: RateLimited}, amountOf(200, 100)},
		{report{in: 150, out: 10}, amount{0, 50, 50, 0}},
		{report{}, amount{}},
		{report{status: Overloaded, in: 150}, amount{}},
	} {
		for u, want := range v.want {
			if got := (&call{bound: amountOf(200, 100)}).uncounted(u, &v.f); got != want {
				t.Errorf("%+v: of %s %d, want %d", v.f, unitNames[u], got, want)
			}
		}
	}
}

// TestLimit: what is used at most is what was configured or was told, whichever
// is less, and a margin less after refusals.
func TestLimit(t *testing.T) {
	for _, v := range []struct{ set, told, margin, want int64 }{
		{0, 0, 0, 0}, {100, 0, 0, 100}, {0, 70, 0, 70}, {100, 70, 0, 70}, {100, 700, 0, 100}, {100, 0, 10, 99}, {1, 0, mostMargin, 1}, {2, 0, mostMargin, 1},
	} {
		b := newBucket("p/m", nil, Limits{Tokens: v.set})
		b.learned[tokens], b.pace.margin = v.told, v.margin
		if got := b.limit(tokens); got != v.want {
			t.Errorf("%+v: %d", v, got)
		}
	}
	for n, want := range map[int64]int64{0: 0, 50: minute / 2, 100: minute, 5000: minute, -50: -minute / 2, -5000: -minute} {
		if got := timeFor(n, 100); got != want {
			t.Errorf("of 100 a minute %d take %d ns, want %d", n, got, want)
		}
	}
}

// TestForgetIdle: a bucket that is paused is not forgotten, and neither are those above
// it; of the others nothing is kept.
func TestForgetIdle(t *testing.T) {
	s := newBench(t, nil)
	c := s.goes(1, 1)
	s.ends(c, report{status: RateLimited, after: 100 * minute})
	for i := range manyBuckets - 1 {
		s.scheduler.bucket(s.now, "p#other/"+string(rune('a'+i)))
	}
	s.now += 10 * minute
	s.forgetIdle(s.now)
	if len(s.buckets) != 1 || s.buckets["p/m"] != c.bucket || len(s.parents) != 2 || s.parents["p#"] != c.bucket.parent || s.parents["p"] != c.bucket.parent.parent || c.bucket.parent.parent.below != 1 {
		t.Errorf("urgentShare are %d and %d above", len(s.buckets), len(s.parents))
	}
	if s.many != 2 {
		t.Errorf("it is looked again at %d, want at twice as many as are kept", s.many)
	}
	s.now += 100 * minute
	for i := range manyBuckets { // p/m is one of them
		s.scheduler.bucket(s.now, "p/"+string(rune('a'+i)))
	}
	if s.forgetIdle(s.now); len(s.buckets)+len(s.parents) != 0 {
		t.Errorf("urgentShare are %d and %d above", len(s.buckets), len(s.parents))
	}
}
