package quota

// An outage is the time in which a provider cannot be reached or keeps failing.
// Calls with a fallback go there; later one of them tries the provider again.
// Calls without a fallback keep trying.
type outage struct {
	until  int64
	since  int64 // calls that went earlier say nothing new
	failed int   // outages since the last success
	probe  *call // the call that tries the provider again
	why    string
}

// The reasons of an outage.
const (
	whyGone    = "cannot be reached"
	whyFailing = "fails"
)

const (
	firstOutage   = second
	longestOutage = minute
)

// pause returns the length of the outage that the next failure begins.
func (r *outage) pause() int64 { return min(firstOutage<<min(r.failed, 6), longestOutage) }

// begin starts an outage, unless the failed call went before the last one was
// known.
func (r *outage) begin(now int64, c *call, why string) {
	// Many calls fail together when a provider goes down. They are one outage.
	if c.startedAt < r.since || now < r.until {
		return
	}
	r.since, r.until, r.why = now, now+r.pause(), why
	r.failed++
}

// end closes an outage: a call reached the provider.
func (r *outage) end(c *call) {
	if c.startedAt >= r.since {
		*r = outage{since: c.startedAt}
	}
}

// backoffUntil returns the time until which calls with a fallback go there.
func (b *bucket) backoffUntil() (until int64) {
	until = b.pace.fallbackUntil
	for ; b != nil; b = b.parent {
		until = max(until, b.outage.until)
	}
	return until
}

// readyAt returns the earliest time for a call with a fallback, as far as is
// known. While a probe runs, it is the time at which a failed probe would end.
// A provider that recovers from an overload gets no queue.
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

// startProbe makes c the call that tries the provider after an outage.
func (b *bucket) startProbe(c *call) {
	for ; b != nil; b = b.parent {
		if b.outage.failed > 0 {
			b.outage.probe = c
		}
	}
}

// endProbe ends the probe, if c is the probe.
func (b *bucket) endProbe(c *call) {
	for ; b != nil; b = b.parent {
		if b.outage.probe == c {
			b.outage.probe = nil
		}
	}
}

// learnOutage begins or ends outages by the status of a call. A provider is
// unreachable for all its models and keys; a failure concerns one model.
func (b *bucket) learnOutage(now int64, c *call, status Status) {
	top := b.parent.parent
	switch status {
	case Unreachable:
		top.outage.begin(now, c, whyGone)
	case Failing:
		if b.pace.countBreakdown(); b.pace.breakdowns >= breakdownBound {
			b.outage.begin(now, c, whyFailing)
		}
	// Even a refusal shows that the model answers again.
	case Served, RateLimited:
		b.outage.end(c)
	}
	// Any answer, also an error, shows that the address can be reached.
	if status != Unreachable && status != NotSent && status != Cut {
		top.outage.end(c)
	}
}

// countBreakdown counts an overload or a failure of the provider.
func (k *pace) countBreakdown() { k.breakdowns = min(k.breakdowns+breakdownWeight, breakdownBound) }

// outageState returns the reason of an outage, here or above, and the
// milliseconds until the next probe; 0 if the next call is the probe.
func (b *bucket) outageState(now int64) (why string, ms int64) {
	for ; b != nil; b = b.parent {
		if b.outage.failed > 0 {
			why, ms = b.outage.why, max(ms, (b.outage.until-now)/1e6)
		}
	}
	return why, ms
}
