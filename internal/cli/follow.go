package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// A Follower stays with a process until it exits. It shows progress and
// questions, and turns Ctrl-C into signals.
type Follower struct {
	Session *Session
	Pid     abi.Pid
	Events  bool // print every record as a line of JSON

	LastErr *abi.Error // the last error that a call was answered with
}

// Follow returns the result of the process, as the control API sends it.
func (f *Follower) Follow(ctx context.Context) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.forwardInterrupts(ctx, cancel)
	shown := make(chan error, 1)
	go func() { shown <- f.showRecords(ctx) }()
	var r json.RawMessage
	err := f.Session.Do(ctx, func(c *api.Client) error { return c.Result(ctx, f.Pid, true, &r) })
	if err == nil {
		err = <-shown // returns at the terminal record
	}
	f.Session.Term.Progress("")
	if err != nil {
		return nil, f.stillRuns(err)
	}
	return r, nil
}

// stillRuns adds to an error that the process itself continues.
func (f *Follower) stillRuns(err error) error {
	var e *abi.Error
	switch {
	case errors.Is(err, context.Canceled):
		return &abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("process %d has not exited", f.Pid), Hint: "it continues in the daemon; kern ps shows its state"}
	case errors.As(err, &e) && e.Code == abi.DaemonGone:
		return &abi.Error{Code: e.Code, Message: fmt.Sprintf("%s; process %d has not exited", e.Message, f.Pid),
			Hint: fmt.Sprintf("it continues when the daemon starts again, for example with: kern wait %d", f.Pid)}
	}
	return err
}

// forwardInterrupts sends term at the first Ctrl-C and kill at the second. The
// third leaves the process alone.
func (f *Follower) forwardInterrupts(ctx context.Context, leave func()) {
	t := f.Session.Term
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-t.Interrupts:
		}
		sig := abi.Kill
		switch n {
		case 1:
			sig = abi.Term
			t.Note("kern: asked process %d to finish; Ctrl-C again kills it", f.Pid)
		case 2:
			t.Note("kern: killing process %d; Ctrl-C again leaves it to the daemon", f.Pid)
		default:
			leave()
			return
		}
		go func() { // does not block the next Ctrl-C while the daemon restarts
			err := f.Session.Do(ctx, func(c *api.Client) error {
				return c.Signal(ctx, f.Pid, api.Signal{Signal: sig, By: t.User()})
			})
			if err != nil && ctx.Err() == nil {
				t.Complain(err)
			}
		}()
	}
}

// showRecords reads the records as they come. It prints them if Events is set,
// shows progress on a terminal, and prints the questions that wait for a person.
func (f *Follower) showRecords(ctx context.Context) error {
	t := f.Session.Term
	var mu sync.Mutex
	p := &progress{pid: f.Pid}
	show := func(item *abi.LiveItem) {
		mu.Lock()
		defer mu.Unlock()
		p.wait(item)
	}
	if t.ErrTTY {
		stop := f.showProgress(func() string {
			mu.Lock()
			defer mu.Unlock()
			return p.line()
		})
		defer stop()
	} else {
		w := Waits{Pid: f.Pid, Note: t.Note}
		defer w.Stop()
		show = w.Add
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	go FollowWaits(following, f.Session, f.Pid, show)
	var asked *questions
	if t.CanAsk() && !f.Events {
		asked = newQuestions(f)
		go asked.run(following)
	}
	last := uint64(0)
	return f.Session.Do(ctx, func(c *api.Client) error {
		return c.Records(ctx, f.Pid, last, true, func(r *abi.Record, line []byte) error {
			last = r.N
			mu.Lock()
			p.add(r)
			mu.Unlock()
			if r.Answer != nil && r.Answer.Err != nil {
				f.LastErr = r.Answer.Err
			}
			if asked != nil {
				asked.add(r)
			} else if r.Kind == abi.KindAsked {
				t.Note("kern: process %d asks: %s\n  answer with: kern approve %d %d   or: kern deny %d %d",
					f.Pid, Clean(string(r.Note.Body.Bytes)), f.Pid, r.Call, f.Pid, r.Call)
			}
			if f.Events {
				return t.Print("%s\n", line)
			}
			return nil
		})
	})
}

// showProgress shows a line that changes with time, until stop is called.
func (f *Follower) showProgress(line func() string) (stop func()) {
	done := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.Session.Term.Progress(line())
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		shown.Wait()
	}
}

// progress is what the progress line shows of a process.
type progress struct {
	pid   abi.Pid
	born  time.Time
	used  abi.Usage
	steps int64
	open  map[uint64]string // names of the calls that run
	limit abi.Limits
	waits map[uint64]string // what calls wait for
}

// wait adds the begin or the end of a wait.
func (p *progress) wait(item *abi.LiveItem) {
	if p.waits == nil {
		p.waits = make(map[uint64]string)
	}
	if p.waits[item.Call] = waitText(item); p.waits[item.Call] == "" {
		delete(p.waits, item.Call)
	}
}

func (p *progress) add(r *abi.Record) {
	switch r.Kind {
	case abi.KindSpawned:
		p.born, p.limit, p.open = time.Unix(0, r.Time), r.Spawn.Limits, make(map[uint64]string)
	case abi.KindBegan:
		p.steps += r.Intent.Reserve[abi.Steps]
		p.open[r.Call] = CallKind(r.Intent)
	case abi.KindEnded, abi.KindRefused:
		p.used.Add(&r.Answer.Usage)
		delete(p.open, r.Call)
		if r.Kind == abi.KindRefused || !r.Answer.Again { // a daemon that died did not publish the end of the wait
			delete(p.waits, r.Call)
		}
	case abi.KindAsked:
		p.open[r.Call] = "a person's answer"
	case abi.KindChanged:
		if r.Change.Limits != nil {
			p.limit = *r.Change.Limits
		}
	}
}

func (p *progress) line() string {
	if p.born.IsZero() {
		return ""
	}
	s := fmt.Sprintf("[%d] step %d", p.pid, p.steps)
	counts := make(map[string]int)
	for call, name := range p.open {
		if p.waits[call] == "" {
			counts[name]++
		}
	}
	for _, name := range p.waits {
		counts[name]++
	}
	for _, name := range SortedKeys(counts) {
		s += " · " + Clean(name)
		if counts[name] > 1 {
			s += fmt.Sprintf(" ×%d", counts[name])
		}
	}
	s += " · " + moneySpent(p.used[abi.Money], p.limit)
	return s + " · " + Age(time.Since(p.born))
}

// CallKind names a call for a person: by its tool, else by its row.
func CallKind(in *abi.Intent) string {
	if in.Tool != "" {
		return in.Tool
	}
	return in.Row
}
