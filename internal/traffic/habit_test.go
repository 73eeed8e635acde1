package traffic

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
		count = weigh(in, bound)
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
		f.Word, f.After = Slow, time.Second
		return f
	}
	time.Sleep(10 * time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window.take(p.now(), came, &count)
	rest := amount{1, in, in, 0}
	p.window.take(p.now(), came, rest.negative())
	p.window.add(p.now(), &amount{0, out, 0, out})
	p.served += in + out
	f.In, f.Out = in, out
	return f
}

// TestHabit: calls whose bounds are many times what they take use the minute
// all the same, where the provider counts what is taken; and where it counts
// bounds, they are not refused for it.
func TestHabit(t *testing.T) {
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
						turn := take(t, &turns, Ask{Resource: "p/m", Pid: int64(i), Priority: 10, In: 3000, Out: 8000})
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
			learned := turns.sched.buckets["p/m"].habit
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
