// Command kern runs AI agents as processes, and looks after them: it starts
// them, lists them, stops them, and tells what they did and what it cost.
//
// Every verb is a client of the daemon that owns a data directory, which is
// started when there is none; connect.go finds it and serve.go is it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/manual"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/confine"
)

func main() {
	host.EnterSandbox()
	confine.Stage(os.Args)
	if len(os.Args) > 1 && os.Args[1] == superviseVerb {
		host.Supervise()
	}
	if len(os.Args) > 1 && os.Args[1] == guardVerb {
		program.Guard(os.Args[2:])
	}
	interrupts := make(chan os.Signal, 4)
	for _, s := range []os.Signal{os.Interrupt, terminate} {
		if !signal.Ignored(s) { // nohup and its like mean it
			signal.Notify(interrupts, s)
		}
	}
	a := &app{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, interrupts: interrupts,
		outTTY: isTerminal(os.Stdout), errTTY: isTerminal(os.Stderr),
	}
	os.Exit(a.main(context.Background()))
}

// superviseVerb starts this program as the supervisor of command tools. It is
// not for people.
const superviseVerb = "supervise"

// The exit codes. Those of run and wait say how the process ended; unknown is
// also when nobody could be asked.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitLimit   = 3
	exitLoop    = 4
	exitKilled  = 5
	exitUnknown = 6
)

var exitCodes = map[abi.Exit]int{
	abi.ExitDone:    exitDone,
	abi.ExitFailed:  exitFailed,
	abi.ExitLimit:   exitLimit,
	abi.ExitLoop:    exitLoop,
	abi.ExitKilled:  exitKilled,
	abi.ExitCrashed: exitUnknown,
}

// An app is one run of the command.
type app struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	interrupts     <-chan os.Signal // Ctrl-C, and what asks a program to end
	outTTY, errTTY bool

	data, config string // as the flags say
	begun        bool   // the command line made sense

	errMu sync.Mutex // of stderr while a progress line is shown
	line  string     // that line
}

// main runs the command and returns its exit code.
func (a *app) main(ctx context.Context) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	root := commands(a)
	root.SetArgs(a.args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	var x *exitError
	switch {
	case errors.As(err, &x):
		a.complain(x.err)
		return x.code
	case !a.begun:
		return misused(a, cmd, err)
	}
	var u *usageError
	switch {
	case errors.Is(err, context.Canceled):
		a.complain(&usageError{"interrupted", "what was asked may have been done all the same: kern ps shows how things stand"})
		return exitUnknown
	case errors.As(err, &u):
		a.complain(err)
		return exitUsage
	}
	a.complain(err)
	return exitFailed
}

// misused says what is wrong with a command line.
func misused(a *app, cmd *cobra.Command, err error) int {
	hint := "kern --help lists the commands; kern COMMAND --help explains one"
	if cmd.HasParent() {
		hint = cmd.CommandPath() + " --help explains it"
	}
	var u *usageError
	if errors.As(err, &u) {
		hint = u.hint
	}
	a.complain(&usageError{err.Error(), hint})
	if cmd.Name() == execName {
		return exitNoStart // 2 may be the program's
	}
	return exitUsage
}

// An exitError ends the command with a code, and with words if there are any.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprint("exit ", e.code) }

// A usageError is a command line, or a file that it names, that makes no sense.
type usageError struct{ message, hint string }

func (e *usageError) Error() string { return e.message }

func usage(hint, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...), hint}
}

// complain prints an error and what can be done about it.
func (a *app) complain(err error) {
	if err == nil {
		return
	}
	message, hint := explain(err)
	a.note("kern: %s", a.paint(a.errTTY, red, clean(message)))
	if hint != "" {
		a.note("  hint: %s", clean(hint))
	}
}

// explain is what an error says, and what to do next.
func explain(err error) (message, hint string) {
	message = err.Error()
	var u *usageError
	var e *abi.Error
	var v *api.VersionError
	switch {
	case errors.As(err, &u):
		hint = u.hint
	case errors.As(err, &e):
		hint = e.Hint
		if len(e.Expected) > 0 {
			message += "; expected " + string(e.Expected)
		}
		if hint == "" {
			hint = "the error has the code " + string(e.Code) + "; kern help codes explains it"
		}
	case errors.As(err, &v):
		hint = "end it with: kern stop-daemon; the next command starts one of this version, and processes go on"
	case errors.Is(err, api.ErrLost):
		hint = "kern ps starts it again and shows how things stand; its log is daemon.log in the data directory"
	default:
		hint = "kern doctor looks at this host and its configuration"
	}
	return message, hint
}

