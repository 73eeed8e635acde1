package quota

import (
	"math"
	"time"
)

// A RoutePicker chooses the route of a call: the first one, or a fallback while
// the provider of the first cannot serve.
type RoutePicker struct {
	At int // the current route
	Of int // number of routes

	open  []bool // routes that were open at the last Choose
	tried []bool // routes that failed since the last start over
}

// Closed is the backoff of a route that a call may not use at all.
const Closed = time.Duration(-1)

// Choose skips routes that are closed or in backoff. It reports whether yet
// another route is open. If none is open it takes the route that comes back
// first.
func (w *RoutePicker) Choose(awayFor func(at int) time.Duration) (other bool) {
	if w.Of < 2 {
		return false
	}
	at, least, here := w.At, time.Duration(math.MaxInt64), 0
	w.open = make([]bool, w.Of)
	for i := range w.Of {
		// The current route comes first, so a call changes its provider only for a reason.
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

// Next moves to the route of the next attempt. It reports whether that route
// has not failed yet. If all open routes failed, it starts over with the next
// one.
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
