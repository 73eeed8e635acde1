package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// A silence finds out that a daemon answers nothing. Some requests wait for hours on
// purpose, so a second, short request decides.
type silence struct {
	tell func() // nil: nobody wants to know
	once sync.Once
}

// silentTime is how long a request waits before the short request is sent, and how
// long that one may take.
const silentTime = 1500 * time.Millisecond

// maxPause bounds the time between two short requests.
const maxPause = 30 * time.Second

// watch asks for news until stop is called.
func (s *silence) watch(ctx context.Context, client *http.Client) (stop func()) {
	if s.tell == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(silentTime, func() { s.probe(ctx, client) })
	return cancel
}

// probe asks the daemon about itself, again and again while the request waits.
func (s *silence) probe(ctx context.Context, client *http.Client) {
	for pause := silentTime; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		short, cancel := context.WithTimeout(ctx, silentTime)
		r, err := http.NewRequestWithContext(short, "GET", "http://kern"+aboutPath, nil)
		if err == nil {
			var res *http.Response
			if res, err = client.Do(r); err == nil {
				res.Body.Close()
			}
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			s.once.Do(s.tell)
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
