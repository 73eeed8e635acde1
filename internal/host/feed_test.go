package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// TestFeedSelects: a reader gets records and live items of one process, of a tree
// or of all, and the end of the kernel ends it.
func TestFeedSelects(t *testing.T) {
	store, lease := storetest.Mem()
	log := journal.NewLog(store, lease)
	defer log.Close()
	ctx, closeKernel := context.WithCancel(t.Context())
	parents := map[abi.Pid]abi.Pid{2: 1, 3: 2, 5: 4}
	feed := &Feed{log: log, ctx: ctx, parent: func(pid abi.Pid) abi.Pid { return parents[pid] }}
	put := func(pid abi.Pid, n uint64) {
		r := storetest.Began(pid, n, n)
		if err := log.Put(&r).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for pid := range abi.Pid(6) {
		put(pid, 1)
	}
	zero := uint64(0)
	for _, c := range []struct {
		name    string
		options abi.FeedOptions
		want    []string
	}{
		{"all", abi.FeedOptions{After: &zero}, []string{"from 0", "0:1", "1:1", "2:1", "3:1", "4:1", "5:1"}},
		{"a process", abi.FeedOptions{After: &zero, Pid: 2}, []string{"from 0", "2:1"}},
		{"a tree", abi.FeedOptions{After: &zero, Pid: 1, Tree: true}, []string{"from 0", "1:1", "2:1", "3:1"}},
		{"a part of a tree, live", abi.FeedOptions{After: &zero, Pid: 2, Tree: true, Live: true}, []string{"from 0", "2:1", "3:1", "live 2", "live 3"}},
		{"a process, live", abi.FeedOptions{After: &zero, Pid: 5, Live: true}, []string{"from 0", "5:1", "live 5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var got []string
			err := feed.Follow(ctx, c.options, func(item abi.FeedItem) error {
				switch {
				case item.Live != nil:
					got = append(got, fmt.Sprint("live ", item.Live.Pid))
				case item.Record != nil:
					got = append(got, fmt.Sprintf("%d:%d", item.Record.Pid, item.Record.N))
				default:
					got = append(got, fmt.Sprint("from ", item.Cursor))
					for pid := range abi.Pid(6) {
						feed.Live.Publish(abi.LiveItem{Kind: abi.LiveText, Pid: pid})
					}
				}
				if len(got) == len(c.want) {
					cancel()
				}
				return nil
			})
			slices.Sort(got[1:]) // records and live items are in no common order
			if !errors.Is(err, context.Canceled) || !slices.Equal(got, c.want) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	stop := errors.New("enough")
	if err := feed.Follow(t.Context(), abi.FeedOptions{Live: true}, func(abi.FeedItem) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a reader that has enough: %v", err)
	}
	var e *abi.Error
	if err := feed.Follow(t.Context(), abi.FeedOptions{Live: true}, func(abi.FeedItem) error { closeKernel(); return nil }); !errors.As(err, &e) || e.Code != abi.DaemonGone {
		t.Errorf("at the kernel's end: %v", err)
	}
}
