// Package quota gives turns at providers of models, so that each provider
// sees one client with good manners.
//
// What has limits is a [Resource]: a model, for a key, at a provider. Limits are
// configured, or learned from what the provider says; see [Feedback]. A call
// waits with the tokens it may take, and what it took replaces them when it
// ends. The promises:
//
//   - no minute, wherever it begins, has more in it than the limits, and no
//     moment much more than its share (bucket.go);
//   - who is asked to slow down pauses, and comes back slowly (pace.go);
//   - that a provider cannot be had is found out by one call at a time, where there
//     is another provider (outage.go);
//   - the most urgent go first, and who waits grows more urgent with time; among
//     equals, owners have equal shares of the tokens, and so have the processes
//     of an owner (waiters.go);
//   - a wait ends with its context, at once, and leaves nothing behind.
//
// All that decides is in those files and in sched.go, without clock, goroutine
// or lock; this one lends them the clock.
package quota

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kern-run/kern/model"
)

// Turns hands out turns. The zero Turns is ready, and knows no limits.
type Turns struct {
	Configs   map[string]Config // by provider, or by what stands before its @; not changed after first use
	Restarted bool              // somebody was here a moment ago and may have used the minute: at first few calls go at one time

	mu        sync.Mutex
	epoch     time.Time
	scheduler scheduler
	timers    map[*bucket]*time.Timer
}

// An Demand is a wish for a turn.
type Demand struct {
	Resource        string     // as Resource.String outputs it
	Owner           string     // whose share it is taken from
	Pid             int64      // of the process, within the owner's share
	Priority        int        // 0 is the most urgent
	CurrentPriority func() int // the priority as it is by now, when it may change: see Rank; else nil
	In, Out         int64      // tokens it may take at most

	HasFallback bool // it can be made at another provider: it does not wait for one that is away
}

// ErrBackoff is the end of a wait for a provider that is overloaded, that asked
// for a longer pause than a limit by the minute explains, or that cannot be had.
var ErrBackoff = errors.New("the provider is away, and there is another")

// A Turn lasts until it is released.
type Turn struct {
	t *Turns
	c *call
}

// clock is the time for those that decide. It begins a little above zero. t.mu
// is held.
func (t *Turns) clock() int64 {
	if t.epoch.IsZero() {
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
	} else if !c.diverted { // the turn came at the same moment: it is the next one's
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

// Away is how long a provider will be away, as far as is known; see [ErrBackoff].
func (t *Turns) Backoff(resource string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.scheduler.buckets[resource]
	if b == nil { // no call went to that model yet
		b = t.scheduler.parents[ParseResource(resource).Provider]
	}
	if b == nil {
		return 0
	}
	now := t.clock()
	return time.Duration(max(0, b.readyAt(now)-now))
}

// Rank gives the calls of a process that wait another priority. They have
// waited as long as they have: their place, and their age, are those of calls
// that came with it.
func (t *Turns) SetPriority(pid int64, priority int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	t.wake(now, t.scheduler.setPriority(now, pid, priority), nil)
}

// Feedback is what came of a call.
type Feedback struct {
	In, Out    int64 // tokens it took
	Cached     int64 // of the input, what the provider had in its cache
	Status     Status
	RetryAfter time.Duration // as long as the provider asked to wait; 0: it did not say
	Quota      model.Quota   // from its headers
}

func (f *Feedback) report() report {
	n := report{in: bounded(f.In), out: bounded(f.Out), status: f.Status, after: int64(max(0, f.RetryAfter))}
	if f.Quota.Input.Limit > 0 { // it tells a limit on input alone: it counts as Anthropic does
		n.cached = max(0, min(f.Cached, n.in))
	}
	if !f.Quota.At.IsZero() {
		n.age = int64(max(0, time.Since(f.Quota.At)))
		for u, l := range [units]model.Allowance{f.Quota.Requests, f.Quota.Tokens, f.Quota.Input, f.Quota.Output} {
			if l.Limit <= mostAmount { // else it says that there is none
				n.levels[u] = level{l.Limit, l.Left}
			}
		}
	}
	return n
}

// Release ends a turn, with what came of it. Only the first time counts. When
// another turn would come to the same, because the call is larger than all that
// the provider grants in a minute, over says so.
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

// wake tells those that go, but for the one that asks, and sets the alarms for
// when others may. t.mu is held.
func (t *Turns) wake(now int64, gone []*call, self *call) {
	for _, c := range gone {
		if c != self {
			close(c.ready)
		}
	}
	for i, b := range t.scheduler.rechecks {
		t.alarm(now, b)
		t.scheduler.rechecks[i] = nil
	}
	t.scheduler.rechecks = t.scheduler.rechecks[:0]
}

// alarm has a waiters looked at again when its time comes.
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

func (t *Turns) recheck(b *bucket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	if b.waiters.checkAt > now {
		return // set anew meanwhile
	}
	b.waiters.checkAt = never
	delete(t.timers, b)
	t.wake(now, t.scheduler.giveTurns(now, b), nil)
}
