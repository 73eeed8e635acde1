package quota

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/model"
)

// minutes is a provider that counts input when a call comes and output when it
// is written, or at its bound until then, and tells how it stands.
type minutes struct {
	mu     sync.Mutex
	window window
	epoch  time.Time
	limit  int64
	bounds bool // it counts bounds first

	refused int
	served  int64
}

func (p *minutes) now() int64 { return int64(time.Since(p.epoch)) + second }

func (p *minutes) call(in, out, bound int64) (f Feedback) {
	count := amount{1, in, in, 0}
	if p.bounds {
		count = amountOf(in, bound)
	}
	p.mu.Lock()
	came := p.now()
	p.window.slide(came)
	ok := p.window.sum[tokens]+count[tokens] <= p.limit
	if ok {
		p.window.add(came, &count)
	} else {
		p.refused++
	}
	f.Quota = model.Quota{At: time.Now(), Tokens: model.Allowance{Limit: p.limit, Left: max(0, p.limit-p.window.sum[tokens])}}
	p.mu.Unlock()
	if !ok {
		f.Status, f.RetryAfter = RateLimited, time.Second
		return f
	}
	time.Sleep(10 * time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window.remove(p.now(), came, &count)
	rest := amount{1, in, in, 0}
	p.window.remove(p.now(), came, rest.negative())
	p.window.add(p.now(), &amount{0, out, 0, out})
	p.served += in + out
	f.In, f.Out = in, out
	return f
}

// TestRatio: of the first few calls each weighs the same, and of many a new
// one weighs a sixteenth. One call alone is taken to be as large as they come;
// many together are near the mean.
func TestRatio(t *testing.T) {
	m := ratio{mean: 1000}
	m.follow(0, 0) // nothing that could be a share
	m.follow(1, 4)
	m.follow(3, 4)
	if m.mean != 500 || m.seen != 2 {
		t.Errorf("after a quarter and three: %+v", m)
	}
	for range 100 {
		m.follow(1, 4)
	}
	was := m
	if m.follow(9, 8); m.mean != was.mean+(1000-was.mean)/16 {
		t.Errorf("%+v, and then %+v", was, m)
	}
	m = ratio{mean: 200, off: 40}
	for beside, want := range map[int]int64{0: 320, 3: 260, 15: 230} {
		if got := m.expected(beside); got != want {
			t.Errorf("beside %d others it is %d, want %d", beside, got, want)
		}
	}
	if m.off = 900; m.expected(0) != 1000 {
		t.Errorf("it is taken to need %d of 1000", m.expected(0))
	}
}

// TestLearnAhead: that a provider counts outputs at their bound is seen at once, and
// believed less with each answer that shows otherwise; where too little is under
// way to see it, nothing is learned.
func TestLearnAhead(t *testing.T) {
	for _, v := range []struct {
		name               string
		was, used, outputs int64 // bound of what is written; guessed at a tenth
		left, want         int64
	}{
		{"all of it is counted", 100, 3000, 10_000, 88_000, 1000},
		{"none of it is", 800, 3000, 10_000, 98_000, 700},
		{"half of it is", 100, 3000, 10_000, 93_000, 500},
		{"there is too little", 100, 3000, 1999, 50_000, 100},
		{"there is just enough", 100, 3000, 2000, 50_000, 1000},
	} {
		for u, other := range map[int]int{tokens: input, output: input} {
			h := estimate{ahead: v.was}
			c := &call{}
			c.atStart.used[u], c.atStart.outputs = v.used, outputs{v.outputs / 10, v.outputs}
			f := report{}
			f.levels[u] = level{100_000, v.left}
			f.levels[other] = level{7, 7}
			if h.learnAhead(c, &f); h.ahead != v.want {
				t.Errorf("%s, of %s: %d, want %d", v.name, unitNames[u], h.ahead, v.want)
			}
		}
	}
}

// TestLearnCache: what comes from a cache is counted when more is used than is known
// of, and is not when there is no room for it; calls beside it can hide either.
func TestLearnCache(t *testing.T) {
	for _, v := range []struct {
		name          string
		was           bool
		other, beside int64
		want          bool
	}{
		{"more is used", false, 600, 0, true},
		{"half more", false, 500, 0, false},
		{"it was counted, and is", true, -400, 0, true},
		{"it was counted, and is not", true, -500, 0, false},
		{"it was counted, and others hide it", true, -500, 250, true},
		{"others do not hide it", true, -500, 249, false},
	} {
		h := estimate{whole: v.was}
		c := &call{}
		c.atStart.bound[input] = v.beside
		if h.learnCache(c, 1000, v.other); h.whole != v.want {
			t.Errorf("%s: %v", v.name, h.whole)
		}
	}
}

// TestEstimate: calls whose bounds are many times what they take use the minute
// all the same, where the provider counts what is taken; and where it counts
// bounds, they are not refused for it.
func TestEstimate(t *testing.T) {
	for _, v := range []struct {
		name   string
		bounds bool
		least  float64 // of the quota, that is used
	}{{"what is taken", false, 0.85}, {"bounds", true, 0.2}} {
		synctest.Test(t, func(t *testing.T) {
			turns := Turns{Configs: map[string]Config{"p": {Limits: Limits{Tokens: 300_000}}}}
			p := &minutes{epoch: time.Now(), limit: 300_000, bounds: v.bounds}
			end := time.Now().Add(10 * time.Minute)
			var wg sync.WaitGroup
			for i := range 400 {
				wg.Go(func() {
					for time.Now().Before(end) {
						turn := take(t, &turns, Demand{Resource: "p/m", Pid: int64(i), Priority: 10, In: 3000, Out: 8000})
						turn.Release(p.call(900+int64(i%7)*50, 200+int64(i%11)*40, 8000))
					}
				})
			}
			time.Sleep(5 * time.Minute) // it is learned
			p.mu.Lock()
			served, refused := p.served, p.refused
			p.mu.Unlock()
			time.Sleep(5 * time.Minute)
			turns.mu.Lock()
			learned := turns.scheduler.buckets["p/m"].estimate
			turns.mu.Unlock()
			p.mu.Lock()
			used := float64(p.served-served) / 5 / float64(p.limit)
			t.Logf("%s: %.1f %% of the quota is used, %d refused at first and %d later; %+v", v.name, 100*used, refused, p.refused-refused, learned)
			if used < v.least || p.refused-refused > 5 || refused > 40 {
				t.Errorf("%s: %.1f %% of the quota is used, %d refused at first and %d later", v.name, 100*used, refused, p.refused-refused)
			}
			p.mu.Unlock()
			wg.Wait()
			empty(t, &turns)
		})
	}
}

// TestCached: what a provider reads from its cache counts for nothing where it
// says so, so an agent with a long conversation is not kept waiting for a limit
// that it is far from; where it does count it is waited for.
func TestCached(t *testing.T) {
	for _, v := range []struct {
		name        string
		quota       func(left int64) model.Quota
		counts      int64 // of a call, by the provider
		least, most int   // calls in the first half hour
	}{
		{"Anthropic's", func(left int64) model.Quota {
			return model.Quota{At: time.Now(), Input: model.Allowance{Limit: 50_000, Left: left}}
		}, 1000, 320, 360},
		{"an old model of theirs", func(left int64) model.Quota {
			return model.Quota{At: time.Now(), Input: model.Allowance{Limit: 50_000, Left: left}}
		}, 40_000, 25, 32},
		{"OpenAI's", func(left int64) model.Quota {
			return model.Quota{At: time.Now(), Tokens: model.Allowance{Limit: 50_000, Left: left}}
		}, 40_000, 25, 32},
	} {
		synctest.Test(t, func(t *testing.T) {
			var turns Turns
			var there window // what the provider counts
			start := time.Now()
			now := func() int64 { return int64(time.Since(start)) + second }
			n, refused := 0, 0
			for time.Since(start) < 30*time.Minute {
				turn := take(t, &turns, Demand{Resource: "p/m", In: 60_000, Out: 500})
				there.slide(now())
				ok := there.sum[input]+v.counts <= 50_000
				if ok {
					there.add(now(), &amount{1, v.counts, v.counts, 0})
				}
				f := Feedback{Quota: v.quota(50_000 - there.sum[input])}
				if ok {
					n++
					time.Sleep(5 * time.Second)
					f.In, f.Cached, f.Out = 40_000, 39_000, 200
				} else {
					refused++
					f.Status, f.RetryAfter = RateLimited, 10*time.Second
				}
				turn.Release(f)
			}
			t.Logf("%s: %d calls, %d refused", v.name, n, refused)
			if n < v.least || n > v.most || refused > 3 {
				t.Errorf("%s: %d calls in half an hour, want %d to %d; %d refused", v.name, n, v.least, v.most, refused)
			}
		})
	}
}
