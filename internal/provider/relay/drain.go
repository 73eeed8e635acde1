package relay

import (
	"io"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/provider/transport"
)

// How long a stopped answer may be silent before it is cut off, and how long it
// may go on. An end that is on its way is waited for. Received bytes are read
// in any case, because on a busy machine this process may be late, not the
// provider.
const (
	maxSilence = 25 * time.Millisecond
	maxGoOn    = 300 * time.Millisecond
	maxEnd     = 2 * time.Second
	maxUnread  = time.Minute
)

// A drain reads a stopped answer on for a moment: as long as something comes,
// and not for long. A provider that can be told to stop begins nothing more, and
// the end of its answer says what it used. A provider whose model has said all is
// not told, because it has only its count to give.
type drain struct {
	cancel func()
	stop   func() bool // of what begins it when the caller's context ends

	mu     sync.Mutex
	body   io.Reader
	ending bool // nothing more is said, and the end is on its way
	over   bool // the last word has come
	timer  *time.Timer
	begun  time.Time
	until  time.Time
}

// open sets the body of the answer.
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

// hangUp tells the provider to stop. d.mu is held, and no time runs meanwhile.
func (d *drain) hangUp() {
	wait := maxGoOn
	if d.ending = d.ending || d.body != nil && transport.HangUp(d.body); d.ending {
		wait = maxEnd
	}
	d.begun = time.Now()
	d.until = d.begun.Add(wait)
	d.timer = time.AfterFunc(d.left(), d.cut)
}

// cut ends the answer, unless something has come that is not read yet.
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

// left is how long the answer may still be silent. d.mu is held.
func (d *drain) left() time.Duration {
	wait := time.Until(d.until)
	if !d.ending {
		wait = min(wait, maxSilence)
	}
	return max(0, wait)
}

// said notes that the model has said all.
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

// last notes that the last word has come. How the body ends after that matters
// to the connection alone, which may carry another request.
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

// heard notes that something came.
func (d *drain) heard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && d.timer.Stop() {
		d.timer.Reset(d.left())
	}
}
