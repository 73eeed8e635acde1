package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/host"
)

// A session is a connection that outlives its daemon: when the daemon dies
// without a word, it is started again, and what was asked is asked again. So
// only what may be asked twice is asked in a session.
type session struct {
	app   *app
	quiet bool
	stays bool // also when the daemon was told to end: what hangs on it is here, and would end too

	mu     sync.Mutex
	client *api.Client
	losses int

	last *abi.Error // that a call of the process was answered with; of who reads its records
}

// maxLosses is how often a daemon may die on a session. One that dies of what
// it goes on with would do so for ever.
const maxLosses = 20

func (s *session) do(ctx context.Context, ask func(c *api.Client) error) error {
	for {
		s.mu.Lock()
		c := s.client
		s.mu.Unlock()
		err := ask(c)
		if !errors.Is(err, api.ErrLost) && !(s.stays && daemonGone(err)) || ctx.Err() != nil {
			return err
		}
		if err := s.again(ctx, c, err); err != nil {
			return err
		}
	}
}

// again connects anew, once for all that lost the same client.
func (s *session) again(ctx context.Context, lost *api.Client, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != lost {
		return nil
	}
	if s.losses++; s.losses > maxLosses {
		return err
	}
	if !s.quiet {
		s.app.note("kern: the daemon has ended; it is started again, and the process goes on")
	}
	c, err := s.app.connect(ctx)
	if err != nil {
		return err
	}
	lost.Close()
	s.client = c
	return nil
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Close()
}

// follow stays with a process until it exits, shows what happens, and turns
// Ctrl-C into signals.
func (a *app) follow(ctx context.Context, c *api.Client, pid abi.Pid, out output) error {
	s := &session{app: a, client: c}
	defer s.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.interrupt(ctx, cancel, s, pid)
	watched := make(chan error, 1)
	go func() { watched <- watchRun(a, ctx, s, pid, out) }()
	var r json.RawMessage
	err := s.do(ctx, func(c *api.Client) error { return c.Result(ctx, pid, true, &r) })
	if err == nil {
		err = <-watched // it ends with the terminal record
	}
	a.progress("")
	if err != nil {
		return &exitError{exitUnknown, left(pid, err)}
	}
	return endOf(a, r, out, s.last)
}

// daemonGone says of an error that it is the last word of a daemon.
func daemonGone(err error) bool {
	var e *abi.Error
	return errors.As(err, &e) && e.Code == abi.DaemonGone
}

// left says of an error that the process is not touched by it.
func left(pid abi.Pid, err error) error {
	var e *abi.Error
	switch {
	case errors.Is(err, context.Canceled):
		return &abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("process %d has not exited", pid), Hint: "it is left to the daemon; kern ps shows how it stands"}
	case errors.As(err, &e) && e.Code == abi.DaemonGone:
		return &abi.Error{Code: e.Code, Message: fmt.Sprintf("%s; process %d has not exited", e.Message, pid),
			Hint: fmt.Sprintf("it goes on when the daemon is started again, as by: kern wait %d", pid)}
	}
	return err
}

// interrupt sends term at the first Ctrl-C and kill at the next. When that
// does not help either, a third leaves the process to itself.
func (a *app) interrupt(ctx context.Context, leave func(), s *session, pid abi.Pid) {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-a.interrupts:
		}
		sig := abi.Kill
		switch n {
		case 1:
			sig = abi.Term
			a.note("kern: process %d is asked to finish; once more kills it", pid)
		case 2:
			a.note("kern: process %d is killed; once more leaves it", pid)
		default:
			leave()
			return
		}
		go func() { // it may take until the daemon is back
			err := s.do(ctx, func(c *api.Client) error {
				return c.Signal(ctx, pid, api.Signal{Signal: sig, By: a.person()})
			})
			if err != nil && ctx.Err() == nil {
				a.complain(err)
			}
		}()
	}
}

