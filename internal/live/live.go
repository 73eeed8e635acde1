// Package live is the live channel: it carries what the journal does not hold,
// such as streamed text and waits, from the running calls to any number of
// subscribers.
//
// Publishing never blocks, and costs one atomic load while nobody subscribes.
// Each subscriber has a bounded buffer. A subscriber that reads too slowly loses
// its oldest items; the next item that it reads says how many.
package live

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kern-run/kern/abi"
)

// Buffer is how many items wait for one subscriber.
const Buffer = 256

// A Channel connects publishers with subscribers. The zero Channel and the nil
// Channel are ready to use; items published on a nil Channel are discarded.
type Channel struct {
	mu          sync.Mutex // held to replace the list
	subscribers atomic.Pointer[[]*Subscription]
}

// Publish hands an item to every subscriber that wants it. It does not wait for
// any of them.
func (c *Channel) Publish(item abi.LiveItem) {
	if c == nil {
		return
	}
	if list := c.subscribers.Load(); list != nil {
		deliver(*list, item)
	}
}

// deliver is apart from Publish so that an item that nobody wants is not
// allocated.
func deliver(list []*Subscription, item abi.LiveItem) {
	for _, s := range list {
		if s.wants == nil || s.wants(&item) {
			s.put(item)
		}
	}
}

// Subscribe returns a subscription to the items that wants accepts; nil accepts
// all of them. The publisher calls wants, so it must be fast and must not block.
// The caller must close the subscription.
func (c *Channel) Subscribe(wants func(*abi.LiveItem) bool) *Subscription {
	s := &Subscription{channel: c, wants: wants, ready: make(chan struct{}, 1)}
	c.replaceList(func(list []*Subscription) []*Subscription { return append(list, s) })
	return s
}

// replaceList stores a changed copy of the list, because publishers read the old
// one without a lock.
func (c *Channel) replaceList(change func([]*Subscription) []*Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*Subscription
	if old := c.subscribers.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if list = change(list); len(list) == 0 {
		// Without a list, Publish costs one load.
		c.subscribers.Store(nil)
		return
	}
	c.subscribers.Store(&list)
}

// A Subscription is the buffer of one subscriber.
type Subscription struct {
	channel *Channel
	wants   func(*abi.LiveItem) bool
	ready   chan struct{} // one token: the buffer has an item

	mu      sync.Mutex
	items   []abi.LiveItem // a ring, allocated with the first item
	first   int
	count   int
	dropped uint64 // items lost since the last one that was read
}

// put adds an item, in place of the oldest one when the buffer is full.
func (s *Subscription) put(item abi.LiveItem) {
	s.mu.Lock()
	if s.items == nil {
		s.items = make([]abi.LiveItem, Buffer)
	}
	if s.count == Buffer {
		// An item that is lost may itself stand for lost items.
		s.dropped += 1 + s.items[s.first].Dropped
		s.first, s.count = (s.first+1)%Buffer, s.count-1
	}
	s.items[(s.first+s.count)%Buffer] = item
	s.count++
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take removes the oldest item.
func (s *Subscription) take() (item abi.LiveItem, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 {
		return item, false
	}
	// The slot is emptied, so that the ring does not keep the text in memory.
	item, s.items[s.first] = s.items[s.first], abi.LiveItem{}
	s.first, s.count = (s.first+1)%Buffer, s.count-1
	item.Dropped, s.dropped = item.Dropped+s.dropped, 0
	return item, true
}

// Next waits for the next item. Its error is that of ctx.
func (s *Subscription) Next(ctx context.Context) (abi.LiveItem, error) {
	for {
		if item, ok := s.take(); ok {
			return item, nil
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return abi.LiveItem{}, ctx.Err()
		}
	}
}

// Items yields items until ctx ends.
func (s *Subscription) Items(ctx context.Context) iter.Seq[abi.LiveItem] {
	return func(yield func(abi.LiveItem) bool) {
		for {
			item, err := s.Next(ctx)
			if err != nil || !yield(item) {
				return
			}
		}
	}
}

// Close ends the subscription. Items that were not read are lost.
func (s *Subscription) Close() {
	s.channel.replaceList(func(list []*Subscription) []*Subscription {
		return slices.DeleteFunc(list, func(other *Subscription) bool { return other == s })
	})
}
