package quota

import "fmt"

// A Status is the state of a provider as the end of a call shows it.
type Status uint8

// The states.
const (
	Served      Status = iota // the provider answered, or the call failed for another reason
	RateLimited               // 429: slow down
	Overloaded                // 503, 529: too much load
	NotSent                   // the call was not made
	Failing                   // the provider or the connection broke down
	Unreachable               // no connection was possible
	Cut                       // the call was stopped before it showed anything
)

// A level is the provider's own count: the limit of a minute and the rest of
// it.
type level struct{ limit, left int64 }

// A report is [Feedback] within bounds.
type report struct {
	in, out int64 // tokens used
	cached  int64 // of in: read from a cache, and perhaps not counted by the provider
	status  Status
	after   int64        // the wait that the provider asked for; 0: none
	levels  [units]level // from its headers; zero if not stated
	age     int64        // age of the headers
}

// The reasons of a pause.
const (
	whySlow = "asked to slow down"
	whyBusy = "overloaded"
)

// The reaction to a 429 and to an overload.
const (
	firstPause      = second
	mostPause       = minute / 2
	leastWidth      = 1000
	mostMargin      = 900
	breakdownWeight = 4 // one overload outweighs so many successes
	breakdownBound  = 8
)

// apply learns from the end of a call.
func (b *bucket) apply(now int64, c *call, f *report) {
	b.learnLimits(now, c, f)
	switch f.status {
	case Served:
		b.recordSuccess(now, c)
	case RateLimited:
		b.beginPause(now, c, f, whySlow)
	case Overloaded:
		if b.pace.countBreakdown(); b.pace.breakdowns >= breakdownBound || f.after > 0 {
			b.beginPause(now, c, f, whyBusy)
		}
	}
}

// recordSuccess widens the use of a bucket slowly.
func (b *bucket) recordSuccess(now int64, c *call) {
	k := &b.pace
	k.breakdowns = max(0, k.breakdowns-1)
	// A call from before the pause does not show that the pause was long enough.
	if c.startedAt > k.pausedAt {
		k.pauses = 0
	}
	// A success proves room for more only if at least half of the width was in use.
	if full := int64(b.running+1)*2000 >= k.width; full && k.width < k.ceiling {
		if k.width < k.threshold {
			k.width += 1000
		} else {
			// As in TCP: one more call for each full round of answers.
			k.width += 1_000_000 / k.width
		}
	}
	if now-k.relaxedAt >= minute {
		k.relaxedAt = now
		k.margin = k.margin * 3 / 4
		k.ceiling = min(mostWidth*1000, k.ceiling+1000)
	}
}

// beginPause pauses a bucket. Answers to calls that went before the last pause
// say nothing new.
func (b *bucket) beginPause(now int64, c *call, f *report, why string) {
	k := &b.pace
	// A burst of refusals has one cause. Counting each of them would double the pause many times.
	if k.pausedAt > 0 && c.startedAt <= k.pausedAt {
		if f.after > 0 {
			k.pause(now, min(f.after, 24*60*minute), why)
		}
		return
	}
	k.pauses++
	pause := min(firstPause<<min(k.pauses-1, 6), mostPause)
	if f.after > 0 {
		pause = f.after
		if k.pauses > 2 { // the asked wait was not enough
			pause = max(pause, min(firstPause<<min(k.pauses-3, 6), mostPause))
		}
	}
	k.pausedAt, k.why, k.relaxedAt = now, why, now
	k.pause(now, pause, why)
	if k.before = max(k.before, k.width); why == whySlow {
		k.before = 0
	}
	// After the pause the burst begins empty, so the waiting calls go one by one.
	for u := range b.levelAt {
		b.levelAt[u] = max(b.levelAt[u], k.paused+burst)
	}
	minuteFull := f.status == RateLimited && b.hitMinuteLimit(c, f)
	if minuteFull {
		k.margin = min(mostMargin, max(5, k.margin*2))
	}
	b.narrowWidth(minuteFull)
}

// pause stops all calls for a while. Calls wait for a pause of up to a minute,
// because limits by the minute pass. For a longer one, or after an overload,
// calls with a fallback go there.
func (k *pace) pause(now, d int64, why string) {
	k.paused = max(k.paused, now+d)
	if why == whyBusy || d > minute {
		k.fallbackUntil = max(k.fallbackUntil, now+d)
	}
}

