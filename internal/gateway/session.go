package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/format"
)

// A session is a process as the gateway sees it. All of it can be found again:
// the numbers in the journal, the children there too; tool calls that were open
// when the daemon ended have their end there.
type session struct {
	pid    abi.Pid
	naming sync.Mutex // of children, one at a time

	mu      sync.Mutex
	next    uint64
	kids    map[string]abi.Pid
	pending []*pendingTool // open, oldest first
}

// maxPending is how many tool calls of a process are open at most. Of many no
// result ever comes: the program went away, or the call was all it wanted to
// hear. So one more ends the oldest.
const maxPending = 1000

// session finds that of a process.
func (g *Gateway) session(pid abi.Pid) (*session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sessions[pid]; s != nil {
		return s, nil
	}
	at, err := g.cfg.Kernel.Where(pid)
	if err != nil {
		return nil, err
	}
	s := &session{pid: pid, next: at.Next}
	if len(g.sessions) >= g.sweep {
		for pid := range g.sessions {
			if g.cfg.Kernel.Ending(pid) != nil {
				delete(g.sessions, pid)
			}
		}
		g.sweep = 2*len(g.sessions) + 1000
	}
	g.sessions[pid] = s
	return s, nil
}

// number is a number for a call, used once.
func (s *session) number() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next
	s.next++
	return n
}

func (s *session) child(name string) (abi.Pid, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, ok := s.kids[name]
	return pid, ok
}

func (s *session) knows(name string, pid abi.Pid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kids == nil {
		s.kids = make(map[string]abi.Pid)
	}
	s.kids[name] = pid
}

func (s *session) put(w *pendingTool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending = append(s.pending, w); len(s.pending) > maxPending {
		close(s.pending[0].old)
		s.pending = slices.Delete(s.pending, 0, 1)
	}
}

// drop forgets a wish that ended by itself.
func (s *session) drop(w *pendingTool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.pending, w); at >= 0 {
		s.pending = slices.Delete(s.pending, at, at+1)
	}
}

// take finds the open wish that a call of a conversation stands for. Servers
// exist that give the same ids in every answer: there the one with the same
// words is meant, or else the oldest.
func (s *session) take(c format.Call) *pendingTool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := -1
	for i, w := range s.pending {
		if w.call.ID != c.ID {
			continue
		}
		if w.call == c {
			at = i
			break
		}
		if at < 0 {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	w := s.pending[at]
	s.pending = slices.Delete(s.pending, at, at+1)
	return w
}

// results ends the tool calls whose results a request brings, and those that
// it speaks of and brings none for: the program has gone on without. When the
// watchdog finds that this goes in circles, or the process is at its end, that
// is the error. A result may have to wait for its call to begin, unless the client goes.
func (g *Gateway) results(ctx context.Context, s *session, q *format.Request) (warning string, err error) {
	s.mu.Lock()
	none := len(s.pending) == 0
	s.mu.Unlock()
	if none {
		return "", nil
	}
	asked := make(map[string]format.Call)
	for _, c := range q.Calls() {
		asked[c.ID] = c
	}
	var ending []*pendingTool
	for _, r := range q.Results() {
		c, ok := asked[r.ID]
		if !ok {
			c.ID = r.ID
		}
		delete(asked, r.ID)
		if w := s.take(c); w != nil {
			w.result <- r
			ending = append(ending, w)
		}
	}
	for _, c := range asked {
		if w := s.take(c); w != nil {
			close(w.left)
			ending = append(ending, w)
		}
	}
	for _, w := range ending {
		select {
		case <-w.done:
		case <-ctx.Done():
			return "", closing
		}
		if w.res.Warning != nil {
			warning = abi.Clip(fmt.Sprintf("%s: %s", w.res.Warning.Code, w.res.Warning.Message))
		}
	}
	if len(ending) == 0 {
		return "", nil
	}
	if e := g.cfg.Kernel.Ending(s.pid); e != nil {
		return "", e
	}
	return warning, nil
}
