package quota

// A rest is that of a provider that cannot be had. What can be made elsewhere
// goes there meanwhile, and then one call rechecks whether it is back. What has no
// other place to go is not kept from trying.
type outage struct {
	until  int64
	since  int64 // what is known: of what went earlier the end says nothing new
	failed int   // rests since something went well
	probe  *call // that rechecks whether it is back
	why    string
}

// Why a provider rests.
const (
	whyGone    = "cannot be reached"
	whyFailing = "fails"
)

const (
	firstOutage   = second
	longestOutage = minute
)

// next is how long the rest will be that a failure leads to now.
func (r *outage) pause() int64 { return min(firstOutage<<min(r.failed, 6), longestOutage) }

// order begins a rest, unless the failure says nothing new.
func (r *outage) begin(now int64, c *call, why string) {
	if c.startedAt < r.since || now < r.until {
		return
	}
	r.since, r.until, r.why = now, now+r.pause(), why
	r.failed++
}

// over ends it: a call found the provider there.
func (r *outage) end(c *call) {
	if c.startedAt >= r.since {
		*r = outage{since: c.startedAt}
	}
}

// away is until when what can go elsewhere does.
func (b *bucket) backoffUntil() (until int64) {
	until = b.pace.fallbackUntil
	for ; b != nil; b = b.parent {
		until = max(until, b.outage.until)
	}
	return until
}

// back is when a call that can go elsewhere may go here, as far as is known. While
// one rechecks it will be no earlier than if that finds nobody; and who comes back
// from an overload takes as many as it can, and no waiters.
func (b *bucket) readyAt(now int64) (at int64) {
	at = b.backoffUntil()
	if b.pace.recovers() && b.running >= b.slots(false) {
		at = max(at, now+second)
	}
	for ; b != nil; b = b.parent {
		if b.outage.probe != nil {
			at = max(at, now+b.outage.pause())
		}
	}
	return at
}

// sends has a call that can go elsewhere look whether who rested is back.
func (b *bucket) startProbe(c *call) {
	for ; b != nil; b = b.parent {
		if b.outage.failed > 0 {
			b.outage.probe = c
		}
	}
}

// forgets is told that a call rechecks no longer.
func (b *bucket) endProbe(c *call) {
	for ; b != nil; b = b.parent {
		if b.outage.probe == c {
			b.outage.probe = nil
		}
	}
}

// found learns from the end of a call whether its provider is there. Whether it
// can be reached is the same for all its models and keys; what an answer says,
// says it of the model alone.
func (b *bucket) learnOutage(now int64, c *call, status Status) {
	top := b.parent.parent
	switch status {
	case Unreachable:
		top.outage.begin(now, c, whyGone)
	case Failing:
		if b.pace.countBreakdown(); b.pace.breakdowns >= breakdownBound {
			b.outage.begin(now, c, whyFailing)
		}
	case Served, RateLimited:
		b.outage.end(c)
	}
	if status != Unreachable && status != NotSent && status != Cut {
		top.outage.end(c)
	}
}

// countBreakdown counts that a provider broke down.
func (k *pace) countBreakdown() { k.breakdowns = min(k.breakdowns+breakdownWeight, breakdownBound) }

// resting says why a bucket rests, or one above it, and for how long yet in
// milliseconds: not at all when it is only not proven that it is back.
func (b *bucket) outageState(now int64) (why string, ms int64) {
	for ; b != nil; b = b.parent {
		if b.outage.failed > 0 {
			why, ms = b.outage.why, max(ms, (b.outage.until-now)/1e6)
		}
	}
	return why, ms
}
