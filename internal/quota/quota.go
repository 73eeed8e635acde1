// Package quota gives turns at providers, so that each provider sees one client
// that keeps its limits.
//
// A [Resource] has limits: a model, for a key, at a provider. The limits are
// configured, or learned from the provider's answers; see [Feedback]. A call
// waits with the bound of its tokens. When the call ends, its real usage
// replaces the bound. The promises:
//
//   - No minute, wherever it begins, holds more than the limits, and no moment
//     holds much more than its part of the minute (bucket.go).
//   - After a 429 the calls pause, and come back slowly (backoff.go).
//   - If a provider cannot be reached and there is a fallback, one call at a time
//     tries the provider again (outage.go).
//   - The most urgent call goes first, and a waiting call grows more urgent. Among
//     equals, owners get equal shares of the tokens, and so do the processes of
//     an owner (queue.go).
//   - A wait ends at once with its context, and leaves nothing behind.
//
// These files and sched.go decide without a clock, a goroutine or a lock. This
// file gives them the time.
package quota

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kern-run/kern/model"
)

// Turns gives turns. The zero Turns is ready and knows no limits.
type Turns struct {
	Configs   map[string]Config // by provider, with or without its @host; do not change it after first use
	Restarted bool              // a kernel ran here a moment ago and may have used the minute: few calls go at first

	mu        sync.Mutex
	epoch     time.Time
	scheduler scheduler
	timers    map[*bucket]*time.Timer
}

// A Demand describes a call that needs a turn.
type Demand struct {
	Resource        string     // as Resource.String writes it
	Owner           string     // the owner whose share is charged
	Pid             int64      // the process, within the share of its owner
	Priority        int        // 0 is the most urgent
	CurrentPriority func() int // the priority now, if SetPriority may have changed it; else nil
	In, Out         int64      // bound of its tokens

	HasFallback bool // another provider can serve it: it does not wait through a backoff
}

// ErrBackoff ends the wait of a call with a fallback. The provider is
// overloaded, cannot be reached, or asked for a longer pause than a limit by
// the minute explains.
var ErrBackoff = errors.New("the provider is in backoff, and there is a fallback")

// A Turn lasts until it is released.
type Turn struct {
	t *Turns
	c *call
}

// clock returns the time for the scheduler. It begins a little above zero. The
// caller holds t.mu.
func (t *Turns) clock() int64 {
	if t.epoch.IsZero() {
		// In the scheduler a time of zero means that something never happened, so the clock begins above it.
		t.epoch = time.Now().Add(-time.Second)
	}
	return int64(time.Since(t.epoch))
}

// Acquire waits for a turn, until ctx ends.
func (t *Turns) Acquire(ctx context.Context, a Demand) (*Turn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call{resource: a.Resource, owner: a.Owner, pid: a.Pid, priority: a.Priority, bound: amountOf(a.In, a.Out), hasFallback: a.HasFallback}
	t.mu.Lock()
	t.scheduler.configs, t.scheduler.again = t.Configs, t.Restarted
	// Read under the lock: a change of priority is either seen here, or SetPriority finds the call in its queue.
	if a.CurrentPriority != nil {
		c.priority = a.CurrentPriority()
	}
	now := t.clock()
	t.wake(now, t.scheduler.enqueue(now, c), c)
	if c.queue == nil {
		t.mu.Unlock()
		return t.given(c)
	}
	c.ready = make(chan struct{})
	t.mu.Unlock()
	select {
	case <-c.ready:
		return t.given(c)
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.clock()
	if c.queue != nil {
		t.wake(now, t.scheduler.cancel(now, c), nil)
	} else if !c.diverted { // the turn came at the same moment: pass it on
		t.wake(now, t.scheduler.release(now, c, &report{status: NotSent}), nil)
	}
	return nil, ctx.Err()
}

func (t *Turns) given(c *call) (*Turn, error) {
	if c.diverted {
		return nil, ErrBackoff
	}
	return &Turn{t, c}, nil
}

// Backoff returns how long a provider will be in backoff, as far as is known;
// see [ErrBackoff].
func (t *Turns) Backoff(resource string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.scheduler.buckets[resource]
	if b == nil { // no call used that model yet
		b = t.scheduler.parents[ParseResource(resource).Provider]
	}
	if b == nil {
		return 0
	}
	now := t.clock()
	return time.Duration(max(0, b.readyAt(now)-now))
}

// SetPriority changes the priority of the waiting calls of a process. Their age
// counts as if they had come with this priority.
func (t *Turns) SetPriority(pid int64, priority int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	t.wake(now, t.scheduler.setPriority(now, pid, priority), nil)
}

// Feedback is the end of a call as the scheduler needs it.
type Feedback struct {
	In, Out    int64 // tokens used
	Cached     int64 // input tokens that the provider read from its cache
	Status     Status
	RetryAfter time.Duration // the wait that the provider asked for; 0: none
	Quota      model.Quota   // from the headers of the answer
}

func (f *Feedback) report() report {
	n := report{in: bounded(f.In), out: bounded(f.Out), status: f.Status, after: int64(max(0, f.RetryAfter))}
	if f.Quota.Input.Limit > 0 { // a limit on input alone: the provider counts like Anthropic
		n.cached = max(0, min(f.Cached, n.in))
	}
	if !f.Quota.At.IsZero() {
		n.age = int64(max(0, time.Since(f.Quota.At)))
		for u, l := range [units]model.Allowance{f.Quota.Requests, f.Quota.Tokens, f.Quota.Input, f.Quota.Output} {
			if l.Limit <= mostAmount { // a larger number means no limit
				n.levels[u] = level{l.Limit, l.Left}
			}
		}
	}
	return n
}

// Release ends a turn. Only the first call of Release counts. The result names
// the limit that the call exceeds on its own, if there is one: another turn
// would end the same way.
func (u *Turn) Release(f Feedback) (over string) {
	t := u.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.c.released {
		return ""
	}
	u.c.released = true
	now, n := t.clock(), f.report()
	t.wake(now, t.scheduler.release(now, u.c, &n), nil)
	return u.c.tooLarge
}

// wake ends the waits of woken, except the caller's own, and sets the timers of the
// buckets. The caller holds t.mu.
func (t *Turns) wake(now int64, woken []*call, self *call) {
	for _, c := range woken {
		if c != self {
			close(c.ready)
		}
	}
	// The list is used again, and must not keep forgotten buckets in memory.
	for i, b := range t.scheduler.rechecks {
		t.alarm(now, b)
		t.scheduler.rechecks[i] = nil
	}
	t.scheduler.rechecks = t.scheduler.rechecks[:0]
}

// alarm sets the timer for the next check of a bucket.
func (t *Turns) alarm(now int64, b *bucket) {
	timer := t.timers[b]
	switch {
	case b.waiters.checkAt == never:
		if timer != nil {
			timer.Stop()
			delete(t.timers, b)
		}
	case timer != nil:
		timer.Reset(time.Duration(b.waiters.checkAt - now))
	default:
		if t.timers == nil {
			t.timers = make(map[*bucket]*time.Timer)
		}
		t.timers[b] = time.AfterFunc(time.Duration(b.waiters.checkAt-now), func() { t.recheck(b) })
	}
}

// recheck gives turns again when the timer of a bucket fires.
func (t *Turns) recheck(b *bucket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	if b.waiters.checkAt > now {
		return // the check moved to a later time
	}
	b.waiters.checkAt = never
	delete(t.timers, b)
	t.wake(now, t.scheduler.giveTurns(now, b), nil)
}
