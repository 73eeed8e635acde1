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
		l.settled(ctx, func() []abi.Result { return k.Batch(ctx, where.Unfinished, 0) })
		if where, err = k.Where(pid); err != nil {
			return err
		}
	}
	l.next = where.Next
	if where.Stop.Call != 0 {
		return l.stopAgain(ctx, where)
	}
	reply, hint, err := l.stood(where.View)
	if err != nil {
		return err
	}
	l.run(ctx, reply, hint)
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
	stop  process.Stop    // the refusal of a call in done that ends the run
	cut   *abi.Ceiling    // a limit cut the reply
}

// stood returns the reply that the process worked on before a restart, and the hint of
// its next model call. The reply is nil if the loop must ask the model next.
func (l *loop) stood(v kernel.View) (reply *turn, hint string, err error) {
	reply, said, err := l.lastReply(v)
	if err != nil {
		return nil, "", err
	}
	// The model gets a hint again if the call that carried it has no reply.
	if said != nil {
		m, err := l.w.Journal.Message(*said)
		if err != nil {
			return nil, "", err
		}
		hint = m.Text
	}
	if reply == nil || len(reply.Calls) > 0 && reply.answered() && !reply.bad {
		return nil, hint, nil
	}
	return reply, hint, nil
}

// answered reports whether every call of the reply has an answer.
func (t *turn) answered() bool {
	return !slices.ContainsFunc(t.Calls, func(c model.ToolCall) bool { return !t.done[c.ID] })
}

// lastReply returns the last reply of the model; nil if a page of a person or of the loop
// came after it. said is the page of the hint that has no reply, or whose reply is empty.
func (l *loop) lastReply(v kernel.View) (t *turn, said *process.Page, err error) {
	answered := make(map[string]bool)
	bad := false
	// The newest pages come first: the answers of the last reply, and then the reply.
	for i, pg := range slices.Backward(v.Pages) {
		switch pg.Role {
		case process.RoleTool:
			answered[pg.ID] = true
			if l.prog.Agent.Compensates() && !bad {
				r, err := l.w.Journal.Record(pg.Pid, pg.N)
				if err != nil {
					return nil, nil, err
				}
				bad = r.Answer.Outcome != abi.OK
			}
		case process.RoleTask:
			return nil, nil, nil
		case process.RoleUser:
			return nil, &pg, nil
		case process.RoleAssistant:
			m, err := l.w.Journal.Message(pg)
			if err != nil {
				return nil, nil, err
			}
			t := &turn{Reply: syscalls.Reply{Text: m.Text, Calls: m.Calls}, first: l.next, done: answered, bad: bad}
			if pg.Pid == l.pid { // a page of a fork's source has no call number here
				r, err := l.w.Journal.Record(pg.Pid, pg.N)
				if err != nil {
					return nil, nil, err
				}
				t.first, t.cut = r.Call+1, r.Answer.Cut
			}
			if len(m.Calls) == 0 && i > 0 && v.Pages[i-1].Role == process.RoleUser {
				said = &v.Pages[i-1]
			}
			return t, said, nil
		}
	}
	return nil, nil, nil
}

// stopAgain continues to stop a process that was stopping before a restart.
func (l *loop) stopAgain(ctx context.Context, at kernel.Where) error {
	stop := at.Stop
	switch {
	case stop.Words == 0 && stop.Tool:
		reply, _, err := l.lastReply(at.View)
		if err != nil || reply == nil {
			return err
		}
		reply.stop = stop
		said, e := l.call(ctx, reply)
		l.stop(ctx, e, said)
	case stop.Words == 0:
		l.stop(ctx, stop.Err, "")
	case stop.Said:
		text, err := l.words(at.View.Pages)
		if err != nil {
			return err
		}
		l.conclude(ctx, stop.Err, text)
	default:
		_, said, err := l.lastReply(at.View)
		if err != nil || said == nil {
			return err
		}
		m, err := l.w.Journal.Message(*said)
		if err != nil {
			return err
		}
		l.lastWords(ctx, stop.Err, m.Text, stop.Words)
	}
	return nil
}

