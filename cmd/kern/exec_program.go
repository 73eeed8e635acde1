package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/syscalls"
)

// A program runs as a process.
type execution struct {
	term    *cli.Terminal
	dir     *daemon.Directory
	flags   execFlags
	key     api.KeyInfo
	session *cli.Session
	guest   *program.Program
	secrets []string

	mu      sync.Mutex
	last    uint64        // record that was read
	orders  kernel.Orders // that were heard
	called  bool          // it asked for something
	refused *abi.Error    // by a limit
	stopped bool          // by Kern
	over    bool          // the program ended: nothing stops it any more
	lost    error         // nobody can be asked any more
}

// newExecution makes the process. Ctrl-C ends that; later it is the program's.
func newExecution(ctx context.Context, t *cli.Terminal, d *daemon.Directory, f execFlags, argv []string) (*execution, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = t.Interruptible(ctx)
	p := &execution{term: t, dir: d, flags: f}
	c, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	d.NoteOutdated(ctx, c, "")
	if f.key.Parent, err = parentOf(ctx, t.Getenv, c); err == nil {
		p.key, err = c.Keys.New(ctx, f.key)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	if s, _, err := d.Settings(); err == nil {
		p.secrets = s.Keys(t.Getenv)
	}
	p.session = cli.NewSession(t, d.Connect, c)
	p.session.Quiet, p.session.Persist = f.quiet, true
	return p, nil
}

// parentOf finds the process whose program runs this command; 0 if there is
// none. What this command starts becomes a child of that process, so a program
// cannot escape its limits.
func parentOf(ctx context.Context, getenv func(string) string, c *api.Client) (abi.Pid, error) {
	url, pid := getenv("KERN_URL"), getenv("KERN_PID")
	if url == "" || pid == "" {
		return 0, nil
	}
	l, err := c.Keys.List(ctx, false)
	if err != nil || strings.TrimSuffix(l.Gateway.Anthropic, "/") != url {
		return 0, err // that is of another daemon
	}
	return parsePid(pid)
}

// confine puts the program of a path behind a fence.
func (p *execution) confine(s *program.Spec, path string) error {
	if err := confine.Able(); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return cli.Usage("go to one that is there: it is what a program in a jail may write in", "the directory you are in is gone: %v", err)
	}
	data, err := p.dir.Path()
	if err != nil {
		return err
	}
	w := confine.Wish{Dir: dir, Home: p.term.Getenv("HOME"), Path: path, Env: s.Env, Keep: p.flags.home, Show: p.flags.show, Write: p.flags.write, Base: p.key.Anthropic, Socket: p.key.Socket,
		Hide: []string{data, p.key.Socket, api.SocketOf(data)}}
	if set, _, err := p.dir.Settings(); err == nil { // else the daemon has none either
		w.Hide = append(w.Hide, set.KeyFiles()...)
	}
	if s.Jail, err = confine.New(w); err != nil {
		return cli.Usage("look at kern help exec, and at --show, --write and --home", "the jail cannot be built: %v", err)
	}
	s.Env = s.Jail.Environ(s.Env)
	return nil
}

// access is the program's way to models, from the environment it has. One that was to send its calls to
// another place than the daemon does is not started: neither its calls nor its
// credentials are for anybody else.
func (p *execution) access(env, argv []string) (a program.Access, err error) {
	own, some := make(map[string]bool), false
	for format, self := range program.Selves(env) {
		w := p.key.Ways[format]
		there := strings.TrimRight(self.Base, "/") == w.Base || format == "anthropic" && strings.TrimSuffix(strings.TrimRight(self.Base, "/"), "/v1") == w.Base
		if self.Base != "" && !there {
			return a, cli.Usage(fmt.Sprintf("name it in kern.yaml, as providers: {%s: {base_url: %q}}, or unset the variable; kern stop-daemon lets the next command start a daemon that takes it from here", format, self.Base),
				"%s is %s here, and the daemon sends such calls to %s", self.Variable, cli.Clean(self.Base), w.Base)
		}
		own[format] = w.Own && (w.Keyed || self.Base == "" || !self.Credential) // else it goes where the program shows it anyway
		some = some || w.Own || self.Credential
	}
	if !p.flags.quiet {
		if !some {
			p.term.Note("kern: no provider of models is configured, and the environment has no key for one\n" +
				"  hint: set OPENAI_API_KEY or ANTHROPIC_API_KEY and end the daemon with kern stop-daemon, or name providers in kern.yaml; kern mock is a provider to try it with")
		}
		if past := program.Elsewhere(env); len(past) > 0 {
			p.term.Note("kern: not governed is what the program does with %s", strings.Join(past, ", "))
		}
		if program.Untold(argv) {
			p.term.Note("kern: Codex asks models past Kern where it is started this way\n  hint: kern exec tells it where to ask when the line begins with it: -- codex ...; npx, env and timeout may stand before it")
		}
	}
	data, err := p.dir.Path()
	base := strings.TrimSuffix(p.key.Anthropic, "/")
	return program.Access{Pid: strconv.FormatInt(int64(p.key.Pid), 10), Key: p.key.Key, URL: base,
		OpenAI: p.key.OpenAI, Anthropic: p.key.Anthropic, InPath: p.key.InPath, Own: own, Secrets: p.secrets, Data: data}, err
}

