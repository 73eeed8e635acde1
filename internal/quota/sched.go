package quota

import "strings"

// A scheduler decides which call goes when. Its decisions follow from its
// inputs and from the times it is given, which never go back.
type scheduler struct {
	configs  map[string]Config
	again    bool
	buckets  map[string]*bucket // of models, by resource
	parents  map[string]*bucket // of providers and keys
	seq      uint64
	round    uint64
	many     int // number of buckets at which the next forgetIdle runs
	one      [1]*call
	rechecks []*bucket // buckets with a new time for their check
}

// bucket returns the bucket of a model, and adds it if it is new.
func (s *scheduler) bucket(now int64, resource string) *bucket {
	if b := s.buckets[resource]; b != nil {
		return b
	}
	s.forgetIdle(now) // before the new bucket, which looks idle
	if s.buckets == nil {
		s.buckets, s.parents = make(map[string]*bucket), make(map[string]*bucket)
	}
	r := ParseResource(resource)
	conf, ok := s.configs[r.Provider]
	if !ok {
		kind, _, _ := strings.Cut(r.Provider, "@") // a provider at another address has the limits of its kind
		conf = s.configs[kind]
	}
	top := s.parentBucket(r.Provider, nil, Limits{Concurrency: conf.Concurrency})
	rates := conf.Limits
	// The number of calls at one time holds for the whole provider, so only its bucket counts it.
	rates.Concurrency = 0
	key := s.parentBucket(r.Provider+"#"+r.Key, top, rates)
	if key.owners == nil {
		key.owners = new(share)
	}
	b := newBucket(resource, key, conf.Models[r.Model].within(rates))
	// The kernel before may have used the minute, and without limits nothing else would slow the start.
	if s.again && !b.paced() {
		b.pace.width = min(b.pace.width, fewRequests*1000)
	}
	b.waiters = &waiters{checkAt: never}
	s.buckets[resource] = b
	return b
}

// parentBucket returns the bucket of a provider or of a key.
func (s *scheduler) parentBucket(name string, parent *bucket, l Limits) *bucket {
	b := s.parents[name]
	if b == nil {
		b = newBucket(name, parent, l)
		b.blocked = make(map[*bucket]bool)
		s.parents[name] = b
	}
	return b
}

// enqueue adds a call to its queue and returns the calls that go now.
func (s *scheduler) enqueue(now int64, c *call) []*call {
	b := s.bucket(now, c.resource)
	s.seq++
	c.priority = max(0, min(c.priority, mostLevel))
	c.bucket, c.queuedAt, c.seq, c.level = b, now, s.seq, c.priority
	if c.hasFallback {
		// Waiting here would be slower than the fallback.
		if now < b.readyAt(now) {
			c.diverted = true
			s.one[0] = c
			return s.one[:]
		}
		b.startProbe(c)
	}
	c.share = b.parent.owners.child(shareKey{name: c.owner}).child(shareKey{pid: c.pid})
	c.share.join()
	// With nothing waiting in any of its buckets the call need not enter a queue.
	if b.waiters.waiting == 0 && len(b.parent.blocked) == 0 && len(b.parent.parent.blocked) == 0 {
		if in, _, _ := s.findRoom(now, c); in == nil {
			s.start(now, c)
			s.one[0] = c
			return s.one[:]
		}
	}
	b.waiters.enter(c)
	return s.giveTurns(now, b)
}

// findRoom looks for room in the buckets of a call. It returns the bucket that
// is full for the longest time, and when it will have room. Of several it
// returns the highest, because there no call may overtake.
func (s *scheduler) findRoom(now int64, c *call) (in *bucket, at int64, why string) {
	// The estimate depends on the calls beside it, so it is computed at each look.
	c.counted = c.bucket.estimate.amount(&c.bound, c.bucket.running)
	for b := c.bucket; b != nil; b = b.parent {
		if t, w := b.freeAt(now, c); t > now && t >= at {
			in, at, why = b, t, w
		}
	}
	return in, at, why
}

// start gives a call its turn.
func (s *scheduler) start(now int64, c *call) {
	c.startedAt = now
	s.seq++
	for b := c.bucket; b != nil; b = b.parent {
		b.startCall(now, c)
	}
	c.bucket.remember(c)
	c.bucket.waiters.served = s.seq
	c.share.start(s.seq, c.cost())
}

// cancel removes a waiting call.
func (s *scheduler) cancel(now int64, c *call) []*call {
	c.bucket.waiters.leave(c)
	c.share.leave()
	c.bucket.endProbe(c)
	return s.giveTurns(now, c.bucket)
}

// setPriority changes the priority of the waiting calls of a process.
func (s *scheduler) setPriority(now int64, pid int64, priority int) (woken []*call) {
	var waits []*call
	for _, key := range s.parents {
		if key.owners == nil {
			continue
		}
		for _, owner := range key.owners.children {
			if p := owner.children[shareKey{pid: pid}]; p != nil {
				for _, l := range p.queues {
					for c := l.first; c != nil; c = c.next {
						waits = append(waits, c)
					}
				}
			}
		}
	}
	// Change all of them before the first turn is given: the order depends on all.
	for _, c := range waits {
		c.bucket.waiters.leave(c)
		c.priority = max(0, min(priority, mostLevel))
		c.bucket.waiters.enter(c)
	}
	for _, c := range waits {
		woken = append(woken, s.giveTurns(now, c.bucket)...)
	}
	return woken
}

