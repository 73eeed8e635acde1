package quota

import "strings"

// sched decides who goes when. It is a function of what it is told and of the
// times it is given, which never go back.
type sched struct {
	configs map[string]Config
	again   bool
	buckets map[string]*bucket // of models, by resource
	above   map[string]*bucket // of providers and keys
	seq     uint64
	round   uint64
	many    int // buckets, before it is looked for some to forget
	one     [1]*call
	looks   []*bucket // whose line has a new time to look again
}

// bucket finds the bucket of a model.
func (s *sched) bucket(now int64, resource string) *bucket {
	if b := s.buckets[resource]; b != nil {
		return b
	}
	s.sweep(now) // before there is one that nobody stands in yet
	if s.buckets == nil {
		s.buckets, s.above = make(map[string]*bucket), make(map[string]*bucket)
	}
	r := ParseResource(resource)
	conf, ok := s.configs[r.Provider]
	if !ok {
		kind, _, _ := strings.Cut(r.Provider, "@") // a provider at another address is still one of its kind
		conf = s.configs[kind]
	}
	top := s.parent(r.Provider, nil, Limits{Concurrency: conf.Concurrency})
	rates := conf.Limits
	rates.Concurrency = 0
	key := s.parent(r.Provider+"#"+r.Key, top, rates)
	if key.kin == nil {
		key.kin = new(party)
	}
	b := newBucket(resource, key, conf.Models[r.Model].within(rates))
	if s.again && !b.paced() {
		b.care.width = min(b.care.width, fewRequests*1000)
	}
	b.line = &line{look: never}
	s.buckets[resource] = b
	return b
}

// parent finds the bucket of a provider, or of a key.
func (s *sched) parent(name string, up *bucket, l Limits) *bucket {
	b := s.above[name]
	if b == nil {
		b = newBucket(name, up, l)
		b.blocked = make(map[*bucket]bool)
		s.above[name] = b
	}
	return b
}

// ask puts a call into its line and returns the calls that go.
func (s *sched) ask(now int64, c *call) []*call {
	b := s.bucket(now, c.key)
	s.seq++
	c.priority = max(0, min(c.priority, mostLevel))
	c.bucket, c.asked, c.seq, c.level = b, now, s.seq, c.priority
	if c.elsewhere {
		if now < b.back(now) {
			c.away = true
			s.one[0] = c
			return s.one[:]
		}
		b.sends(c)
	}
	c.party = b.up.kin.member(id{name: c.owner}).member(id{pid: c.pid})
	c.party.join()
	if b.line.waiting == 0 && len(b.up.blocked) == 0 && len(b.up.up.blocked) == 0 {
		if in, _, _ := s.room(now, c); in == nil {
			s.send(now, c)
			s.one[0] = c
			return s.one[:]
		}
	}
	b.line.enter(c)
	return s.run(now, b)
}

// room looks for room for c in its bucket and those above it. It returns the
// one that has none for the longest, and when it will; of several the highest, for
// there nobody may overtake.
func (s *sched) room(now int64, c *call) (in *bucket, at int64, why string) {
	c.guess = c.bucket.habit.guess(&c.weight, c.bucket.running)
	for b := c.bucket; b != nil; b = b.up {
		if t, w := b.room(now, c); t > now && t >= at {
			in, at, why = b, t, w
		}
	}
	return in, at, why
}

func (s *sched) send(now int64, c *call) {
	c.went = now
	s.seq++
	for b := c.bucket; b != nil; b = b.up {
		b.take(now, c)
	}
	c.bucket.look(c)
	c.bucket.line.served = s.seq
	c.party.start(s.seq, c.cost())
}

// cancel takes a call out that waits.
func (s *sched) cancel(now int64, c *call) []*call {
	c.bucket.line.leave(c)
	c.party.leave()
	c.bucket.forgets(c)
	return s.run(now, c.bucket)
}

// rank gives another priority to what waits of a process.
func (s *sched) rank(now int64, pid int64, priority int) (gone []*call) {
	var waits []*call
	for _, key := range s.above {
		if key.kin == nil {
			continue
		}
		for _, owner := range key.kin.kids {
			if p := owner.kids[id{pid: pid}]; p != nil {
				for _, l := range p.lanes {
					for c := l.first; c != nil; c = c.next {
						waits = append(waits, c)
					}
				}
			}
		}
	}
	for _, c := range waits {
		c.bucket.line.leave(c)
		c.priority = max(0, min(priority, mostLevel))
		c.bucket.line.enter(c)
	}
	for _, c := range waits {
		gone = append(gone, s.run(now, c.bucket)...)
	}
	return gone
}

