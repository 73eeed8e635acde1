package wasm

import (
	"runtime"
	"sync/atomic"
	"time"
)

// turns lets as many instances compute at one time as there are processors. The
// others wait here and not in the scheduler of Go, so that other goroutines never
// wait behind a hundred of them. An instance that waits for something releases its
// turn meanwhile.
type turns struct {
	free    chan struct{}
	waiting atomic.Int32
}

const (
	turnTime  = 2 * time.Millisecond   // before an instance makes room for the next
	yieldTime = 200 * time.Microsecond // before it lets other goroutines in
)

func newTurns() *turns { return &turns{free: make(chan struct{}, runtime.GOMAXPROCS(0))} }

// A turn is the right of one instance to compute.
type turn struct {
	of      *turns
	held    bool
	since   time.Time // it is held
	yielded time.Time
}

// take waits for the turn, or until end is closed.
func (t *turn) take(end <-chan struct{}) {
	if t.held {
		return
	}
	select {
	case t.of.free <- struct{}{}:
	default:
		t.of.waiting.Add(1)
		defer t.of.waiting.Add(-1)
		select {
		case t.of.free <- struct{}{}:
		case <-end:
			return
		}
	}
	t.held = true
	t.since = time.Now()
	t.yielded = t.since
}

func (t *turn) give() {
	if t.held {
		t.held = false
		<-t.of.free
	}
}

// pass lets other instances or goroutines run if it is time, and reports whether it did.
func (t *turn) pass(now time.Time, end <-chan struct{}) bool {
	switch {
	case now.Sub(t.yielded) < yieldTime:
		return false
	case now.Sub(t.since) > turnTime && t.of.waiting.Load() > 0:
		t.give()
		t.take(end)
	default:
		runtime.Gosched()
	}
	t.yielded = time.Now()
	return true
}
