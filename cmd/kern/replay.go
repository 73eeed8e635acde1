package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func replayCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var f agentFlags
	var task string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay PROCESS",
		Short: "Replay a process without effects, and compare",
		Long: `Replay the journal of a process, without asking a model or running a tool. The
state must come out the same to the byte. No effect may have begun past a limit.
The agent, given the recorded answers, must make the recorded calls.

With another agent (-f or --model) or another --task, replay shows the first record
where the process would have gone another way. The exit code is 1 if something
differs.`,
		Args:              exactly(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return askProcess(ctx, t, d, args, func(c *api.Client, pid abi.Pid) error {
				var p api.Replay
				if f.file != "" || f.model != "" || task != "" {
					r, err := replayWith(ctx, t, d, c, pid, cmd, &f, task)
					if err != nil {
						return err
					}
					p.With = &r
				}
				return replayProcess(ctx, t, d, c, pid, p, asJSON)
			})
		},
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "an agent `file` in place of the recorded agent")
	cmd.Flags().StringVar(&f.model, "model", "", "a model in place of the recorded one")
	cmd.Flags().StringVar(&task, "task", "", "a task in place of the recorded one")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	return cmd
}

// replayWith is the agent and the task to replay with.
func replayWith(ctx context.Context, t *cli.Terminal, d *daemon.Directory, c *api.Client, pid abi.Pid, cmd *cobra.Command, f *agentFlags, task string) (abi.Run, error) {
	if f.file != "" {
		return f.spec(cmd.Flags(), task)
	}
	s, err := readDetails(ctx, c, pid) // the recorded agent, with parts replaced
	if err != nil {
		return abi.Run{}, err
	}
	r := abi.Run{Program: s.Program, Limits: s.Process.Limits, Priority: s.Process.Priority, Watchdog: s.Watchdog, Task: task}
	if f.model != "" {
		with, err := f.spec(cmd.Flags(), task)
		if err != nil {
			return r, err
		}
		r.Program.Model, r.Program.Script, r.Program.Facts = with.Program.Model, with.Program.Script, nil
	}
	return r, nil
}

func replayProcess(ctx context.Context, t *cli.Terminal, d *daemon.Directory, c *api.Client, pid abi.Pid, p api.Replay, asJSON bool) error {
	r, err := c.Replay(ctx, pid, p)
	if err != nil {
		return err
	}
	code := exitDone
	if !r.Same {
		code = exitFailed
	}
	if asJSON {
		if err := t.JSON(r); err != nil {
			return err
		}
		return exitWith(code)
	}
	if d := r.Divergence; d != nil {
		if err := t.Print("process %d diverges at record %d: %s\n", pid, d.Record, cli.Clean(d.Why)); err != nil {
			return err
		}
		return exitWith(code)
	}
	end := "still running"
	if r.Exit != "" {
		end = "exit " + string(r.Exit)
	}
	if err := t.Print("process %d replays exactly: %s, %s, %s\n", pid, cli.Plural(int64(r.Records), "record"), cli.Plural(int64(r.Calls), "call"), end); err != nil {
		return err
	}
	return exitWith(code)
}

func forkCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var f abi.ForkOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fork PROCESS",
		Short: "Start a process that continues from a moment of another",
		Long: `Start a process that continues from the state of another process after one of its
records, with the limits that were left then, and print its pid. kern log shows
the numbers of the records.

A process with a workspace is forked with the files of that moment. They are copied
to a new directory: DIR.fork-PID-SEQ beside the workspace, or --workspace.

` + grantHelp + `

To go on in the same workspace after the end of a process: kern continue.`,
		Example: `  kern fork 7 --at 12
  kern fork 7 --money 3 --steps 50`,
		Args:              exactly(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at") && f.At == 0 {
				return cli.Usage("kern log shows the numbers of the records", "--at is 0, expected the number of a record")
			}
			if f.Workspace != "" {
				var err error
				if f.Workspace, err = filepath.Abs(f.Workspace); err != nil {
					return err
				}
			}
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error {
				if err := notInside(cmd.Context(), t, c, "fork"); err != nil {
					return err
				}
				child, err := c.Forks.Fork(cmd.Context(), pid, f)
				if err != nil {
					return err
				}
				if asJSON {
					return t.JSON(child)
				}
				if child.Workspace != "" {
					t.Note("kern: its workspace is %s", cli.Clean(child.Workspace))
				}
				return t.Print("%d\n", child.Pid)
			})
		},
	}
	addGrant(cmd.Flags(), &f.Grant)
	cmd.Flags().StringVar(&f.Workspace, "workspace", "", "a new `directory` for the copy of the files")
	cmd.Flags().Uint64Var(&f.At, "at", 0, "the `record` to continue from; without it the last one")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}
