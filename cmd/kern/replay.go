package main

import (
	"cmp"
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
		Use:   "replay PID",
		Short: "Go through a process again without any effect, and compare",
		Long: `Go through the journal of a process again, without asking a model or running a
tool: its state must come out the same to the byte, no effect may have begun past
a limit, and the agent, given the recorded answers, must make the recorded calls.

With an agent (-f or --model) or a --task in place of the recorded one, it shows
the first record at which that would have made a difference. The exit code is 1
when something differs.`,
		Args:              exactly(1, "the number of a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return withProcess(ctx, d, args, func(c *api.Client, pid abi.Pid) error {
				var p api.Replay
				if f.file != "" || f.model != "" || task != "" {
					r, err := exchange(ctx, t, d, c, pid, cmd, &f, task)
					if err != nil {
						return err
					}
					p.With = &r
				}
				return replayProcess(ctx, t, d, c, pid, p, asJSON)
			})
		},
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "an agent `file` in place of the recorded definition")
	cmd.Flags().StringVar(&f.model, "model", "", "a model in place of the recorded one")
	cmd.Flags().StringVar(&task, "task", "", "a task in place of the recorded one")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	return cmd
}

// exchange is the definition and the task to replay with.
func exchange(ctx context.Context, t *cli.Terminal, d *daemon.Directory, c *api.Client, pid abi.Pid, cmd *cobra.Command, f *agentFlags, task string) (api.Run, error) {
	if f.file != "" {
		return f.spec(cmd.Flags(), task)
	}
	s, err := lookAt(ctx, c, pid) // the recorded definition, with other parts
	if err != nil {
		return api.Run{}, err
	}
	r := api.Run{Program: s.Program, Limits: s.Limits, Priority: s.Priority, Watchdog: s.Watchdog, Task: task}
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
		return ending(code)
	}
	if d := r.Divergence; d != nil {
		if err := t.Print("process %d diverges at record %d: %s\n", pid, d.Record, cli.Clean(d.Why)); err != nil {
			return err
		}
		return ending(code)
	}
	end := "it has not exited"
	if r.Exit != "" {
		end = "exit " + string(r.Exit)
	}
	if err := t.Print("process %d replays the same: %s, %s, %s\n", pid, cli.Plural(int64(r.Records), "record"), cli.Plural(int64(r.Calls), "call"), end); err != nil {
		return err
	}
	return ending(code)
}

func forkCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var f abi.ForkOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fork PID",
		Short: "Start a process that continues from a moment of another",
		Long: `Start a process that continues from the state another had after one of its
records, with the limits that were left then, and print its pid. kern log shows
the numbers of the records.

A process with a workspace is forked with the files of that moment: a copy in a
directory that is named, DIR.fork-PID-SEQ beside the workspace or the one of
--workspace, which must not be there yet.`,
		Args:              exactly(1, "the number of a process"),
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
				if outer, err := parentOf(cmd.Context(), t.Getenv, c); err != nil || outer != 0 {
					return cmp.Or(err, cli.Usage("fork it from outside", "a fork is nobody's child, and this is within the program of process %d, whose limits would not bind it", outer))
				}
				child, err := c.Fork(cmd.Context(), pid, f)
				if err != nil {
					return err
				}
				if asJSON {
					return t.JSON(child)
				}
				if child.Workspace != "" {
					t.Note("kern: it works in %s", cli.Clean(child.Workspace))
				}
				return t.Print("%d\n", child.Pid)
			})
		},
	}
	cmd.Flags().StringVar(&f.Workspace, "workspace", "", "where its copy of the files is put, a `directory` that is not there yet")
	cmd.Flags().Uint64Var(&f.At, "at", 0, "the last `record` that counts; without it, the last there is")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}
