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
	"github.com/kern-run/kern/internal/program/access"
	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/syscalls"
)

const execName = "exec"

// Exit codes of exec itself, the same as those of timeout(1).
const (
	exitStopped = 124 // Kern stopped the program
	exitNoStart = 125 // Kern could not start the program, or lost it
)

// execFlags say how a program runs.
type execFlags struct {
	key     api.Key
	grace   time.Duration
	summary string
	quiet   bool
	sandbox string   // jail, or empty
	show    []string // what a program in a jail may read
	write   []string // what it may change
	home    string   // its home

	ungoverned bool // the program may ask models past Kern although a limit is set

	memory, processes string // as written on the command line
	bounds            cgroup.Bounds
	usual             bool // the bounds are those of every jail, and not of the user
}

func execCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	f := execFlags{key: api.Key{Priority: abi.DefaultPriority, Hold: true}}
	cmd := &cobra.Command{
		Use:   execName + " [limits] [flags] -- PROGRAM [ARG...]",
		Short: "Run any program as a process, with limits on its model calls",
		Long: `Run any program as a process of Kern. Its calls to models go through Kern's
gateway. For this, kern exec sets the variables that the SDKs of OpenAI and
Anthropic read: OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL,
ANTHROPIC_API_KEY and their variants. The program also gets KERN_PID, KERN_KEY, KERN_URL and KERN_DATA.
Codex reads none of these, so kern exec gives it a CODEX_HOME of its own, with links to
the user's login and sessions. In a jail Codex gets arguments, if the line begins with it.

If no provider key is configured, Kern passes on the program's own key or login,
and never stores it. If the program's base URL differs from the daemon's provider,
the program is not started. Kern does not govern models that are reached with other
variables (Azure, Gemini and others), or by agents that ask only their vendor. With a
limit on calls such a program is not started, unless --ungoverned accepts that. Without
such a limit, Kern says at the start and at the end what is NOT limited.

The program has the terminal, the standard streams and the signals, in its own
process group. At a limit the call is refused and the program gets SIGTERM. After
the grace period it is killed with everything it started. If a limit leaves less
output than a call asks for, the answer may be cut. It then says so (kern help
keys), and the exit code is 124 however the program ends. If a call waits for
three seconds, as for an overloaded provider, Kern says so on stderr. The commands stop, cont,
term and kill act on the program too. Nothing that it started outlives it, also
when this command is killed. If the daemon is killed, it is started again and the
program continues. kern exec, kern run and kern key new inside the program make
child processes, bound by the same limits. The daemon refuses the program what would
widen its limits or stop Kern. Without a jail the program can still write Kern's files.

--memory and --processes bound the program and everything it starts, in a cgroup.
If no cgroup can be made, the program is not started. A bound on kern exec itself,
such as the MemoryMax of a service, also holds. With systemd a user gets a cgroup
from systemd-run --user --scope -p Delegate=yes. Past --processes a new process
fails to start; past --memory the system kills what uses it. A jail without them gets
half of the machine's memory, and 1024 processes and threads for each processor; none
lifts a bound. Without a cgroup for these, Kern says so and starts the program.

With --sandbox jail (Linux) the program can reach only the gateway. It can read the
system's programs, the public part of /etc, and the trees that PATH, VIRTUAL_ENV
and its own links name; --show adds to these. It can write in the current directory
and in an empty /tmp and home, which are removed at the end and count for --memory.
Without a bound each takes up to half of the host's memory. --home DIR is a home that
stays: an agent keeps its settings, sessions and login there. Use one for each agent.
--write lets the program change more of the host. A directory that other programs
share, such as /tmp or /var, must be named with --write, also to start in it.
CAUTION: files that the program writes in these directories may be executed outside
later: as settings, hooks, scripts, or by git. It cannot give a file or directory the
setuid or the setgid bit.
All other files, sockets and processes of the host are hidden, and Kern's data
directory too. It sees its environment, and sockets in the directories that it sees.
If this host cannot build the jail, the program is not started.

The exit code is the program's, or 128+n if signal n ended it, or
  124  Kern stopped it: a limit, a loop, or a signal to the process
  125  it was not started (also: wrong command line), or its end is unknown
  126  it cannot be executed
  127  it was not found`,
		Example: `  # At most one dollar and five turns of the model.
  kern exec --money 1 --steps 5 -- python agent.py

  # At most ten minutes and fifty tool calls.
  kern exec --wall 10m --tool-calls 50 -- claude -p "fix the tests"

  # In a jail that can also read ~/data.
  kern exec --sandbox jail --show ~/data -- python agent.py

  # In a jail with a home that stays.
  kern exec --sandbox jail --home ~/agents/claude -- claude -p "fix the tests"`,
		Annotations: map[string]string{ownInterrupts: "signals"},
		Args:        wantProgram,
		RunE:        func(cmd *cobra.Command, args []string) error { return runExec(t, d, cmd, f, args) },
	}
	f.add(cmd.Flags())
	return cmd
}

