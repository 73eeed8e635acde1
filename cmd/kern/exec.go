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

	"github.com/spf13/cobra"

	"github.com/kern-run/kern"
	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/guest"
	"github.com/kern-run/kern/internal/guest/fence"
	"github.com/kern-run/kern/internal/server"
	"github.com/kern-run/kern/internal/sys"
)

// guardVerb starts this program as the guard of another. It is not for people.
const guardVerb = "guard"

// Exit codes of exec that are not the program's, as timeout has them.
const (
	exitStopped = 124 // Kern stopped the program
	exitNoStart = 125 // Kern could not start it, or lost it
)

// execFlags say how a program runs.
type execFlags struct {
	key     server.Key
	grace   time.Duration
	summary string
	quiet   bool
	sandbox string   // jail, or none
	show    []string // to a program in a jail
}

func execCommand(a *app) *cobra.Command {
	f := execFlags{key: server.Key{Priority: sys.DefaultPriority, Hold: true}}
	cmd := &cobra.Command{
		Use:   "exec [limits] [flags] -- PROGRAM [ARG...]",
		Short: "Run any program as a process: its model calls under limits, its end with all it started",
		Long: `Run a program that knows nothing of Kern as a process of Kern. Its calls to models
lead through the gateway, because the variables say so that the SDKs of OpenAI
and Anthropic read (OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL,
ANTHROPIC_API_KEY and their siblings); it has KERN_PID, KERN_KEY and KERN_URL too.
Where no key of a provider is configured, the program's own credential or login
is passed on untouched and never stored. Ways to models that do not read these
variables (Azure, Gemini and others) are not governed; they are named at the start.

The program has the terminal, the standard streams and the signals, in a process
group of its own. When a limit is reached the call is refused, the program is sent
SIGTERM, and after the grace period it is killed with everything it started, wherever
that went. stop, cont, term and kill do to the program what they do to any process.
Nothing of it is left at the end, nor when this command or the daemon is killed.

With --sandbox jail (Linux) the gateway is its only way out. It reads the system's
programs, what of /etc everybody may, and the trees that PATH, VIRTUAL_ENV and its
own links name; --show adds to that. It writes in the directory it is started in,
which is the real one, and in a /tmp and a home that are empty and go at the end.
All other files, sockets and processes of the host are not there, nor is Kern's
data directory; what is in the environment, the program has. A host that cannot
build this is told, and nothing is started.

The exit code is the program's, or 128+n if the signal n ended it. Else it is
  124  Kern stopped it: a limit, a loop, or a signal to the process
  125  it was not started
  126  it cannot be executed
  127  it was not found`,
		Example: `  kern exec --money 1 --steps 5 -- python agent.py
  kern exec --wall 10m --tool-calls 50 -- claude -p "mend the tests"
  kern exec --sandbox jail --show ~/data -- python agent.py`,
		Annotations: map[string]string{ownInterrupts: "signals"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("for example: kern exec --money 1 -- python agent.py", "expected a program to run")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runExec(a, cmd.Context(), f, args) },
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the program is the program's
	flags.StringVar(&f.key.Name, "name", "", "the name of the process; the program's when nothing is said")
	flags.StringVar(&f.key.Account, "account", "", "the named `account` that pays")
	flags.IntVar(&f.key.Priority, "priority", sys.DefaultPriority, "0 is the most urgent")
	flags.StringVar(&f.key.Watchdog.Profile, "watchdog", "", "strict (default: a warning would not reach the model), smart or off")
	flags.IntVar(&f.key.Watchdog.Repeat, "repeat", 0, "how many times the same tool call with the same result is a loop; 0: three")
	flags.DurationVar(&f.grace, "grace", 5*time.Second, "between SIGTERM and the end of everything")
	flags.StringVar(&f.summary, "json-summary", "", "write how it ended to this `file`, as a JSON object")
	flags.StringVar(&f.sandbox, "sandbox", "", "jail: the program's only way out is the gateway")
	flags.StringArrayVar(&f.show, "show", nil, "a `directory` or file that a program in a jail may read; as often as needed")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but what the program prints, and errors")
	addLimits(flags, &f.key.Limits, sys.Units())
	return cmd
}

// check refuses what cannot be held.
func (f *execFlags) check(argv []string) error {
	if _, set := f.key.Limits.Get(abi.OutputBytes); set {
		return usage("leave it out; tokens and tool calls are counted in what the model is sent", "--%s cannot be enforced for a program: what its tools print does not come by here", flagName(abi.OutputBytes))
	}
	switch {
	case f.sandbox != "" && f.sandbox != "jail":
		return usage("expected jail, or nothing", "--sandbox is %q", f.sandbox)
	case f.sandbox == "" && len(f.show) > 0:
		return usage("without --sandbox jail a program sees all there is", "--show is for a program in a jail")
	}
	if f.grace < 0 {
		return usage("0 kills at once", "--grace is %s, expected 0 or more", f.grace)
	}
	if f.key.Name == "" {
		f.key.Name = nameFor(argv)
	}
	return nil
}

// nameFor is a name for the process of a command line.
func nameFor(argv []string) string {
	base := func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }
	name := base(argv[0])
	if len(argv) > 1 && !strings.HasPrefix(argv[1], "-") && strings.ContainsAny(argv[1], "./") {
		name = base(argv[1]) // python agent.py
	}
	return cut(clean(name), 64)
}

