package quota

import (
	"math"
	"time"
)

// A RoutePicker is by which of several routes a call goes: by the first, and by another
// when the provider there cannot be had.
type RoutePicker struct {
	At int // the route that is tried next, or was tried last
	Of int // how many there are

	open  []bool // which of them could be had when one was chosen
	tried []bool // which failed since there was none left but those
}

// Closed is how long the provider of a route is away that is not for a call.
const Closed = time.Duration(-1)

// Choose passes over routes that are shut or whose provider is away, and says
// whether another is there beside the one that it found. When all are away it
// is the one that is back first.
func (w *RoutePicker) Choose(awayFor func(at int) time.Duration) (other bool) {
	if w.Of < 2 {
		return false
	}
	at, least, here := w.At, time.Duration(math.MaxInt64), 0
	w.open = make([]bool, w.Of)
	for i := range w.Of {
		n := (w.At + i) % w.Of
		away := awayFor(n)
		if away == 0 {
			w.open[n] = true
			here++
		}
		if away != Closed && away < least {
			at, least = n, away
		}
	}
	w.At = at
	return here > 1
}

// Next is the route for another try. It is fresh when it has not failed yet; when
// all that can be had have, it begins anew with the next.
func (w *RoutePicker) Next() (fresh bool) {
	if w.tried == nil {
		w.tried = make([]bool, w.Of)
	}
	w.tried[w.At] = true
	for i := range w.open {
		if n := (w.At + i) % w.Of; w.open[n] && !w.tried[n] {
			w.At = n
			return true
		}
	}
	w.tried = nil
	w.At = (w.At + 1) % w.Of
	return false
}
