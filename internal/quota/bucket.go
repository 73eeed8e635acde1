package quota

// A bucket is one thing that has limits: a provider, a key there, or a model
// for that key. What a model's bucket lets through, those above it let through.
type bucket struct {
	name    string
	parent  *bucket
	waiters *waiters // who waits; of a model's bucket alone
	owners  *share   // owners and how much they had; of a key's bucket

	configured amount // configured
	learned    amount // by the provider,
	learnedAt  amount // and when it did last
	maxRunning int    // calls at one time; 0: as the width says
	running    int
	below      int // buckets below

	window  window
	levelAt amount // when the slope of each unit will be level again
	slack   amount // what calls that run may take at most, beyond what is counted of them
	outputs outputs
	total   amount // what all calls that went might have taken at most, and what others took
	pace    pace
	outage  outage

	estimate    estimate
	blocked     map[*bucket]bool // models whose next call waits for room here
	fullInRound uint64           // the round of looking in which there was none
}

// How carefully a bucket is used follows from what came back.
type pace struct {
	width     int64 // calls at one time, in thousandths
	ceiling   int64 // as wide as it may get
	was       int64 // width before it was overloaded
	threshold int64 // below it the width doubles with each round trip, above it grows by one

	margin int64 // of the limits, in thousandths: kept free as far as was needed
	ease   int64 // of the burst, in thousandths
	eased  int64 // when margin and ease were last relaxed

	paused        int64 // until then nothing is let through
	fallbackUntil int64 // until then who can go elsewhere does
	pausedAt      int64 // when the last pause was ordered
	pauses        int   // pauses since something went well
	breakdowns    int   // how often it was overloaded lately
	why           string
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
	urgentBurst = second // more, for urgent calls
	fewRequests = 4
	fewTokens   = 20_000
)

// kept is the share of a limit, in thousandths, that is kept for urgent calls,
// and urgentSlots the share of the calls at one time where there are many.
const (
	urgentShare = 15
	urgentSlots = 16
)

func newBucket(name string, parent *bucket, l Limits) *bucket {
	b := &bucket{name: name, parent: parent, configured: l.amount(), maxRunning: l.Concurrency}
	b.pace = pace{width: firstWidth * 1000, ceiling: mostWidth * 1000, threshold: mostWidth * 1000, ease: 1000}
	b.estimate = estimate{in: ratio{mean: 1000}, out: ratio{mean: 1000}, ahead: 1000}
	if parent != nil {
		parent.below++
	}
	for x := b; x != nil; x = x.parent {
		if x.maxRunning > 0 {
			b.pace.width = int64(x.maxRunning) * 1000
			return b
		}
		if x.configured != (amount{}) {
			b.pace.width = mostWidth * 1000
		}
	}
	return b
}

// idle reports whether nothing is lost when the bucket is forgotten.
func (b *bucket) idle(now int64) bool {
	b.window.slide(now)
	return b.running == 0 && b.below == 0 && (b.waiters == nil || b.waiters.waiting == 0) && b.window.sum == amount{} && now > max(b.pace.paused, b.outage.until)
}

// limit is what is used of a unit in a minute at most; 0: no limit.
func (b *bucket) limit(u int) int64 {
	l := b.configured[u]
	if t := b.learned[u]; t > 0 && (l == 0 || t < l) {
		l = t
	}
	if l == 0 {
		return 0
	}
	return l - l*b.pace.margin/1000 // the margin is never all
}

// room says when a call may go: now, later, or never before something changes;
// and if not now, what is in the way.
func (b *bucket) freeAt(now int64, c *call) (at int64, why string) {
	if now < b.pace.paused {
		return b.pace.paused, b.pace.why
	}
	if n := b.slots(c.urgent()); b.running >= n {
		return never, "concurrency"
	}
	at = now
	for u := range b.configured {
		l := b.limit(u)
		if l == 0 {
			continue
		}
		if t := b.burstFreeAt(u, l, c); t > at {
			at, why = t, unitNames[u]
		}
		most := l
		if !c.urgent() {
			most -= l * urgentShare / 1000
		}
		if t := b.window.freeAt(now, u, max(0, most-c.counted[u])); t > at {
			at, why = t, unitNames[u]
		}
	}
	return at, why
}

// places is how many calls there may be at one time.
func (b *bucket) slots(urgent bool) int {
	n := int(b.pace.width / 1000)
	if b.waiters == nil {
		n = b.maxRunning
	} else if b.maxRunning > 0 {
		n = min(n, b.maxRunning)
	}
	if n == 0 {
		return int(never)
	}
	if !urgent {
		n -= n / urgentSlots
	}
	return n
}

// slope is when the slope of a unit allows the next call.
func (b *bucket) burstFreeAt(u int, limit int64, c *call) int64 {
	few := int64(fewTokens)
	if u == requests {
		few = fewRequests
	}
	allowed := max(burst, min(smallBurst, timeFor(few, limit))) * b.pace.ease / 1000
	if c.urgent() {
		allowed += max(urgentBurst, allowed)
	}
	return b.levelAt[u] - allowed
}

// spread is the time in which a limit grants n.
func timeFor(n, limit int64) int64 {
	n = max(-limit, min(n, limit))
	return int64(float64(n) / float64(limit) * float64(minute))
}

// take counts a call that goes.
func (b *bucket) startCall(now int64, c *call) {
	b.running++
	b.window.add(now, &c.counted)
	b.raiseLevel(now, &c.counted)
	b.slack.add(&c.bound)
	b.slack.sub(&c.counted)
	b.total.add(&c.bound)
	b.outputs.counted += c.counted[output]
	b.outputs.bound += c.bound[output]
}

// incline moves the slope by what is used, or given back.
func (b *bucket) raiseLevel(now int64, a *amount) {
	for u := range a {
		if l := b.limit(u); l > 0 {
			b.levelAt[u] = max(b.levelAt[u], now) + timeFor(a[u], l)
		}
	}
}

// give replaces what a call was thought to take by what it took. Input is taken
// to be read when the call goes, output to be written when it ends.
func (b *bucket) endCall(now int64, c *call, took amount) {
	b.running--
	b.window.remove(now, c.startedAt, &c.counted)
	b.slack.sub(&c.bound)
	b.slack.add(&c.counted)
	b.outputs.counted -= c.counted[output]
	b.outputs.bound -= c.bound[output]
	then := amount{took[requests], took[input], took[input], 0}
	b.window.remove(now, c.startedAt, then.negative())
	b.window.add(now, &amount{0, took[output], 0, took[output]})
	took.sub(&c.counted)
	for u := range took {
		if l := b.limit(u); l > 0 {
			b.levelAt[u] += timeFor(took[u], l)
		}
	}
}

func (a amount) negative() *amount {
	for u := range a {
		a[u] = -a[u]
	}
	return &a
}