func runExec(a *app, ctx context.Context, f execFlags, argv []string) error {
	if err := f.check(argv); err != nil {
		return &exitError{exitNoStart, err}
	}
	if err := guest.Able(); err != nil {
		return notStarted(err)
	}
	path, err := guest.Find(argv[0])
	if err != nil {
		return notStarted(err)
	}
	p, err := newProgram(a, ctx, f, argv)
	if err != nil {
		return &exitError{exitNoStart, err}
	}
	defer p.session.close()
	var g *guest.Guest
	spec := guest.Spec{Argv: argv, Env: p.environ(os.Environ()), Guard: []string{"/proc/self/exe", guardVerb}}
	if f.sandbox != "" {
		err = p.confine(&spec, path)
	}
	if err == nil {
		g, err = guest.Start(spec)
	}
	if err != nil {
		p.end(ctx, sys.ExitArgs{Error: err.Error(), Code: abi.ProgramFailed})
		return notStarted(err)
	}
	return p.run(ctx, g)
}

// notStarted is the error of a program that was not started.
func notStarted(err error) error {
	code := exitNoStart
	var s *guest.StartError
	if errors.As(err, &s) {
		code = s.Code
		err = usage("look at the name, and at PATH; what stands before -- is Kern's", "%v", err)
	}
	if errors.Is(err, guest.ErrNoGuard) {
		err = usage("run it there with: kern key new, and the base URL that is printed; limits bind the calls, and the program is yours to stop", "%v", err)
	}
	return &exitError{code, err}
}

// A program runs as a process.
type program struct {
	app     *app
	flags   execFlags
	key     server.KeyInfo
	session *session
	guest   *guest.Guest
	secrets []string

	mu      sync.Mutex
	last    uint64   // record that was read
	limit   abi.Code // of the call that was refused, if one was
	stopped bool     // by Kern
	over    bool     // the program ended: nothing stops it any more
	lost    error    // nobody can be asked any more
}

// newProgram makes the process. Ctrl-C ends that; later it is the program's.
func newProgram(a *app, ctx context.Context, f execFlags, argv []string) (*program, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = a.interruptible(ctx)
	p := &program{app: a, flags: f}
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if p.key, err = c.NewKey(ctx, f.key); err != nil {
		c.Close()
		return nil, err
	}
	if dir, err := a.dataDir(); err == nil {
		if s, _, err := a.settings(dir); err == nil {
			p.secrets = s.Keys(a.getenv)
		}
	}
	p.session = &session{app: a, client: c, quiet: f.quiet}
	return p, nil
}

// confine puts the program of a path behind a fence.
func (p *program) confine(s *guest.Spec, path string) error {
	if err := fence.Able(); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	data, err := p.app.dataDir()
	if err != nil {
		return err
	}
	w := fence.Wish{Dir: dir, Home: p.app.getenv("HOME"), Path: path, Env: s.Env, Show: p.flags.show, Base: p.key.Anthropic, Socket: p.key.Socket,
		Hide: []string{data, p.key.Socket, server.SocketOf(data)}}
	if set, _, err := p.app.settings(data); err == nil { // else the daemon has none either
		for _, provider := range set.Providers {
			if provider.KeyFile != "" {
				w.Hide = append(w.Hide, provider.KeyFile)
			}
		}
	}
	if s.Fence, err = fence.New(w); err != nil {
		return usage("look at kern help exec, and at --show", "the jail cannot be built: %v", err)
	}
	s.Env = s.Fence.Environ(s.Env)
	return nil
}

// environ is the environment of the program.
func (p *program) environ(env []string) []string {
	if !p.flags.quiet {
		if !p.key.Own["openai"] && !p.key.Own["anthropic"] && !guest.Credentials(env) {
			p.app.note("kern: no provider of models is configured, and the environment has no key for one\n" +
				"  hint: set OPENAI_API_KEY or ANTHROPIC_API_KEY and end the daemon with kern stop-daemon, or name providers in kern.yaml; kern mock is a provider to try it with")
		}
		if past := guest.Elsewhere(env); len(past) > 0 {
			p.app.note("kern: not governed is what the program does with %s", strings.Join(past, ", "))
		}
	}
	base := strings.TrimSuffix(p.key.Anthropic, "/")
	return guest.Environ(env, guest.Access{Pid: strconv.FormatInt(int64(p.key.Pid), 10), Key: p.key.Key, URL: base,
		OpenAI: p.key.OpenAI, Anthropic: p.key.Anthropic, InPath: p.key.InPath, Own: p.key.Own, Secrets: p.secrets})
}

