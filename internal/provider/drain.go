package provider

import (
	"io"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/provider/transport"
)

// Bounds of a stopped answer before [drain] cuts it. Received bytes are read in any
// case, because on a busy machine this process may be late, not the provider.
const (
	maxSilence = 25 * time.Millisecond  // without a byte
	maxGoOn    = 300 * time.Millisecond // in all
	maxEnd     = 2 * time.Second        // in all, once the end is on its way
	maxUnread  = time.Minute            // in all, while received bytes are unread
)

// A drain reads a stopped answer for a moment longer, because its end says what
// the answer used. It waits while bytes come, within the bounds above. It tells the
// provider to stop where [transport.HangUp] can, and the provider then sends the
// end. If the model has said all, drain does not tell the provider. It waits for
// the count, which alone is missing, without a cut for silence.
type drain struct {
	cancel func()
	stop   func() bool // cancels the start of the drain at the end of the caller's context

	mu     sync.Mutex
	body   io.Reader
	ending bool // the text is complete or stopped, and the end of the answer is on its way
	over   bool // the last event of the answer has come
	timer  *time.Timer
	begun  time.Time
	until  time.Time
}

// open sets the body of the answer. If the drain has already begun, open tells
// the provider to stop.
func (d *drain) open(body io.Reader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.body = body; d.timer != nil && d.timer.Stop() {
		d.hangUp()
	}
}

// begin stops the answer. Calling it again does nothing.
func (d *drain) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until.IsZero() {
		d.hangUp()
	}
}

// hangUp tells the provider to stop and starts the timer. d.mu is held, and no
// timer runs.
func (d *drain) hangUp() {
	wait := maxGoOn
	if d.ending = d.ending || d.body != nil && transport.HangUp(d.body); d.ending {
		wait = maxEnd
	}
	d.begun = time.Now()
	d.until = d.begun.Add(wait)
	d.timer = time.AfterFunc(d.left(), d.cut)
}

// cut ends the answer, unless received bytes are still unread.
func (d *drain) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	late, ok := d.body.(interface{ Unread() bool })
	if ok && !d.over && time.Since(d.begun) < maxUnread && late.Unread() {
		d.timer.Reset(maxSilence)
		return
	}
	d.cancel()
}

// left returns how long the answer may still be silent. d.mu is held.
func (d *drain) left() time.Duration {
	wait := time.Until(d.until)
	if !d.ending {
		wait = min(wait, maxSilence)
	}
	return max(0, wait)
}

// said notes that the model has said all. The drain then waits for the end of the
// answer.
func (d *drain) said() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending {
		return
	}
	if d.ending = true; d.timer != nil && d.timer.Stop() {
		d.until = time.Now().Add(maxEnd)
		d.timer.Reset(d.left())
	}
}

// last notes that the last event of the answer has come. The rest of the body
// matters only to the connection, which may then carry another request.
func (d *drain) last() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	if d.over = true; d.timer == nil || d.timer.Stop() {
		d.ending, d.until = false, time.Now().Add(maxGoOn)
		d.timer = time.AfterFunc(d.left(), d.cut)
	}
}

// heard notes that bytes came, so the silence starts again.
func (d *drain) heard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && d.timer.Stop() {
		d.timer.Reset(d.left())
	}
}
