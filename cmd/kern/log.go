package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func logCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var follow, asJSON, verify bool
	var request, last uint64
	cmd := &cobra.Command{
		Use:   "log PID",
		Short: "Print the journal of a process",
		Long: `Print the journal of a process: every call, its answer and its cost. -f follows a
running process until it exits; -n 20 prints only the last 20 records. --json
prints each record whole, one per line. --verify reads every record and payload
and checks the chain of hashes. --request prints the request of a call that was
made with a key, unchanged.`,
		Args:              exactly(1, "a pid"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if verify && follow {
				return cli.Usage("verify the process after it has exited", "--follow and --verify exclude each other")
			}
			return withProcess(ctx, d, args, func(c *api.Client, pid abi.Pid) error {
				switch {
				case request > 0:
					b, err := c.Keys.Request(ctx, pid, request)
					if err != nil {
						return err
					}
					return t.Print("%s\n", b)
				case verify:
					return verifyLog(ctx, t, d, c, pid, asJSON)
				}
				s := cli.NewSession(t, d.Connect, c)
				defer s.Close()
				return printLog(ctx, s, pid, last, follow, asJSON)
			})
		},
	}
	cmd.Flags().Uint64VarP(&last, "last", "n", 0, "print the last `n` records; 0: all")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new records until the process exits")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the records as lines of JSON")
	cmd.Flags().Uint64Var(&request, "request", 0, "print the request of this `call`")
	cmd.Flags().BoolVar(&verify, "verify", false, "check every record and the chain of hashes")
	return cmd
}

func verifyLog(ctx context.Context, t *cli.Terminal, d *daemon.Directory, c *api.Client, pid abi.Pid, asJSON bool) error {
	v, err := c.Verify(ctx, pid)
	if err != nil {
		return err
	}
	if asJSON {
		return t.JSON(v)
	}
	return t.Print("process %d: %s, all intact\n", pid, cli.Plural(int64(v.Records), "record"))
}

// lookBack is how many records are read before the printed ones, because the
// calls that end in the printed ones began there.
const lookBack = 256

// printLog prints the records of a process, or only the last ones.
func printLog(ctx context.Context, s *cli.Session, pid abi.Pid, last uint64, follow, asJSON bool) error {
	printer := cli.RecordPrinter{Term: s.Term}
	read, skipped := uint64(0), uint64(0) // the number of the last record that was read, and of the last that is not printed
	if last > 0 {
		var p api.Process
		err := s.Do(ctx, func(c *api.Client) (err error) { p, err = c.Show(ctx, pid); return err })
		if err != nil {
			return err
		}
		skipped, printer.Born = p.Records-min(last, p.Records), p.Born.UnixNano()
		read = skipped - min(lookBack, skipped)
	}
	err := s.Do(ctx, func(c *api.Client) error {
		return c.Records(ctx, pid, read, follow, func(r *abi.Record, line []byte) error {
			text := string(line) + "\n"
			if !asJSON {
				text = printer.Format(r)
			}
			if read = r.N; read <= skipped {
				return nil
			}
			return s.Term.Print("%s", text)
		})
	})
	if errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
		return nil
	}
	return err
}
