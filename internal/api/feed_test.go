package api

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/kern-run/kern/abi"
)

// TestFeed: a client gets the position, records with their payloads and live
// items, from its cursor on, until it leaves or the daemon stops.
func TestFeed(t *testing.T) {
	f := newFake()
	big := bytes.Repeat([]byte("large "), 100)
	d, blob := abi.NewData(big)
	f.blobs[blob.Hash] = blob.Bytes
	f.records = []*abi.Record{
		{Pid: 7, N: 1, Kind: abi.KindSpawned, Spawn: &abi.Spawn{Name: "seven"}},
		{Pid: 8, N: 1, Kind: abi.KindMailed, Note: &abi.Note{Body: d}},
	}
	dir, end := serve(t, f)
	c := dial(t, dir, "1.2.3")
	after := uint64(1)
	var got []abi.FeedItem
	keep := func(item abi.FeedItem) error { got = append(got, item); return nil }
	if err := c.Feed(t.Context(), abi.FeedOptions{After: &after, Live: true}, keep); err != nil || len(got) != 3 {
		t.Fatalf("%d items, %v", len(got), err)
	}
	if got[0] != (abi.FeedItem{Cursor: 1}) || got[1].Cursor != 2 || got[1].Record.Pid != 8 || !bytes.Equal(got[1].Record.Note.Body.Bytes, big) {
		t.Errorf("got %+v", got[:2])
	}
	if l := got[2].Live; l == nil || l.Text != "so" || l.Dropped != 2 {
		t.Errorf("live: %+v", l)
	}
	got = nil
	ctx, cancel := context.WithCancel(t.Context())
	leave := func(item abi.FeedItem) error { cancel(); return keep(item) }
	if err := c.Feed(ctx, abi.FeedOptions{Pid: 7}, leave); !errors.Is(err, context.Canceled) || len(got) != 1 || got[0].Cursor != 2 {
		t.Errorf("the reader that leaves: %+v, %v", got, err)
	}
	<-f.waiting
	<-f.left
	go func() { <-f.waiting; end() }()
	var e *abi.Error
	if err := c.Feed(t.Context(), abi.FeedOptions{}, keep); !errors.As(err, &e) || e.Code != abi.DaemonGone {
		t.Errorf("at the daemon's end: %v", err)
	}
}
