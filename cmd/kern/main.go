// Command kern runs AI agents as processes: it starts, lists and stops them, and
// shows what they did and what it cost.
//
// Nearly every verb is a client of the daemon that owns a data directory. A verb
// that finds no daemon starts one. Each verb is a file; main.go lists them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/manual"
	"github.com/kern-run/kern/internal/program"
)

func main() {
	host.Child()
	_ = program.HideEnvironment() // where a program could read it, kern exec tries again and reports the error
	interrupts := make(chan os.Signal, 4)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) { // nohup ignores signals on purpose
			signal.Notify(interrupts, s)
		}
	}
	os.Exit(run(context.Background(), cli.NewTerminal(interrupts), os.Args[1:]))
}

// The exit codes. For run and wait they say how the process ended; unknown also
// means that the daemon could not be reached.
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

// run runs the command line and returns its exit code.
func run(ctx context.Context, t *cli.Terminal, args []string) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parsed := false
	root := rootCommand(t, &parsed)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var x *exitError
	var u *cli.UsageError
	var c *daemon.ConfigError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &x):
		t.Complain(x.err)
		return x.code
	case !parsed:
		return reportMisuse(t, cmd, err)
	case errors.Is(err, context.Canceled):
		t.Complain(&cli.UsageError{Message: "interrupted", Advice: "the daemon may have received the request: kern ps shows the state"})
		return exitUnknown
	}
	t.Complain(err)
	if errors.As(err, &u) || errors.As(err, &c) {
		return exitUsage
	}
	return exitFailed
}

// reportMisuse prints what is wrong with a command line.
func reportMisuse(t *cli.Terminal, cmd *cobra.Command, err error) int {
	hint := "kern --help lists the commands"
	if cmd.HasParent() {
		hint = cmd.CommandPath() + " --help explains the command"
	}
	var u *cli.UsageError
	if errors.As(err, &u) {
		hint = u.Advice
	}
	t.Complain(&cli.UsageError{Message: err.Error(), Advice: hint})
	if cmd.Name() == execName {
		return exitNoStart // 2 may be the program's
	}
	return exitUsage
}

// An exitError ends the command with an exit code, and prints err if it is set.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprint("exit ", e.code) }

// rootCommand builds the command line. It sets parsed once the arguments make
// sense.
func rootCommand(t *cli.Terminal, parsed *bool) *cobra.Command {
	d := &daemon.Directory{Version: version, Getenv: t.Getenv, Note: func(text string) { t.Note("kern: %s", cli.Clean(text)) }}
	var asked bool // for the version
	root := &cobra.Command{
		Use:   "kern",
		Short: "Run AI agents as processes under a kernel",
		Long: `kern runs AI agents as processes: with hard limits on what they may cost and do,
and with a journal of everything they do. A process survives a crash of the daemon
or the machine.

Exit codes: 0 done, 1 failed, 2 usage, 3 limit, 4 loop, 5 killed, 6 crashed or
unknown. For run and wait they say how the process ended.

The data directory is --data, else KERN_DATA, else kern in the XDG state
directory. The configuration is --config, else KERN_CONFIG, else kern.yaml in
the data directory, else kern/kern.yaml in the XDG configuration directory.

kern COMMAND --help explains a command. kern help config explains kern.yaml, and
kern help agent explains agent files.`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			*parsed = true
			if cmd.Annotations[ownInterrupts] == "" {
				cmd.SetContext(t.Interruptible(cmd.Context()))
			}
		},
		Args: needSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked {
				return printVersion(t, false)
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVarP(&asked, "version", "v", false, "print the version")
	root.SetIn(t.In)
	root.SetOut(t.Out)
	root.SetErr(t.Err)
	f := root.PersistentFlags()
	f.StringVar(&d.Data, "data", "", "the data `directory`")
	f.StringVar(&d.Config, "config", "", "the configuration `file`")
	setHelp(t, root)
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run", []*cobra.Command{runCommand(t, d), execCommand(t, d), keyCommand(t, d), codeCommand(t), continueCommand(t, d), forkCommand(t, d), waitCommand(t, d)}},
		{"Watch", []*cobra.Command{psCommand(t, d), showCommand(t, d), logCommand(t, d), spendCommand(t, d), trafficCommand(t, d), replayCommand(t, d)}},
		{"Control", []*cobra.Command{
			signalCommand(t, d, abi.Kill, "End processes at once", "Everything that a process started ends with it."),
			signalCommand(t, d, abi.Stop, "Pause processes: running calls finish, no new call begins", "kern cont continues them."),
			signalCommand(t, d, abi.Cont, "Continue paused processes", "kern stop pauses them."),
			signalCommand(t, d, abi.Term, "Ask processes to finish, with last words", "A program under kern exec gets SIGTERM."),
			resumeCommand(t, d), niceCommand(t, d), limitCommand(t, d), accountCommand(t, d), settleCommand(t, d), decideCommand(t, d, true), decideCommand(t, d, false)}},
		{"Files of a process", []*cobra.Command{historyCommand(t, d), diffCommand(t, d), undoCommand(t, d), workspaceCommand(t, d)}},
		{"Journal", []*cobra.Command{removeCommand(t, d), pruneCommand(t, d)}},
		{"Kern itself", []*cobra.Command{doctorCommand(t, d), toolsCommand(t), serveCommand(t, d), stopDaemonCommand(t, d), manCommand(t), versionCommand(t)}},
		{"Try it out", []*cobra.Command{demoCommand(t), mockCommand(t)}},
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

// ownInterrupts marks commands that handle Ctrl-C themselves.
const ownInterrupts = "interrupts"
