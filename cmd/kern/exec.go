package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/syscalls"
)

const execName = "exec"

// guardVerb starts this program as the guard of another. It is not for people.
const guardVerb = "guard"

// Exit codes of exec that are not the program's, as timeout has them.
const (
	exitStopped = 124 // Kern stopped the program
	exitNoStart = 125 // Kern could not start it, or lost it, or cannot say how it ended
)

// execFlags say how a program runs.
type execFlags struct {
	key     api.Key
	grace   time.Duration
	summary string
	quiet   bool
	sandbox string   // jail, or none
	show    []string // to a program in a jail
	write   []string // for one
	home    string   // of one

	memory, processes string // as they stand on the command line
	bounds            cgroup.Bounds
}

func execCommand(a *app) *cobra.Command {
	f := execFlags{key: api.Key{Priority: syscalls.DefaultPriority, Hold: true}}
	cmd := &cobra.Command{
		Use:   execName + " [limits] [flags] -- PROGRAM [ARG...]",
		Short: "Run any program as a process, its model calls under limits",
		Long: `Run a program that knows nothing of Kern as a process of Kern. Its calls to models
lead through the gateway, because the variables say so that the SDKs of OpenAI
and Anthropic read (OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL,
ANTHROPIC_API_KEY and their siblings); it has KERN_PID, KERN_KEY, KERN_URL and
KERN_DATA too.
Codex, which does not read them, is told by arguments, and in a jail to leave its
own sandbox; it is known behind npx, env, timeout and the like too. Where no key of a provider is configured, the program's own credential
or login is passed on untouched and never stored. Where its variables name another
place than the daemon asks, it is not started. Ways to models that read other
variables (Azure, Gemini and others) are not governed; they are named at the start.

The program has the terminal, the standard streams and the signals, in a process
group of its own. When a limit is reached the call is refused, the program is sent
SIGTERM, and after the grace period it is killed with everything it started, wherever
that went. stop, cont, term and kill do to the program what they do to any process.
Nothing of it is left at the end, nor when this command or the daemon is killed.
Within a program that it runs, kern exec, kern run and kern key new make children,
whose limits are within those around them.

--memory and --processes bound it and all it starts on this machine, in a cgroup;
where none can be made the program is not started. What bounds kern exec itself, as
the MemoryMax of a service does, bounds the program too. With systemd a user has
one under systemd-run --user --scope -p Delegate=yes. A process past the bound
cannot begin; memory past it ends what asked for it.

With --sandbox jail (Linux) the gateway is its only way out. It reads the system's
programs, what of /etc everybody may, and the trees that PATH, VIRTUAL_ENV and its
own links name; --show adds to that. It writes in the directory it is started in,
which is the real one, and in a /tmp and a home that are empty and go at the end.
--home DIR is a home that stays, where an agent keeps its settings, sessions and
login from one run to the next: give it one of its own. --write lets it change more
of the host. CARE: what it writes in any of these may be run outside later, as the
settings and hooks of another program, as a script, or by git. All other files,
sockets and processes of the host are not there, nor is Kern's data directory. What
it does have: its environment, and sockets in directories that it sees. A host that
cannot build this is told so, and nothing is started.

The exit code is the program's, or 128+n if the signal n ended it. Else it is
  124  Kern stopped it: a limit, a loop, or a signal to the process
  125  it was not started; a wrong command line is that too. Or how it ended
       cannot be told, and it would be 0
  126  it cannot be executed
  127  it was not found`,
		Example: `  kern exec --money 1 --steps 5 -- python agent.py
  kern exec --wall 10m --tool-calls 50 -- claude -p "mend the tests"
  kern exec --sandbox jail --show ~/data -- python agent.py
  kern exec --sandbox jail --home ~/agents/claude -- claude -p "mend the tests"`,
		Annotations: map[string]string{ownInterrupts: "signals"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("for example: kern exec --money 1 -- python agent.py", "expected a program to run")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runExec(a, cmd, f, args) },
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *execFlags) add(flags *pflag.FlagSet) {
	flags.SetInterspersed(false) // what follows the program is the program's
	flags.StringVar(&f.key.Name, "name", "", "the name of the process; the program's when nothing is said")
	flags.StringVar(&f.key.Account, "account", "", "the named `account` that pays")
	flags.IntVar(&f.key.Priority, "priority", syscalls.DefaultPriority, "0 is the most urgent")
	flags.StringVar(&f.key.Watchdog.Profile, "watchdog", "", "strict (default: a warning would not reach the model), smart or off")
	flags.IntVar(&f.key.Watchdog.Repeat, "repeat", 0, "how many times the same tool call with the same result is a loop; 0: three")
	flags.DurationVar(&f.grace, "grace", 5*time.Second, "between SIGTERM and the end of everything")
	flags.StringVar(&f.summary, "json-summary", "", "write how it ended to this `file`, as a JSON object")
	flags.StringVar(&f.sandbox, "sandbox", "", "jail: the program's only way out is the gateway")
	flags.StringVar(&f.memory, "memory", "", "limit on the memory of the program and all it starts: a `size` such as 2GiB")
	flags.StringVar(&f.processes, "processes", "", "limit on the `number` of processes and threads that it is at one time")
	flags.StringArrayVar(&f.show, "show", nil, "a `directory` or file that a program in a jail may read; as often as needed")
	flags.StringArrayVar(&f.write, "write", nil, "a `directory` or file that a program in a jail may change; as often as needed")
	flags.StringVar(&f.home, "home", "", "the `directory` that is the home of a program in a jail, and stays")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but what the program prints, and errors")
	addLimits(flags, &f.key.Limits, syscalls.Units())
	_ = flags.MarkHidden(flagName(abi.OutputBytes)) // it is there to say why it cannot be
}

// said refuses flags that say nothing: a limit or a sandbox that stands in a
// variable which is not set is not what was wanted.
func said(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" {
			err = usage("leave it out, or look at the variable that it comes from", "--%s is empty", f.Name)
		}
	})
	return err
}

