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

// The time that a process may live without a client that holds it. leaveTime runs after
// the last client left. rejoinTime runs after a start of the daemon or the process,
// because every client must first connect.
const (
	leaveTime  = 2 * time.Second
	rejoinTime = 30 * time.Second
)

// holds counts the clients that hold each process. A held process ends when no client
// holds it, because then the command that ran its program is gone.
type holds struct {
	kernel View
	end    func(abi.Pid, syscalls.ExitArgs) error

	mu      sync.Mutex
	count   map[abi.Pid]int
	timers  map[abi.Pid]*time.Timer
	stopped bool
}

// miss ends a process unless a client holds it again within d.
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
		gone := h.timers[pid] == t && !h.stopped // otherwise a client took the process, and a newer timer may run
		if gone {
			delete(h.timers, pid)
		}
		h.mu.Unlock()
		if gone { // the error is ignored, because the process may have ended by itself
			_ = h.end(pid, syscalls.ExitArgs{Error: "the command that ran the program is gone, and the program with it", Code: abi.ProgramGone})
		}
	})
	h.timers[pid] = t
}

// take counts one more client and stops the timer of the process.
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

// leave counts one client less, and reports whether none is left.
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

// Rest stops all timers, and no new timer starts. The daemon calls it before it ends,
// because then every client leaves and the processes must survive.
func (h *holds) Rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, t := range h.timers {
		t.Stop()
	}
}

// Hold holds a process until ctx or the process ends. It calls tell with each change of
// the orders to the process; the last one is its exit.
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
