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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/daemon"
)

// agentFlags are the flags that describe an agent. They override the agent file.
type agentFlags struct {
	file, model, name, account, workspace string
	priority, parallel                    int
	limits                                abi.Limits
}

func (f *agentFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "file", "f", "", "the agent `file`")
	flags.StringVar(&f.model, "model", "", "the model: script:FILE, openai:NAME or anthropic:NAME")
	flags.StringVar(&f.name, "name", "", "the name of the process")
	flags.StringVar(&f.account, "account", "", "charge this named `account`")
	flags.StringVar(&f.workspace, "workspace", "", "the `directory` that tools change in transactions")
	flags.IntVar(&f.priority, "priority", abi.DefaultPriority, "priority, from 0 (most urgent) to 99")
	flags.IntVar(&f.parallel, "parallel", 0, "how many tool calls of a reply run at a time; 0: all")
	addLimits(flags, &f.limits, abi.SettableUnits())
}

// agent builds a request without a task from the flags and the agent file.
func (f *agentFlags) agent(flags *pflag.FlagSet) (r abi.Run, err error) {
	r.Priority = abi.DefaultPriority
	if f.file != "" {
		if r, err = config.ReadAgent(f.file); err != nil {
			return r, asUsage(err)
		}
	}
	p := &r.Program
	if f.model != "" {
		if p.Model, err = resolveModel(f.model); err != nil {
			return r, err
		}
	}
	if p.Model == "" {
		return r, cli.Usage("for example: kern run --model script:replies.yaml \"task\"", "expected an agent file (-f) or a model (--model)")
	}
	if flags.Changed("name") {
		p.Name = f.name
	}
	if flags.Changed("account") {
		r.Account = f.account
	}
	if f.workspace != "" {
		if p.Workspace, err = filepath.Abs(f.workspace); err != nil {
			return r, err
		}
	}
	if flags.Changed("priority") {
		if f.priority < 0 || f.priority > abi.MaxPriority {
			return r, cli.Usage("the default is 10", "--priority is %d, expected 0 (the most urgent) to %d", f.priority, abi.MaxPriority)
		}
		r.Priority = f.priority
	}
	if flags.Changed("parallel") {
		if f.parallel < 0 {
			return r, cli.Usage("0 runs all of them", "--parallel is %d, expected 0 or more", f.parallel)
		}
		p.Parallel = f.parallel
	}
	if p.Sandbox == "" {
		p.Sandbox = cmp.Or(os.Getenv("KERN_SANDBOX"), os.Getenv("SANDBOX_TYPE"))
	}
	f.limits.Each(r.Limits.Set)
	return r, nil
}

// resolveModel makes the path of a script absolute.
func resolveModel(ref string) (string, error) {
	name, script := strings.CutPrefix(ref, "script:")
	if !script || name == "" {
		return ref, nil
	}
	abs, err := filepath.Abs(name)
	return "script:" + abs, err
}

// spec reads the agent and every file that it names.
func (f *agentFlags) spec(flags *pflag.FlagSet, task string) (abi.Run, error) {
	r, err := f.agent(flags)
	if err != nil {
		return abi.Run{}, err
	}
	r.Task = task
	return r, asUsage(config.Prepare(&r))
}

// located adds the line of the agent file to an error of the daemon about the agent.
func (f *agentFlags) located(err error) error {
	var refused *exitError
	var e *abi.Error
	if f.file == "" || !errors.As(err, &refused) || !errors.As(refused.err, &e) || e.Where == "/workspace" && f.workspace != "" {
		return err
	}
	if at := config.Locate(f.file, e); at != error(e) {
		return asUsage(at)
	}
	return err
}

func runCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var f agentFlags
	var out output
	var detach bool
	cmd := &cobra.Command{
		Use:   "run [-f agent.yaml] [--model REF] [flags] \"task\"",
		Short: "Run an agent on a task",
		Long: `Run an agent on a task until its process exits, and print its output.

The task is the argument. If it is - or missing, it is read from a pipe. Flags
override the agent file. The process lives in the daemon: it continues after this
command ends, and after the daemon is killed and started again. A terminal shows its
progress; in a pipe a line on stderr says what a call has waited for three seconds. Ctrl-C asks the
process to finish with last words; a second Ctrl-C kills it. In a program that
kern exec runs, the process is a child: its use counts against the limits of that
program, and it ends with the program.

Without other limits, a run starts at most ` + strconv.Itoa(abi.UsualChildren) + ` processes in at most ` + strconv.Itoa(abi.UsualDepth) + ` generations, so that an
agent that starts itself is stopped. --children none and --depth none lift that.`,
		Example: `  kern run --model script:replies.yaml "say hello"
  kern run -f agent.yaml --money 0.50 --steps 20 "write the report"
  kern run --workspace . --model openai:gpt-6-luna "fix the tests"
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
			return f.located(runAgent(cmd.Context(), t, d, r, detach, out))
		},
	}
	f.add(cmd.Flags())
	addOutput(cmd.Flags(), &out, &detach)
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	return cmd
}

func runAgent(ctx context.Context, t *cli.Terminal, d *daemon.Directory, r abi.Run, detach bool, out output) error {
	c, err := d.Connect(ctx)
	if err != nil {
		return explainNoStart(err, r.Program.Model)
	}
	provider, _, _ := strings.Cut(r.Program.Model, ":")
	d.NoteOutdated(ctx, c, provider)
	var pid abi.Pid
	if r.Parent, err = parentOf(ctx, t.Getenv, c); err == nil {
		pid, err = c.Spawn(ctx, r)
	}
	if err != nil {
		return explainNoStart(err, r.Program.Model)
	}
	c.Close()
	return stayWith(ctx, t, d, pid, detach, out)
}

// addOutput adds the flags that say how a new process is shown.
func addOutput(flags *pflag.FlagSet, out *output, detach *bool) {
	flags.BoolVarP(detach, "detach", "d", false, "print the pid and return at once")
	flags.BoolVar(&out.json, "json", false, "print one JSON object at the end")
	flags.BoolVar(&out.events, "events", false, "print each record as a line of JSON, then the JSON object")
}

// stayWith prints the pid of a new process, or stays with the process until it exits.
func stayWith(ctx context.Context, t *cli.Terminal, d *daemon.Directory, pid abi.Pid, detach bool, out output) error {
	switch {
	case detach && (out.json || out.events):
		return t.JSON(api.Started{Pid: pid})
	case detach:
		return t.Print("%d\n", pid)
	}
	c, err := d.Connect(ctx)
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	return followProcess(ctx, t, cli.NewSession(t, d.Connect, c), pid, out)
}

// explainNoStart explains why a process was not started. The exit code is never
// 1, because nothing ran that could have failed.
func explainNoStart(err error, ref string) error {
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
		hint := cmp.Or(e.Hint, modelHint(ref))
		if hint == "" && !strings.HasPrefix(ref, "script:") && !strings.Contains(e.Message, ", expected ") {
			hint = "the daemon keeps the environment that it was started in; after a change run: kern stop-daemon"
		}
		return &cli.UsageError{Message: e.Error(), Advice: cmp.Or(hint, "correct it and try again; nothing was started")}
	case abi.InvalidCall, abi.InvalidArguments, abi.WorkspaceRefused, abi.WorkspaceUnsupported:
		return &exitError{exitUsage, err}
	}
	return &exitError{exitUnknown, err}
}

// localServers are servers that people run or use, with their usual address.
var localServers = map[string]string{"ollama": "http://127.0.0.1:11434/v1", "vllm": "http://127.0.0.1:8000/v1", "lmstudio": "http://127.0.0.1:1234/v1",
	"openrouter": "https://openrouter.ai/api/v1", "groq": "https://api.groq.com/openai/v1", "together": "https://api.together.xyz/v1"}

// modelHint says what a person may have meant by a model that cannot be used.
func modelHint(ref string) string {
	provider, name, cut := strings.Cut(ref, ":")
	base, known := localServers[provider]
	switch {
	case !cut && strings.HasPrefix(ref, "claude"):
		return "did you mean anthropic:" + ref + "?"
	case !cut:
		return "did you mean openai:" + ref + "?"
	case provider == "openai" || provider == "anthropic" || provider == "script":
		return ""
	case !known:
		base = "http://HOST:PORT/v1"
	}
	return fmt.Sprintf("name the server in kern.yaml, and run kern stop-daemon: providers: {%s: {format: openai, base_url: %q, models: {%q: {input: 0, output: 0}}}}", provider, base, name)
}

// maxTask is the size of the largest task that is read from a pipe.
const maxTask = 16 << 20

// readTask reads the task from the arguments or from a pipe.
func readTask(t *cli.Terminal, args []string) (task string, err error) {
	switch {
	case len(args) == 1 && args[0] != "-":
		task = args[0]
	case len(args) == 0 && !piped(t.In):
		return "", cli.Usage("for example: kern run --model script:replies.yaml \"task\"", "expected a task, as an argument or on standard input")
	default:
		b, err := io.ReadAll(io.LimitReader(t.In, maxTask+1))
		if err != nil {
			return "", fmt.Errorf("cannot read the task: %w", err)
		}
		if len(b) > maxTask {
			return "", cli.Usage("give the agent a tool that reads the text from a file", "the task is larger than %d bytes", maxTask)
		}
		task = strings.TrimSuffix(string(b), "\n")
	}
	if strings.TrimSpace(task) == "" {
		return "", cli.Usage("say in a sentence what the agent shall do", "the task is empty")
	}
	return task, nil
}

// piped reports whether r is a pipe or a file, and not a terminal.
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
		Use:   "wait PROCESS...",
		Short: "Wait for processes to exit, and print their output",
		Long: `Wait for processes to exit, and print their output in the order of the arguments.
The exit code says how the process ended, as for kern run; of several it is the
first that is not 0. After --timeout the processes continue, and the exit code is 6.

` + processArgs,
		Args:              atLeast(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			first, deadline := exitDone, time.Now().Add(timeout.d)
			for _, name := range args {
				err := waitForExit(cmd.Context(), t, d, name, timeout, deadline, out)
				var x *exitError
				switch {
				case !errors.As(err, &x):
					if err != nil {
						return err
					}
					continue
				case first == exitDone:
					first = x.code
				}
				t.Complain(x.err)
			}
			return exitWith(first)
		},
	}
	cmd.Flags().Var(&timeout, "timeout", "wait at most this `duration`")
	cmd.Flags().BoolVar(&out.json, "json", false, "print one JSON object for each process")
	return cmd
}

func waitForExit(ctx context.Context, t *cli.Terminal, d *daemon.Directory, name string, timeout flagDuration, deadline time.Time, out output) error {
	c, err := d.Connect(ctx)
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	s := cli.NewSession(t, d.Connect, c)
	defer s.Close()
	pid, err := parsePid(name) // a pid needs no look-up, which an interrupt could end
	if err == nil {
		return waitForPid(ctx, t, s, pid, timeout, deadline, out)
	}
	if err := s.Do(ctx, func(c *api.Client) (err error) { pid, err = findProcess(ctx, c, name); return err }); err != nil {
		return noSuch(err)
	}
	return waitForPid(ctx, t, s, pid, timeout, deadline, out)
}

func waitForPid(ctx context.Context, t *cli.Terminal, s *cli.Session, pid abi.Pid, timeout flagDuration, deadline time.Time, out output) error {
	if timeout.set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	var r json.RawMessage
	err := s.Do(ctx, func(c *api.Client) error { return c.Result(ctx, pid, true, &r) })
	if err != nil && ctx.Err() != nil {
		why := fmt.Sprintf("process %d has not exited after %s", pid, timeout.d)
		if errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
			why = fmt.Sprintf("process %d has not exited", pid)
		}
		return printUnfinished(s, pid, out, why)
	}
	if err != nil {
		return &exitError{exitUnknown, err}
	}
	return printEnd(t, r, out, nil)
}

// noSuch keeps the exit code of a wrong command line, and makes any other error one
// of an unknown end.
func noSuch(err error) error {
	var u *cli.UsageError
	if errors.As(err, &u) {
		return err
	}
	return &exitError{exitUnknown, err}
}

// lastLookTime is how long the last request may take after a timeout.
const lastLookTime = 2 * time.Second

// printUnfinished prints the state of a process after a timeout.
func printUnfinished(s *cli.Session, pid abi.Pid, out output, why string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lastLookTime)
	defer cancel()
	end := &exitError{exitUnknown, &abi.Error{Code: abi.Interrupted, Message: why, Hint: fmt.Sprintf("it continues; kern log -f %d shows what it does", pid)}}
	var raw json.RawMessage
	if err := s.Do(ctx, func(c *api.Client) error { return c.Result(ctx, pid, false, &raw) }); err != nil {
		return end
	}
	var r struct{ Exit abi.Exit }
	if json.Unmarshal(raw, &r) == nil && r.Exit != "" {
		return printEnd(s.Term, raw, out, nil) // it exited just now
	}
	if out.json {
		if err := s.Term.Print("%s\n", raw); err != nil {
			return err
		}
	}
	return end
}
