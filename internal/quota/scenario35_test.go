package quota

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// sizes are what calls take: input and output tokens. The output is bounded at
// twice of that when a call asks for its turn.
var sizes = [][2]int64{{40, 10}, {90, 30}, {110, 50}, {260, 74}, {300, 100}, {20, 5}, {150, 60}, {50, 27}}

// crowd is many processes of several owners at one provider, in virtual time.
type crowd struct {
	t     *testing.T
	mock  *mockprovider.Mock
	turns *Turns
	until time.Time
	mute  bool  // the provider's headers say nothing of its limits
	loose int64 // by how many tokens the bound of each input of a process is above the last one's

	mu    sync.Mutex
	steps map[int64]int64  // calls that a process made
	took  map[string]int64 // tokens, by owner
	each  map[int]int64    // by process
	waits []time.Duration
}

func newProvider(t *testing.T, l mockprovider.Limits, latency string) *mockprovider.Mock {
	t.Helper()
	var script strings.Builder
	script.WriteString("repeat: true\nreplies:\n")
	for _, s := range sizes {
		fmt.Fprintf(&script, "  - {text: x, usage: {input: %d, output: %d}}\n", s[0], s[1])
	}
	m, err := model.ParseScript("sizes", []byte(script.String()))
	if err != nil {
		t.Fatal(err)
	}
	spread, err := mockprovider.ParseSpread(latency)
	if err != nil {
		t.Fatal(err)
	}
	return mockprovider.New(mockprovider.Config{Script: m, Limits: l, Latency: spread, Seed: 1})
}

