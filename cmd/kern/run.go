package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
)

// agentFlags are the flags that describe an agent. What they say wins over the
// agent file.
type agentFlags struct {
	file, model, name, account, workspace string
	priority, parallel                    int
	limits                                abi.Limits
}

func (f *agentFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "file", "f", "", "the agent `file`")
	flags.StringVar(&f.model, "model", "", "the model: script:FILE, openai:NAME or anthropic:NAME")
	flags.StringVar(&f.name, "name", "", "the name of the process")
	flags.StringVar(&f.account, "account", "", "the named `account` that pays")
	flags.StringVar(&f.workspace, "workspace", "", "the `directory` that its tools change, by transactions")
	flags.IntVar(&f.priority, "priority", abi.DefaultPriority, "0 is the most urgent")
	flags.IntVar(&f.parallel, "parallel", 0, "how many tool calls of one reply may run at a time; 0: all")
	addLimits(flags, &f.limits, abi.SettableUnits())
}

// agent is the agent that the flags and the file describe.
func (f *agentFlags) agent(flags *pflag.FlagSet) (g host.Agent, err error) {
	g = host.Agent{Priority: abi.DefaultPriority, Limits: host.Limits{}}
	if f.file != "" {
		if g, err = host.ReadAgent(f.file); err != nil {
			return g, asUsage(err)
		}
	}
	if f.model != "" {
		if g.Model, err = modelFrom(f.model); err != nil {
			return g, err
		}
	}
	if g.Model == "" {
		return g, cli.Usage("for example: kern run --model script:replies.yaml \"task\"", "expected an agent file with -f, or a model with --model")
	}
	if flags.Changed("name") {
		g.Name = f.name
	}
	if flags.Changed("account") {
		g.Account = f.account
	}
	if f.workspace != "" {
		if g.Workspace, err = filepath.Abs(f.workspace); err != nil {
			return g, err
		}
	}
	if flags.Changed("priority") {
		if f.priority < 0 || f.priority > abi.MaxPriority {
			return g, cli.Usage("the default is 10", "--priority is %d, expected 0 (the most urgent) to %d", f.priority, abi.MaxPriority)
		}
		g.Priority = f.priority
	}
	if flags.Changed("parallel") {
		if f.parallel < 0 {
			return g, cli.Usage("0 lets all of them run", "--parallel is %d, expected 0 or more", f.parallel)
		}
		g.Parallel = f.parallel
	}
	if g.Sandbox == "" {
		g.Sandbox = cmp.Or(os.Getenv("KERN_SANDBOX"), os.Getenv("SANDBOX_TYPE"))
	}
	f.limits.Each(func(u abi.Unit, n int64) { g.Limits[u] = n })
	return g, nil
}

// modelFrom reads a model of the command line, where the name of a script
// begins at the working directory.
func modelFrom(ref string) (string, error) {
	name, script := strings.CutPrefix(ref, "script:")
	if !script || name == "" {
		return ref, nil
	}
	abs, err := filepath.Abs(name)
	return "script:" + abs, err
}

// spec reads all that the agent names.
func (f *agentFlags) spec(flags *pflag.FlagSet, task string) (api.Run, error) {
	g, err := f.agent(flags)
	if err != nil {
		return api.Run{}, err
	}
	s, err := g.Spec(task)
	return api.Run(s), asUsage(err)
}

func runCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var f agentFlags
	var out output
	var detach bool
	cmd := &cobra.Command{
		Use:   "run [-f agent.yaml] [--model REF] [flags] \"task\"",
		Short: "Run an agent on a task",
		Long: `Run an agent on a task until its process exits, and print its output.

The task is the argument; when it is - or is missing, it is read from a pipe.
Flags win over the agent file. The process lives in the daemon: it goes on when
this command is gone, and when the daemon is killed and started again. Ctrl-C
asks it to finish with last words; a second one kills it. Within a program that
kern exec runs it is a child: what it takes counts there too, and it ends with it.`,
		Example: `  kern run --model script:replies.yaml "say hello"
  kern run -f agent.yaml --money 0.50 --steps 20 "write the report"
  kern run --workspace . --model openai:gpt-6-luna "mend the tests"
  git diff | kern run -f reviewer.yaml`,
		Annotations: map[string]string{ownInterrupts: "signals"},
		Args:        atMost(1, "one task; put it in quotes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			task, err := readTask(t, args)
			if err != nil {
				return err
			}
			r, err := f.spec(cmd.Flags(), task)
			if err != nil {
				return err
			}
			return runAgent(cmd.Context(), t, d, r, detach, out)
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "print the pid and leave the process to the daemon")
	cmd.Flags().BoolVar(&out.json, "json", false, "print one JSON object at the end")
	cmd.Flags().BoolVar(&out.events, "events", false, "print the records as lines of JSON while it runs, then the JSON object")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	return cmd
}

