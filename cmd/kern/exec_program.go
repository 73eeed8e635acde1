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
	"github.com/kern-run/kern/internal/program/access"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/syscalls"
)

// An execution is a program that runs as a process.
type execution struct {
	term    *cli.Terminal
	dir     *daemon.Directory
	flags   execFlags
	key     api.KeyInfo
	session *cli.Session
	guest   *program.Program
	secrets []string
	past    string // which model calls go past Kern, in words; "": none that is known

	mu      sync.Mutex
	last    uint64                       // the last record that was read
	orders  kernel.Orders                // the last orders
	called  bool                         // the process made a call
	refused *abi.Error                   // the first refusal by a limit
	cut     *abi.Ceiling                 // the maximum at which a limit cut the last such answer
	begun   struct{ model, tool uint64 } // the last calls that began
	stopped bool                         // Kern stopped the program
	over    bool                         // the program ended, so nothing stops it any more
	lost    error                        // the process can no longer be watched
}

// newExecution makes the process. Ctrl-C interrupts only this; later the program
// gets it.
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
// none. The new process becomes a child of that process, so a program cannot
// escape its limits.
func parentOf(ctx context.Context, getenv func(string) string, c *api.Client) (abi.Pid, error) {
	url, pid := getenv("KERN_URL"), getenv("KERN_PID")
	if url == "" || pid == "" {
		return 0, nil
	}
	l, err := c.Keys.List(ctx, false)
	if err != nil || strings.TrimSuffix(l.Gateway.Anthropic, "/") != url {
		return 0, err // the variables belong to another daemon
	}
	return parsePid(pid)
}

// confine plans the jail of the program.
func (p *execution) confine(s *program.Spec, path string) error {
	if err := confine.Able(); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return cli.Usage("change to an existing directory: the jail may write in it", "the current directory does not exist: %v", err)
	}
	data, err := p.dir.Path()
	if err != nil {
		return err
	}
	w := confine.Options{Dir: dir, Home: p.term.Getenv("HOME"), Path: path, Env: s.Env, Keep: p.flags.home, Show: p.flags.show, Write: p.flags.write, Base: p.key.Anthropic, Socket: p.key.Socket,
		Hide: []string{data, p.key.Socket, api.SocketOf(data)}}
	if set, _, err := p.dir.Settings(); err == nil {
		w.Hide = append(w.Hide, set.KeyFiles()...)
	}
	if s.Jail, err = confine.NewPlan(w); err != nil {
		return cli.Usage("check --show, --write and --home; kern help exec explains them", "the jail cannot be built: %v", err)
	}
	s.Env = s.Jail.Environ(s.Env)
	return nil
}

// gatewayAccess decides how the program reaches models, from its environment. It refuses
// a program whose base URL differs from the daemon's, because its requests and
// its key would go to the wrong host.
func (p *execution) gatewayAccess(env, argv []string) (a access.Gateway, err error) {
	own, known := make(map[string]bool), false
	for format, self := range access.DirectAccess(env) {
		w := p.key.Ways[format]
		same := strings.TrimRight(self.Base, "/") == w.Base || format == "anthropic" && strings.TrimSuffix(strings.TrimRight(self.Base, "/"), "/v1") == w.Base
		if self.Base != "" && !same {
			return a, cli.Usage(fmt.Sprintf("set it in kern.yaml as providers: {%s: {base_url: %q}}, or unset the variable; or run kern stop-daemon, so that the next command starts a daemon with this variable", format, self.Base),
				"%s is %s here, but the daemon sends these calls to %s", self.Variable, cli.Clean(self.Base), w.Base)
		}
		own[format] = w.Own && (w.Keyed || self.Base == "" || !self.Credential) // else the request goes to the provider of the program's own key
		known = known || w.Own || self.Credential
	}
	if !p.flags.quiet {
		if !known {
			p.term.Note("kern: no provider is configured, and the environment has no key for one\n" +
				"  hint: set OPENAI_API_KEY or ANTHROPIC_API_KEY and run kern stop-daemon, or configure providers in kern.yaml; kern mock is a provider for tests")
		}
		if p.past = p.flags.elsewhere(argv); p.past != "" {
			p.term.Note("kern: warning: %s is NOT limited by Kern\n  hint: --sandbox jail stops such calls", p.past)
		}
		if p.flags.sandbox != "" && access.HidesCodex(argv) {
			p.term.Note("kern: in a jail Codex does not find Kern if it is started this way\n  hint: start the line with codex: kern exec -- codex ...; npx, env and timeout may come before it")
		}
	}
	data, err := p.dir.Path()
	base := strings.TrimSuffix(p.key.Anthropic, "/")
	return access.Gateway{Pid: strconv.FormatInt(int64(p.key.Pid), 10), Key: p.key.Key, URL: base,
		OpenAI: p.key.OpenAI, Anthropic: p.key.Anthropic, InPath: p.key.InPath, Own: own, Secrets: p.secrets, Data: data}, err
}

