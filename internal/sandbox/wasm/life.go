package wasm

import (
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// A life records the end of a run. A timer, the caller, a limit and the code itself
// may end the run at the same time. The first one decides the cause.
type life struct {
	cause atomic.Pointer[sandbox.Cause]
	done  chan struct{}
}

func newLife() *life { return &life{done: make(chan struct{})} }

// end ends the run with a cause, unless it has ended.
func (l *life) end(c sandbox.Cause) {
	if l.cause.CompareAndSwap(nil, &c) {
		close(l.done)
	}
}

// ended reports whether the run must stop.
func (l *life) ended() bool { return l.cause.Load() != nil }

// settle ends the run with the cause that the code itself reached, and returns the
// cause that was recorded first.
func (l *life) settle(c sandbox.Cause) sandbox.Cause {
	l.end(c)
	return *l.cause.Load()
}

// A meter counts the processor time of the code. Between two host functions the
// code stays on one thread, so the clock of the thread counts its time. The meter
// reads that clock at ticks, because reading costs more than a short host function.
// For the rest it takes wall time, which is never less.
type meter struct {
	spent   time.Duration
	entered time.Time     // when the code last began to run; zero: it does not run
	thread  time.Duration // clock of the thread then; zero: not read
}

// enter starts counting before the code runs.
func (m *meter) enter() { m.entered, m.thread = time.Now(), 0 }

// leave stops counting when the host runs.
func (m *meter) leave() {
	if !m.entered.IsZero() {
		m.spent += m.since(time.Now(), 0)
		m.entered = time.Time{}
	}
}

// tick counts up to now and continues.
func (m *meter) tick() time.Time {
	now, thread := time.Now(), threadTime()
	m.spent += m.since(now, thread)
	m.entered, m.thread = now, thread
	return now
}

func (m *meter) since(now time.Time, thread time.Duration) time.Duration {
	d := now.Sub(m.entered)
	if m.thread != 0 && thread != 0 {
		if t := thread - m.thread; t >= 0 && t < d {
			return t
		}
	}
	return d
}