// check refuses what cannot be held.
func (f *execFlags) check(argv []string) error {
	if _, set := f.key.Limits.Get(abi.OutputBytes); set {
		return usage("leave it out; tokens and tool calls are counted in what the model is sent", "--%s cannot be enforced for a program: what its tools print does not come by here", flagName(abi.OutputBytes))
	}
	wall, timed := f.key.Limits.Get(abi.Wall)
	switch {
	case timed && wall == 0:
		return usage("name the time it may take, such as 10m, or leave it out", "--wall is 0: nothing may run for no time")
	case f.sandbox != "" && f.sandbox != "jail":
		return usage("leave it out for none", "--sandbox is %q, expected jail", f.sandbox)
	case f.sandbox == "" && (f.show != nil || f.write != nil || f.home != ""):
		return usage("without --sandbox jail a program sees and changes what you may", "--show, --write and --home are for a program in a jail")
	}
	if f.grace < 0 {
		return usage("0 kills at once", "--grace is %s, expected 0 or more", f.grace)
	}
	if f.key.Name == "" {
		f.key.Name = nameFor(argv)
	}
	return f.bound()
}

// maxProcesses is what Linux can number.
const maxProcesses = 1 << 22

// bound reads what bounds the program on this machine.
func (f *execFlags) bound() (err error) {
	if f.memory != "" {
		if f.bounds.Memory, err = abi.ParseUnit(abi.OutputBytes, f.memory); err != nil || f.bounds.Memory < 1<<20 {
			return usage("no program runs in less than 1MiB", "--memory is %q, expected a size such as 512MiB or 2GiB", f.memory)
		}
	}
	if f.processes != "" {
		if f.bounds.Processes, err = strconv.Atoi(f.processes); err != nil || f.bounds.Processes < 1 || f.bounds.Processes > maxProcesses {
			return usage("the program itself is one", "--processes is %q, expected a whole number from 1 to %d", f.processes, maxProcesses)
		}
	}
	return nil
}

// writable makes the file of --json-summary: that it cannot be made is better
// known before the program has run.
func (f *execFlags) writable() error {
	if f.summary == "" {
		return nil
	}
	if i, err := os.Stat(f.summary); err == nil && !i.Mode().IsRegular() && !i.IsDir() {
		return nil // a pipe is opened once
	}
	file, err := os.OpenFile(f.summary, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return usage("name a file that can be written", "--json-summary: %v", err)
	}
	return file.Close()
}

// nameFor is a name for the process of a command line.
func nameFor(argv []string) string {
	base := func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }
	argv = program.Inner(argv)
	name := base(argv[0])
	if len(argv) > 1 && !strings.HasPrefix(argv[1], "-") && strings.ContainsAny(argv[1], "./") {
		name = base(argv[1]) // python agent.py
	}
	return cli.Cut(clean(name), 64)
}