// run waits for the end of the program, and prints how it ended.
func (p *execution) run(ctx context.Context, g *program.Program) error {
	p.guest = g
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() { p.watch(ctx, true) })
	watching.Go(func() {
		_ = p.session.Do(ctx, func(c *api.Client) error { return c.Keys.Hold(ctx, p.key.Pid, p.follow) }) // watch reports what is wrong
	})
	waits := cli.Waits{Pid: p.key.Pid, Note: func(format string, args ...any) {
		p.term.FreshLine()
		p.term.Note(format, args...)
	}}
	if !p.flags.quiet {
		watching.Go(func() { cli.FollowWaits(ctx, p.session, p.key.Pid, waits.Add) })
	}
	e := g.Wait()
	waits.Stop()
	p.finish(ctx, e)
	raw, err := p.result(ctx)
	cancel()
	watching.Wait()
	if err == nil {
		err = p.summary(raw, e)
	}
	code := e.Code()
	if p.stopped || p.cut != nil || p.refused != nil {
		code = exitStopped
	}
	if p.lost != nil {
		code, err = exitNoStart, p.lost
	}
	switch {
	case e.Ctrl && !p.stopped && err == nil:
		program.Interrupt() // returns if SIGINT is ignored
	case code == 0 && err == nil:
		return nil
	case code == 0: // the program succeeded, and Kern did not
		code = exitNoStart
	}
	return &exitError{code, err}
}

// watch reads the records of the process, and acts on the program accordingly.
func (p *execution) watch(ctx context.Context, follow bool) {
	err := p.session.Do(ctx, func(c *api.Client) error {
		p.mu.Lock()
		last := p.last
		p.mu.Unlock()
		return c.Records(ctx, p.key.Pid, last, follow, func(r *abi.Record, _ []byte) error {
			p.apply(r)
			return nil
		})
	})
	if err != nil && ctx.Err() == nil && follow {
		p.mu.Lock()
		p.lost, p.stopped = fmt.Errorf("the program was stopped, because Kern can no longer watch its process: %w", err), true
		p.mu.Unlock()
		p.guest.Kill()
	}
}

// apply acts on one record of the process.
func (p *execution) apply(r *abi.Record) {
	p.mu.Lock()
	if r.N <= p.last {
		p.mu.Unlock()
		return
	}
	p.last, p.called = r.N, p.called || r.Kind == abi.KindRefused || r.Intent != nil && r.Intent.Row != "exit"
	p.mu.Unlock()
	if r.Kind == abi.KindBegan {
		p.mu.Lock()
		switch r.Intent.Row {
		case "model":
			p.begun.model = r.Call
		case "tool":
			p.begun.tool = r.Call
		}
		p.mu.Unlock()
	}
	if r.Answer != nil && r.Answer.Cut != nil {
		p.mu.Lock()
		p.cut = r.Answer.Cut
		p.mu.Unlock()
	}
	switch r.Kind { // a record may overtake the orders that Hold sends, or come after the last of them
	case abi.KindSignaled:
		if r.Note.Signal == abi.Term {
			p.follow(kernel.Orders{Term: true})
		}
	case abi.KindEnding:
		p.follow(kernel.Orders{Exit: r.Exit.Exit, Reason: r.Exit.Reason})
	case abi.KindRefused:
		if u, limit := abi.LimitOf(r.Answer.Err.Code); limit && u != abi.Children && u != abi.Depth {
			p.mu.Lock()
			p.refused = cmp.Or(p.refused, r.Answer.Err)
			part := r.Intent != nil && r.Intent.Row == "tool" && p.begun.tool > p.begun.model
			p.mu.Unlock()
			if part { // other calls of the same answer fit, and the program may carry them out
				return
			}
			p.stop(fmt.Sprintf("has reached its limit on %s", u), refusalTime, p.flags.grace)
		}
	}
}

// refusalTime is how long a program may run after its call was refused. Nearly every
// program reports the error and ends, and SIGTERM would cut its report.
const refusalTime = 300 * time.Millisecond