// run stays with the program to its end, and says how that was.
func (p *execution) run(ctx context.Context, g *program.Program) error {
	p.guest = g
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() { p.watch(ctx, true) })
	watching.Go(func() {
		_ = p.session.Do(ctx, func(c *api.Client) error { return c.Keys.Hold(ctx, p.key.Pid, p.ordered) }) // the watch tells what is wrong
	})
	e := g.Wait()
	p.finish(ctx, e)
	raw, err := p.result(ctx)
	cancel()
	watching.Wait()
	if err == nil {
		err = p.summary(raw, e)
	}
	code := e.Code()
	if p.stopped {
		code = exitStopped
	}
	if p.lost != nil {
		code, err = exitNoStart, p.lost
	}
	switch {
	case e.Ctrl && !p.stopped && err == nil:
		program.Interrupt() // which returns where nobody heeds it
	case code == 0 && err == nil:
		return nil
	case code == 0: // not all is well
		code = exitNoStart
	}
	return &exitError{code, err}
}

// watch reads the journal of the process, and does to the program what is done
// to the process.
func (p *execution) watch(ctx context.Context, follow bool) {
	err := p.session.Do(ctx, func(c *api.Client) error {
		p.mu.Lock()
		last := p.last
		p.mu.Unlock()
		return c.Records(ctx, p.key.Pid, last, follow, func(r *abi.Record, _ []byte) error {
			p.heard(r)
			return nil
		})
	})
	if err != nil && ctx.Err() == nil && follow {
		p.mu.Lock()
		p.lost, p.stopped = fmt.Errorf("the process can no longer be watched, so its program was stopped: %w", err), true
		p.mu.Unlock()
		p.guest.Kill()
	}
}

// heard is a record of the process.
func (p *execution) heard(r *abi.Record) {
	p.mu.Lock()
	if r.N <= p.last {
		p.mu.Unlock()
		return
	}
	p.last, p.called = r.N, p.called || r.Kind == abi.KindRefused || r.Intent != nil && r.Intent.Row != "exit"
	p.mu.Unlock()
	switch r.Kind { // orders may come this way first, or only: the program ended before it was told
	case abi.KindSignaled:
		if r.Note.Signal == abi.Term {
			p.ordered(kernel.Orders{Term: true})
		}
	case abi.KindEnding:
		p.ordered(kernel.Orders{Exit: r.Exit.Exit, Reason: r.Exit.Reason})
	case abi.KindRefused:
		if u, limit := abi.LimitOf(r.Answer.Err.Code); limit && u != abi.Children && u != abi.Depth {
			p.mu.Lock()
			p.refused = cmp.Or(p.refused, r.Answer.Err)
			p.mu.Unlock()
			p.stop(fmt.Sprintf("has reached its limit on %s", u), p.flags.grace)
		}
	}
}

// ordered does to the program what is done to the process.
func (p *execution) ordered(o kernel.Orders) {
	p.mu.Lock()
	was := p.orders
	p.orders = o
	p.mu.Unlock()
	switch {
	case o.Paused && !was.Paused:
		p.guest.Pause()
	case !o.Paused && was.Paused:
		p.guest.Resume()
	}
	switch {
	case o.Exit == abi.ExitDone: // it said so itself
	case o.Exit == abi.ExitLimit:
		p.stop(fmt.Sprintf("has reached its limit on %s", o.Reason), p.flags.grace)
	case o.Exit == abi.ExitLoop:
		p.stop("goes in circles", p.flags.grace)
	case o.Exit != "":
		p.stop("was killed", 0)
	case o.Term && !was.Term:
		p.stop("was asked to finish", p.flags.grace)
	}
}