func wantProgram(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usage("for example: kern exec --money 1 -- python agent.py", "expected a program to run")
	}
	return nil
}

func (f *execFlags) add(flags *pflag.FlagSet) {
	flags.SetInterspersed(false) // flags after the program belong to the program
	flags.StringVar(&f.key.Name, "name", "", "the name of the process (default: the name of the program)")
	flags.StringVar(&f.key.Account, "account", "", "charge this named `account`")
	flags.IntVar(&f.key.Priority, "priority", abi.DefaultPriority, "priority, from 0 (most urgent) to 99")
	flags.StringVar(&f.key.Watchdog.Profile, "watchdog", "", "strict (the default, because warnings cannot reach the model), smart or off")
	flags.IntVar(&f.key.Watchdog.Repeat, "repeat", 0, "how many equal tool calls with equal results are a loop; 0: three")
	flags.DurationVar(&f.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL")
	flags.StringVar(&f.summary, "json-summary", "", "write how the program ended to this `file`, as a JSON object")
	flags.StringVar(&f.sandbox, "sandbox", "", "jail: the program can reach only the gateway")
	flags.StringVar(&f.memory, "memory", "", "limit on the memory of the program and all that it starts: a `size` such as 2GiB, or none")
	flags.StringVar(&f.processes, "processes", "", "limit on the `number` of its processes and threads at a time, or none")
	flags.StringArrayVar(&f.show, "show", nil, "a `directory` or file that the jail may read; repeatable")
	flags.StringArrayVar(&f.write, "write", nil, "a `directory` or file that the jail may change; repeatable")
	flags.StringVar(&f.home, "home", "", "a `directory` that is the home in the jail, and stays")
	flags.BoolVar(&f.ungoverned, "ungoverned", false, "start the program although a limit cannot hold, because some calls go past Kern")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print only the output of the program, and errors")
	addLimits(flags, &f.key.Limits, abi.SettableUnits())
	_ = flags.MarkHidden(flagName(abi.OutputBytes)) // accepted only to explain why it is refused
}

// refuseEmpty refuses flags with an empty value, because a limit that comes from
// an unset variable would silently not exist.
func refuseEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" {
			err = cli.Usage("leave the flag out, or check the variable that its value comes from", "--%s is empty", f.Name)
		}
	})
	return err
}

