package mockprovider

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/kern-run/kern/model"
)

// Limits are what a provider grants one key. Zero is no limit. Requests and
// tokens are for each model, in any sixty seconds; concurrency and bans are for
// the key.
type Limits struct {
	Requests    int64 // a minute
	Tokens      int64 // in and out together, a minute
	Input       int64 // tokens a minute
	Output      int64 // tokens a minute
	Concurrency int

	// Burst is the share of a minute's limit that may be used in any one
	// second. A single request is always let through a quiet second. 0: all.
	Burst float64

	Ban int // a key with so many 429s in a minute is refused from then on
}

const minute = time.Minute

// A window holds what was used in the last minute, entry by entry: a real
// sliding window, no approximation. It is a function of the times it is given.
type window struct {
	limit   int64
	slope   int64 // the most in a second; 0: no bound
	entries []*use
	sum     int64 // of entries
	young   int   // where those of the last second begin
	rush    int64 // their sum
}

// A use is one entry. It can be corrected as long as it counts.
type use struct {
	at        time.Time
	n         int64
	in, fresh bool // it counts in the minute, in the second
}

func newWindow(limit int64, burst float64) *window {
	w := &window{limit: limit}
	if burst > 0 && burst < 1 {
		w.slope = max(1, int64(math.Ceil(float64(limit)*burst)))
	}
	return w
}

// slide forgets what is a minute old.
func (w *window) slide(now time.Time) {
	for ; w.young < len(w.entries) && now.Sub(w.entries[w.young].at) >= time.Second; w.young++ {
		u := w.entries[w.young]
		w.rush -= u.n
		u.fresh = false
	}
	gone := 0
	for ; gone < len(w.entries) && now.Sub(w.entries[gone].at) >= minute; gone++ {
		u := w.entries[gone]
		w.sum -= u.n
		u.in = false
	}
	if gone > 0 {
		w.entries = w.entries[gone:]
		w.young -= gone
	}
}

// room is how long n must wait: nothing when it may go now.
func (w *window) room(now time.Time, n int64) time.Duration {
	w.slide(now)
	if n > w.limit {
		return minute // it never will fit
	}
	wait := until(now, w.entries, minute, w.sum+n-w.limit)
	if w.slope > 0 && w.rush > 0 {
		wait = max(wait, until(now, w.entries[w.young:], time.Second, min(w.rush+n-w.slope, w.rush)))
	}
	return wait
}

// until is when entries that sum up to over have left a window.
func until(now time.Time, entries []*use, span time.Duration, over int64) time.Duration {
	for _, u := range entries {
		if over <= 0 {
			break
		}
		if over -= u.n; over <= 0 {
			return max(u.at.Add(span).Sub(now), time.Nanosecond)
		}
	}
	return 0
}

func (w *window) add(now time.Time, n int64) *use {
	u := &use{at: now, n: n, in: true, fresh: true}
	w.entries = append(w.entries, u)
	w.sum, w.rush = w.sum+n, w.rush+n
	return u
}

// correct gives an entry its true size.
func (w *window) correct(u *use, n int64) {
	if u.in {
		w.sum += n - u.n
	}
	if u.fresh {
		w.rush += n - u.n
	}
	u.n = n
}

// left is what may still be used, and in how long all may be.
func (w *window) left(now time.Time) level {
	w.slide(now)
	l := level{limit: w.limit, left: max(0, w.limit-w.sum)}
	if n := len(w.entries); n > 0 {
		l.reset = w.entries[n-1].at.Add(minute).Sub(now)
	}
	return l
}

// A level is how a limit stands, for the headers.
type level struct {
	limit, left int64
	reset       time.Duration
}

// levels are by what is limited; absent is unlimited.
type levels map[string]level

// What is limited.
const (
	requests     = "requests"
	allTokens    = "tokens"
	inputTokens  = "input-tokens"
	outputTokens = "output-tokens"
	concurrent   = "concurrency"
)

// gates keep the limits of all keys.
type gates struct {
	limits Limits

	mu      sync.Mutex
	windows map[[2]string]map[string]*window // by key and model
	busy    map[string]int                   // by key
	strikes map[string][]time.Time           // the last 429s of a key, until it is banned
	out     map[string]bool                  // banned
}

// A ticket is a request that was let in.
type ticket struct {
	key  string
	all  map[string]*window
	uses map[string]*use
}

// An excess is a limit that is reached.
type excess struct {
	what  string
	level level
	n     int64
	wait  time.Duration
}

func (e *excess) problem(model string) *problem {
	return &problem{
		status: http.StatusTooManyRequests, kind: rateLimited, wait: e.wait, what: e.what, never: e.n > e.level.limit,
		message: fmt.Sprintf("rate limit reached for %s: %s: limit %d, left %d, asked %d; try again in %s", model, e.what, e.level.limit, e.level.left, e.n, e.wait.Round(time.Millisecond)),
	}
}

// enter lets a request in that will use so much, or says which limit is in the
// way. What is refused uses nothing.
func (g *gates) enter(key, model string, now time.Time, input, output int64) (*ticket, levels, *excess) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.of(key, model)
	amounts := map[string]int64{requests: 1, allTokens: input + output, inputTokens: input, outputTokens: output}
	var over *excess
	for what, w := range all {
		if wait := w.room(now, amounts[what]); wait > 0 && (over == nil || wait > over.wait) {
			over = &excess{what, w.left(now), amounts[what], wait}
		}
	}
	if most := g.limits.Concurrency; over == nil && most > 0 && g.busy[key] >= most {
		over = &excess{concurrent, level{limit: int64(most)}, 1, time.Second}
	}
	if over != nil {
		return nil, stand(all, now), over
	}
	if g.busy == nil {
		g.busy = map[string]int{}
	}
	g.busy[key]++
	t := &ticket{key: key, all: all, uses: map[string]*use{}}
	for what, w := range all {
		t.uses[what] = w.add(now, amounts[what])
	}
	return t, stand(all, now), nil
}

// leave ends a request, and puts what it used in place of what it asked for.
func (g *gates) leave(t *ticket, u model.Usage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy[t.key]--
	in := u.Input + u.CacheRead + u.CacheWrite
	for what, n := range map[string]int64{allTokens: in + u.Output, inputTokens: in, outputTokens: u.Output} {
		if w := t.all[what]; w != nil {
			w.correct(t.uses[what], n)
		}
	}
}

func (g *gates) of(key, model string) map[string]*window {
	all := g.windows[[2]string{key, model}]
	if all != nil {
		return all
	}
	all = map[string]*window{}
	l := g.limits
	for what, n := range map[string]int64{requests: l.Requests, allTokens: l.Tokens, inputTokens: l.Input, outputTokens: l.Output} {
		if n > 0 {
			all[what] = newWindow(n, l.Burst)
		}
	}
	if g.windows == nil {
		g.windows = map[[2]string]map[string]*window{}
	}
	g.windows[[2]string{key, model}] = all
	return all
}

func stand(all map[string]*window, now time.Time) levels {
	l := levels{}
	for what, w := range all {
		l[what] = w.left(now)
	}
	return l
}

// refused counts a 429.
func (g *gates) refused(key string, now time.Time) {
	if g.limits.Ban <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.strikes == nil {
		g.strikes, g.out = map[string][]time.Time{}, map[string]bool{}
	}
	s := append(g.strikes[key], now)
	for now.Sub(s[0]) >= minute {
		s = s[1:]
	}
	g.strikes[key] = s
	if len(s) >= g.limits.Ban {
		g.out[key] = true
		delete(g.strikes, key)
	}
}

func (g *gates) banned(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out[key]
}