// hitMinuteLimit guesses whether a 429 came from a limit by the minute: less
// was left than the call needs, or nearly nothing. Without headers it says yes.
func (b *bucket) hitMinuteLimit(c *call, f *report) bool {
	known := false
	for u := range f.levels {
		if l := f.levels[u]; l.limit > 0 {
			known = true
			if l.left < max(c.bound[u], l.limit/50) {
				return true
			}
		}
	}
	return !known
}

// exceededLimit names the limit that a call exceeds on its own: the call was
// refused although the whole minute was left.
func (b *bucket) exceededLimit(c *call, f *report) string {
	if f.status != RateLimited {
		return ""
	}
	stated := false // by the provider
	for u := range f.levels {
		l := f.levels[u]
		// The whole minute was left and the call was refused, so no later minute would serve it.
		if stated = stated || l.limit > 0; l.limit > 0 && c.bound[u] > l.limit && l.left >= l.limit-l.limit/50 {
			return excess(u, c.bound[u], l.limit)
		}
	}
	for u, limit := range b.configured {
		if !stated && limit > 0 && c.bound[u] > limit && c.atStart.used[u] <= c.counted[u] { // no other call ran
			return excess(u, c.bound[u], limit)
		}
	}
	return ""
}

func excess(u int, most, limit int64) string {
	return fmt.Sprintf("it may take %d %s, and %d are granted a minute", most, unitNames[u], limit)
}

// narrowWidth lets fewer calls run at one time after a pause. If limits by the
// minute are known, the burst already spreads the waiting calls, and only the
// number that was too large is avoided.
func (b *bucket) narrowWidth(rate bool) {
	k := &b.pace
	now := int64(b.running+1) * 1000
	if b.running > 0 { // else their number was not the reason
		k.threshold = max(leastWidth, min(k.width, now)/2)
	}
	switch {
	case !b.paced():
		k.width = leastWidth
	// The margin already answers a limit by the minute.
	case rate:
	case k.why == whySlow:
		k.ceiling = max(leastWidth, now-1000)
		k.width = min(k.width, k.ceiling)
	default:
		k.width = min(k.width, k.threshold)
	}
}

// recovers reports whether the width is still below the width before the
// overload.
func (k *pace) recovers() bool { return k.width < k.before }

// paced reports whether a limit by the minute is known, here or above.
func (b *bucket) paced() bool {
	for ; b != nil; b = b.parent {
		if b.configured != (amount{}) || b.learned != (amount{}) {
			return true
		}
	}
	return false
}

// uncounted returns how much less than the bound the provider had counted when
// it sent its headers. It counts nothing of a call that it refused, and the
// real input of one that it read. It may count the bound of an output until the
// end.
func (c *call) uncounted(u int, f *report) int64 {
	switch {
	case f.status == RateLimited:
		return c.bound[u]
	case f.status == Served && f.in > 0 && (u == input || u == tokens):
		return c.bound[input] - f.in
	}
	return 0
}

// learnedFor is how long a limit stays known after the answers stop stating it.
const learnedFor = 10 * minute

// learnLimits takes the limits from the provider's headers. If less is left
// than this kernel used, others use the same key, or the provider counts
// differently: the difference counts as used.
func (b *bucket) learnLimits(now int64, c *call, f *report) {
	b.estimate.learnAhead(c, f)
	// Older headers describe a minute that is over.
	if f.age > minute {
		return
	}
	for u := range f.levels {
		l := f.levels[u]
		if l.limit <= 0 {
			if f.status == Served && f.in+f.out > 0 && now-b.learnedAt[u] > learnedFor {
				b.learned[u] = 0 // the provider no longer states it
			}
			continue
		}
		b.learned[u], b.learnedAt[u] = l.limit, now
		// Calls that started since may be in the provider's count or not.
		ours := c.atStart.bound[u] + b.total[u] - c.atStart.total[u] - c.uncounted(u, f)
		other := l.limit - l.left - ours
		if u == input && f.cached > 0 {
			b.estimate.learnCache(c, f.cached, other)
		}
		if other > 0 {
			var a amount
			a[u] = other
			b.window.add(now, &a)
			b.total.add(&a) // the next answer includes it too
		}
	}
}
