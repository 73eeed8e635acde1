package quota

// The units that a provider limits by the minute.
const (
	requests = iota
	tokens
	input
	output
	units
)

var unitNames = [units]string{"requests", "tokens", "input tokens", "output tokens"}

// An amount is a number for each unit.
type amount [units]int64

// mostAmount is more than any call uses and any minute grants. Larger numbers
// from outside are cut, so that sums do not overflow.
const mostAmount = int64(1e12)

func bounded(n int64) int64 { return max(0, min(n, mostAmount)) }

// amountOf returns the amount of one call.
func amountOf(in, out int64) amount {
	in, out = bounded(in), bounded(out)
	return amount{1, in + out, in, out}
}

func (a *amount) add(b *amount) {
	for u := range a {
		a[u] += b[u]
	}
}

func (a *amount) sub(b *amount) {
	for u := range a {
		a[u] -= b[u]
	}
}

// Times are nanoseconds since the start of the scheduler.
const (
	second = int64(1e9)
	minute = 60 * second
	never  = int64(1) << 62
)

// A window counts the use of the last minute, in slots of a tenth of a second.
// A slot counts until a minute after its end: a little longer than a minute,
// never shorter.
type window struct {
	slots []amount // a ring, twice as long as a minute; made at first use
	last  int64    // number of the newest slot
	sum   amount   // of the last minute
}

const (
	slotTime = minute / span
	span     = 600 // slots that count, besides the newest
	ring     = 2 * span
)

func (w *window) at(slot int64) *amount { return &w.slots[slot%ring] }

// slide drops the slots that are more than a minute old.
func (w *window) slide(now int64) {
	n := now / slotTime
	if w.slots == nil {
		w.slots, w.last = make([]amount, ring), n
	}
	// After a long silence the ring is cleared at once, not slot by slot.
	if n-w.last >= ring {
		clear(w.slots)
		w.last, w.sum = n, amount{}
	}
	for w.last < n {
		w.last++
		*w.at(w.last) = amount{}
		if old := w.last - span - 1; old >= 0 {
			w.sum.sub(w.at(old))
		}
	}
}

// add counts a at now. Time never goes back.
func (w *window) add(now int64, a *amount) {
	w.slide(now)
	w.at(w.last).add(a)
	w.sum.add(a)
}

// remove takes back an amount that was counted at then.
func (w *window) remove(now, then int64, a *amount) {
	w.slide(now)
	n := then / slotTime
	// Its slot was used again since. The amount left the sum long ago.
	if w.last-n >= ring {
		return
	}
	w.at(n).sub(a)
	// An older slot is no longer in the sum.
	if w.last-n <= span {
		w.sum.sub(a)
	}
}

// freeAt returns the time when the sum of a unit has come down to most.
func (w *window) freeAt(now int64, u int, most int64) int64 {
	w.slide(now)
	sum := w.sum[u]
	if sum <= most {
		return now
	}
	for n := max(w.last-span, 0); n <= w.last; n++ {
		if sum -= w.at(n)[u]; sum <= most {
			return (n + span + 1) * slotTime
		}
	}
	return now + minute // amounts that were removed make the slots smaller than the sum
}
