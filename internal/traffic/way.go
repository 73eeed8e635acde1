package traffic

import (
	"math"
	"time"
)

// A Way is by which of several routes a call goes: by the first, and by another
// when the provider there cannot be had.
type Way struct {
	At int // the route that is tried next, or was tried last
	Of int // how many there are
}

// Shut is how long the provider of a route is away that is not for a call.
const Shut = time.Duration(-1)

// Choose passes over routes that are shut or whose provider is away, and says
// whether another is there beside the one that it found. When all are away it
// is the one that is back first.
func (w *Way) Choose(awayFor func(at int) time.Duration) (other bool) {
	if w.Of < 2 {
		return false
	}
	at, least, here := w.At, time.Duration(math.MaxInt64), 0
	for i := range w.Of {
		n := (w.At + i) % w.Of
		away := awayFor(n)
		if away == 0 {
			here++
		}
		if away != Shut && away < least {
			at, least = n, away
		}
	}
	w.At = at
	return here > 1
}

// Next is the route for another try.
func (w *Way) Next() { w.At = (w.At + 1) % w.Of }
