package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

// logFlags select the records that log prints, and how.
type logFlags struct {
	follow, json, verify bool
	request, last        uint64
	output               string
	filter               cli.Filter
	since                string
	clock                bool
}

func logCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "log PROCESS...", SuggestFor: []string{"inspect", "logs", "trace", "history"},
		Short: "Print the journal of a process",
		Long: `Print the journal of a process: every call, its answer and its cost. -f follows a
running process until it exits; -n 20 prints only the last 20 records. --json
prints each record whole, one per line. --verify reads every record and payload
and checks the chain of hashes. --request prints the request of a call that was
made with a key, unchanged. --output prints all that a tool printed in a call,
where the journal shows only a part of it.

--kind, --tool, --errors and --since select records; all of them must hold. A kind
is a kind of call (` + strings.Join(cli.CallKinds(), ", ") + `)
or of record (` + strings.Join(cli.RecordKinds(), ", ") + `). --since takes a
duration such as 10m or 7d, a time of today such as 14:30, or a date.

` + processArgs,
		Example: `  kern log last --errors
  kern log crew --kind model,tool -n 20
  kern log 7 --tool bash --since 10m --clock`,
		Args:              atLeast(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case f.verify && f.follow:
				return cli.Usage("verify the process after it has exited", "--follow and --verify exclude each other")
			case f.follow && len(args) > 1:
				return cli.Usage("follow each in a terminal of its own", "--follow takes one process, not %d", len(args))
			}
			if f.since != "" {
				if f.filter.Since, err = sinceTime(f.since, time.Now()); err != nil {
					return err
				}
			}
			if err := f.filter.Check(); err != nil {
				return err
			}
			shown := 0
			return eachProcess(cmd.Context(), t, d, args, func(s *cli.Session, pid abi.Pid) error {
				if len(args) > 1 && !f.json {
					title := t.Paint(cli.Bold, "process "+pidText(pid)+":") + "\n"
					if shown++; shown > 1 {
						title = "\n" + title
					}
					if err := t.Print("%s", title); err != nil {
						return err
					}
				}
				s.Persist = !f.follow // kern stop-daemon ends a log that follows
				return f.print(cmd.Context(), t, d, s, pid)
			})
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *logFlags) add(flags *pflag.FlagSet) {
	flags.Uint64VarP(&f.last, "last", "n", 0, "print the last `n` records; 0: all")
	flags.BoolVarP(&f.follow, "follow", "f", false, "print new records until the process exits")
	flags.StringSliceVar(&f.filter.Kinds, "kind", nil, "print records of these `kinds`, such as model or tool")
	flags.StringSliceVar(&f.filter.Tools, "tool", nil, "print calls of these `tools`")
	flags.BoolVar(&f.filter.Errors, "errors", false, "print calls that failed, were refused or are unknown")
	flags.StringVar(&f.since, "since", "", "print records since this `time`, or of this last duration")
	flags.BoolVar(&f.clock, "clock", false, "print the date and time of each record")
	flags.BoolVar(&f.json, "json", false, "print the records as lines of JSON")
	flags.Uint64Var(&f.request, "request", 0, "print the request of this `call`")
	flags.StringVar(&f.output, "output", "", "print all that a tool printed in this `call`")
	flags.BoolVar(&f.verify, "verify", false, "check every record and the chain of hashes")
}

// print prints what the flags ask for of one process.
func (f *logFlags) print(ctx context.Context, t *cli.Terminal, d *daemon.Directory, s *cli.Session, pid abi.Pid) error {
	switch {
	case f.request > 0:
		var b []byte
		if err := s.Do(ctx, func(c *api.Client) (err error) { b, err = c.Keys.Request(ctx, pid, f.request); return err }); err != nil {
			return err
		}
		return t.Print("%s\n", b)
	case f.output != "":
		call, err := cli.ParseCall(f.output)
		if err != nil {
			return cli.Usage("kern log PID shows the numbers", "--output is %q, expected the number of a call, such as 7 or 7.2", f.output)
		}
		var text string
		if err := s.Do(ctx, func(c *api.Client) (err error) { text, err = c.Keys.Output(ctx, pid, call); return err }); err != nil {
			return err
		}
		if t.OutTTY {
			text = cli.CleanText(text)
		}
		return t.Print("%s", text)
	case f.verify:
		return s.Do(ctx, func(c *api.Client) error { return verifyLog(ctx, t, d, c, pid, f.json) })
	}
	return f.printRecords(ctx, s, pid)
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

// printRecords prints the records of a process, or only the last ones.
func (f *logFlags) printRecords(ctx context.Context, s *cli.Session, pid abi.Pid) error {
	printer, filter := cli.RecordPrinter{Term: s.Term, Clock: f.clock}, f.filter
	var p api.Process
	if err := s.Do(ctx, func(c *api.Client) (err error) { p, err = c.Show(ctx, pid); return err }); err != nil {
		return err
	}
	printer.Born = p.Born.UnixNano()
	// The last n of selected records are known only after all were read. Without a
	// selection the numbers of the records say which they are.
	read, skipped := uint64(0), uint64(0) // the number of the last record that was read, and of the last that is not printed
	tail := uint64(0)                     // how many selected records are kept until all were read
	switch {
	case f.last > 0 && filter.IsZero():
		skipped = p.Records - min(f.last, p.Records)
		read = skipped - min(lookBack, skipped)
	case f.last > 0:
		tail = f.last
	}
	var kept []string
	flush := func() error {
		text := strings.Join(kept, "")
		kept, tail = nil, 0
		return s.Term.Print("%s", text)
	}
	err := s.Do(ctx, func(c *api.Client) error {
		return c.Records(ctx, pid, read, f.follow, func(r *abi.Record, line []byte) error {
			text := printer.Format(r)
			if f.json {
				text = string(line) + "\n"
			}
			chosen := filter.Match(r)
			if read = r.N; read <= skipped || !chosen && tail == 0 {
				return nil
			}
			if tail == 0 {
				return s.Term.Print("%s", text)
			}
			if chosen {
				kept = append(kept, text)
				kept = slices.Delete(kept, 0, max(0, len(kept)-int(f.last)))
			}
			if read < p.Records {
				return nil
			}
			return flush()
		})
	})
	if errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
		return nil
	}
	return err
}