func runAgent(ctx context.Context, t *cli.Terminal, d *daemon.Directory, r api.Run, detach bool, out output) error {
	c, err := d.Connect(ctx)
	if err != nil {
		return notRun(err, r.Program.Model)
	}
	provider, _, _ := strings.Cut(r.Program.Model, ":")
	d.NoteOutdated(ctx, c, provider)
	var pid abi.Pid
	if r.Parent, err = parentOf(ctx, t.Getenv, c); err == nil {
		pid, err = c.Spawn(ctx, r)
	}
	if err != nil {
		return notRun(err, r.Program.Model)
	}
	if !detach {
		return followProcess(ctx, t, cli.NewSession(t, d.Connect, c), pid, out)
	}
	c.Close()
	if out.json || out.events {
		return t.JSON(api.Started{Pid: pid})
	}
	return t.Print("%d\n", pid)
}

// notRun says why a process was not started: what was asked for makes no sense,
// or nobody could be asked. It is never exit code 1, for nothing has run that
// could have failed.
func notRun(err error, ref string) error {
	var e *abi.Error
	var u *cli.UsageError
	switch {
	case errors.As(err, &u):
		return err
	case !errors.As(err, &e):
		return &exitError{exitUnknown, err}
	}
	switch e.Code {
	case abi.UnknownModel:
		hint := e.Hint
		if hint == "" && !strings.HasPrefix(ref, "script:") && !strings.Contains(e.Message, ", expected ") {
			hint = "the daemon keeps the environment it was started in: after a change end it with kern stop-daemon"
		}
		return &cli.UsageError{Message: e.Error(), Advice: cmp.Or(hint, "mend it and try again; nothing was started")}
	case abi.InvalidCall, abi.InvalidArguments, abi.WorkspaceRefused, abi.WorkspaceUnsupported:
		return &exitError{exitUsage, err}
	}
	return &exitError{exitUnknown, err}
}

// maxTask is the largest task that is read from a pipe.
const maxTask = 16 << 20

// task is the task of the command line, or from the pipe.
func readTask(t *cli.Terminal, args []string) (task string, err error) {
	switch {
	case len(args) == 1 && args[0] != "-":
		task = args[0]
	case len(args) == 0 && !piped(t.In):
		return "", cli.Usage("for example: kern run --model script:replies.yaml \"task\"", "expected a task, as an argument or from a pipe")
	default:
		b, err := io.ReadAll(io.LimitReader(t.In, maxTask+1))
		if err != nil {
			return "", fmt.Errorf("the task cannot be read: %w", err)
		}
		if len(b) > maxTask {
			return "", cli.Usage("give the agent a tool that reads the file", "the task is larger than %d bytes", maxTask)
		}
		task = strings.TrimSuffix(string(b), "\n")
	}
	if strings.TrimSpace(task) == "" {
		return "", cli.Usage("say in a sentence what is to be done", "the task is empty")
	}
	return task, nil
}

// piped reports whether r is something to read to its end, not a terminal nor
// nothing at all.
func piped(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return r != nil
	}
	i, err := f.Stat()
	return err == nil && i.Mode()&os.ModeCharDevice == 0
}

func waitCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var out output
	var timeout flagDuration
	cmd := &cobra.Command{
		Use:   "wait PID",
		Short: "Wait for a process to exit, and print its output",
		Long: `Wait for a process to exit, and print its output. The exit code says how it
ended, as that of run does. When --timeout is over, the process goes on, and the
exit code is 6.`,
		Args:              exactly(1, "the number of a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := onePid(args)
			if err != nil {
				return err
			}
			return waitForExit(cmd.Context(), t, d, pid, timeout, out)
		},
	}
	cmd.Flags().Var(&timeout, "timeout", "wait no longer than this `duration`")
	cmd.Flags().BoolVar(&out.json, "json", false, "print one JSON object")
	return cmd
}

func waitForExit(ctx context.Context, t *cli.Terminal, d *daemon.Directory, pid abi.Pid, timeout flagDuration, out output) error {
	c, err := d.Connect(ctx)
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	s := cli.NewSession(t, d.Connect, c)
	defer s.Close()
	if timeout.set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout.d)
		defer cancel()
	}
	var r json.RawMessage
	err = s.Do(ctx, func(c *api.Client) error { return c.Result(ctx, pid, true, &r) })
	if err != nil && ctx.Err() != nil {
		why := fmt.Sprintf("process %d has not exited after %s", pid, timeout.d)
		if errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
			why = fmt.Sprintf("process %d has not exited", pid)
		}
		return unfinished(s, pid, out, why)
	}
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	return printEnd(t, r, out, nil)
}

// lookTime is how long a last look at a process may take.
const lookTime = 2 * time.Second

// unfinished shows how a process stands that was waited for long enough.
func unfinished(s *cli.Session, pid abi.Pid, out output, why string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	end := &exitError{exitUnknown, &abi.Error{Code: abi.Interrupted, Message: why, Hint: fmt.Sprintf("it goes on; kern log -f %d shows what it does", pid)}}
	var raw json.RawMessage
	if err := s.Do(ctx, func(c *api.Client) error { return c.Result(ctx, pid, false, &raw) }); err != nil {
		return end
	}
	var r struct{ Exit abi.Exit }
	if json.Unmarshal(raw, &r) == nil && r.Exit != "" {
		return printEnd(s.Term, raw, out, nil) // at the last moment
	}
	if out.json {
		if err := s.Term.Print("%s\n", raw); err != nil {
			return err
		}
	}
	return end
}
