package wasm

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// An output keeps what the code wrote, up to a limit, and copies it to the writers
// of the Spec. The code never waits for a writer, because the limit bounds the
// queue.
type output struct {
	life    *life
	writers [2]io.Writer

	mu        sync.Mutex
	room      int64
	kept      [2][]byte
	truncated bool
	queue     []chunk
	wake      chan struct{} // holds one wake-up; nil: the Spec has no writers
	done      chan struct{} // closed when the queue is written
}

type chunk struct {
	stream int
	b      []byte
}

func newOutput(l *life, s *sandbox.Spec) *output {
	o := &output{life: l, room: s.Limits.Output, writers: [2]io.Writer{s.Stdout, s.Stderr}}
	if s.Stdout != nil || s.Stderr != nil {
		o.wake, o.done = make(chan struct{}, 1), make(chan struct{})
		go o.pump()
	}
	return o
}

// write keeps what the code wrote to stream 1 or 2.
func (o *output) write(stream int, b []byte) {
	i := stream - 1
	o.mu.Lock()
	if int64(len(b)) > o.room {
		b = b[:o.room]
		o.truncated = true
	}
	o.room -= int64(len(b))
	o.kept[i] = append(o.kept[i], b...)
	over := o.truncated
	if o.wake != nil && len(b) > 0 {
		o.queue = append(o.queue, chunk{i, o.kept[i][len(o.kept[i])-len(b):]})
	}
	o.mu.Unlock()
	if o.wake != nil {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	if over {
		o.life.end(sandbox.Output)
	}
}

// pump copies to the writers until wake is closed and the queue is empty.
func (o *output) pump() {
	defer close(o.done)
	for open := true; open; {
		_, open = <-o.wake
		o.mu.Lock()
		queue := o.queue
		o.queue = nil
		o.mu.Unlock()
		for _, c := range queue {
			if w := o.writers[c.stream]; w != nil {
				w.Write(c.b) // an error of the writer does not concern the run
			}
		}
	}
}

// flush ends the output and waits until the writers have it, at most for the rest of
// the wall time. A writer that never returns is abandoned.
func (o *output) flush(ctx context.Context, rest time.Duration) {
	if o.wake == nil {
		return
	}
	close(o.wake)
	t := time.NewTimer(max(rest, 100*time.Millisecond))
	defer t.Stop()
	select {
	case <-o.done:
		return
	case <-t.C:
	case <-ctx.Done():
	}
	select { // a writer that only was slow gets one more moment
	case <-o.done:
	case <-time.After(10 * time.Millisecond):
	}
	o.mu.Lock() // a stuck writer must not get the rest after the run returned
	o.queue = nil
	o.mu.Unlock()
}