// check refuses flags that cannot be enforced.
func (f *execFlags) check(argv []string) error {
	if _, set := f.key.Limits.Get(abi.OutputBytes); set {
		return cli.Usage("leave the flag out; --tokens and --tool-calls can be enforced", "--%s cannot be enforced for a program, because Kern does not see the output of its tools", flagName(abi.OutputBytes))
	}
	wall, timed := f.key.Limits.Get(abi.Wall)
	switch {
	case timed && wall == 0:
		return cli.Usage("give a time such as 10m, or leave the flag out", "--wall is 0, so the program could not run at all")
	case f.sandbox != "" && f.sandbox != "jail":
		return cli.Usage("leave the flag out for no sandbox", "--sandbox is %q, expected jail", f.sandbox)
	case f.sandbox == "" && (f.show != nil || f.write != nil || f.home != ""):
		return cli.Usage("add --sandbox jail; without it the program can read and change the same files as you", "--show, --write and --home need --sandbox jail")
	}
	if f.grace < 0 {
		return cli.Usage("--grace 0 kills at once", "--grace is %s, expected 0 or more", f.grace)
	}
	if f.key.Name == "" {
		f.key.Name = nameFor(argv)
	}
	f.key.Title = titleOf(access.Title(argv, os.Environ()))
	return f.parseBounds()
}

// maxProcesses is the number of pids on Linux.
const maxProcesses = 1 << 22

// unbounded is the value of --memory and --processes without a bound.
const unbounded = "none"

// usualBounds gives a jail the bounds that the user does not set.
func (f *execFlags) usualBounds() error {
	if f.sandbox == "" || f.memory != "" && f.processes != "" {
		return nil
	}
	b, err := cgroup.Usual()
	if err != nil {
		return err
	}
	f.usual = f.memory == "" && f.processes == ""
	f.memory, f.processes = cmp.Or(f.memory, strconv.FormatInt(b.Memory>>20, 10)+"MiB"), cmp.Or(f.processes, strconv.Itoa(b.Processes))
	return nil
}

// parseBounds reads --memory and --processes.
func (f *execFlags) parseBounds() (err error) {
	if err := f.usualBounds(); err != nil {
		return err
	}
	if f.memory != "" && f.memory != unbounded {
		if f.bounds.Memory, err = abi.ParseUnit(abi.OutputBytes, f.memory); err != nil || f.bounds.Memory < 1<<20 {
			return cli.Usage("the least is 1MiB", "--memory is %q, expected a size such as 512MiB or 2GiB", f.memory)
		}
	}
	if f.processes != "" && f.processes != unbounded {
		if f.bounds.Processes, err = strconv.Atoi(f.processes); err != nil || f.bounds.Processes < 1 || f.bounds.Processes > maxProcesses {
			return cli.Usage("the program itself counts as one", "--processes is %q, expected a whole number from 1 to %d", f.processes, maxProcesses)
		}
	}
	return nil
}

// createSummary creates the file of --json-summary, so that a mistake shows before
// the program runs.
func (f *execFlags) createSummary() error {
	if f.summary == "" {
		return nil
	}
	if i, err := os.Stat(f.summary); err == nil && !i.Mode().IsRegular() && !i.IsDir() {
		return nil // a pipe can be opened only once
	}
	file, err := os.OpenFile(f.summary, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return cli.Usage("name a file that can be written", "--json-summary: %v", err)
	}
	return file.Close()
}

// nameFor derives the name of the process from the command line.
func nameFor(argv []string) string {
	base := func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }
	argv = access.Unwrap(argv)
	name := base(argv[0])
	if len(argv) > 1 && !strings.HasPrefix(argv[1], "-") && strings.ContainsAny(argv[1], "./") {
		name = base(argv[1]) // python agent.py
	}
	return cli.Cut(cli.Clean(name), 64)
}

// titleOf cuts a command line to what the daemon accepts, because a prompt can be
// long.
func titleOf(line string) string {
	title := cli.Clean(line)
	for len(title) > abi.MaxTitle {
		r := []rune(title)
		title = string(r[:len(r)-1-len(r)/16])
	}
	return title
}

