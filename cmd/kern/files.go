package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func historyCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history PROCESS",
		Short: "List the changes of a process to its workspace",
		Long: `List the commits that a process and its children made to the workspace, the oldest
first. The first column is the number of the record in kern log that published
the commit; diff, undo --to and fork --at take it. A commit that a person made
with undo has no number.`,
		Args:              exactly(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askProcess(cmd.Context(), t, d, args, func(c *api.Client, pid abi.Pid) error {
				all, err := c.Workspaces.Commits(cmd.Context(), pid)
				if err != nil {
					return err
				}
				if asJSON {
					return t.JSON(all)
				}
				return showHistory(t, pid, all)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func showHistory(t *cli.Terminal, pid abi.Pid, all []abi.Commit) error {
	if len(all) == 0 {
		t.Note("kern: process %d changed no files", pid)
		return nil
	}
	var rows [][]string
	for _, c := range all {
		seq, call, what := "-", "-", cli.Clean(c.Tool)
		if c.Seq != 0 {
			seq, call = fmt.Sprint(c.Seq), cli.CallNumber(c.Call)
		} else if c.Note != "" {
			what = cli.Clean(c.Note)
		}
		rows = append(rows, []string{seq, c.Time.Local().Format(time.DateTime), fmt.Sprint(c.Pid), call, what, cli.Cut(changedPaths(c.Paths), 300)})
	}
	return t.Table([]cli.Column{{Head: "SEQ"}, {Head: "TIME", Spare: 3}, {Head: "PID", Spare: 2}, {Head: "CALL", Spare: 1}, {Head: "TOOL", Least: 10}, {Head: "PATHS", Least: 16}}, rows)
}

var marks = map[string]string{"added": "+", "removed": "-", "changed": "~", "mode": "%"}

// changedPaths lists paths, each with a mark for its kind of change.
func changedPaths(paths []abi.PathChange) string {
	var list []string
	for _, p := range paths {
		list = append(list, marks[p.Change]+cli.Clean(p.Path))
	}
	return strings.Join(list, " ")
}

func diffCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON, stat bool
	cmd := &cobra.Command{
		Use:   "diff PROCESS [SEQ]",
		Short: "Show the changes of a process to its workspace, as a patch",
		Long: `Show what a process and its children changed in the workspace, as a patch for git
apply: everything, or the commit of record SEQ. kern history shows the records.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return cli.Usage("kern history shows the records", "%d arguments, expected a process, and the number of a record for one commit", len(args))
			}
			return nil
		},
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq := uint64(0)
			if len(args) == 2 {
				var err error
				if seq, err = strconv.ParseUint(args[1], 10, 64); err != nil || seq == 0 {
					return cli.Usage("kern history shows the records", "%q is not the number of a record", args[1])
				}
			}
			return askProcess(cmd.Context(), t, d, args, func(c *api.Client, pid abi.Pid) error {
				all, err := c.Workspaces.Diff(cmd.Context(), pid, seq)
				if err != nil {
					return err
				}
				switch {
				case asJSON:
					return t.JSON(all)
				case stat:
					return showStat(t, all)
				}
				return showDiff(t, all)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	cmd.Flags().BoolVar(&stat, "stat", false, "print only the number of changed lines")
	return cmd
}

// showDiff prints patches. A directory has none; its line is ignored by git apply.
func showDiff(t *cli.Terminal, all []abi.FileDiff) error {
	colours := []struct{ prefix, colour string }{{"+++", cli.Bold}, {"---", cli.Bold}, {"diff ", cli.Bold}, {"+", cli.Green}, {"-", cli.Red}, {"@@", cli.Yellow}}
	for _, d := range all {
		patch := d.Patch
		if patch == "" {
			patch = fmt.Sprintf("directory %s: %s\n", cli.Clean(d.Path), d.Change)
		}
		for line := range strings.Lines(patch) {
			if t.OutTTY {
				line = cli.CleanText(line)
				for _, c := range colours {
					if strings.HasPrefix(line, c.prefix) {
						line = t.Paint(c.colour, strings.TrimSuffix(line, "\n")) + "\n"
						break
					}
				}
			}
			if err := t.Print("%s", line); err != nil {
				return err
			}
		}
	}
	return nil
}

func showStat(t *cli.Terminal, all []abi.FileDiff) error {
	var rows [][]string
	added, removed := 0, 0
	for _, d := range all {
		counts := fmt.Sprintf("+%d -%d", d.Added, d.Removed)
		if d.Binary {
			counts = "binary"
		}
		rows = append(rows, []string{cli.Clean(d.Path), d.Change, counts})
		added, removed = added+d.Added, removed+d.Removed
	}
	if err := t.Table([]cli.Column{{Least: 16}, {}, {}}, rows); err != nil {
		return err
	}
	return t.Print("%s, +%d -%d\n", cli.Plural(int64(len(all)), "path"), added, removed)
}

func undoCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var u abi.UndoOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "undo PROCESS [--to SEQ]",
		Short: "Undo the changes of a process to its workspace",
		Long: `Undo what a process and its children changed in the workspace. The files become
what they were before the first commit, or after record SEQ. kern history shows
the records.

Undo is a commit too, so it can be undone: --to with the number of the last record
restores everything. --dry-run prints what undo would do. If somebody else changed one of the files since, undo names
those files and changes nothing; --partial restores the other files.`,
		Args:              exactly(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to") && u.To == 0 {
				return cli.Usage("kern history shows the records", "--to is 0, expected the number of a record")
			}
			u.By = t.User()
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error {
				done, err := c.Workspaces.Undo(cmd.Context(), pid, u)
				if err != nil {
					return err
				}
				if asJSON {
					return t.JSON(done)
				}
				return showUndone(t, done, u.DryRun)
			})
		},
	}
	cmd.Flags().Uint64Var(&u.To, "to", 0, "restore the files of this `record`")
	cmd.Flags().BoolVar(&u.DryRun, "dry-run", false, "print what undo would do, and change nothing")
	cmd.Flags().BoolVar(&u.Partial, "partial", false, "keep files that somebody else changed, and restore the rest")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func showUndone(t *cli.Terminal, done abi.UndoResult, dry bool) error {
	if len(done.Paths) == 0 {
		if err := t.Print("nothing to undo: no file has changed\n"); err != nil {
			return err
		}
	}
	words := map[string]string{"added": "restored", "removed": "removed again", "changed": "restored", "mode": "restored in its permissions"}
	would := ""
	if dry {
		would = "would be "
	}
	for _, p := range done.Paths {
		if err := t.Print("%s: %s%s\n", cli.Clean(p.Path), would, words[p.Change]); err != nil {
			return err
		}
	}
	for _, p := range done.Kept {
		if err := t.Print("%s: kept, because somebody else changed it or something in it\n", cli.Clean(p)); err != nil {
			return err
		}
	}
	return nil
}

func workspaceCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "workspace", Short: "Check the workspaces of processes", Args: needSubcommand,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usage("kern workspace --help lists the commands", "expected verify")
		}}
	verify := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check all files and the whole history of a workspace",
		Long: `Read every file of a workspace, and every commit and all content in its history,
and check each against its hash. Files that differ from the last commit are
listed, because somebody else changed them.`,
		Args: exactly(1, "the directory of a workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return report(cmd.Context(), t, d, asJSON, func(c *api.Client) (s abi.WorkspaceCheck, err error) {
				return c.Workspaces.Verify(cmd.Context(), dir)
			}, showWorkspaceCheck)
		},
	}
	verify.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.AddCommand(verify)
	return cmd
}

func showWorkspaceCheck(t *cli.Terminal, s abi.WorkspaceCheck) error {
	for _, p := range s.Outside {
		if err := t.Print("%s was %s since the last commit\n", cli.Clean(p.Path), p.Change); err != nil {
			return err
		}
	}
	return t.Print("%s: %s and %s with %s are intact\n", cli.Clean(s.Dir),
		cli.Plural(int64(s.Files), "file"), cli.Plural(int64(s.Commits), "commit"), cli.Plural(int64(s.Contents), "blob"))
}
