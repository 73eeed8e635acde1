package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/syscalls"
)

const execName = "exec"

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

func execCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	f := execFlags{key: api.Key{Priority: abi.DefaultPriority, Hold: true}}
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
				return cli.Usage("for example: kern exec --money 1 -- python agent.py", "expected a program to run")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runExec(t, d, cmd, f, args) },
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *execFlags) add(flags *pflag.FlagSet) {
	flags.SetInterspersed(false) // what follows the program is the program's
	flags.StringVar(&f.key.Name, "name", "", "the name of the process; the program's when nothing is said")
	flags.StringVar(&f.key.Account, "account", "", "the named `account` that pays")
	flags.IntVar(&f.key.Priority, "priority", abi.DefaultPriority, "0 is the most urgent")
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
	addLimits(flags, &f.key.Limits, abi.SettableUnits())
	_ = flags.MarkHidden(flagName(abi.OutputBytes)) // it is there to say why it cannot be
}

// said refuses flags that say nothing: a limit or a sandbox that stands in a
// variable which is not set is not what was wanted.
func said(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" {
			err = cli.Usage("leave it out, or look at the variable that it comes from", "--%s is empty", f.Name)
		}
	})
	return err
}

// check refuses what cannot be held.
func (f *execFlags) check(argv []string) error {
	if _, set := f.key.Limits.Get(abi.OutputBytes); set {
		return cli.Usage("leave it out; tokens and tool calls are counted in what the model is sent", "--%s cannot be enforced for a program: what its tools print does not come by here", flagName(abi.OutputBytes))
	}
	wall, timed := f.key.Limits.Get(abi.Wall)
	switch {
	case timed && wall == 0:
		return cli.Usage("name the time it may take, such as 10m, or leave it out", "--wall is 0: nothing may run for no time")
	case f.sandbox != "" && f.sandbox != "jail":
		return cli.Usage("leave it out for none", "--sandbox is %q, expected jail", f.sandbox)
	case f.sandbox == "" && (f.show != nil || f.write != nil || f.home != ""):
		return cli.Usage("without --sandbox jail a program sees and changes what you may", "--show, --write and --home are for a program in a jail")
	}
	if f.grace < 0 {
		return cli.Usage("0 kills at once", "--grace is %s, expected 0 or more", f.grace)
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
			return cli.Usage("no program runs in less than 1MiB", "--memory is %q, expected a size such as 512MiB or 2GiB", f.memory)
		}
	}
	if f.processes != "" {
		if f.bounds.Processes, err = strconv.Atoi(f.processes); err != nil || f.bounds.Processes < 1 || f.bounds.Processes > maxProcesses {
			return cli.Usage("the program itself is one", "--processes is %q, expected a whole number from 1 to %d", f.processes, maxProcesses)
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
		return cli.Usage("name a file that can be written", "--json-summary: %v", err)
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
	return cli.Cut(cli.Clean(name), 64)
}

func runExec(t *cli.Terminal, d *daemon.Directory, cmd *cobra.Command, f execFlags, argv []string) error {
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
		return &exitError{exitNoStart, cli.Usage("it takes a cgroup in which you may make others: with systemd start it as systemd-run --user --scope -p Delegate=yes kern exec ...; elsewhere be root, or have one that is delegated to you; or leave --memory and --processes out", "%v", err)}
	}
	p, err := newExecution(ctx, t, d, f, argv)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = cli.Usage("nothing was started", "interrupted")
		}
		return &exitError{exitNoStart, err}
	}
	defer p.session.Close()
	var g *program.Program
	env := os.Environ()
	access, err := p.access(env, argv)
	spec := program.Spec{Argv: program.Argv(argv, access, f.billed(), f.sandbox != ""), Env: program.Environ(env, argv, access), Bounds: f.bounds}
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
		code, err = s.Code, cli.Usage(s.Remedy(), "%v", err)
	case errors.Is(err, program.ErrNoSupervisor):
		err = cli.Usage("run it there with: kern key new, and the base URL that is printed; limits bind the calls, and the program is yours to stop", "%v", err)
	}
	return &exitError{code, err}
}

// billed reports whether there is a limit on what the provider counts.
func (f *execFlags) billed() bool {
	return slices.ContainsFunc([]abi.Unit{abi.Money, abi.Tokens, abi.InputTokens, abi.OutputTokens}, func(u abi.Unit) bool {
		_, set := f.key.Limits.Get(u)
		return set
	})
}