// watchRun reads the records as they come: prints them if that is wanted, shows
// progress on a terminal, and says which questions wait for a person.
func watchRun(a *app, ctx context.Context, s *session, pid abi.Pid, out output) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var mu sync.Mutex
	p := &progress{pid: pid}
	if a.errTTY {
		stop := make(chan struct{})
		var shown sync.WaitGroup
		shown.Go(func() {
			for {
				select {
				case <-tick.C:
					mu.Lock()
					a.progress(p.line())
					mu.Unlock()
				case <-stop:
					return
				}
			}
		})
		defer shown.Wait()
		defer close(stop)
	}
	last := uint64(0)
	return s.do(ctx, func(c *api.Client) error {
		return c.Records(ctx, pid, last, true, func(r *abi.Record, line []byte) error {
			last = r.N
			mu.Lock()
			p.add(r)
			mu.Unlock()
			if r.Answer != nil && r.Answer.Err != nil {
				s.last = r.Answer.Err
			}
			if r.Kind == abi.KindAsked {
				a.note("kern: process %d asks: %s\n  answer with: kern approve %d %d   or: kern deny %d %d",
					pid, clean(string(r.Note.Body.Bytes)), pid, r.Call, pid, r.Call)
			}
			if out.events {
				return a.print("%s\n", line)
			}
			return nil
		})
	})
}

// progress is what is known of a process from its records.
type progress struct {
	pid   abi.Pid
	born  time.Time
	used  abi.Usage
	steps int64
	open  map[uint64]string // calls that run
	limit abi.Limits
}

func (p *progress) add(r *abi.Record) {
	switch r.Kind {
	case abi.KindSpawned:
		p.born, p.limit, p.open = time.Unix(0, r.Time), r.Spawn.Limits, make(map[uint64]string)
	case abi.KindBegan:
		p.steps += r.Intent.Reserve[abi.Steps]
		p.open[r.Call] = nameOf(r.Intent)
	case abi.KindEnded, abi.KindRefused:
		p.used.Add(&r.Answer.Usage)
		delete(p.open, r.Call)
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
	for _, name := range p.open {
		counts[name]++
	}
	for _, name := range sortedKeys(counts) {
		s += " · " + clean(name)
		if counts[name] > 1 {
			s += fmt.Sprintf(" ×%d", counts[name])
		}
	}
	s += " · " + spent(p.used[abi.Money], p.limit)
	return s + " · " + age(time.Since(p.born))
}

// nameOf is what a call is called by people.
func nameOf(in *abi.Intent) string {
	if in.Tool != "" {
		return in.Tool
	}
	return in.Row
}

// endOf prints how a process ended, and what can be done about the last error
// that it met, if it failed of that. It gives the exit code.
func endOf(a *app, raw json.RawMessage, out output, last *abi.Error) error {
	var r host.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return &exitError{exitUnknown, fmt.Errorf("the result cannot be read: %w", err)}
	}
	code, known := exitCodes[r.Exit]
	if !known {
		code = exitUnknown
	}
	if out.json || out.events {
		if err := a.print("%s\n", raw); err != nil {
			return err
		}
		return ending(code)
	}
	text := r.Output
	if a.outTTY {
		text = cleanText(text)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if err := a.print("%s", text); err != nil {
		return err
	}
	a.note("%s", summaryOf(a, &r, plural(r.Steps, "step")))
	if last != nil && last.Hint != "" && last.Code == r.Code && r.Exit == abi.ExitFailed {
		a.note("  hint: %s", clean(last.Hint))
	}
	return ending(code)
}

func ending(code int) error {
	if code == exitDone {
		return nil
	}
	return &exitError{code: code}
}

// summaryOf is one line on how a process ended, what it did and what it took.
func summaryOf(a *app, r *host.Result, did string) string {
	how := string(r.Exit)
	colour := red
	switch {
	case r.Exit == abi.ExitDone:
		colour = green
	case r.Exit == abi.ExitLimit:
		how, colour = fmt.Sprintf("stopped by its limit on %s (%s)", r.Reason, r.Code), yellow
	case r.Exit == abi.ExitLoop:
		how = fmt.Sprintf("ended for going in circles (%s)", r.Code)
	case r.Exit == abi.ExitKilled:
		how = "killed"
		if r.Reason != "" && r.Reason != string(abi.Kill) {
			how += " (" + r.Reason + ")"
		}
	case r.Code != "":
		how += " (" + string(r.Code) + ")"
	}
	if r.Err != nil {
		how += ": " + clean(r.Err.Message)
	}
	s := fmt.Sprintf("kern: process %d %s · %s · %d tokens in, %d out · $%s", r.Pid, a.paint(a.errTTY, colour, how),
		did, r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.Money)
	if n, set := r.Limits.Get(abi.Money); set {
		s += " of $" + abi.FormatMoney(n)
	}
	if r.Usage.InDoubt != "" {
		s += " ($" + r.Usage.InDoubt + " in doubt)"
	}
	return s + " · " + age(time.Duration(r.Usage.WallMS)*time.Millisecond)
}
