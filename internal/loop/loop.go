// Package loop is the built-in loop: ask the model, run the tools it asks for,
// and so on until it asks for none.
//
// The loop has no state of its own. Its next call follows from the pages that the
// kernel holds for the process, so after a crash it continues at the same call. It
// can do nothing that a program outside the kernel could not.
package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

// Kernel is the part of the kernel that the loop uses.
type Kernel interface {
	Do(ctx context.Context, c abi.Call) abi.Result
	Batch(ctx context.Context, calls []abi.Call, most int) []abi.Result
	Where(pid abi.Pid) (kernel.Where, error)
}

type loop struct {
	k    Kernel
	w    *syscalls.World
	pid  abi.Pid
	prog *syscalls.Loaded
	next uint64
}

// Run runs the loop of a process until the process exits or ctx ends.
func Run(ctx context.Context, k Kernel, w *syscalls.World, pid abi.Pid) error {
	l := &loop{k: k, w: w, pid: pid}
	where, err := k.Where(pid)
	if err != nil {
		return err
	}
	if l.prog, err = w.Load(where.View.Spawn.Program); err != nil {
		l.next = where.Next
		l.exit(ctx, syscalls.ExitArgs{Error: err.Error(), Code: abi.UnknownModel})
		return nil
	}
	// Calls in doubt come first, because their answers decide how the loop continues.
	if len(where.Unfinished) > 0 {
		k.Batch(ctx, where.Unfinished, 0)
		if where, err = k.Where(pid); err != nil {
			return err
		}
	}
	l.next = where.Next
	reply, err := l.stood(where.View)
	if err != nil {
		return err
	}
	l.run(ctx, reply)
	return nil
}

// turn is a reply of the model with the numbers of the calls that it asks for. The
// numbers follow from the number of the model call. So after a crash the loop repeats a
// call without an answer under its old number.
type turn struct {
	syscalls.Reply
	first uint64          // the number of its first call
	done  map[string]bool // the calls that have an answer, by the model's id
	bad   bool            // one of the calls in done failed
}

// stood returns the reply that the process worked on before a restart. It is the last
// reply, if one of its calls has no answer, or if something may have to be undone. It is
// nil if the loop must ask the model next.
func (l *loop) stood(v kernel.View) (*turn, error) {
	answered := make(map[string]bool)
	bad := false
	// The newest pages come first: the answers of the last reply, and then the reply.
	for _, pg := range slices.Backward(v.Pages) {
		switch pg.Role {
		case process.RoleTool:
			answered[pg.ID] = true
			if l.prog.Agent.Compensates() && !bad {
				r, err := l.w.Journal.Record(pg.Pid, pg.N)
				if err != nil {
					return nil, err
				}
				bad = r.Answer.Outcome != abi.OK
			}
		case process.RoleTask, process.RoleUser:
			return nil, nil
		case process.RoleAssistant:
			m, err := l.w.Journal.Message(pg)
			if err != nil {
				return nil, err
			}
			open := slices.ContainsFunc(m.Calls, func(c model.ToolCall) bool { return !answered[c.ID] })
			if len(m.Calls) > 0 && !open && !bad {
				return nil, nil
			}
			t := &turn{syscalls.Reply{Text: m.Text, Calls: m.Calls}, l.next, answered, bad}
			if pg.Pid == l.pid { // a page of a fork's source has no call number here
				r, err := l.w.Journal.Record(pg.Pid, pg.N)
				if err != nil {
					return nil, err
				}
				t.first = r.Call + 1
			}
			return t, nil
		}
	}
	return nil, nil
}

// run asks the model and makes the calls of its reply, until a reply has no calls.
// reply is the reply to continue with; nil asks the model first.
func (l *loop) run(ctx context.Context, reply *turn) {
	hint := ""
	for ctx.Err() == nil {
		if reply == nil {
			r, e := l.ask(ctx, syscalls.ModelArgs{Say: hint})
			if e != nil {
				if (e.Code == abi.Interrupted || e.Code == abi.OutcomeUnknown) && ctx.Err() == nil {
					continue // a signal or a restart cut the call off, and the next call returns the reason
				}
				l.stop(ctx, e, "")
				return
			}
			reply = &turn{Reply: *r, first: l.next}
		}
		if len(reply.Calls) > 0 {
			said, e := l.call(ctx, reply)
			if e != nil {
				l.stop(ctx, e, said)
				return
			}
			reply, hint = nil, said
			continue
		}
		if reply.Text != "" {
			l.exit(ctx, syscalls.ExitArgs{Output: quote(reply.Text)})
			return
		}
		if hint == emptyHint {
			l.exit(ctx, syscalls.ExitArgs{Error: "the model gave neither text nor a tool call, twice", Code: abi.EmptyAnswer})
			return
		}
		reply, hint = nil, emptyHint
	}
}

const emptyHint = `{"error":{"code":"EMPTY_ANSWER","message":"your last answer was empty","hint":"answer with text, or call a tool"}}`