// release ends the turn of a call.
func (s *sched) release(now int64, c *call, f *news) (gone []*call) {
	if !c.bucket.habit.whole {
		f.in -= f.cached
	}
	took := weigh(f.in, f.out)
	switch f.word {
	case Unsent, Gone:
		took = amount{}
	case Fine:
		if f.in+f.out > 0 { // else it was refused, and says nothing of what others take
			c.bucket.habit.took(c, f)
		}
	}
	if c.over = c.bucket.over(c, f); c.over != "" {
		f.word = Unsent // it says nothing to others
	}
	c.party.charge(took[tokens] - c.weight[tokens])
	for b := c.bucket; b != nil; b = b.up {
		b.give(now, c, took)
	}
	c.bucket.hear(now, c, f)
	c.bucket.forgets(c)
	c.bucket.found(now, c, f.word)
	c.party.leave()
	if f.word == Gone {
		for _, b := range s.buckets {
			if b != c.bucket && b.up.up == c.bucket.up.up {
				if sent := b.divert(now); sent != nil { // who stood behind them is the next now
					gone = append(append(gone, sent...), s.run(now, b)...)
				}
			}
		}
	}
	return append(append(gone, c.bucket.divert(now)...), s.run(now, c.bucket)...)
}

// divert sends those who wait and can go elsewhere there, when the provider is
// away.
func (b *bucket) divert(now int64) (gone []*call) {
	l := b.line
	if l.free == 0 || now >= b.away() {
		return nil
	}
	for _, k := range l.classes {
		if k == nil {
			continue
		}
		for c, next := k.oldest, (*call)(nil); c != nil; c = next {
			if next = c.newer; c.elsewhere {
				l.leave(c)
				c.party.leave()
				b.forgets(c)
				c.away = true
				gone = append(gone, c)
			}
		}
	}
	return gone
}

// run lets go who can go now, of the line of b and of those that wait for room
// in the same buckets above. The most urgent is looked at first; where there is
// no room for it, those behind it do not overtake.
func (s *sched) run(now int64, b *bucket) (gone []*call) {
	s.round++
	for {
		c := s.best(now, b)
		if c == nil {
			return gone
		}
		l := c.bucket.line
		in, at, why := s.room(now, c)
		if in == nil {
			l.leave(c)
			s.send(now, c)
			gone = append(gone, c)
			continue
		}
		in.closed = s.round // and best remembers who waits for it
		s.wait(c.bucket, at, why)
	}
}

// wait notes when to look at a line again.
func (s *sched) wait(b *bucket, at int64, why string) {
	l := b.line
	if l.why = why; l.look != at {
		l.look = at
		s.looks = append(s.looks, b)
	}
}

// best is the next call among b and those that wait with it; nil when there is
// none that may go.
func (s *sched) best(now int64, b *bucket) (best *call) {
	look := func(b *bucket) {
		c := b.line.head(now)
		switch {
		case c == nil:
			delete(b.up.blocked, b)
			delete(b.up.up.blocked, b)
			s.wait(b, never, "")
		case b.closed == s.round:
		case b.up.closed == s.round:
			b.up.blocked[b] = true
		case b.up.up.closed == s.round:
			b.up.up.blocked[b] = true
		case best == nil || c.before(best):
			best = c
		}
	}
	look(b)
	for x := b.up; x != nil; x = x.up {
		for o := range x.blocked {
			if o != b {
				look(o)
			}
		}
	}
	if best == nil || len(b.up.up.blocked) == 0 {
		return best
	}
	// Calls at different keys are in no order of all. At its own key it is the first.
	key := best.bucket.up
	for _, some := range []map[*bucket]bool{{b: true}, key.blocked, key.up.blocked} {
		for o := range some {
			if o.up == key {
				look(o)
			}
		}
	}
	return best
}

// sweep forgets models that nobody uses any more, when there are many: each
// caller with a key of its own has some.
func (s *sched) sweep(now int64) {
	if len(s.buckets) < max(manyBuckets, s.many) {
		return
	}
	forget := func(all map[string]*bucket) {
		for name, b := range all {
			if b.idle(now) {
				delete(all, name)
				if b.up != nil {
					b.up.below--
				}
			}
		}
	}
	forget(s.buckets)
	forget(s.above) // keys
	forget(s.above) // providers that have none left
	s.many = 2 * len(s.buckets)
}

const manyBuckets = 1024