// note prints a line for the person, above the progress line if there is one.
func (a *app) note(format string, args ...any) {
	a.errMu.Lock()
	defer a.errMu.Unlock()
	if a.line != "" {
		fmt.Fprint(a.stderr, clearLine)
	}
	fmt.Fprintf(a.stderr, format+"\n", args...)
	if a.line != "" {
		fmt.Fprint(a.stderr, a.line)
	}
}

// progress shows s as the last line of a terminal; empty takes it away.
func (a *app) progress(s string) {
	if !a.errTTY || a.getenv("TERM") == "dumb" {
		return
	}
	s = cli.Cut(s, width(a, true, a.stderr)-1) // one that goes on in a second line could not be taken away
	a.errMu.Lock()
	defer a.errMu.Unlock()
	if s != a.line {
		a.line = s
		fmt.Fprint(a.stderr, clearLine+s)
	}
}

// print writes a result.
func (a *app) print(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, format, args...)
	return err
}

// commands is the command line.
func commands(a *app) *cobra.Command {
	var asked bool // for the version
	root := &cobra.Command{
		Use:   "kern",
		Short: "Run AI agents as processes under a kernel",
		Long: `kern runs AI agents as processes: with hard limits on what they may cost and do,
a journal of everything they did, and the same life after a crash.

Exit codes: 0 done, 1 failed, 2 usage, 3 limit, 4 loop, 5 killed, 6 crashed or
unknown. Those of run and wait say how the process ended.

The data directory is --data, else KERN_DATA, else kern in the XDG state
directory. The configuration is --config, else KERN_CONFIG, else kern.yaml in
the data directory, else kern/kern.yaml in the XDG configuration directory.

kern COMMAND --help explains a command, and kern help what else there is to know:
kern help config what kern.yaml may hold, kern help agent what an agent file may.`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			a.begun = true
			if cmd.Annotations[ownInterrupts] == "" {
				cmd.SetContext(a.interruptible(cmd.Context()))
			}
		},
		Args: below,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked {
				return printVersion(a, false)
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVarP(&asked, "version", "v", false, "print the version")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	f := root.PersistentFlags()
	f.StringVar(&a.data, "data", "", "the data `directory`")
	f.StringVar(&a.config, "config", "", "the configuration `file`")
	explained(a, root)
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run", []*cobra.Command{runCommand(a), execCommand(a), keyCommand(a), codeCommand(a), forkCommand(a), waitCommand(a)}},
		{"See", []*cobra.Command{psCommand(a), showCommand(a), logCommand(a), trafficCommand(a), replayCommand(a)}},
		{"Steer", []*cobra.Command{
			signalCommand(a, abi.Kill, "End a process at once"),
			signalCommand(a, abi.Stop, "Pause a process: what runs goes on, nothing new begins"),
			signalCommand(a, abi.Cont, "Let a paused process go on"),
			signalCommand(a, abi.Term, "Ask a process to finish, with last words"),
			resumeCommand(a), niceCommand(a), limitCommand(a), accountCommand(a), decideCommand(a, true), decideCommand(a, false)}},
		{"Files of a process", []*cobra.Command{historyCommand(a), diffCommand(a), undoCommand(a), workspaceCommand(a)}},
		{"Kern itself", []*cobra.Command{doctorCommand(a), toolsCommand(a), serveCommand(a), stopDaemonCommand(a), versionCommand(a)}},
		{"To try it with", []*cobra.Command{demoCommand(a), mockCommand(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("Kern itself")
	root.SetCompletionCommandGroupID("Kern itself")
	for _, p := range manual.Pages() {
		root.AddCommand(&cobra.Command{Use: p.Name, Short: p.Short, Long: p.Text})
	}
	return root
}

// ownInterrupts marks commands that do something else at Ctrl-C than to end.
const ownInterrupts = "interrupts"

var errLeft = errors.New("interrupted")

// interruptible is ctx until Ctrl-C, which ends it with errLeft as the cause.
func (a *app) interruptible(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-a.interrupts:
			cancel(errLeft)
		case <-ctx.Done():
		}
	}()
	return ctx
}

// onePid reads the only argument of a command.
func onePid(args []string) (abi.Pid, error) {
	if len(args) == 0 {
		return 0, usage("kern ps lists them", "expected the number of a process")
	}
	return parsePid(args[0])
}

func parsePid(s string) (abi.Pid, error) {
	var n int64
	if _, err := fmt.Sscanf(s+"\n", "%d\n", &n); err != nil || n < 1 || strings.ContainsAny(s, "+ _") {
		return 0, usage("kern ps lists them", "%q is not the number of a process", s)
	}
	return abi.Pid(n), nil
}

// person is in whose name the command acts.
func (a *app) person() string {
	for _, v := range []string{"USER", "LOGNAME", "USERNAME"} {
		if s := a.getenv(v); s != "" {
			return s
		}
	}
	return "a person"
}