func runExec(t *cli.Terminal, d *daemon.Directory, cmd *cobra.Command, f execFlags, argv []string) error {
	ctx := cmd.Context()
	if err := cmp.Or(refuseEmpty(cmd.Flags()), f.check(argv)); err != nil {
		return &exitError{exitNoStart, err}
	}
	if err := program.Able(); err != nil {
		return notStarted(err)
	}
	if err := program.HideEnvironment(); err != nil { // the program would read the keys of providers in it
		return notStarted(err)
	}
	if !signal.Ignored(syscall.SIGPIPE) { // a closed pipe must not end this command before the program
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	path, err := program.Find(argv[0])
	if err != nil {
		return notStarted(err)
	}
	if err := f.checkGoverned(argv); err != nil {
		return &exitError{exitNoStart, err}
	}
	if err := f.createSummary(); err != nil {
		return &exitError{exitNoStart, err}
	}
	err = program.Bounded(f.bounds)
	if err != nil && f.usual {
		if !f.quiet {
			t.Note("kern: warning: the memory and the processes of this jail have no bound: %v", err)
		}
		f.bounds, err = cgroup.Bounds{}, nil
	}
	if err != nil {
		return &exitError{exitNoStart, cli.Usage("with systemd run: systemd-run --user --scope -p Delegate=yes kern exec ...; elsewhere be root, use a delegated cgroup, or leave out --memory and --processes", "%v", err)}
	}
	p, err := newExecution(ctx, t, d, f, argv)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = cli.Usage("no program was started", "interrupted")
		}
		return &exitError{exitNoStart, err}
	}
	defer p.session.Close()
	var g *program.Program
	env := os.Environ()
	gateway, err := p.gatewayAccess(env, argv)
	spec := program.Spec{Argv: access.Argv(argv, gateway, f.billed(), f.sandbox != ""), Env: access.Environ(env, argv, gateway), Bounds: f.bounds}
	switch {
	case err != nil:
	case f.sandbox != "":
		err = p.confine(&spec, path)
	default:
		var more []string
		more, err = access.CodexHome(env, gateway, f.billed())
		spec.Env = append(spec.Env, more...)
	}
	if err == nil {
		g, err = program.Start(spec)
	}
	if err != nil {
		p.endProcess(ctx, syscalls.ExitArgs{Error: err.Error(), Code: abi.ProgramFailed})
		return notStarted(err)
	}
	return p.run(ctx, g)
}

// notStarted makes the error of a program that was not started.
func notStarted(err error) error {
	code := exitNoStart
	var s *program.StartError
	switch {
	case errors.As(err, &s):
		code, err = s.Code, cli.Usage(s.Remedy(), "%v", err)
	case errors.Is(err, program.ErrNoSupervisor):
		err = cli.Usage("use kern key new, and start the program with the base URL that it prints; limits then bind its model calls, but Kern cannot stop the program", "%v", err)
	}
	return &exitError{code, err}
}

// elsewhere says which model calls of the program do not go through Kern; "": none that
// Kern knows. In a jail they reach nobody.
func (f *execFlags) elsewhere(argv []string) string {
	if f.sandbox != "" {
		return ""
	}
	return access.Elsewhere(os.Environ(), argv)
}

// checkGoverned refuses a program whose calls go past Kern, if a limit counts calls.
func (f *execFlags) checkGoverned(argv []string) error {
	where := f.elsewhere(argv)
	if where == "" || f.ungoverned || !f.counted() {
		return nil
	}
	return cli.Usage("unset the variable (env -u NAME kern exec ...), or add --sandbox jail, which stops these calls, or --ungoverned, which accepts them",
		"the limit cannot hold, because Kern does not see %s", where)
}

// counted reports whether a limit depends on calls that go through Kern. A named account
// may have one.
func (f *execFlags) counted() bool {
	return f.billed() || f.key.Account != "" || slices.ContainsFunc([]abi.Unit{abi.Steps, abi.ModelCalls, abi.ToolCalls}, func(u abi.Unit) bool {
		_, set := f.key.Limits.Get(u)
		return set
	})
}

// billed reports whether a limit depends on what the provider counts.
func (f *execFlags) billed() bool {
	return slices.ContainsFunc([]abi.Unit{abi.Money, abi.Tokens, abi.InputTokens, abi.OutputTokens}, func(u abi.Unit) bool {
		_, set := f.key.Limits.Get(u)
		return set
	})
}
