package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// FollowWaits calls f with each begin and end of a wait, until ctx ends. A missed item
// is only not shown.
func FollowWaits(ctx context.Context, s *Session, pid abi.Pid, f func(*abi.LiveItem)) {
	_ = s.Do(ctx, func(c *api.Client) error {
		return c.Feed(ctx, abi.FeedOptions{Pid: pid, Live: true}, func(item abi.FeedItem) error {
			if item.Live != nil && item.Live.Kind == abi.LiveWait {
				f(item.Live)
			}
			return nil
		})
	})
}

// waitWords are the waits that the name of the kernel does not explain.
var waitWords = map[string]string{"back-off": "waiting for the provider", "turn": "waiting for a turn at the provider", "room": "waiting for room under a limit",
	"approval": "a person's answer", "cont": "paused"}

// waitText says what a call waits for; empty: nothing. A call that is tried again waits
// for the provider until an attempt succeeds.
func waitText(item *abi.LiveItem) string {
	name, rest, _ := strings.Cut(item.For, " ")
	if item.Attempt == 0 || name == "cont" || name == "room" {
		return strings.TrimSpace(cmp.Or(waitWords[name], name) + " " + rest)
	}
	cause := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(item.Cause, "MODEL_"), "_", " "))
	return fmt.Sprintf("%s (%s, try %d)", waitWords["back-off"], cause, item.Attempt)
}

// patience is how long a call waits before the person is told.
const patience = 3 * time.Second

// Waits notes the calls of a process that wait long, for a person without a progress
// line: a note when a call has waited for some seconds, and another when it goes on.
type Waits struct {
	Pid  abi.Pid
	Note func(format string, args ...any)

	mu    sync.Mutex
	calls map[uint64]*longWait
}

// longWait is the wait of a call, with the attempts between.
type longWait struct {
	text  string
	since time.Time
	timer *time.Timer
	told  bool
}

// Add adds the begin or the end of a wait.
func (w *Waits) Add(item *abi.LiveItem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, call := waitText(item), w.calls[item.Call]
	switch {
	case text != "" && call != nil:
		call.text = text
	case text != "" && (item.Attempt > 0 || strings.HasPrefix(text, "waiting ")):
		// Questions have lines of their own, and other waits are what the agent asked for.
		if w.calls == nil {
			w.calls = make(map[uint64]*longWait)
		}
		call = &longWait{text: text, since: time.Now()}
		call.timer = time.AfterFunc(patience, func() { w.tell(call) })
		w.calls[item.Call] = call
	case text == "" && call != nil:
		delete(w.calls, item.Call)
		if !call.timer.Stop() && call.told {
			w.Note("kern: process %d goes on after %s of waiting", w.Pid, Age(time.Since(call.since)))
		}
	}
}

func (w *Waits) tell(call *longWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c == call {
			call.told = true
			w.Note("kern: process %d is %s", w.Pid, Clean(call.text))
		}
	}
}

// Stop ends all notes.
func (w *Waits) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.calls {
		call.timer.Stop()
	}
	w.calls = nil
}
