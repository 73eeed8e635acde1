package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/syscalls"
)

// A pendingTool is a tool call that a model asked for and that the program carries
// out. It is a call of the row tool. The kernel admits it before the program sees it,
// and it stays open while the program works. The request with its result ends it.
type pendingTool struct {
	call   format.Call
	begun  chan struct{}      // closed when the intent is on disk
	result chan format.Result // gets one result, from a later request
	left   chan struct{}      // closed when the program continued without a result
	unseen chan struct{}      // closed when the program never saw the call
	old    chan struct{}      // closed when maxPending later calls are open
	done   chan struct{}      // closed when the call has ended; then res is set
	res    abi.Result
}

// Plan implements [syscalls.External]. The plan is firm, so the call never waits for
// room in a limit. The calls that would free the room end only after this answer.
func (w *pendingTool) Plan(kernel.View) (kernel.Plan, *abi.Error) {
	return kernel.Plan{Effect: abi.Irreversible, Intent: true, Firm: true, Tool: w.call.Name, Subject: syscalls.Subject(w.call.Name, w.call.Args),
		Reserve: abi.Usage{abi.ToolCalls: 1}}, nil
}

// Run implements [syscalls.External]. It waits for the result from the program, or
// for one of the other ends of the call.
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
	case <-w.old: // this is not the fault of the tool or the program, which may end with an unanswered call
		d.Err = &abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("no result of this call came while %d later ones were made", maxPending)}
	case <-ctx.Done():
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the process ended before a result of this call came"}
	}
	return d
}

// resultMax is the longest result that is recorded with its call. For a longer result
// the record has its hash, because the conversation already holds the text.
const resultMax = 4 << 10

// recorded returns the value under which the kernel records a result.
func recorded(text string) json.RawMessage {
	v := any(text)
	if len(text) > resultMax {
		v = map[string]any{"begins": abi.Clip(text), "bytes": len(text), "sha256": abi.HashOf([]byte(text))}
	}
	b, _ := json.Marshal(v) // a value of texts and numbers always encodes
	return b
}

// A heartbeat calls beat at each pulse while the kernel has not admitted a call.
type heartbeat struct {
	pulse <-chan time.Time
	beat  func()
}

// startTool makes the system call of one tool call. It returns when the program may
// see the tool call, or when the kernel refused it.
func (g *Gateway) startTool(ctx context.Context, s *session, c format.Call, wait heartbeat) (*pendingTool, *abi.Error) {
	w := &pendingTool{call: c, begun: make(chan struct{}), result: make(chan format.Result, 1), left: make(chan struct{}), unseen: make(chan struct{}), old: make(chan struct{}), done: make(chan struct{})}
	a := syscalls.ToolArgs{Name: c.Name, Args: json.RawMessage(c.Args), Relay: cmp.Or(c.ID, "-")}
	if !json.Valid(a.Args) {
		a.Args, _ = json.Marshal(c.Args) // keep the text of the model; the program reports the error
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
		case <-ctx.Done(): // the program left while the call waited for the process to continue
			close(w.unseen)
			return nil, &abi.Error{Code: abi.Interrupted, Message: "the answer was stopped"}
		}
	}
}

// startTools makes the calls of an answer in their order. refused has the reason for
// each call that the kernel refused. If it refused all of them, or if the process takes
// no call any more, the program sees none and gets the error.
func (g *Gateway) startTools(ctx context.Context, s *session, calls []format.Call, wait heartbeat) (refused map[int]string, first *abi.Error) {
	var made []*pendingTool
	over := false
	refused = make(map[int]string)
	for i, c := range calls {
		w, e := g.startTool(ctx, s, c, wait)
		if e == nil {
			made = append(made, w)
			continue
		}
		refused[i] = string(e.Code) + ": " + e.Message
		if first == nil {
			named := *e
			named.Message = fmt.Sprintf("the model asked for the tool %s, and that was refused: %s", c.Name, e.Message)
			first = &named
		}
		over = e.Code == abi.Interrupted || e.Code == abi.ProcessEnding || process.Gone(e.Code)
		if _, limit := abi.LimitOf(e.Code); over || limit && len(made) == 0 {
			break // no further call fits either
		}
	}
	if len(made) == 0 || over {
		withdraw(made)
		return nil, first
	}
	return refused, nil
}

// withdraw ends the calls of an answer that the program never sees, without a charge.
func withdraw(made []*pendingTool) {
	for _, w := range made {
		close(w.unseen)
		<-w.done
	}
}
