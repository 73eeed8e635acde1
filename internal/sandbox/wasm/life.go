package wasm

import (
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// A life is one run's way to its end. The end comes once: the timer, the
// caller, a limit and the program itself may all reach it at the same time,
// and the first decides what it is called.
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

// ended says whether the run has to stop.
func (l *life) ended() bool { return l.cause.Load() != nil }

// settle is end with what the program itself came to; it gives the cause that
// stands.
func (l *life) settle(c sandbox.Cause) sandbox.Cause {
	l.end(c)
	return *l.cause.Load()
}

// A meter counts the processor time of the guest. The time it is between two
// host functions is on one thread, so that of the thread is what it took; it is
// asked at ticks, as asking costs more than a short host function does. For
// what is left, the time on the wall stands in, which is never less.
type meter struct {
	spent   time.Duration
	entered time.Time     // when the guest was last given the processor; zero: it has not got it
	thread  time.Duration // clock of the thread then; zero: not asked
}

// enter begins to count: the guest runs from here.
func (m *meter) enter() { m.entered, m.thread = time.Now(), 0 }

// leave stops counting: the host runs from here.
func (m *meter) leave() {
	if !m.entered.IsZero() {
		m.spent += m.since(time.Now(), 0)
		m.entered = time.Time{}
	}
}

// tick counts up to now and goes on.
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
