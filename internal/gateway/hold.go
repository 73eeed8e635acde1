package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

// How long a process that wants to be held may be without: after its
// holder went, and after a start, when every holder has to come back first.
const (
	leaveTime  = 2 * time.Second
	rejoinTime = 30 * time.Second
)

// holds are the processes that end when nobody holds them.
type holds struct {
	kernel View
	end    func(abi.Pid, syscalls.ExitArgs) error

	mu      sync.Mutex
	count   map[abi.Pid]int
	timers  map[abi.Pid]*time.Timer
	stopped bool
}

// miss ends a process if nobody holds it for a time.
func (h *holds) miss(pid abi.Pid, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	if h.timers == nil {
		h.timers = make(map[abi.Pid]*time.Timer)
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		h.mu.Lock()
		gone := h.timers[pid] == t && !h.stopped // else it was taken meanwhile, and that may be over again
		if gone {
			delete(h.timers, pid)
		}
		h.mu.Unlock()
		if gone { // it may have ended meanwhile
			_ = h.end(pid, syscalls.ExitArgs{Error: "the command that ran the program is gone, and the program with it", Code: abi.ProgramGone})
		}
	})
	h.timers[pid] = t
}

// take is held by one more.
func (h *holds) take(pid abi.Pid) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.timers[pid]; t != nil {
		t.Stop()
		delete(h.timers, pid)
	}
	if h.count == nil {
		h.count = make(map[abi.Pid]int)
	}
	h.count[pid]++
}

// leave is held by one less, and reports whether nobody is left.
func (h *holds) leave(pid abi.Pid) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count[pid]--
	if h.count[pid] > 0 {
		return false
	}
	delete(h.count, pid)
	return true
}

// Rest is said before the end of the daemon: from now on nobody is missed.
func (h *holds) Rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, t := range h.timers {
		t.Stop()
	}
}

// Hold holds a process until ctx or the process ends, and tells what is ordered
// of it: its end last.
func (h *holds) Hold(ctx context.Context, pid abi.Pid, tell func(kernel.Orders) error) error {
	at, err := h.kernel.Where(pid)
	if err != nil {
		return err
	}
	b, err := h.kernel.Bytes(at.View.Spawn.Program)
	if err != nil {
		return err
	}
	var p abi.Agent
	if err := json.Unmarshal(b, &p); err != nil || !p.Held {
		return &abi.Error{Code: abi.InvalidCall, Message: "the process does not want to be held"}
	}
	h.take(pid)
	for o := (kernel.Orders{}); err == nil && o.Exit == ""; {
		if o, err = h.kernel.Orders(ctx, pid, o); err == nil {
			err = tell(o)
		}
	}
	if h.leave(pid) && err != nil {
		h.miss(pid, leaveTime)
	}
	return err
}
