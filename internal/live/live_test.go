package live

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func text(call uint64) abi.LiveItem {
	return abi.LiveItem{Kind: abi.LiveText, Pid: 1, Call: call, Text: "x"}
}

// TestOrder: a subscriber reads what was published while it subscribed, in
// order, and only what it wants.
func TestOrder(t *testing.T) {
	var c Channel
	c.Publish(text(1))
	all, even := c.Subscribe(nil), c.Subscribe(func(i *abi.LiveItem) bool { return i.Call%2 == 0 })
	defer even.Close()
	for n := range uint64(4) {
		c.Publish(text(n + 2))
	}
	for n := range uint64(4) {
		if i, err := all.Next(t.Context()); err != nil || i != text(n+2) {
			t.Errorf("item %d: %+v, %v", n, i, err)
		}
	}
	all.Close()
	c.Publish(text(6))
	for n := range uint64(3) {
		if i, err := even.Next(t.Context()); err != nil || i.Call != 2*n+2 {
			t.Errorf("even item %d: %+v, %v", n, i, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	for i := range even.Items(ctx) {
		t.Errorf("after the end: %+v", i)
	}
}

// TestDropped: a subscriber that does not read loses the oldest items and learns
// how many; a subscriber that reads loses none.
func TestDropped(t *testing.T) {
	var c Channel
	slow := c.Subscribe(nil)
	defer slow.Close()
	const last = 3*Buffer + 7
	for n := range uint64(last) {
		c.Publish(text(n + 1))
	}
	var read, dropped uint64
	for read+dropped < last {
		i, err := slow.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		read, dropped = read+1, dropped+i.Dropped
		if i.Call != read+dropped {
			t.Fatalf("item of call %d, after %d read and %d dropped", i.Call, read, dropped)
		}
	}
	if read != Buffer {
		t.Errorf("read %d items, want %d", read, Buffer)
	}
}

// TestConcurrent: items of one publisher stay in order, and each item is either
// read or counted.
func TestConcurrent(t *testing.T) {
	const publishers, items = 4, 2000
	var c Channel
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers, writers sync.WaitGroup
	for range 3 {
		s := c.Subscribe(nil)
		readers.Go(func() {
			defer s.Close()
			var seen uint64
			last := map[abi.Pid]uint64{}
			for i := range s.Items(ctx) {
				if i.Call <= last[i.Pid] {
					t.Errorf("process %d: call %d after %d", i.Pid, i.Call, last[i.Pid])
				}
				last[i.Pid] = i.Call
				if seen += 1 + i.Dropped; seen == publishers*items {
					return
				}
			}
		})
	}
	for pid := range abi.Pid(publishers) {
		writers.Go(func() {
			for n := range uint64(items) {
				c.Publish(abi.LiveItem{Kind: abi.LiveText, Pid: pid + 1, Call: n + 1})
			}
		})
	}
	writers.Wait()
	readers.Wait()
}

// TestNil: a part that was given no channel may publish.
func TestNil(*testing.T) {
	var c *Channel
	c.Publish(text(1))
}

func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct {
		name        string
		subscribers int
	}{{"none", 0}, {"one that does not read", 1}} {
		b.Run(c.name, func(b *testing.B) {
			var ch Channel
			for range c.subscribers {
				defer ch.Subscribe(nil).Close()
			}
			for b.Loop() {
				ch.Publish(text(1))
			}
		})
	}
}