// stop ends the program for a reason.
func (p *execution) stop(why string, grace time.Duration) {
	p.mu.Lock()
	again := p.stopped || p.over
	p.stopped = p.stopped || !p.over
	p.mu.Unlock()
	if !again && grace > 0 && p.term.ErrTTY && !p.flags.quiet && !p.guest.Over() {
		p.term.Note("kern: process %d %s; the program is asked to end, and killed in %s", p.key.Pid, why, grace)
	}
	if grace > 0 {
		p.guest.End(grace)
	} else {
		p.guest.Kill()
	}
}

// finish ends the process as its program ended.
func (p *execution) finish(ctx context.Context, e program.Ended) {
	p.watch(ctx, false) // a refusal that came last is on disk
	p.mu.Lock()
	refused := p.refused
	p.over = true
	p.mu.Unlock()
	switch {
	case refused != nil:
		p.end(ctx, syscalls.ExitArgs{Code: refused.Code})
	case e.Lost:
		p.end(ctx, syscalls.ExitArgs{Error: "the guard of the program was killed", Code: abi.ProgramGone})
	case e.Signal != 0:
		p.end(ctx, syscalls.ExitArgs{Error: "the program was ended by signal " + program.SignalName(e.Signal) + p.bounded(e), Code: abi.ProgramFailed})
	case e.Exit != 0:
		p.end(ctx, syscalls.ExitArgs{Error: fmt.Sprintf("the program ended with exit code %d", e.Exit) + p.bounded(e), Code: abi.ProgramFailed})
	default:
		p.end(ctx, syscalls.ExitArgs{})
	}
}

// bounded says which bounds a program met that failed.
func (p *execution) bounded(e program.Ended) (s string) {
	if e.OutOfMemory {
		s = "; --memory " + p.flags.memory + " was used up, and something of it killed"
	}
	if e.OutOfProcesses {
		s += "; it was refused more processes than --processes " + p.flags.processes
	}
	return s
}

// end ends the process. One that has ended is as good.
func (p *execution) end(ctx context.Context, x syscalls.ExitArgs) {
	err := p.session.Do(ctx, func(c *api.Client) error { return c.Keys.End(ctx, p.key.Pid, api.KeyEnd(x)) })
	var e *abi.Error
	if err != nil && !(errors.As(err, &e) && e.Code.Over()) {
		p.term.Complain(err)
	}
}

// result is how the process ended.
func (p *execution) result(ctx context.Context) (raw json.RawMessage, err error) {
	p.mu.Lock()
	err = p.lost
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = p.session.Do(ctx, func(c *api.Client) error { return c.Result(ctx, p.key.Pid, true, &raw) })
	return raw, err
}

// did is what came of the program. One that knows an address of its own asks
// models past Kern, and nobody else would say so.
func (p *execution) did(r *host.Result) string {
	switch {
	case r.Usage.ToolCalls > 0:
		return cli.Plural(r.Usage.ModelCalls, "model call") + ", " + cli.Plural(r.Usage.ToolCalls, "tool call")
	case r.Usage.ModelCalls == 0 && !p.called:
		return "no model call went through Kern"
	}
	return cli.Plural(r.Usage.ModelCalls, "model call")
}

// summary says how it ended, in a line and in a file.
func (p *execution) summary(raw json.RawMessage, e program.Ended) error {
	var r host.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the result cannot be read: %w", err)
	}
	if !p.flags.quiet {
		p.term.Note("%s", summaryOf(p.term, &r, p.did(&r)))
		if r.Exit == abi.ExitLimit && p.refused != nil { // its words may be all that a program that was ended had not said yet
			p.term.Note("  %s", cli.Clean(p.refused.Message))
		}
	}
	if p.flags.summary == "" {
		return nil
	}
	type ended struct {
		Exit    int  `json:"exit"`
		Signal  int  `json:"signal,omitempty"`
		CPU     int  `json:"cpu_ms"`
		Stopped bool `json:"stopped"` // by Kern
	}
	b, err := json.Marshal(struct {
		Program ended           `json:"program"`
		Process json.RawMessage `json:"process"`
	}{ended{e.Exit, e.Signal, int(e.CPU.Milliseconds()), p.stopped}, raw})
	if err != nil {
		return err
	}
	return os.WriteFile(p.flags.summary, append(b, '\n'), 0o644)
}
