package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/sys"
)

// How long a process that wants to be held may be without: after the one who
// held it went, and after a start, when everybody has to come back first.
const (
	leaveTime  = 2 * time.Second
	rejoinTime = 30 * time.Second
)

// holds are the processes that end when nobody holds them.
type holds struct {
	mu      sync.Mutex
	count   map[abi.Pid]int
	timers  map[abi.Pid]*time.Timer
	stopped bool
}

// wait calls f if nobody holds a process for a time.
func (h *holds) wait(pid abi.Pid, d time.Duration, f func(abi.Pid)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	if h.timers == nil {
		h.timers = make(map[abi.Pid]*time.Timer)
	}
	h.timers[pid] = time.AfterFunc(d, func() {
		h.mu.Lock()
		gone := h.count[pid] == 0 && !h.stopped
		h.mu.Unlock()
		if gone {
			f(pid)
		}
	})
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
func (g *Gateway) Rest() {
	h := &g.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, t := range h.timers {
		t.Stop()
	}
}

// Hold holds a process until ctx or the process ends.
func (g *Gateway) Hold(ctx context.Context, pid abi.Pid) error {
	i, err := g.cfg.Kernel.Info(pid)
	if err != nil {
		return err
	}
	b, err := g.cfg.Kernel.Bytes(i.Spawn.Program)
	if err != nil {
		return err
	}
	var p sys.Program
	if err := json.Unmarshal(b, &p); err != nil || !p.Held {
		return &abi.Error{Code: abi.InvalidCall, Message: "the process does not want to be held"}
	}
	g.holds.take(pid)
	_, err = g.cfg.Kernel.Wait(ctx, pid)
	if g.holds.leave(pid) && err != nil {
		g.holds.wait(pid, leaveTime, g.abandoned)
	}
	return err
}

// abandoned ends a process that nobody holds any more.
func (g *Gateway) abandoned(pid abi.Pid) {
	_ = g.End(g.ctx, pid, sys.ExitArgs{Error: "the command that ran the program is gone, and the program with it", Code: abi.ProgramGone}) // it may have ended meanwhile
}
