package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/syscalls"
)

// A wish is a tool call that a model asked for and that the program outside
// carries out. It is a call of the row tool: admitted before the program sees
// it, open while the program works on it, and ended by the request that brings
// its result.
type pendingTool struct {
	call   format.Call
	begun  chan struct{}      // closed when its intent is on disk
	result chan format.Result // one, from the request that brings it
	left   chan struct{}      // closed when the program went on without a result
	unseen chan struct{}      // closed when the program never saw the call
	old    chan struct{}      // closed when too many are open that came later
	done   chan struct{}      // closed when it has ended; then res is there
	res    abi.Result
}

// Plan implements [syscalls.External]. It never waits for room: what it would wait for
// are calls that end only when this answer is given.
func (w *pendingTool) Plan(kernel.View) (kernel.Plan, *abi.Error) {
	return kernel.Plan{Effect: abi.Irreversible, Intent: true, Firm: true, Tool: w.call.Name, Subject: syscalls.Subject(w.call.Name, w.call.Args),
		Reserve: abi.Usage{abi.ToolCalls: 1}}, nil
}

// Run implements [syscalls.External]: it waits.
func (w *pendingTool) Run(ctx context.Context, _ *kernel.Job) kernel.Done {
	close(w.begun)
	d := kernel.Done{Usage: abi.Usage{abi.ToolCalls: 1}}
	select {
	case r := <-w.result:
		if r.Failed {
			d.Err = &abi.Error{Code: abi.ToolFailed, Message: abi.Clip(r.Text)}
			return d
		}
		d.Value = recorded(r.Text)
	case <-w.left:
		d.Err = &abi.Error{Code: abi.ToolGone, Message: "the program went on without a result of this call"}
	case <-w.unseen:
		d.Usage = abi.Usage{}
		d.Err = &abi.Error{Code: abi.NotGranted, Message: "another call of the same answer was refused, so the program saw none of them"}
	case <-w.old: // that says nothing of the tool, nor of the program: its last word may be a call
		d.Err = &abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("no result of this call came while %d later ones were made", maxPending)}
	case <-ctx.Done():
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the process ended before a result of this call came"}
	}
	return d
}

// resultMax is the longest result that is kept with its call. A longer one is
// named: it stands in the conversation.
const resultMax = 4 << 10

func recorded(text string) json.RawMessage {
	v := any(text)
	if len(text) > resultMax {
		v = map[string]any{"begins": abi.Clip(text), "bytes": len(text), "sha256": abi.HashOf([]byte(text))}
	}
	b, _ := json.Marshal(v) // it always can
	return b
}

// A heartbeat is what is done while a call is not admitted yet.
type heartbeat struct {
	pulse <-chan time.Time
	beat  func()
}

// startTool makes the call of a pending tool call, and returns when it may be shown to the
// program or was refused.
func (g *Gateway) startTool(ctx context.Context, s *session, c format.Call, wait heartbeat) (*pendingTool, *abi.Error) {
	w := &pendingTool{call: c, begun: make(chan struct{}), result: make(chan format.Result, 1), left: make(chan struct{}), unseen: make(chan struct{}), old: make(chan struct{}), done: make(chan struct{})}
	a := syscalls.ToolArgs{Name: c.Name, Args: json.RawMessage(c.Args), Relay: cmp.Or(c.ID, "-")}
	if !json.Valid(a.Args) {
		a.Args, _ = json.Marshal(c.Args) // as the model wrote it; the program will say what is wrong
	}
	args, err := json.Marshal(a)
	if err != nil {
		return nil, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	call := abi.Call{Pid: s.pid, N: s.number(), Row: "tool", Args: args}
	s.put(w)
	g.open.Go(func() {
		w.res = g.cfg.Kernel.DoVia(g.ctx, call, w)
		s.drop(w)
		close(w.done)
	})
	for {
		select {
		case <-w.begun:
			return w, nil
		case <-w.done:
			return nil, w.res.Err
		case <-wait.pulse:
			wait.beat()
		case <-ctx.Done(): // it waits for the process to go on, and nobody waits for the answer
			close(w.unseen)
			return nil, &abi.Error{Code: abi.Interrupted, Message: "the answer was stopped"}
		}
	}
}

// startTools makes the calls of an answer, in the order asked. When one is refused,
// none of them is shown.
func (g *Gateway) startTools(ctx context.Context, s *session, calls []format.Call, wait heartbeat) *abi.Error {
	var made []*pendingTool
	for _, c := range calls {
		w, e := g.startTool(ctx, s, c, wait)
		if e != nil {
			withdraw(made)
			e := *e
			e.Message = fmt.Sprintf("the model asked for the tool %s, and that was refused: %s", c.Name, e.Message)
			return &e
		}
		made = append(made, w)
	}
	return nil
}

func withdraw(made []*pendingTool) {
	for _, w := range made {
		close(w.unseen)
		<-w.done
	}
}