// follow acts on the program as the orders to its process say.
func (p *execution) follow(o kernel.Orders) {
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
	case o.Exit == abi.ExitDone: // the program ended by itself
	case o.Exit == abi.ExitLimit:
		p.stop(fmt.Sprintf("has reached its limit on %s", o.Reason), refusalTime, p.flags.grace)
	case o.Exit == abi.ExitLoop:
		p.stop("runs in a loop", refusalTime, p.flags.grace)
	case o.Exit != "":
		p.stop("was killed", 0, 0)
	case o.Term && !was.Term:
		p.stop("was asked to finish", 0, p.flags.grace)
	}
}

// stop stops the program, and notes the reason. The delay comes before SIGTERM.
func (p *execution) stop(why string, delay, grace time.Duration) {
	p.mu.Lock()
	again := p.stopped || p.over
	p.stopped = p.stopped || !p.over
	p.mu.Unlock()
	if grace == 0 {
		p.guest.Kill()
		return
	}
	p.guest.End(delay, grace, func() {
		if !again && p.term.ErrTTY && !p.flags.quiet {
			p.term.FreshLine()
			p.term.Note("kern: process %d %s; the program gets SIGTERM, and is killed in %s", p.key.Pid, why, grace)
		}
	})
}

// finish ends the process in the way that its program ended.
func (p *execution) finish(ctx context.Context, e program.Ended) {
	p.watch(ctx, false) // the last refusal may be on disk only
	p.mu.Lock()
	refused, cut := p.refused, p.cut
	p.over = true
	p.mu.Unlock()
	switch {
	case refused != nil:
		p.endProcess(ctx, syscalls.ExitArgs{Code: refused.Code})
	case cut != nil: // the program has half an answer, so its own end says little
		p.endProcess(ctx, syscalls.ExitArgs{Code: cut.Code()})
	case e.Lost:
		p.endProcess(ctx, syscalls.ExitArgs{Error: "the supervisor of the program was killed", Code: abi.ProgramGone})
	case e.Signal != 0:
		p.endProcess(ctx, syscalls.ExitArgs{Error: "the program was ended by signal " + program.SignalName(e.Signal) + p.boundsMet(e), Code: abi.ProgramFailed})
	case e.Exit != 0:
		p.endProcess(ctx, syscalls.ExitArgs{Error: fmt.Sprintf("the program ended with exit code %d", e.Exit) + p.boundsMet(e), Code: abi.ProgramFailed})
	default:
		p.endProcess(ctx, syscalls.ExitArgs{})
	}
}

// boundsMet names the bounds that a failed program met.
func (p *execution) boundsMet(e program.Ended) (s string) {
	if e.OutOfMemory {
		s = "; it used all of --memory " + p.flags.memory + ", and the system killed a process of it"
	}
	if e.OutOfProcesses {
		s += "; it reached --processes " + p.flags.processes
	}
	return s
}

// endProcess ends the process. It accepts a process that has already ended.
func (p *execution) endProcess(ctx context.Context, x syscalls.ExitArgs) {
	err := p.session.Do(ctx, func(c *api.Client) error { return c.Keys.End(ctx, p.key.Pid, api.KeyEnd(x)) })
	var e *abi.Error
	if err != nil && !(errors.As(err, &e) && e.Code.Ended()) {
		p.term.Complain(err)
	}
}

// result waits for the exit of the process, and returns its result.
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

// notePast prints the end of a program that asked no model through Kern. It may have
// asked models elsewhere, so an amount of money would be wrong.
func (p *execution) notePast(r *host.Result) {
	p.term.Note("kern: process %d %s · no model call went through Kern · %s", r.Pid, outcomeOf(p.term, r), cli.Age(time.Duration(r.Usage.WallMS)*time.Millisecond))
	if p.past == "" && p.flags.sandbox == "" && p.flags.counted() {
		p.term.Note("  NOT limited by Kern: models that the program asked elsewhere, if it did")
	}
}

// countCalls says how many calls the program made.
func countCalls(r *host.Result) string {
	if r.Usage.ToolCalls > 0 {
		return cli.Plural(r.Usage.ModelCalls, "model call") + ", " + cli.Plural(r.Usage.ToolCalls, "tool call")
	}
	return cli.Plural(r.Usage.ModelCalls, "model call")
}

// summary prints how the program ended, and writes --json-summary.
func (p *execution) summary(raw json.RawMessage, e program.Ended) error {
	var r host.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("cannot read the result: %w", err)
	}
	if !p.flags.quiet {
		p.term.FreshLine()
		if r.Usage.ModelCalls == 0 && !p.called {
			p.notePast(&r)
		} else {
			p.term.Note("%s", summaryOf(p.term, &r, countCalls(&r)))
		}
		if p.past != "" {
			p.term.Note("  NOT limited by Kern: %s", p.past)
		}
		if r.Exit == abi.ExitLimit && p.refused != nil { // the program may have been stopped before it printed the refusal
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
