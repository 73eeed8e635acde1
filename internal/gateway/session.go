package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/format"
)

// A session is what the gateway knows of one process. It is a cache: after a restart
// the gateway finds the call numbers and the children in the journal again. Tool calls
// that were open when the daemon ended have their answers there.
type session struct {
	pid    abi.Pid
	share  *share     // of its tree
	naming sync.Mutex // serializes the lookup and start of named children

	mu      sync.Mutex
	next    uint64
	kids    map[string]abi.Pid
	pending []*pendingTool // open, oldest first

	withheld map[string][]string // calls of stored answers that the program does not know, by answer
}

// maxPending is the most tool calls of a process that are open. One more ends the
// oldest, because many calls never get a result. The program may have ended, or it
// wanted only the call itself.
const maxPending = 1000

// A sessionTable holds the sessions by process, and the shares by tree.
type sessionTable struct {
	mu     sync.Mutex
	all    map[abi.Pid]*session
	shares map[abi.Pid]*share
	sweep  int // the number of sessions at which ended sessions are dropped
}

// session returns the session of a process, and makes it if there is none. It
// sometimes drops the sessions of ended processes.
func (g *Gateway) session(pid abi.Pid) (*session, error) { return g.sessions.of(g.cfg.Kernel, pid) }

func (t *sessionTable) of(k View, pid abi.Pid) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.all[pid]; s != nil {
		return s, nil
	}
	at, err := k.Where(pid)
	if err != nil {
		return nil, err
	}
	top := pid
	for parent := at.View.Spawn.Parent; parent != 0; {
		i, err := k.Info(parent)
		if err != nil {
			return nil, err
		}
		top, parent = parent, i.Parent
	}
	if t.all == nil {
		t.all, t.shares = make(map[abi.Pid]*session), make(map[abi.Pid]*share)
	}
	if t.shares[top] == nil {
		t.shares[top] = new(share)
	}
	s := &session{pid: pid, next: at.Next, share: t.shares[top]}
	if len(t.all) >= t.sweep {
		drop := func(pid abi.Pid) bool { return k.Ending(pid) != nil }
		maps.DeleteFunc(t.all, func(pid abi.Pid, _ *session) bool { return drop(pid) })
		maps.DeleteFunc(t.shares, func(top abi.Pid, _ *share) bool { return drop(top) })
		t.sweep = 2*len(t.all) + 1000
	}
	t.all[pid] = s
	return s, nil
}

// number returns a call number that was not used before.
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

// knows remembers the pid of a named child.
func (s *session) knows(name string, pid abi.Pid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kids == nil {
		s.kids = make(map[string]abi.Pid)
	}
	s.kids[name] = pid
}

// put adds a pending tool call. If too many are open, it ends the oldest.
func (s *session) put(w *pendingTool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending = append(s.pending, w); len(s.pending) > maxPending {
		close(s.pending[0].old)
		s.pending = slices.Delete(s.pending, 0, 1)
	}
}

// maxWithheld is the most stored answers whose withheld calls a session remembers.
const maxWithheld = 1000

// withhold remembers the withheld calls of a stored answer.
func (s *session) withhold(answer string, calls []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.withheld == nil || len(s.withheld) >= maxWithheld {
		s.withheld = make(map[string][]string)
	}
	slices.Sort(calls)
	s.withheld[answer] = calls
}

// complete returns q with a result for each withheld call of the answer that it
// continues. The provider has these calls, and refuses a request without their results.
func (s *session) complete(q *format.Request) (*format.Request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.WithResults(s.withheld, "The call was refused by a limit and did not run.")
}

// drop removes a pending tool call that has ended.
func (s *session) drop(w *pendingTool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.pending, w); at >= 0 {
		s.pending = slices.Delete(s.pending, at, at+1)
	}
}

// take removes and returns the pending tool call that matches a tool call of a
// conversation. Some servers use the same ids in every answer. Among equal ids take
// prefers the call with the same name and arguments, and otherwise the oldest.
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

// results ends the pending tool calls that a request names. A call without a result in
// the request ends too, because the program continued without one. The warning is the
// watchdog's. results returns an error if the process has ended, for example by the
// watchdog. It waits for each call to end, or for the client to disconnect.
func (g *Gateway) results(ctx context.Context, s *session, q *format.Request) (warning string, err error) {
	s.mu.Lock()
	none := len(s.pending) == 0
	s.mu.Unlock()
	if none {
		return "", nil
	}
	// After this loop and the next, asked holds the calls without a result.
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
