package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kern-run/kern/abi"
)

// feed streams the records of all processes in commit order as lines of JSON, and
// live items between them. The first line has the cursor of the position before
// the first record. It ends when the client leaves or the daemon stops.
func (srv *Server) feed(w http.ResponseWriter, r *http.Request) (any, error) {
	o, err := feedOptions(r)
	if err != nil {
		return nil, err
	}
	if o.Pid != 0 {
		if _, err := srv.Views.Info(o.Pid); err != nil {
			return nil, err
		}
	}
	return nil, srv.stream(w, r, func(s *stream) error {
		return srv.Feed(r.Context(), o, func(item abi.FeedItem) error {
			if item.Record != nil {
				if err := s.fill(item.Record); err != nil {
					return err
				}
			}
			return s.line(item)
		})
	})
}

func feedOptions(r *http.Request) (o abi.FeedOptions, err error) {
	if err := query(r, "after", "pid", "tree", "live"); err != nil {
		return o, err
	}
	q := r.URL.Query()
	if s := q.Get("after"); s != "" {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return o, expected("/after", s, "a cursor")
		}
		o.After = &n
	}
	if s := q.Get("pid"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 1 {
			return o, expected("/pid", s, "the number of a process")
		}
		o.Pid = abi.Pid(n)
	}
	if o.Tree, err = flag(r, "tree"); err != nil {
		return o, err
	}
	o.Live, err = flag(r, "live")
	return o, err
}

// Feed calls f with the position where the feed begins and with each item that o
// selects, until ctx ends. When the connection breaks the error is [ErrLost]: go
// on with the cursor that came last.
func (c *Client) Feed(ctx context.Context, o abi.FeedOptions, f func(abi.FeedItem) error) error {
	q := url.Values{}
	if o.After != nil {
		q.Set("after", strconv.FormatUint(*o.After, 10))
	}
	if o.Pid != 0 {
		q.Set("pid", fmt.Sprint(o.Pid))
	}
	for name, set := range map[string]bool{"tree": o.Tree, "live": o.Live} {
		if set {
			q.Set(name, "1")
		}
	}
	return c.conn.readLines(ctx, "/v1/feed?"+q.Encode(), func(line []byte) error {
		var item abi.FeedItem
		if err := json.Unmarshal(line, &item); err != nil {
			return fmt.Errorf("an item that cannot be read: %w: %s", err, abi.Clip(string(line)))
		}
		return f(item)
	})
}
