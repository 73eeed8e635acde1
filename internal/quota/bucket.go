package quota

// A bucket is one thing that has limits: a provider, a key there, or a model
// for that key. What a model's bucket lets through, those above it let through.
type bucket struct {
	name string
	up   *bucket
	line *line  // who waits; of a model's bucket alone
	kin  *party // owners and how much they had; of a key's bucket

	set     amount // configured
	told    amount // by the provider,
	heard   amount // and when it did last
	most    int    // calls at one time; 0: as the width says
	running int
	below   int // buckets below

	window window
	due    amount // when the slope of each unit will be level again
	open   amount // what calls that run may take at most, beyond what is counted of them
	writes flight
	all    amount // what all calls that went might have taken at most, and what others took
	care   care
	rest   rest

	habit   habit
	blocked map[*bucket]bool // models whose next call waits for room here
	closed  uint64           // the round of looking in which there was none
}

// How carefully a bucket is used follows from what came back.
type care struct {
	width     int64 // calls at one time, in thousandths
	ceiling   int64 // as wide as it may get
	was       int64 // width before it was overloaded
	threshold int64 // below it the width doubles with each round trip, above it grows by one

	margin int64 // of the limits, in thousandths: kept free as far as was needed
	ease   int64 // of the burst, in thousandths
	eased  int64 // when margin and ease were last relaxed

	paused  int64 // until then nothing is let through
	away    int64 // until then who can go elsewhere does
	struck  int64 // when the last pause was ordered
	strikes int   // pauses since something went well
	sick    int   // how often it was overloaded lately
	why     string
}

// How many calls go to a provider of which nothing is known at one time, at
// first and at most.
const (
	firstWidth = 32
	mostWidth  = 1024
)

// The slope: within a moment no more is used than the limit grants in burst, or
// a few small calls where that is less. Providers that count by the minute
// often count by the second as well.
const (
	burst       = second / 4
	smallBurst  = 15 * second
	keenBurst   = second // more, for urgent calls
	fewRequests = 4
	fewTokens   = 20_000
)

// kept is the share of a limit, in thousandths, that is kept for urgent calls,
// and keptSlots the share of the calls at one time where there are many.
const (
	kept      = 15
	keptSlots = 16
)

func newBucket(name string, up *bucket, l Limits) *bucket {
	b := &bucket{name: name, up: up, set: l.amount(), most: l.Concurrency}
	b.care = care{width: firstWidth * 1000, ceiling: mostWidth * 1000, threshold: mostWidth * 1000, ease: 1000}
	b.habit = habit{in: measure{mean: 1000}, out: measure{mean: 1000}, ahead: 1000}
	if up != nil {
		up.below++
	}
	for x := b; x != nil; x = x.up {
		if x.most > 0 {
			b.care.width = int64(x.most) * 1000
			return b
		}
		if x.set != (amount{}) {
			b.care.width = mostWidth * 1000
		}
	}
	return b
}

// idle reports whether nothing is lost when the bucket is forgotten.
func (b *bucket) idle(now int64) bool {
	b.window.slide(now)
	return b.running == 0 && b.below == 0 && (b.line == nil || b.line.waiting == 0) && b.window.sum == amount{} && now > max(b.care.paused, b.rest.until)
}

// limit is what is used of a unit in a minute at most; 0: no limit.
func (b *bucket) limit(u int) int64 {
	l := b.set[u]
	if t := b.told[u]; t > 0 && (l == 0 || t < l) {
		l = t
	}
	if l == 0 {
		return 0
	}
	return l - l*b.care.margin/1000 // the margin is never all
}

// room says when a call may go: now, later, or never before something changes;
// and if not now, what is in the way.
func (b *bucket) room(now int64, c *call) (at int64, why string) {
	if now < b.care.paused {
		return b.care.paused, b.care.why
	}
	if n := b.places(c.keen()); b.running >= n {
		return never, "concurrency"
	}
	at = now
	for u := range b.set {
		l := b.limit(u)
		if l == 0 {
			continue
		}
		if t := b.slope(u, l, c); t > at {
			at, why = t, unitNames[u]
		}
		most := l
		if !c.keen() {
			most -= l * kept / 1000
		}
		if t := b.window.room(now, u, max(0, most-c.guess[u])); t > at {
			at, why = t, unitNames[u]
		}
	}
	return at, why
}

// places is how many calls there may be at one time.
func (b *bucket) places(urgent bool) int {
	n := int(b.care.width / 1000)
	if b.line == nil {
		n = b.most
	} else if b.most > 0 {
		n = min(n, b.most)
	}
	if n == 0 {
		return int(never)
	}
	if !urgent {
		n -= n / keptSlots
	}
	return n
}

// slope is when the slope of a unit allows the next call.
func (b *bucket) slope(u int, limit int64, c *call) int64 {
	few := int64(fewTokens)
	if u == requests {
		few = fewRequests
	}
	allowed := max(burst, min(smallBurst, spread(few, limit))) * b.care.ease / 1000
	if c.keen() {
		allowed += max(keenBurst, allowed)
	}
	return b.due[u] - allowed
}

// spread is the time in which a limit grants n.
func spread(n, limit int64) int64 {
	n = max(-limit, min(n, limit))
	return int64(float64(n) / float64(limit) * float64(minute))
}

// take counts a call that goes.
func (b *bucket) take(now int64, c *call) {
	b.running++
	b.window.add(now, &c.guess)
	b.incline(now, &c.guess)
	b.open.add(&c.weight)
	b.open.sub(&c.guess)
	b.all.add(&c.weight)
	b.writes.guess += c.guess[output]
	b.writes.bound += c.weight[output]
}

// incline moves the slope by what is used, or given back.
func (b *bucket) incline(now int64, a *amount) {
	for u := range a {
		if l := b.limit(u); l > 0 {
			b.due[u] = max(b.due[u], now) + spread(a[u], l)
		}
	}
}

// give replaces what a call was thought to take by what it took. Input is taken
// to be read when the call goes, output to be written when it ends.
func (b *bucket) give(now int64, c *call, took amount) {
	b.running--
	b.window.take(now, c.went, &c.guess)
	b.open.sub(&c.weight)
	b.open.add(&c.guess)
	b.writes.guess -= c.guess[output]
	b.writes.bound -= c.weight[output]
	then := amount{took[requests], took[input], took[input], 0}
	b.window.take(now, c.went, then.negative())
	b.window.add(now, &amount{0, took[output], 0, took[output]})
	took.sub(&c.guess)
	for u := range took {
		if l := b.limit(u); l > 0 {
			b.due[u] += spread(took[u], l)
		}
	}
}

func (a amount) negative() *amount {
	for u := range a {
		a[u] = -a[u]
	}
	return &a
}
