package quota

import "fmt"

// A Status is what a provider's answer says of how it stands.
type Status uint8

// The words.
const (
	Served      Status = iota // it answered, or failed for another reason
	RateLimited               // 429: slow down
	Overloaded                // 503, 529: too much is asked of it
	NotSent                   // the call was not made
	Failing                   // it broke down, or the connection to it
	Unreachable               // no connection to it was to be had
	Cut                       // the call was stopped before anything came of it
)

// level is how a limit stands at the provider: so much a minute, and left of it.
type level struct{ limit, left int64 }

// report is what came of a call.
type report struct {
	in, out int64 // tokens it took
	cached  int64 // of in: read from a cache, and perhaps not counted
	status  Status
	after   int64        // that the provider asked to wait; 0: it did not say
	levels  [units]level // from its headers; zero where it said nothing
	age     int64        // since the headers came
}

// Why a bucket is paused.
const (
	whySlow = "asked to slow down"
	whyBusy = "overloaded"
)

// How a bucket answers to being turned away.
const (
	firstPause      = second
	mostPause       = minute / 2
	leastWidth      = 1000
	mostMargin      = 900
	leastEase       = 50
	breakdownWeight = 4 // an overload counts as so many calls that went well
	breakdownBound  = 8
)

// hear learns from what came back of a call.
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

// well lets a bucket be used more boldly, slowly.
func (b *bucket) recordSuccess(now int64, c *call) {
	k := &b.pace
	k.breakdowns = max(0, k.breakdowns-1)
	if c.startedAt > k.pausedAt {
		k.pauses = 0
	}
	if full := int64(b.running+1)*2000 >= k.width; full && k.width < k.ceiling {
		if k.width < k.threshold {
			k.width += 1000
		} else {
			k.width += 1_000_000 / k.width
		}
	}
	if now-k.eased >= minute {
		k.eased = now
		k.margin = k.margin * 3 / 4
		k.ease = min(1000, k.ease*5/4)
		k.ceiling = min(mostWidth*1000, k.ceiling+1000)
	}
}

// beginPause pauses a bucket. Answers to calls that went before the last pause say
// nothing new: they were on their way.
func (b *bucket) beginPause(now int64, c *call, f *report, why string) {
	k := &b.pace
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
		if k.pauses > 2 { // what it asks for is not enough
			pause = max(pause, min(firstPause<<min(k.pauses-3, 6), mostPause))
		}
	}
	k.pausedAt, k.why, k.eased = now, why, now
	k.pause(now, pause, why)
	if k.was = max(k.was, k.width); why == whySlow {
		k.was = 0
	}
	for u := range b.levelAt {
		b.levelAt[u] = max(b.levelAt[u], k.paused+burst)
	}
	if f.status == RateLimited {
		b.keepFurther(c, f)
	}
	b.narrowWidth(f.status == RateLimited && b.hitMinuteLimit(c, f))
}

// pause has nothing let through for a while. What passes within a minute is
// waited for, as limits by the minute are; a provider that is overloaded, or that
// asks for longer, is away for those that can go elsewhere.
func (k *pace) pause(now, d int64, why string) {
	k.paused = max(k.paused, now+d)
	if why == whyBusy || d > minute {
		k.fallbackUntil = max(k.fallbackUntil, now+d)
	}
}

// near reports whether it was the limit of a minute that was hit, as far as is
// known: one of which less was left than the call takes, or nearly nothing.
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

// over says which limit a call is larger than at all: it may take more than a
// minute grants, and was turned away with all of the minute left.
func (b *bucket) exceededLimit(c *call, f *report) string {
	if f.status != RateLimited {
		return ""
	}
	told := false
	for u := range f.levels {
		l := f.levels[u]
		if told = told || l.limit > 0; l.limit > 0 && c.bound[u] > l.limit && l.left >= l.limit-l.limit/50 {
			return excess(u, c.bound[u], l.limit)
		}
	}
	for u, limit := range b.configured {
		if !told && limit > 0 && c.bound[u] > limit && c.atStart.used[u] <= c.counted[u] { // it was alone
			return excess(u, c.bound[u], limit)
		}
	}
	return ""
}

func excess(u int, most, limit int64) string {
	return fmt.Sprintf("it may take %d %s, and %d are granted a minute", most, unitNames[u], limit)
}

// narrow keeps further away from the limit that was hit: that of a minute, or
// that of a moment.
func (b *bucket) keepFurther(c *call, f *report) {
	k := &b.pace
	if b.hitMinuteLimit(c, f) {
		k.margin = min(mostMargin, max(5, k.margin*2))
	} else {
		k.ease = max(leastEase, k.ease/2)
	}
}

// thin lets fewer calls go at one time after a pause. Where limits by the
// minute are known the slope keeps those that waited from going all at once,
// and only the number that was too many is avoided.
func (b *bucket) narrowWidth(rate bool) {
	k := &b.pace
	now := int64(b.running+1) * 1000
	if b.running > 0 { // else it was not their number
		k.threshold = max(leastWidth, min(k.width, now)/2)
	}
	switch {
	case !b.paced():
		k.width = leastWidth
	case rate:
	case k.why == whySlow:
		k.ceiling = max(leastWidth, now-1000)
		k.width = min(k.width, k.ceiling)
	default:
		k.width = min(k.width, k.threshold)
	}
}

// recovers says that a bucket takes fewer calls at one time than it did before
// it was overloaded.
func (k *pace) recovers() bool { return k.width < k.was }

// paced reports whether a limit by the minute is known, here or above.
func (b *bucket) paced() bool {
	for ; b != nil; b = b.parent {
		if b.configured != (amount{}) || b.learned != (amount{}) {
			return true
		}
	}
	return false
}

// spare is how much less than its bound the provider counted of a call when it
// told how its limits stood: nothing of one that it refused, and of an input what
// it read. Of an output it may count the bound until then.
func (c *call) uncounted(u int, f *report) int64 {
	switch {
	case f.status == RateLimited:
		return c.bound[u]
	case f.status == Served && f.in > 0 && (u == input || u == tokens):
		return c.bound[input] - f.in
	}
	return 0
}

// learnedFor is how long a limit is remembered of which answers do not tell any more.
const learnedFor = 10 * minute

// learn takes over what the provider says of its limits. When less is left than
// we know of having used, somebody else uses the same key, or the provider
// counts otherwise than we do: that is counted as used.
func (b *bucket) learnLimits(now int64, c *call, f *report) {
	b.estimate.learnAhead(c, f)
	if f.age > minute {
		return
	}
	for u := range f.levels {
		l := f.levels[u]
		if l.limit <= 0 {
			if f.status == Served && f.in+f.out > 0 && now-b.learnedAt[u] > learnedFor {
				b.learned[u] = 0 // whoever told of it does no longer
			}
			continue
		}
		b.learned[u], b.learnedAt[u] = l.limit, now
		// Calls that went since may have been counted, or not yet.
		ours := c.atStart.bound[u] + b.total[u] - c.atStart.total[u] - c.uncounted(u, f)
		other := l.limit - l.left - ours
		if u == input && f.cached > 0 {
			b.estimate.learnCache(c, f.cached, other)
		}
		if other > 0 {
			var a amount
			a[u] = other
			b.window.add(now, &a)
			b.total.add(&a) // the next answer tells of the same
		}
	}
}
