package mockprovider

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/kern-run/kern/model"
)

// Limits are the limits of one key. Zero is no limit. Requests and tokens count
// for each model in any sixty seconds; concurrency and bans count for the key.
type Limits struct {
	Requests    int64 // a minute
	Tokens      int64 // input and output together, a minute
	Input       int64 // tokens a minute
	Output      int64 // tokens a minute
	Concurrency int

	// Burst is the part of a minute's limit that one second may use. A single
	// request always passes in a quiet second. 0: all of it.
	Burst float64

	Ban int // a key with this many 429s in a minute is refused from then on
}

const minute = time.Minute

// A window holds the use of the last minute, entry by entry, without
// approximation. It depends only on the times it is given.
type window struct {
	limit     int64
	perSecond int64 // the most in a second; 0: no bound
	entries   []*use
	sum       int64 // of entries
	recent    int   // index of the first entry of the last second
	recentSum int64 // their sum
}

// A use is one entry. It can be corrected while it counts.
type use struct {
	at        time.Time
	n         int64
	in, fresh bool // it counts in the minute; in the second
}

func newWindow(limit int64, burst float64) *window {
	w := &window{limit: limit}
	if burst > 0 && burst < 1 {
		w.perSecond = max(1, int64(math.Ceil(float64(limit)*burst)))
	}
	return w
}

// slide drops entries that are older than a minute.
func (w *window) slide(now time.Time) {
	for ; w.recent < len(w.entries) && now.Sub(w.entries[w.recent].at) >= time.Second; w.recent++ {
		u := w.entries[w.recent]
		w.recentSum -= u.n
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
		w.recent -= gone
	}
}

// room returns how long n must wait; 0 if it may go now.
func (w *window) room(now time.Time, n int64) time.Duration {
	w.slide(now)
	if n > w.limit {
		return minute // it can never fit
	}
	wait := until(now, w.entries, minute, w.sum+n-w.limit)
	if w.perSecond > 0 && w.recentSum > 0 {
		wait = max(wait, until(now, w.entries[w.recent:], time.Second, min(w.recentSum+n-w.perSecond, w.recentSum)))
	}
	return wait
}

// until returns when entries that sum up to over have left a window.
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
	w.sum, w.recentSum = w.sum+n, w.recentSum+n
	return u
}

// correct replaces the size of an entry.
func (w *window) correct(u *use, n int64) {
	if u.in {
		w.sum += n - u.n
	}
	if u.fresh {
		w.recentSum += n - u.n
	}
	u.n = n
}

// left returns what is left of the limit and when all of it is back.
func (w *window) left(now time.Time) level {
	w.slide(now)
	l := level{limit: w.limit, left: max(0, w.limit-w.sum)}
	if n := len(w.entries); n > 0 {
		l.reset = w.entries[n-1].at.Add(minute).Sub(now)
	}
	return l
}

// A level is the state of a limit, for the headers.
type level struct {
	limit, left int64
	reset       time.Duration
}

// levels are by name of the limit; an absent one is unlimited.
type levels map[string]level

// The names of the limits.
const (
	requests     = "requests"
	allTokens    = "tokens"
	inputTokens  = "input-tokens"
	outputTokens = "output-tokens"
	concurrent   = "concurrency"
)

// A limiter keeps the limits of all keys.
type limiter struct {
	limits Limits

	mu         sync.Mutex
	windows    map[[2]string]map[string]*window // by key and model
	busy       map[string]int                   // by key
	refusals   map[string][]time.Time           // the last 429s of a key, until it is banned
	bannedKeys map[string]bool
}

// A ticket is a request within the limits.
type ticket struct {
	key  string
	all  map[string]*window
	uses map[string]*use
}

// An excess is a limit that a request would exceed.
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

// enter counts a request against the limits, or returns the limit that it would
// exceed. A refused request uses nothing.
func (g *limiter) enter(key, model string, now time.Time, input, output int64) (*ticket, levels, *excess) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.windowsOf(key, model)
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
		return nil, levelsOf(all, now), over
	}
	if g.busy == nil {
		g.busy = map[string]int{}
	}
	g.busy[key]++
	t := &ticket{key: key, all: all, uses: map[string]*use{}}
	for what, w := range all {
		t.uses[what] = w.add(now, amounts[what])
	}
	return t, levelsOf(all, now), nil
}

// leave ends a request and replaces its bound by its usage.
func (g *limiter) leave(t *ticket, u model.Usage) {
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

func (g *limiter) windowsOf(key, model string) map[string]*window {
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

func levelsOf(all map[string]*window, now time.Time) levels {
	l := levels{}
	for what, w := range all {
		l[what] = w.left(now)
	}
	return l
}

// countRefusal counts a 429, and bans a key with too many.
func (g *limiter) countRefusal(key string, now time.Time) {
	if g.limits.Ban <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusals == nil {
		g.refusals, g.bannedKeys = map[string][]time.Time{}, map[string]bool{}
	}
	s := append(g.refusals[key], now)
	for now.Sub(s[0]) >= minute {
		s = s[1:]
	}
	g.refusals[key] = s
	if len(s) >= g.limits.Ban {
		g.bannedKeys[key] = true
		delete(g.refusals, key)
	}
}

func (g *limiter) banned(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bannedKeys[key]
}