func runExec(a *app, cmd *cobra.Command, f execFlags, argv []string) error {
	ctx := cmd.Context()
	if err := cmp.Or(said(cmd.Flags()), f.check(argv)); err != nil {
		return &exitError{exitNoStart, err}
	}
	if err := program.Able(); err != nil {
		return notStarted(err)
	}
	if !signal.Ignored(syscall.SIGPIPE) { // how it ended is to be told, also when nobody reads what is said of it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	path, err := program.Find(argv[0])
	if err != nil {
		return notStarted(err)
	}
	if err := f.writable(); err != nil {
		return &exitError{exitNoStart, err}
	}
	if err := program.Bounded(f.bounds); err != nil {
		return &exitError{exitNoStart, usage("it takes a cgroup in which you may make others: with systemd start it as systemd-run --user --scope -p Delegate=yes kern exec ...; elsewhere be root, or have one that is delegated to you; or leave --memory and --processes out", "%v", err)}
	}
	p, err := newProgram(a, ctx, f, argv)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = usage("nothing was started", "interrupted")
		}
		return &exitError{exitNoStart, err}
	}
	defer p.session.close()
	var g *program.Guest
	env := os.Environ()
	access, err := p.access(env, argv)
	spec := program.Spec{Argv: program.Argv(argv, access, f.billed(), f.sandbox != ""), Env: program.Environ(env, argv, access), Guard: []string{"/proc/self/exe", guardVerb}, Bounds: f.bounds}
	if err == nil && f.sandbox != "" {
		err = p.confine(&spec, path)
	}
	if err == nil {
		g, err = program.Start(spec)
	}
	if err != nil {
		p.end(ctx, syscalls.ExitArgs{Error: err.Error(), Code: abi.ProgramFailed})
		return notStarted(err)
	}
	return p.run(ctx, g)
}

// notStarted is the error of a program that was not started.
func notStarted(err error) error {
	code := exitNoStart
	var s *program.StartError
	switch {
	case errors.As(err, &s):
		code, err = s.Code, usage(s.Remedy(), "%v", err)
	case errors.Is(err, program.ErrNoGuard):
		err = usage("run it there with: kern key new, and the base URL that is printed; limits bind the calls, and the program is yours to stop", "%v", err)
	}
	return &exitError{code, err}
}