// run stays with the program to its end, and says how that was.
func (p *program) run(ctx context.Context, g *guest.Guest) error {
	p.guest = g
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() { p.watch(ctx, true) })
	watching.Go(func() {
		_ = p.session.do(ctx, func(c *server.Client) error { return c.Hold(ctx, p.key.Pid) }) // the watch tells what is wrong
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
	if code == 0 && err == nil {
		return nil
	}
	return &exitError{code, err}
}

// watch reads the journal of the process, and does to the program what is done
// to the process.
func (p *program) watch(ctx context.Context, follow bool) {
	err := p.session.do(ctx, func(c *server.Client) error {
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
func (p *program) heard(r *abi.Record) {
	p.mu.Lock()
	if r.N <= p.last {
		p.mu.Unlock()
		return
	}
	p.last = r.N
	p.mu.Unlock()
	switch r.Kind {
	case abi.KindSignaled:
		switch r.Note.Signal {
		case abi.Stop:
			p.guest.Pause()
		case abi.Cont:
			p.guest.Resume()
		case abi.Term:
			p.stop("was asked to finish", p.flags.grace)
		}
	case abi.KindRefused:
		if u, limit := abi.LimitOf(r.Answer.Err.Code); limit && u != abi.Children && u != abi.Depth {
			p.mu.Lock()
			p.limit = cmp.Or(p.limit, r.Answer.Err.Code)
			p.mu.Unlock()
			p.stop(fmt.Sprintf("has reached its limit on %s", u), p.flags.grace)
		}
	case abi.KindEnding:
		switch r.Exit.Exit {
		case abi.ExitDone: // it said so itself
		case abi.ExitLimit:
			p.stop(fmt.Sprintf("has reached its limit on %s", r.Exit.Reason), p.flags.grace)
		case abi.ExitLoop:
			p.stop("goes in circles", p.flags.grace)
		default:
			p.stop("was killed", 0)
		}
	}
}

// stop ends the program for a reason.
func (p *program) stop(why string, grace time.Duration) {
	p.mu.Lock()
	again := p.stopped || p.over
	p.stopped = p.stopped || !p.over
	p.mu.Unlock()
	if !again && grace > 0 && p.app.errTTY && !p.flags.quiet && !p.guest.Over() {
		p.app.note("kern: process %d %s; the program is asked to end, and killed in %s", p.key.Pid, why, grace)
	}
	if grace > 0 {
		p.guest.End(grace)
	} else {
		p.guest.Kill()
	}
}

// finish ends the process as its program ended.
func (p *program) finish(ctx context.Context, e guest.Ended) {
	p.watch(ctx, false) // a refusal that came last is on disk
	p.mu.Lock()
	limit := p.limit
	p.over = true
	p.mu.Unlock()
	switch {
	case limit != "":
		p.end(ctx, sys.ExitArgs{Code: limit})
	case e.Lost:
		p.end(ctx, sys.ExitArgs{Error: "the guard of the program was killed", Code: abi.ProgramGone})
	case e.Signal != 0:
		p.end(ctx, sys.ExitArgs{Error: "the program was ended by signal " + guest.SignalName(e.Signal), Code: abi.ProgramFailed})
	case e.Exit != 0:
		p.end(ctx, sys.ExitArgs{Error: fmt.Sprintf("the program ended with exit code %d", e.Exit), Code: abi.ProgramFailed})
	default:
		p.end(ctx, sys.ExitArgs{})
	}
}

// end ends the process. One that has ended is as good.
func (p *program) end(ctx context.Context, x sys.ExitArgs) {
	err := p.session.do(ctx, func(c *server.Client) error { return c.EndKey(ctx, p.key.Pid, server.KeyEnd(x)) })
	var e *abi.Error
	if err != nil && !(errors.As(err, &e) && (e.Code == abi.ProcessExited || e.Code == abi.ProcessEnding || e.Code == abi.ProcessKilled)) {
		p.app.complain(err)
	}
}

// result is how the process ended.
func (p *program) result(ctx context.Context) (raw json.RawMessage, err error) {
	if p.lost != nil {
		return nil, p.lost
	}
	return raw, p.session.do(ctx, func(c *server.Client) error { return c.Result(ctx, p.key.Pid, true, &raw) })
}

// summary says how it ended, in a line and in a file.
func (p *program) summary(raw json.RawMessage, e guest.Ended) error {
	var r kern.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the result cannot be read: %w", err)
	}
	if !p.flags.quiet {
		p.app.note("%s", summaryOf(p.app, &r))
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
