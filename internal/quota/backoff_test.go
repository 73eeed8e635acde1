package quota

import (
	"testing"
	"time"
)

// bench lets calls go and end at times that a test names.
type bench struct {
	t *testing.T
	sched
	now int64
}

func newBench(t *testing.T, configs map[string]Config) *bench {
	return &bench{t: t, sched: sched{configs: configs}, now: second}
}

func (s *bench) bucket() *bucket { return s.sched.bucket(s.now, "p/m") }

// goes lets a call go that may take so much.
func (s *bench) goes(in, out int64) *call {
	s.t.Helper()
	c := &call{key: "p/m", priority: 10, weight: weigh(in, out)}
	if s.ask(s.now, c); c.went != s.now {
		s.t.Fatalf("at %v it does not go", time.Duration(s.now))
	}
	return c
}

// ends ends a call and says for how long the bucket is paused from now on.
func (s *bench) ends(c *call, f news) (paused time.Duration) {
	s.release(s.now, c, &f)
	return time.Duration(max(0, s.bucket().care.paused-s.now))
}

// pass waits for the end of the pause.
func (s *bench) pass() { s.now = max(s.now, s.bucket().care.paused) + second }

// TestBackOff: who is asked to slow down again and again waits longer each time,
// also when the provider asks for less, and never for longer than half a minute
// of its own.
func TestBackOff(t *testing.T) {
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
			if got := s.ends(s.goes(1, 1), news{word: Slow, after: v.after}); got != want {
				t.Errorf("%s: pause %d is %s, want %s", v.name, i+1, got, want)
			}
			s.pass()
		}
		s.ends(s.goes(1, 1), news{})
		if got := s.ends(s.goes(1, 1), news{word: Slow, after: v.after}); got != v.want[0] {
			t.Errorf("%s: after an answer it is paused for %s", v.name, got)
		}
	}
}

// TestOnTheirWay: answers to calls that went before a pause was ordered say
// nothing of it, neither that it is over nor that it was too short.
func TestOnTheirWay(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 6000}}}) // so that more than one goes after a pause
	early := s.goes(1, 1)
	struck := s.goes(1, 1)
	another := s.goes(1, 1)
	s.now += second
	late := s.goes(1, 1) // in the moment of the pause
	if got := s.ends(struck, news{word: Slow}); got != time.Second {
		t.Fatalf("the first pause is %s", got)
	}
	s.ends(early, news{})
	s.ends(late, news{})
	if got := s.ends(another, news{word: Slow}); got != time.Second {
		t.Errorf("a call that was on its way makes it %s", got)
	}
	s.pass()
	if got := s.ends(s.goes(1, 1), news{word: Slow}); got != 2*time.Second {
		t.Errorf("the second pause is %s, though nothing went well since the first", got)
	}
	s.pass()
	early, struck = s.goes(1, 1), s.goes(1, 1)
	s.now += second
	s.ends(struck, news{word: Slow})
	if got := s.ends(early, news{word: Slow, after: 48 * 60 * minute}); got != 24*time.Hour {
		t.Errorf("it is made %s, want what was asked for, and at most a day", got)
	}
}

// TestSick: one overload in a while is no reason to pause, and another soon after
// it is; so is one that comes with a word on how long.
func TestSick(t *testing.T) {
	for heard, paused := range map[string]bool{"o": false, "oo": true, "o.o": false, "o.oo": true, "o....o": false, "......oo": true, "a": true} {
		s := newBench(t, nil)
		var got time.Duration
		for _, w := range heard {
			f := map[rune]news{'o': {word: Overloaded}, 'a': {word: Overloaded, after: second}}[w]
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
		b.running, b.care = v.running, care{width: v.width, threshold: v.threshold, ceiling: v.ceiling}
		if b.well(second, &call{}); b.care.width != v.want {
			t.Errorf("%s: %d, want %d", v.name, b.care.width, v.want)
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
		b.running, b.care = 15, care{width: 32_000, ceiling: 99_000, why: v.why}
		b.thin(v.rate)
		if k := b.care; k.width != v.width || k.threshold != v.threshold || k.ceiling != v.ceiling {
			t.Errorf("%s: %+v", v.name, k)
		}
	}
}

// TestEased: what was learned from a refusal is kept for a minute, and then
// given up step by step.
func TestEased(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 600}}})
	s.now = 10 * minute
	s.ends(s.goes(1, 1), news{word: Slow})
	at, margin := s.now, s.bucket().care.margin
	s.pass()
	if s.ends(s.goes(1, 1), news{}); margin == 0 || s.bucket().care.margin != margin {
		t.Errorf("soon after: %d in place of %d", s.bucket().care.margin, margin)
	}
	s.now = at + minute
	if s.ends(s.goes(1, 1), news{}); s.bucket().care.margin != margin*3/4 {
		t.Errorf("a minute later: %d in place of %d", s.bucket().care.margin, margin*3/4)
	}
}