// A program runs as a process.
type execution struct {
	app     *app
	flags   execFlags
	key     api.KeyInfo
	session *session
	guest   *program.Guest
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

// newProgram makes the process. Ctrl-C ends that; later it is the program's.
func newProgram(a *app, ctx context.Context, f execFlags, argv []string) (*execution, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = a.interruptible(ctx)
	p := &execution{app: a, flags: f}
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	noteOutdated(a, ctx, c, "")
	if f.key.Parent, err = around(a, ctx, c); err == nil {
		p.key, err = c.NewKey(ctx, f.key)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	if dir, err := a.dataDir(); err == nil {
		if s, _, err := a.settings(dir); err == nil {
			p.secrets = s.Keys(a.getenv)
		}
	}
	p.session = &session{app: a, client: c, quiet: f.quiet, stays: true}
	return p, nil
}

// around is the process in whose program this command runs, 0 if there is none:
// who has limits does not get others by asking again.
func around(a *app, ctx context.Context, c *api.Client) (abi.Pid, error) {
	url, pid := a.getenv("KERN_URL"), a.getenv("KERN_PID")
	if url == "" || pid == "" {
		return 0, nil
	}
	l, err := c.Keys(ctx, false)
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
		return usage("go to one that is there: it is what a program in a jail may write in", "the directory you are in is gone: %v", err)
	}
	data, err := p.app.dataDir()
	if err != nil {
		return err
	}
	w := confine.Wish{Dir: dir, Home: p.app.getenv("HOME"), Path: path, Env: s.Env, Keep: p.flags.home, Show: p.flags.show, Write: p.flags.write, Base: p.key.Anthropic, Socket: p.key.Socket,
		Hide: []string{data, p.key.Socket, api.SocketOf(data)}}
	if set, _, err := p.app.settings(data); err == nil { // else the daemon has none either
		w.Hide = append(w.Hide, set.KeyFiles()...)
	}
	if s.Fence, err = confine.New(w); err != nil {
		return usage("look at kern help exec, and at --show, --write and --home", "the jail cannot be built: %v", err)
	}
	s.Env = s.Fence.Environ(s.Env)
	return nil
}

// billed reports whether there is a limit on what the provider counts.
func (f *execFlags) billed() bool {
	return slices.ContainsFunc([]abi.Unit{abi.Money, abi.Tokens, abi.InputTokens, abi.OutputTokens}, func(u abi.Unit) bool {
		_, set := f.key.Limits.Get(u)
		return set
	})
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
			return a, usage(fmt.Sprintf("name it in kern.yaml, as providers: {%s: {base_url: %q}}, or unset the variable; kern stop-daemon lets the next command start a daemon that takes it from here", format, self.Base),
				"%s is %s here, and the daemon sends such calls to %s", self.Variable, clean(self.Base), w.Base)
		}
		own[format] = w.Own && (w.Keyed || self.Base == "" || !self.Credential) // else it goes where the program shows it anyway
		some = some || w.Own || self.Credential
	}
	if !p.flags.quiet {
		if !some {
			p.app.note("kern: no provider of models is configured, and the environment has no key for one\n" +
				"  hint: set OPENAI_API_KEY or ANTHROPIC_API_KEY and end the daemon with kern stop-daemon, or name providers in kern.yaml; kern mock is a provider to try it with")
		}
		if past := program.Elsewhere(env); len(past) > 0 {
			p.app.note("kern: not governed is what the program does with %s", strings.Join(past, ", "))
		}
		if program.Untold(argv) {
			p.app.note("kern: Codex asks models past Kern where it is started this way\n  hint: kern exec tells it where to ask when the line begins with it: -- codex ...; npx, env and timeout may stand before it")
		}
	}
	data, err := p.app.dataDir()
	base := strings.TrimSuffix(p.key.Anthropic, "/")
	return program.Access{Pid: strconv.FormatInt(int64(p.key.Pid), 10), Key: p.key.Key, URL: base,
		OpenAI: p.key.OpenAI, Anthropic: p.key.Anthropic, InPath: p.key.InPath, Own: own, Secrets: p.secrets, Data: data}, err
}

// run stays with the program to its end, and says how that was.
func (p *execution) run(ctx context.Context, g *program.Guest) error {
	p.guest = g
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() { p.watch(ctx, true) })
	watching.Go(func() {
		_ = p.session.do(ctx, func(c *api.Client) error { return c.Hold(ctx, p.key.Pid, p.ordered) }) // the watch tells what is wrong
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
	err := p.session.do(ctx, func(c *api.Client) error {
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
	if e.Starved {
		s = "; --memory " + p.flags.memory + " was used up, and something of it killed"
	}
	if e.Crowded {
		s += "; it was refused more processes than --processes " + p.flags.processes
	}
	return s
}

// end ends the process. One that has ended is as good.
func (p *execution) end(ctx context.Context, x syscalls.ExitArgs) {
	err := p.session.do(ctx, func(c *api.Client) error { return c.EndKey(ctx, p.key.Pid, api.KeyEnd(x)) })
	var e *abi.Error
	if err != nil && !(errors.As(err, &e) && e.Code.Over()) {
		p.app.complain(err)
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
	err = p.session.do(ctx, func(c *api.Client) error { return c.Result(ctx, p.key.Pid, true, &raw) })
	return raw, err
}

// did is what came of the program. One that knows an address of its own asks
// models past Kern, and nobody else would say so.
func (p *execution) did(r *host.Result) string {
	switch {
	case r.Usage.ToolCalls > 0:
		return plural(r.Usage.ModelCalls, "model call") + ", " + plural(r.Usage.ToolCalls, "tool call")
	case r.Usage.ModelCalls == 0 && !p.called:
		return "no model call went through Kern"
	}
	return plural(r.Usage.ModelCalls, "model call")
}

// summary says how it ended, in a line and in a file.
func (p *execution) summary(raw json.RawMessage, e program.Ended) error {
	var r host.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the result cannot be read: %w", err)
	}
	if !p.flags.quiet {
		p.app.note("%s", summaryOf(p.app, &r, p.did(&r)))
		if r.Exit == abi.ExitLimit && p.refused != nil { // its words may be all that a program that was ended had not said yet
			p.app.note("  %s", clean(p.refused.Message))
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
