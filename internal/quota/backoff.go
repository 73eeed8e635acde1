package quota

import "fmt"

// A Word is what a provider's answer says of how it stands.
type Word uint8

// The words.
const (
	Fine       Word = iota // it answered, or failed for another reason
	Slow                   // 429: slow down
	Overloaded             // 503, 529: too much is asked of it
	Unsent                 // the call was not made
	Failing                // it broke down, or the connection to it
	Gone                   // no connection to it was to be had
	Cut                    // the call was stopped before anything came of it
)

// level is how a limit stands at the provider: so much a minute, and left of it.
type level struct{ limit, left int64 }

// news is what came of a call.
type news struct {
	in, out int64 // tokens it took
	cached  int64 // of in: read from a cache, and perhaps not counted
	word    Word
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
	firstPause = second
	mostPause  = minute / 2
	leastWidth = 1000
	mostMargin = 900
	leastEase  = 50
	sickStep   = 4 // an overload counts as so many calls that went well
	sickBound  = 8
)

// hear learns from what came back of a call.
func (b *bucket) hear(now int64, c *call, f *news) {
	b.learn(now, c, f)
	switch f.word {
	case Fine:
		b.well(now, c)
	case Slow:
		b.strike(now, c, f, whySlow)
	case Overloaded:
		if b.care.sicken(); b.care.sick >= sickBound || f.after > 0 {
			b.strike(now, c, f, whyBusy)
		}
	}
}

// well lets a bucket be used more boldly, slowly.
func (b *bucket) well(now int64, c *call) {
	k := &b.care
	k.sick = max(0, k.sick-1)
	if c.went > k.struck {
		k.strikes = 0
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

// strike pauses a bucket. Answers to calls that went before the last pause say
// nothing new: they were on their way.
func (b *bucket) strike(now int64, c *call, f *news, why string) {
	k := &b.care
	if k.struck > 0 && c.went <= k.struck {
		if f.after > 0 {
			k.pause(now, min(f.after, 24*60*minute), why)
		}
		return
	}
	k.strikes++
	pause := min(firstPause<<min(k.strikes-1, 6), mostPause)
	if f.after > 0 {
		pause = f.after
		if k.strikes > 2 { // what it asks for is not enough
			pause = max(pause, min(firstPause<<min(k.strikes-3, 6), mostPause))
		}
	}
	k.struck, k.why, k.eased = now, why, now
	k.pause(now, pause, why)
	if k.was = max(k.was, k.width); why == whySlow {
		k.was = 0
	}
	for u := range b.due {
		b.due[u] = max(b.due[u], k.paused+burst)
	}
	if f.word == Slow {
		b.narrow(c, f)
	}
	b.thin(f.word == Slow && b.near(c, f))
}

// pause has nothing let through for a while. What passes within a minute is
// waited for, as limits by the minute are; a provider that is overloaded, or that
// asks for longer, is away for those that can go elsewhere.
func (k *care) pause(now, d int64, why string) {
	k.paused = max(k.paused, now+d)
	if why == whyBusy || d > minute {
		k.away = max(k.away, now+d)
	}
}

// near reports whether it was the limit of a minute that was hit, as far as is
// known: one of which less was left than the call takes, or nearly nothing.
func (b *bucket) near(c *call, f *news) bool {
	known := false
	for u := range f.levels {
		if l := f.levels[u]; l.limit > 0 {
			known = true
			if l.left < max(c.weight[u], l.limit/50) {
				return true
			}
		}
	}
	return !known
}

// over says which limit a call is larger than at all: it may take more than a
// minute grants, and was turned away with all of the minute left.
func (b *bucket) over(c *call, f *news) string {
	if f.word != Slow {
		return ""
	}
	told := false
	for u := range f.levels {
		l := f.levels[u]
		if told = told || l.limit > 0; l.limit > 0 && c.weight[u] > l.limit && l.left >= l.limit-l.limit/50 {
			return excess(u, c.weight[u], l.limit)
		}
	}
	for u, limit := range b.set {
		if !told && limit > 0 && c.weight[u] > limit && c.seen.used[u] <= c.guess[u] { // it was alone
			return excess(u, c.weight[u], limit)
		}
	}
	return ""
}

func excess(u int, most, limit int64) string {
	return fmt.Sprintf("it may take %d %s, and %d are granted a minute", most, unitNames[u], limit)
}

// narrow keeps further away from the limit that was hit: that of a minute, or
// that of a moment.
func (b *bucket) narrow(c *call, f *news) {
	k := &b.care
	if b.near(c, f) {
		k.margin = min(mostMargin, max(5, k.margin*2))
	} else {
		k.ease = max(leastEase, k.ease/2)
	}
}

// thin lets fewer calls go at one time after a pause. Where limits by the
// minute are known the slope keeps those that waited from going all at once,
// and only the number that was too many is avoided.
func (b *bucket) thin(rate bool) {
	k := &b.care
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
func (k *care) recovers() bool { return k.width < k.was }

// paced reports whether a limit by the minute is known, here or above.
func (b *bucket) paced() bool {
	for ; b != nil; b = b.up {
		if b.set != (amount{}) || b.told != (amount{}) {
			return true
		}
	}
	return false
}

// spare is how much less than its bound the provider counted of a call when it
// told how its limits stood: nothing of one that it refused, and of an input what
// it read. Of an output it may count the bound until then.
func (c *call) spare(u int, f *news) int64 {
	switch {
	case f.word == Slow:
		return c.weight[u]
	case f.word == Fine && f.in > 0 && (u == input || u == tokens):
		return c.weight[input] - f.in
	}
	return 0
}

// toldFor is how long a limit is remembered of which answers do not tell any more.
const toldFor = 10 * minute

// learn takes over what the provider says of its limits. When less is left than
// we know of having used, somebody else uses the same key, or the provider
// counts otherwise than we do: that is counted as used.
func (b *bucket) learn(now int64, c *call, f *news) {
	b.habit.heard(c, f)
	if f.age > minute {
		return
	}
	for u := range f.levels {
		l := f.levels[u]
		if l.limit <= 0 {
			if f.word == Fine && f.in+f.out > 0 && now-b.heard[u] > toldFor {
				b.told[u] = 0 // whoever told of it does no longer
			}
			continue
		}
		b.told[u], b.heard[u] = l.limit, now
		// Calls that went since may have been counted, or not yet.
		ours := c.seen.most[u] + b.all[u] - c.seen.all[u] - c.spare(u, f)
		other := l.limit - l.left - ours
		if u == input && f.cached > 0 {
			b.habit.warm(c, f.cached, other)
		}
		if other > 0 {
			var a amount
			a[u] = other
			b.window.add(now, &a)
			b.all.add(&a) // the next answer tells of the same
		}
	}
}
