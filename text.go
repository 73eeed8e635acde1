package kern

import (
	"context"
	"errors"
	"iter"

	"github.com/kern-run/kern/abi"
)

// Feed yields the records of all processes in the order in which they were
// committed and, if o asks for it, what the journal does not hold: streamed text
// and waits. It first yields the position where it begins. A slow reader delays
// nobody, and loses items of the live channel.
func (k *Kernel) Feed(ctx context.Context, o abi.FeedOptions) iter.Seq2[abi.FeedItem, error] {
	return func(yield func(abi.FeedItem, error) bool) {
		err := k.client.Feed(ctx, o, func(item abi.FeedItem) error {
			if !yield(item, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(abi.FeedItem{}, err)
		}
	}
}

// RunWithText is Run that hands each piece of text to f as the model streams it.
// It calls f from one goroutine, and not after it has returned. Text is not
// recorded before its answer is complete: if f is too slow it misses pieces, and
// Result.Output is whole.
func (k *Kernel) RunWithText(ctx context.Context, a Agent, task string, f func(piece string)) (Result, error) {
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	// The feed begins before the process does, so f misses nothing of its first call.
	next, stop := iter.Pull2(k.Feed(live, abi.FeedOptions{Live: true}))
	defer stop()
	if _, err, ok := next(); err != nil || !ok {
		return Result{}, errors.Join(err, ctx.Err())
	}
	pid, err := k.Spawn(ctx, a, task)
	if err != nil {
		return Result{}, err
	}
	for {
		item, err, ok := next()
		if err != nil || !ok {
			break // Run's way of waiting reports what is wrong
		}
		if item.Live != nil && item.Live.Kind == abi.LiveText && item.Live.Pid == pid {
			f(item.Live.Text)
		}
		if r := item.Record; r != nil && r.Pid == pid && r.Kind == abi.KindExited {
			break
		}
	}
	return k.waitOrKill(ctx, pid)
}
