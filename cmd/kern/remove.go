package main

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

// removalText says what a removal takes and what it leaves. It is in the help of both
// commands.
const removalText = `A removed process is gone with its descendants and with everything it said and
read: its records, prompts, answers and tool results. Their bytes are erased from
the files of the data directory. The number of a process is not used again.

Kept are texts that other processes said too, sums of what was spent by day, model,
account and name, and the files of workspaces with their history: undo works no
more for a removed process, and the key workspaces of kern.yaml bounds the history.
A process that another one continues (kern fork, kern continue) can be removed
together with that one only.

Calls of other processes wait while the journal is written again, which takes
longer for a larger journal.`

func removeCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "rm PROCESS...",
		Short: "Remove finished processes and everything they said",
		Long: `Remove finished processes and everything they said. All of them are removed, or
none. Name the process at the top of a tree.

` + removalText + "\n\n" + processArgs,
		Example:           "  kern rm 7\n  kern rm last\n  kern rm 7 9 --dry-run",
		Args:              atLeast(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			return removeProcesses(cmd.Context(), t, d, asJSON, func(ctx context.Context, c *api.Client) (r abi.Removal, err error) {
				r = abi.Removal{DryRun: dryRun, By: t.User()}
				for _, name := range args {
					pid, err := findProcess(ctx, c, name)
					if err != nil {
						return r, err
					}
					if !slices.Contains(r.Pids, pid) {
						r.Pids = append(r.Pids, pid)
					}
				}
				return r, nil
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing, print what would be removed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func pruneCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var older string
	var keep int
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "prune --older-than 30d [--keep 100]",
		Short: "Remove processes that ended long ago",
		Long: `Remove processes that ended long ago, with their descendants.

` + removalText + `

The key journal of kern.yaml makes the daemon do this by itself, when it starts and
every hour: see kern help config.`,
		Example: "  kern prune --older-than 30d --dry-run\n  kern prune --older-than 12h --keep 20\n  kern prune --keep 1000",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if older == "" && keep == 0 || keep < 0 {
				return cli.Usage("for example: kern prune --older-than 30d", "expected --older-than, or --keep with a number above 0")
			}
			var before int64
			if older != "" {
				var err error
				if before, err = sinceTime(older, time.Now()); err != nil {
					return cli.Usage("for example --older-than 30d, --older-than 12h or --older-than 2026-01-31", "--older-than is %q, expected a duration or a date", older)
				}
			}
			return removeProcesses(cmd.Context(), t, d, asJSON, func(context.Context, *api.Client) (abi.Removal, error) {
				return abi.Removal{Before: before, Keep: keep, DryRun: dryRun, By: t.User()}, nil
			})
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "remove what ended longer ago than this `time`, or before a date")
	cmd.Flags().IntVar(&keep, "keep", 0, "keep the `number` of processes that ended last")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing, print what would be removed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// removeProcesses makes a request to remove processes, and prints what it did.
func removeProcesses(ctx context.Context, t *cli.Terminal, d *daemon.Directory, asJSON bool, request func(context.Context, *api.Client) (abi.Removal, error)) error {
	s, err := openSession(ctx, t, d)
	if err != nil {
		return err
	}
	defer s.Close()
	var r abi.Removal
	if err := s.Do(ctx, func(c *api.Client) (err error) { r, err = request(ctx, c); return err }); err != nil {
		return err
	}
	var out abi.RemovalResult
	if err := s.Once(func(c *api.Client) (err error) { out, err = c.Remove(ctx, r); return err }); err != nil {
		return err
	}
	if asJSON {
		return t.JSON(out)
	}
	verb := "removed"
	if out.DryRun {
		verb = "would remove"
	}
	for _, tree := range out.Trees {
		name := ""
		if tree.Name != "" {
			name = " (" + cli.Clean(tree.Name) + ")"
		}
		below := ""
		if tree.Processes > 1 {
			below = " with " + cli.Plural(int64(tree.Processes-1), "descendant")
		}
		if err := t.Print("%s process %d%s%s, ended %s\n", verb, tree.Pid, name, below, time.Unix(0, tree.Ended).Format(time.DateTime)); err != nil {
			return err
		}
	}
	for _, pid := range out.Kept {
		t.Note("kern: process %d stays, because a process that stays continues it", pid)
	}
	switch {
	case len(out.Trees) == 0:
		t.Note("kern: no finished process to remove")
	case !out.DryRun:
		t.Note("kern: the journal shrank from %s to %s", sizeText(out.Before), sizeText(out.After))
	}
	return nil
}

// sizeText writes a size in the units that limits are given in.
func sizeText(n int64) string {
	size, unit := float64(n), "bytes"
	for _, next := range []string{"KiB", "MiB", "GiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, next
	}
	return strconv.FormatFloat(math.Round(size*10)/10, 'f', -1, 64) + " " + unit
}