// call makes one call of a size, under a turn, as often as it takes.
func (c *crowd) call(a Demand, kind int) (took int64) {
	s := sizes[kind]
	a.Resource, a.In, a.Out = "p/m", s[0], 2*s[1]
	if c.loose > 0 {
		c.mu.Lock()
		n := c.steps[a.Pid]
		c.steps[a.Pid] = n + 1
		c.mu.Unlock()
		a.In, a.Out = 500+n*c.loose, 200
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"go"}`, a.Out)
	for range kind { // the number of answers so far chooses the reply
		body.WriteString(`,{"role":"assistant","content":"x"},{"role":"user","content":"go"}`)
	}
	body.WriteString(`]}`)
	for {
		turn, err := c.turns.Acquire(c.t.Context(), a)
		if err != nil {
			c.t.Error(err)
			return 0
		}
		w := httptest.NewRecorder()
		c.mock.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", bytes.NewReader(body.Bytes())))
		f := Feedback{}
		if !c.mute {
			f.Quota = format.ReadQuota(w.Header(), time.Now())
		}
		switch w.Code {
		case http.StatusOK:
			f.In, f.Out = s[0], s[1]
			turn.Release(f)
			return s[0] + s[1]
		case http.StatusTooManyRequests:
			f.Status, f.RetryAfter = RateLimited, format.RetryAfter(w.Header(), time.Now())
			turn.Release(f)
		default:
			c.t.Errorf("%d %s", w.Code, w.Body)
			turn.Release(f)
			return 0
		}
	}
}

// process calls in a loop, with a new call as soon as the last is answered.
func (c *crowd) process(owner string, pid int) {
	r := rand.New(rand.NewPCG(35, uint64(pid)))
	for time.Now().Before(c.until) {
		n := c.call(Demand{Owner: owner, Pid: int64(pid), Priority: 10}, r.IntN(len(sizes)))
		c.mu.Lock()
		c.took[owner] += n
		c.each[pid] += n
		c.mu.Unlock()
	}
}

// TestToldNothing: a provider of which nothing is known, and which tells nothing
// but 429, is used well enough, and refuses few.
func TestToldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, mock: newProvider(t, mockprovider.Limits{Requests: 3000}, "500ms±300ms"), turns: &Turns{}, mute: true, took: map[string]int64{}, each: map[int]int64{}}
		c.until = time.Now().Add(10 * time.Minute)
		var wg sync.WaitGroup
		for pid := range 100 {
			wg.Go(func() { c.process("a", pid) })
		}
		wg.Wait()
		s := c.mock.Stats()
		bad, used := float64(s.Refused)/float64(s.Requests), float64(s.OK)/10/3000
		t.Logf("%d requests, %.2f %% of them 429, %.1f %% of the quota used", s.Requests, 100*bad, 100*used)
		if bad > 0.02 || used < 0.7 {
			t.Errorf("%.2f %% of the requests got a 429, %.1f %% of the quota is used", 100*bad, 100*used)
		}
		empty(t, c.turns)
	})
}

// jain is 1 when all have the same, and 1/n when one has all.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum, squares = sum+s, squares+s*s
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// TestScenario35 lets 512 processes of eight owners, some with three times as
// many as others, loose on a provider of 9,000 requests and 1.5 M tokens a
// minute, and an urgent one among them.
func TestScenario35(t *testing.T) {
	for _, v := range []struct {
		name   string
		limits mockprovider.Limits
		known  bool // limits are configured; else they are learned from headers
		minute int
		loose  int64
	}{
		{"configured", mockprovider.Limits{Requests: 9000, Tokens: 1_500_000}, true, 3, 0},
		{"by the second", mockprovider.Limits{Requests: 9000, Tokens: 1_500_000, Burst: 0.05}, true, 2, 0},
		{"bounds are loose", mockprovider.Limits{Requests: 9000, Tokens: 1_500_000, Burst: 0.05}, true, 3, 60},
		{"tokens are scarce", mockprovider.Limits{Requests: 9000, Tokens: 600_000}, true, 3, 0},
		{"learned", mockprovider.Limits{Requests: 9000, Tokens: 1_500_000, Burst: 0.05}, false, 2, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { scenario35(t, v.limits, v.known, v.minute, v.loose) })
		})
	}
}

func scenario35(t *testing.T, l mockprovider.Limits, known bool, minutes int, loose int64) {
	c := &crowd{t: t, loose: loose, steps: map[int64]int64{}, mock: newProvider(t, l, "500ms±300ms"), turns: &Turns{}, took: map[string]int64{}, each: map[int]int64{}}
	if known {
		c.turns.Configs = map[string]Config{"p": {Limits: Limits{Requests: l.Requests, Tokens: l.Tokens}}}
	}
	var idle []time.Duration
	timed := func(into *[]time.Duration) {
		start := time.Now()
		c.call(Demand{Owner: "urgent", Pid: -1}, 2)
		*into = append(*into, time.Since(start))
	}
	for range 20 {
		timed(&idle)
	}
	if os.Getenv("KERN_SOAK") != "" {
		minutes *= 5
	}
	c.until = time.Now().Add(time.Duration(minutes) * time.Minute)
	var wg sync.WaitGroup
	procs := map[string][]int{}
	for pid := range 512 {
		owner := fmt.Sprint("owner ", pid%8)
		if pid < 64 {
			owner = "owner 7" // which has twice as many as others
		}
		procs[owner] = append(procs[owner], pid)
		wg.Go(func() { c.process(owner, pid) })
	}
	var busy []time.Duration
	time.Sleep(time.Minute) // the first minute fills the window; the quota is measured after it
	before, since := c.mock.Stats(), time.Now()
	for time.Now().Before(c.until) {
		timed(&busy)
		time.Sleep(time.Second)
	}
	after, n := c.mock.Stats(), time.Since(since).Minutes() // the last urgent call may have ended later than planned
	wg.Wait()
	reqs, toks := float64(after.OK-before.OK)/n/float64(l.Requests), float64(after.Input+after.Output-before.Input-before.Output)/n/float64(l.Tokens)
	used := max(reqs, toks)
	bad := float64(after.Refused) / float64(after.Requests)
	var owners, worst []float64
	for o, n := range c.took {
		owners = append(owners, float64(n))
		var of []float64
		for _, p := range procs[o] {
			of = append(of, float64(c.each[p]))
		}
		worst = append(worst, jain(of))
	}
	slices.Sort(idle)
	slices.Sort(busy)
	p95 := func(d []time.Duration) time.Duration { return d[len(d)*95/100] }
	t.Logf("%d requests, %d of them 429 (%.4f %%), quota used %.2f %% of requests, %.2f %% of tokens; fairness of owners %.4f, of processes %.4f; urgent p95 %s, idle %s",
		after.Requests, after.Refused, 100*bad, 100*reqs, 100*toks, jain(owners), slices.Min(worst), p95(busy), p95(idle))
	if bad >= 0.001 {
		t.Errorf("%.3f %% of the requests got a 429", 100*bad)
	}
	if used <= 0.95 || used > 1.01 {
		t.Errorf("%.1f %% of the quota is used", 100*used)
	}
	if jain(owners) < 0.99 || slices.Min(worst) < 0.95 {
		t.Errorf("shares are not fair: %v, within an owner %v", owners, worst)
	}
	if p95(busy) > 2*p95(idle) {
		t.Errorf("an urgent call took %s, on an idle system %s", p95(busy), p95(idle))
	}
	empty(t, c.turns)
}
