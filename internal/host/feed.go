package host

import (
	"context"
	"errors"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/live"
)

// A Feed joins the records of all processes with the live channel.
type Feed struct {
	Live   live.Channel
	log    *journal.Log
	parent func(abi.Pid) abi.Pid // 0: a top process, or no process
	ctx    context.Context       // ends when the kernel closes
}

// Follow calls f with the position where it begins, and then with every item
// that o selects, until ctx or the kernel ends or f returns an error. It calls f
// from one goroutine at a time. A slow f delays no process: records wait in the
// journal, and live items are dropped and counted.
func (feed *Feed) Follow(ctx context.Context, o abi.FeedOptions, f func(abi.FeedItem) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(feed.ctx, func() { cancel(errClosing) })()
	var mu sync.Mutex
	each := func(item abi.FeedItem) error {
		mu.Lock()
		defer mu.Unlock()
		return f(item)
	}
	after := feed.log.End()
	if o.After != nil {
		after = journal.Cursor(*o.After)
	}
	var pump sync.WaitGroup
	defer pump.Wait() // no call of f comes after the return
	defer cancel(nil)
	if o.Live {
		// The subscription begins before the caller learns the position, so that
		// live items that follow it are not missed.
		sub := feed.Live.Subscribe(onlyOf(o))
		pump.Go(func() {
			defer sub.Close()
			cancel(feed.followLive(ctx, sub, o, each))
		})
	}
	if err := each(abi.FeedItem{Cursor: uint64(after)}); err != nil {
		return err
	}
	for e, err := range feed.log.Feed(ctx, after, feed.selected(o)) {
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, journal.ErrClosed):
			return errClosing
		case err != nil:
			return err
		}
		if err := each(abi.FeedItem{Cursor: uint64(e.Cursor), Record: e.Record}); err != nil {
			return err
		}
	}
	return nil
}

func (feed *Feed) followLive(ctx context.Context, sub *live.Subscription, o abi.FeedOptions, each func(abi.FeedItem) error) error {
	wants := feed.selected(o)
	for item := range sub.Items(ctx) {
		if wants != nil && !wants(item.Pid) {
			continue
		}
		if err := each(abi.FeedItem{Live: &item}); err != nil {
			return err
		}
	}
	return nil
}

// onlyOf selects the live items of one process before they take room in the buffer.
// A tree is selected later, because publishers must not ask the kernel.
func onlyOf(o abi.FeedOptions) func(*abi.LiveItem) bool {
	if o.Pid == 0 || o.Tree {
		return nil
	}
	return func(i *abi.LiveItem) bool { return i.Pid == o.Pid }
}

// selected selects the processes of a feed; nil selects all.
func (feed *Feed) selected(o abi.FeedOptions) func(abi.Pid) bool {
	if o.Pid == 0 {
		return nil
	}
	if !o.Tree {
		return func(pid abi.Pid) bool { return pid == o.Pid }
	}
	known := map[abi.Pid]bool{0: false, o.Pid: true} // a process never moves to another tree
	var below func(abi.Pid) bool
	below = func(pid abi.Pid) bool {
		is, ok := known[pid]
		if !ok {
			is = below(feed.parent(pid))
			known[pid] = is
		}
		return is
	}
	return below
}