// ask makes one model call.
func (l *loop) ask(ctx context.Context, a syscalls.ModelArgs) (*syscalls.Reply, *abi.Error) {
	res := l.do(ctx, "model", a)
	if res.Err != nil {
		return nil, res.Err
	}
	var r syscalls.Reply
	if err := json.Unmarshal(res.Value, &r); err != nil {
		return nil, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	return &r, nil
}

// do makes the next call. While the disk of the journal is full, do waits for room. The
// kernel admits no call in that time, so nothing is lost.
func (l *loop) do(ctx context.Context, row string, args any) abi.Result {
	b, err := json.Marshal(args)
	if err != nil {
		return abi.Result{Err: &abi.Error{Code: abi.Internal, Message: err.Error()}}
	}
	c := abi.Call{Pid: l.pid, N: l.next, Row: row, Args: b}
	l.next++
	return l.settled(ctx, func() []abi.Result { return []abi.Result{l.k.Do(ctx, c)} })[0]
}

// settled repeats calls while the disk is full. A call that has an answer gets the
// same answer again.
func (l *loop) settled(ctx context.Context, calls func() []abi.Result) []abi.Result {
	for {
		results := calls()
		full := slices.ContainsFunc(results, func(r abi.Result) bool { return r.Err != nil && r.Err.Code == abi.StorageFull })
		if !full {
			return results
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return results
		}
	}
}

// call runs the calls of a reply at the same time. Their errors go to the model. said is
// the message about calls that were undone because another one failed. call returns an
// error only if the error ends the run.
func (l *loop) call(ctx context.Context, reply *turn) (said string, e *abi.Error) {
	var calls []abi.Call
	for i, t := range reply.Calls {
		if reply.done[t.ID] {
			continue
		}
		c := abi.Call{Pid: l.pid, N: reply.first + uint64(i), Row: "tool", For: t.ID}
		if slices.Contains(l.prog.Agent.Rows, t.Name) {
			c.Row, c.Args = t.Name, json.RawMessage(t.Args)
		}
		calls = append(calls, c)
	}
	l.next = max(l.next, reply.first+uint64(len(reply.Calls)))
	// All calls of the reply end before undo runs, because they run at the same time.
	results := l.settled(ctx, func() []abi.Result { return l.k.Batch(ctx, calls, l.prog.Agent.Parallel) })
	bad := reply.bad
	for _, r := range results {
		bad = bad || r.Err != nil && !gone(r.Err.Code)
		if e == nil && r.Err != nil && r.Outcome == abi.Refused && ends(r.Err.Code) {
			e = r.Err
		}
	}
	if bad && l.prog.Agent.Compensates() && ctx.Err() == nil && (e == nil || !gone(e.Code)) {
		said = l.undo(ctx, reply)
	}
	return said, e
}

// undo undoes the compensable calls of a reply, and returns a message for the model. Its
// number follows from their numbers, so after a crash it is the same call again.
func (l *loop) undo(ctx context.Context, reply *turn) string {
	after := reply.first + uint64(len(reply.Calls))
	next := max(l.next, after+1)
	l.next = after
	res := l.do(ctx, "undo", syscalls.UndoArgs{First: reply.first, Last: after - 1})
	l.next = next
	var u syscalls.Undone
	if res.Err != nil || json.Unmarshal(res.Value, &u) != nil {
		return ""
	}
	return u.Say()
}

// ends reports whether a refused tool call ends the run. The limits on children and
// depth do not end it, because the process can do the task itself.
func ends(c abi.Code) bool {
	u, limit := abi.LimitOf(c)
	if limit {
		return u != abi.Children && u != abi.Depth
	}
	return c == abi.ProcessEnding || gone(c)
}

// gone reports whether the kernel accepts no more calls of the process.
func gone(c abi.Code) bool {
	switch c {
	case abi.ProcessKilled, abi.ProcessExited, abi.WatchdogLoop, abi.DaemonGone, abi.StorageBroken, abi.UnknownProcess:
		return true
	}
	return false
}

// stop ends the process because of an error of the kernel. If the limits still allow it,
// the model gets last words, so that the output has a conclusion.
func (l *loop) stop(ctx context.Context, e *abi.Error, said string) {
	if gone(e.Code) || ctx.Err() != nil {
		return
	}
	_, limit := abi.LimitOf(e.Code)
	if !limit && e.Code != abi.ProcessEnding {
		l.exit(ctx, syscalls.ExitArgs{Error: e.Message, Code: e.Code})
		return
	}
	say := fmt.Sprintf("Stop now: %s. Call no more tools; say in a few sentences what you found and what is left.", e.Message)
	if said != "" {
		say += " " + said
	}
	a := syscalls.ExitArgs{}
	if limit {
		a.Code = e.Code
	}
	if r, err := l.ask(ctx, syscalls.ModelArgs{Say: say, Last: true}); err == nil && r.Text != "" {
		a.Output = quote(r.Text)
	}
	l.exit(ctx, a)
}

func (l *loop) exit(ctx context.Context, a syscalls.ExitArgs) { l.do(ctx, "exit", a) }

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s)
	return b
}
