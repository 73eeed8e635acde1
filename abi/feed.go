package abi

// FeedOptions select what a reader of the feed gets. The zero value selects the
// records of all processes that are committed from now on.
type FeedOptions struct {
	After *uint64 // the cursor that was read last; nil: the end of the feed
	Pid   Pid     // only this process; 0: all
	Tree  bool    // with Pid: the processes below it too
	Live  bool    // items of the live channel too
}

// A FeedItem is the position where the feed begins, a record with its position,
// or an item of the live channel, which has no position.
type FeedItem struct {
	Cursor uint64    `json:"cursor,omitempty"`
	Record *Record   `json:"record,omitempty"`
	Live   *LiveItem `json:"live,omitempty"`
}