// release ends the turn of a call.
func (s *scheduler) release(now int64, c *call, f *report) (woken []*call) {
	// Most providers do not count the input that they read from their cache.
	if !c.bucket.estimate.whole {
		f.in -= f.cached
	}
	took := amountOf(f.in, f.out)
	switch f.status {
	case NotSent, Unreachable:
		took = amount{}
	case Served:
		if f.in+f.out > 0 { // else it was refused, and its usage says nothing
			c.bucket.estimate.learnUsage(c, f)
		}
	}
	if c.tooLarge = c.bucket.exceededLimit(c, f); c.tooLarge != "" {
		f.status = NotSent // it says nothing about other calls
	}
	// The share paid its bound at the start. Without that it could start many calls before the first one ends.
	c.share.charge(took[tokens] - c.bound[tokens])
	for b := c.bucket; b != nil; b = b.parent {
		b.endCall(now, c, took)
	}
	c.bucket.apply(now, c, f)
	c.bucket.endProbe(c)
	c.bucket.learnOutage(now, c, f.status)
	c.share.leave()
	// All models of this provider are unreachable, so their calls go to fallbacks too.
	if f.status == Unreachable {
		for _, b := range s.buckets {
			if b != c.bucket && b.parent.parent == c.bucket.parent.parent {
				if sent := b.divertWaiting(now); sent != nil { // the calls behind them are next now
					woken = append(append(woken, sent...), s.giveTurns(now, b)...)
				}
			}
		}
	}
	return append(append(woken, c.bucket.divertWaiting(now)...), s.giveTurns(now, c.bucket)...)
}

// divertWaiting ends the wait of all calls with a fallback, if the provider is
// in backoff.
func (b *bucket) divertWaiting(now int64) (woken []*call) {
	l := b.waiters
	if l.free == 0 || now >= b.backoffUntil() {
		return nil
	}
	for _, k := range l.classes {
		if k == nil {
			continue
		}
		for c, next := k.oldest, (*call)(nil); c != nil; c = next {
			if next = c.newer; c.hasFallback {
				l.leave(c)
				c.share.leave()
				b.endProbe(c)
				c.diverted = true
				woken = append(woken, c)
			}
		}
	}
	return woken
}

// giveTurns starts every call that can go now, of b and of the models that wait
// for the same buckets above. It begins with the most urgent call. If that has
// no room, no other call overtakes it.
func (s *scheduler) giveTurns(now int64, b *bucket) (woken []*call) {
	s.round++
	for {
		c := s.nextCall(now, b)
		if c == nil {
			return woken
		}
		l := c.bucket.waiters
		in, at, why := s.findRoom(now, c)
		if in == nil {
			l.leave(c)
			s.start(now, c)
			woken = append(woken, c)
			continue
		}
		// No smaller call may overtake in a full bucket, or a large one would wait for ever.
		in.fullInRound = s.round // nextCall skips the models below it
		s.checkLater(c.bucket, at, why)
	}
}

// checkLater sets the time of the next check of a bucket.
func (s *scheduler) checkLater(b *bucket, at int64, why string) {
	l := b.waiters
	if l.why = why; l.checkAt != at {
		l.checkAt = at
		s.rechecks = append(s.rechecks, b)
	}
}

// nextCall returns the next call of b and of the models that wait with it; nil
// if none may go.
func (s *scheduler) nextCall(now int64, b *bucket) (best *call) {
	consider := func(b *bucket) {
		c := b.waiters.head(now)
		switch {
		case c == nil:
			delete(b.parent.blocked, b)
			delete(b.parent.parent.blocked, b)
			s.checkLater(b, never, "")
		case b.fullInRound == s.round:
		// The full bucket remembers the models that wait for it, so that a release there looks at them again.
		case b.parent.fullInRound == s.round:
			b.parent.blocked[b] = true
		case b.parent.parent.fullInRound == s.round:
			b.parent.parent.blocked[b] = true
		case best == nil || c.before(best):
			best = c
		}
	}
	consider(b)
	// A call that ended at b made room above it, so models that wait there are candidates too.
	for x := b.parent; x != nil; x = x.parent {
		for o := range x.blocked {
			if o != b {
				consider(o)
			}
		}
	}
	if best == nil || len(b.parent.parent.blocked) == 0 {
		return best
	}
	// Calls under different keys have no common order, so compare again within its key.
	key := best.bucket.parent
	for _, buckets := range []map[*bucket]bool{{b: true}, key.blocked, key.parent.blocked} {
		for o := range buckets {
			if o.parent == key {
				consider(o)
			}
		}
	}
	return best
}

// forgetIdle forgets unused models if there are many, because each client with
// a key of its own has some.
func (s *scheduler) forgetIdle(now int64) {
	if len(s.buckets) < max(manyBuckets, s.many) {
		return
	}
	forget := func(all map[string]*bucket) {
		for name, b := range all {
			if b.idle(now) {
				delete(all, name)
				if b.parent != nil {
					b.parent.below--
				}
			}
		}
	}
	forget(s.buckets)
	forget(s.parents) // keys
	forget(s.parents) // providers without keys
	// A scan that frees nothing must not run at every call.
	s.many = 2 * len(s.buckets)
}

const manyBuckets = 1024