// TestAfterPause: when a pause is over, those who waited go one after the other,
// as fast as the limit grants, and not as many as a moment would hold.
func TestAfterPause(t *testing.T) {
	s := newBench(t, map[string]Config{"p": {Limits: Limits{Requests: 6000}}})
	paused := s.ends(s.goes(1, 1), news{word: Slow, after: 10 * second})
	s.now += int64(paused)
	went := 0
	for range 10 {
		c := &call{key: "p/m", priority: 10, weight: weigh(1, 1)}
		if s.ask(s.now, c); c.went > 0 {
			went++
		}
	}
	if went != 1 {
		t.Errorf("%d go at once", went)
	}
}

// TestNear: it was the minute that was too full when less was left than the call
// takes, or nearly nothing, of anything; and when nothing is known.
func TestNear(t *testing.T) {
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
		if got := b.near(&call{weight: weigh(200, 100)}, &news{levels: v.levels}); got != v.want {
			t.Errorf("%s: %v", v.name, got)
		}
	}
}

// TestSpare: of a call that was refused the provider counts nothing, and of one
// that it read the input as it is; of an output perhaps all.
func TestSpare(t *testing.T) {
	for _, v := range []struct {
		f    news
		want amount
	}{
		{news{word: Slow}, weigh(200, 100)},
		{news{in: 150, out: 10}, amount{0, 50, 50, 0}},
		{news{}, amount{}},
		{news{word: Overloaded, in: 150}, amount{}},
	} {
		for u, want := range v.want {
			if got := (&call{weight: weigh(200, 100)}).spare(u, &v.f); got != want {
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
		b.told[tokens], b.care.margin = v.told, v.margin
		if got := b.limit(tokens); got != v.want {
			t.Errorf("%+v: %d", v, got)
		}
	}
	for n, want := range map[int64]int64{0: 0, 50: minute / 2, 100: minute, 5000: minute, -50: -minute / 2, -5000: -minute} {
		if got := spread(n, 100); got != want {
			t.Errorf("of 100 a minute %d take %d ns, want %d", n, got, want)
		}
	}
}

// TestSweep: a bucket that is paused is not forgotten, and neither are those above
// it; of the others nothing is kept.
func TestSweep(t *testing.T) {
	s := newBench(t, nil)
	c := s.goes(1, 1)
	s.ends(c, news{word: Slow, after: 100 * minute})
	for i := range manyBuckets - 1 {
		s.sched.bucket(s.now, "p#other/"+string(rune('a'+i)))
	}
	s.now += 10 * minute
	s.sweep(s.now)
	if len(s.buckets) != 1 || s.buckets["p/m"] != c.bucket || len(s.above) != 2 || s.above["p#"] != c.bucket.up || s.above["p"] != c.bucket.up.up || c.bucket.up.up.below != 1 {
		t.Errorf("kept are %d and %d above", len(s.buckets), len(s.above))
	}
	if s.many != 2 {
		t.Errorf("it is looked again at %d, want at twice as many as are kept", s.many)
	}
	s.now += 100 * minute
	for i := range manyBuckets { // p/m is one of them
		s.sched.bucket(s.now, "p/"+string(rune('a'+i)))
	}
	if s.sweep(s.now); len(s.buckets)+len(s.above) != 0 {
		t.Errorf("kept are %d and %d above", len(s.buckets), len(s.above))
	}
}