// words returns the text of the last page if the model said it; else nothing.
func (l *loop) words(pages []process.Page) (string, error) {
	if n := len(pages); n > 0 && pages[n-1].Role == process.RoleAssistant {
		m, err := l.w.Journal.Message(pages[n-1])
		return m.Text, err
	}
	return "", nil
}

// run asks the model and makes the calls of its reply, until a reply has no calls.
// reply is the reply to continue with; nil asks the model first. hint is what the loop
// told the model last.
func (l *loop) run(ctx context.Context, reply *turn, hint string) {
	for ctx.Err() == nil {
		if reply == nil {
			r, e := l.ask(ctx, syscalls.ModelArgs{Say: hint})
			if e != nil {
				if process.AskAgain(e.Code) && ctx.Err() == nil {
					continue
				}
				l.stop(ctx, e, "")
				return
			}
			reply = r
		}
		if reply.cut != nil { // a half answer is neither the answer nor a set of calls
			l.exit(ctx, syscalls.ExitArgs{Output: output(reply.Text), Code: reply.cut.Code()})
			return
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
			l.exit(ctx, syscalls.ExitArgs{Output: output(reply.Text)})
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
func (l *loop) ask(ctx context.Context, a syscalls.ModelArgs) (*turn, *abi.Error) {
	res := l.do(ctx, "model", a)
	if res.Err != nil {
		return nil, res.Err
	}
	t := &turn{first: l.next, cut: res.Cut}
	if err := json.Unmarshal(res.Value, &t.Reply); err != nil {
		return nil, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	return t, nil
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
	bad, first := reply.bad, reply.stop
	for i, r := range results {
		bad = bad || r.Err != nil && !process.Gone(r.Err.Code)
		if r.Err != nil && r.Outcome == abi.Refused && process.EndsRun(r.Err.Code) && (first.Call == 0 || calls[i].N < first.Call) {
			first = process.Stop{Call: calls[i].N, Err: r.Err}
		}
	}
	e = first.Err
	if bad && l.prog.Agent.Compensates() && ctx.Err() == nil && (e == nil || !process.Gone(e.Code)) {
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

// stop ends the process because of an error of the kernel. If the limits still allow it,
// the model gets last words, so that the output has a conclusion.
func (l *loop) stop(ctx context.Context, e *abi.Error, said string) {
	if process.Gone(e.Code) || ctx.Err() != nil {
		return
	}
	if _, limit := abi.LimitOf(e.Code); !limit && e.Code != abi.ProcessEnding {
		l.exit(ctx, syscalls.ExitArgs{Error: e.Message, Code: e.Code})
		return
	}
	say := fmt.Sprintf("Stop now: %s. Call no more tools; say in a few sentences what you found and what is left.", e.Message)
	if said != "" {
		say += " " + said
	}
	l.lastWords(ctx, e, say, 0)
}

// maxLastWords is how often the model is asked for last words. It is asked again only if
// a restart left the outcome of the first call unknown.
const maxLastWords = 2

// lastWords asks the model for last words, after asked such calls, and ends the process.
func (l *loop) lastWords(ctx context.Context, e *abi.Error, say string, asked int) {
	text := ""
	for ; asked < maxLastWords; asked++ {
		r, err := l.ask(ctx, syscalls.ModelArgs{Say: say, Last: true})
		if err == nil {
			text = r.Text
		}
		if err == nil || err.Code != abi.OutcomeUnknown {
			break
		}
	}
	l.conclude(ctx, e, text)
}

// conclude ends the process because of e, with the last words of the model.
func (l *loop) conclude(ctx context.Context, e *abi.Error, text string) {
	a := syscalls.ExitArgs{Output: output(text)}
	if _, limit := abi.LimitOf(e.Code); limit {
		a.Code = e.Code
	}
	l.exit(ctx, a)
}

func (l *loop) exit(ctx context.Context, a syscalls.ExitArgs) { l.do(ctx, "exit", a) }

// output is the output of an exit; an empty text is none.
func output(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	b, _ := json.Marshal(text) // a text always encodes
	return b
}
