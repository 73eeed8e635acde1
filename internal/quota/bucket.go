package quota

// A bucket has limits: a provider, a key there, or a model for that key. A call
// goes only if its model's bucket and all buckets above have room.
type bucket struct {
	name    string
	parent  *bucket
	waiters *waiters // the waiting calls; only in the bucket of a model
	owners  *share   // the shares of the owners; only in the bucket of a key

	configured amount // configured
	learned    amount // from the provider,
	learnedAt  amount // and the time of the last answer with it
	maxRunning int    // calls at one time; 0: the width alone decides
	running    int
	below      int // buckets below this one

	window  window
	levelAt amount // when the use of each unit is level with its limit again
	slack   amount // of the running calls, the bounds beyond the estimates
	outputs outputs
	total   amount // bounds of all calls so far, and the use of others
	pace    pace
	outage  outage

	estimate    estimate
	blocked     map[*bucket]bool // models with a next call that waits for this bucket
	fullInRound uint64           // the last round in which this bucket had no room
}

// A pace is how carefully a bucket is used, learned from the answers of the
// provider.
type pace struct {
	width     int64 // calls at one time, in thousandths
	ceiling   int64 // the largest width
	before    int64 // the width before the overload
	threshold int64 // below it the width doubles with each round trip, above it the width grows by one

	margin    int64 // of the limits, in thousandths: kept free since a 429
	relaxedAt int64 // when the margin last shrank

	paused        int64 // no call goes until then
	fallbackUntil int64 // calls with a fallback go there until then
	pausedAt      int64 // when the last pause began
	pauses        int   // pauses since the last success
	breakdowns    int   // overloads and failures, less the successes since
	why           string
}

// The calls at one time at a provider without known limits.
const (
	firstWidth = 32
	mostWidth  = 1024
)

// The burst: a moment uses no more than the limit grants in that time, or a few
// small calls if that is less. Without it a provider that also counts by the second
// refuses 1.6 % of the requests, and owners do not get equal shares.
const (
	burst       = second / 4
	smallBurst  = 15 * second
	urgentBurst = second // added for urgent calls
	fewRequests = 4
	fewTokens   = 20_000
)

// urgentShare is the part of a limit, in thousandths, that is kept for urgent
// calls. One of each urgentSlots calls at one time is kept for them too.
const (
	urgentShare = 15
	urgentSlots = 16
)

func newBucket(name string, parent *bucket, l Limits) *bucket {
	b := &bucket{name: name, parent: parent, configured: l.amount(), maxRunning: l.Concurrency}
	b.pace = pace{width: firstWidth * 1000, ceiling: mostWidth * 1000, threshold: mostWidth * 1000}
	b.estimate = estimate{in: ratio{mean: 1000}, out: ratio{mean: 1000}, ahead: 1000}
	if parent != nil {
		parent.below++
	}
	// A known limit already bounds the calls, so the width need not feel its way up.
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

// idle reports whether the bucket can be forgotten without a loss.
func (b *bucket) idle(now int64) bool {
	b.window.slide(now)
	// Forgetting a bucket with usage or a pause would let calls through too early.
	return b.running == 0 && b.below == 0 && (b.waiters == nil || b.waiters.waiting == 0) && b.window.sum == amount{} && now > max(b.pace.paused, b.outage.until)
}

// limit returns the most of a unit that a minute may use; 0: no limit.
func (b *bucket) limit(u int) int64 {
	l := b.configured[u]
	if t := b.learned[u]; t > 0 && (l == 0 || t < l) {
		l = t
	}
	if l == 0 {
		return 0
	}
	return l - l*b.pace.margin/1000 // the margin never takes all
}

// freeAt returns when a call may go: now, later, or never before something
// changes. If not now, why names the limit.
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
		// A part stays free, so that an urgent call need not wait until the minute is over.
		if !c.urgent() {
			most -= l * urgentShare / 1000
		}
		if t := b.window.freeAt(now, u, max(0, most-c.counted[u])); t > at {
			at, why = t, unitNames[u]
		}
	}
	return at, why
}

// slots returns how many calls may run at one time.
func (b *bucket) slots(urgent bool) int {
	n := int(b.pace.width / 1000)
	// Only the bucket of a model learns a width. Above it only the configured number counts.
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

// burstFreeAt returns when the burst of a unit allows the next call.
func (b *bucket) burstFreeAt(u int, limit int64, c *call) int64 {
	few := int64(fewTokens)
	if u == requests {
		few = fewRequests
	}
	allowed := max(burst, min(smallBurst, timeFor(few, limit)))
	if c.urgent() {
		allowed += max(urgentBurst, allowed)
	}
	return b.levelAt[u] - allowed
}

// timeFor returns the time in which a limit grants n.
func timeFor(n, limit int64) int64 {
	// A call beyond the limit of a minute waits one minute and not longer.
	n = max(-limit, min(n, limit))
	return int64(float64(n) / float64(limit) * float64(minute))
}

// startCall counts a call that goes.
func (b *bucket) startCall(now int64, c *call) {
	b.running++
	b.window.add(now, &c.counted)
	b.raiseLevel(now, &c.counted)
	// Estimates and slack together are the bounds, which a provider may count.
	b.slack.add(&c.bound)
	b.slack.sub(&c.counted)
	b.total.add(&c.bound)
	b.outputs.counted += c.counted[output]
	b.outputs.bound += c.bound[output]
}

// raiseLevel adds an amount to the level of each unit.
func (b *bucket) raiseLevel(now int64, a *amount) {
	for u := range a {
		if l := b.limit(u); l > 0 {
			b.levelAt[u] = max(b.levelAt[u], now) + timeFor(a[u], l)
		}
	}
}

// endCall replaces the estimate of a call by its usage. Input counts at the
// start of the call, output at its end.
func (b *bucket) endCall(now int64, c *call, took amount) {
	b.running--
	// The window holds the estimate in the slot of the start.
	b.window.remove(now, c.startedAt, &c.counted)
	b.slack.sub(&c.bound)
	b.slack.add(&c.counted)
	b.outputs.counted -= c.counted[output]
	b.outputs.bound -= c.bound[output]
	// Some providers count at the start and some at the end. This way neither count passes the limit.
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
