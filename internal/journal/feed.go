package journal

import (
	"context"
	"iter"

	"github.com/kern-run/kern/abi"
)

// Feed yields all records in commit order, from the one behind a cursor on, and
// goes on with those that are committed later. It ends with the error of ctx, with
// [ErrClosed] when the log is closed, or with an error of the store. wants selects
// processes; nil selects all.
//
// A reader takes what it reads from the store, at its own speed: nothing is
// queued for it, so it cannot delay a commit. Feed is an iterator because a reader
// then has nothing to close and leaves with break.
func (l *Log) Feed(ctx context.Context, after Cursor, wants func(abi.Pid) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { l.follow(ctx, l.store.Feed(after), wants, yield) }
}

// End is the position of the last record that is committed now.
func (l *Log) End() Cursor { return l.store.Feed(Newest).Cursor() }

// Records yields the records of one process after the one numbered after, and
// goes on until the process has exited. Else it ends as [Log.Feed] does.
func (l *Log) Records(ctx context.Context, pid abi.Pid, after uint64) iter.Seq2[*abi.Record, error] {
	return func(yield func(*abi.Record, error) bool) {
		// The place in the feed is taken first, so that no record falls between.
		feed := l.store.Feed(Newest)
		for r, err := range l.store.Records(pid, after) {
			if !yield(r, err) || err != nil || r.Kind == abi.KindExited {
				return
			}
			after = r.N
		}
		l.follow(ctx, feed, func(p abi.Pid) bool { return p == pid }, func(e Entry, err error) bool {
			if err == nil && e.N <= after {
				return true
			}
			return yield(e.Record, err) && err == nil && e.Kind != abi.KindExited
		})
	}
}

// follow reads a feed until yield returns false or an error ends it.
func (l *Log) follow(ctx context.Context, feed FeedReader, wants func(abi.Pid) bool, yield func(Entry, error) bool) {
	for closed := false; ; {
		// Taken before the look, so that no commit is missed after it.
		changed := l.Changed()
		list, err := feed.Next(wants)
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
		switch {
		case err == nil && ctx.Err() != nil:
			err = ctx.Err()
		case err == nil && len(list) == 0 && closed:
			err = ErrClosed
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		if len(list) > 0 || closed {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-l.gone:
			closed = true // what was committed last is still to be read
		}
	}
}
