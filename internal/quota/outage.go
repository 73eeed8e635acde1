package quota

// A rest is that of a provider that cannot be had. What can be made elsewhere
// goes there meanwhile, and then one call looks whether it is back. What has no
// other place to go is not kept from trying.
type rest struct {
	until  int64
	since  int64 // what is known: of what went earlier the end says nothing new
	failed int   // rests since something went well
	probe  *call // that looks whether it is back
	why    string
}

// Why a provider rests.
const (
	whyGone    = "cannot be reached"
	whyFailing = "fails"
)

const (
	firstRest = second
	mostRest  = minute
)

// next is how long the rest will be that a failure leads to now.
func (r *rest) next() int64 { return min(firstRest<<min(r.failed, 6), mostRest) }

// order begins a rest, unless the failure says nothing new.
func (r *rest) order(now int64, c *call, why string) {
	if c.went < r.since || now < r.until {
		return
	}
	r.since, r.until, r.why = now, now+r.next(), why
	r.failed++
}

// over ends it: a call found the provider there.
func (r *rest) over(c *call) {
	if c.went >= r.since {
		*r = rest{since: c.went}
	}
}

// away is until when what can go elsewhere does.
func (b *bucket) away() (until int64) {
	until = b.care.away
	for ; b != nil; b = b.up {
		until = max(until, b.rest.until)
	}
	return until
}

// back is when a call that can go elsewhere may go here, as far as is known. While
// one looks it will be no earlier than if that finds nobody; and who comes back
// from an overload takes as many as it can, and no line.
func (b *bucket) back(now int64) (at int64) {
	at = b.away()
	if b.care.recovers() && b.running >= b.places(false) {
		at = max(at, now+second)
	}
	for ; b != nil; b = b.up {
		if b.rest.probe != nil {
			at = max(at, now+b.rest.next())
		}
	}
	return at
}

// sends has a call that can go elsewhere look whether who rested is back.
func (b *bucket) sends(c *call) {
	for ; b != nil; b = b.up {
		if b.rest.failed > 0 {
			b.rest.probe = c
		}
	}
}

// forgets is told that a call looks no longer.
func (b *bucket) forgets(c *call) {
	for ; b != nil; b = b.up {
		if b.rest.probe == c {
			b.rest.probe = nil
		}
	}
}

// found learns from the end of a call whether its provider is there. Whether it
// can be reached is the same for all its models and keys; what an answer says,
// says it of the model alone.
func (b *bucket) found(now int64, c *call, word Word) {
	top := b.up.up
	switch word {
	case Gone:
		top.rest.order(now, c, whyGone)
	case Failing:
		if b.care.sicken(); b.care.sick >= sickBound {
			b.rest.order(now, c, whyFailing)
		}
	case Fine, Slow:
		b.rest.over(c)
	}
	if word != Gone && word != Unsent && word != Cut {
		top.rest.over(c)
	}
}

// sicken counts that a provider broke down.
func (k *care) sicken() { k.sick = min(k.sick+sickStep, sickBound) }

// resting says why a bucket rests, or one above it, and for how long yet in
// milliseconds: not at all when it is only not proven that it is back.
func (b *bucket) resting(now int64) (why string, ms int64) {
	for ; b != nil; b = b.up {
		if b.rest.failed > 0 {
			why, ms = b.rest.why, max(ms, (b.rest.until-now)/1e6)
		}
	}
	return why, ms
}
