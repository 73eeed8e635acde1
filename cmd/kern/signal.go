package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func signalCommand(t *cli.Terminal, d *daemon.Directory, s abi.Signal, short string) *cobra.Command {
	return &cobra.Command{
		Use:               string(s) + " PID",
		Short:             short,
		Args:              exactly(1, "a pid"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error {
				return c.Signal(cmd.Context(), pid, api.Signal{Signal: s, By: t.User()})
			})
		},
	}
}

func resumeCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume PID",
		Short: "Continue a paused process, and list unknown outcomes",
		Long: `Continue a paused process, as cont does, and list the calls with an unknown
outcome, because the machine stopped while they ran. Kern does not repeat them.
Check in the outside world whether they took effect.`,
		Args:              exactly(1, "a pid"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error { return resumeProcess(cmd.Context(), t, d, c, pid, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// A doubt is a call with an unknown outcome.
type doubt struct {
	Call     uint64    `json:"call"`
	Name     string    `json:"name"`
	Again    bool      `json:"again"` // the call was repeated, because its tool is idempotent
	Args     abi.Data  `json:"args"`
	Reserved abi.Usage `json:"reserved"`
}

func resumeProcess(ctx context.Context, t *cli.Terminal, d *daemon.Directory, c *api.Client, pid abi.Pid, asJSON bool) error {
	if err := c.Signal(ctx, pid, api.Signal{Signal: abi.Cont, By: t.User()}); err != nil {
		return err
	}
	doubts, err := findDoubts(ctx, c, pid)
	if err != nil {
		return err
	}
	if asJSON {
		return t.JSON(struct {
			Pid    abi.Pid `json:"pid"`
			Doubts []doubt `json:"unknown"`
		}{pid, doubts})
	}
	for _, d := range doubts {
		what := "was not repeated: check whether it took effect"
		if d.Again {
			what = "was repeated, because its tool is idempotent"
		}
		if err := t.Print("call %d, %s %s: unknown outcome; it %s\n", d.Call, cli.Clean(d.Name), cli.Cut(cli.Clean(string(d.Args.Bytes)), 80), what); err != nil {
			return err
		}
	}
	return nil
}

func findDoubts(ctx context.Context, c *api.Client, pid abi.Pid) ([]doubt, error) {
	begun := make(map[uint64]*abi.Intent)
	all := []doubt{}
	err := c.Records(ctx, pid, 0, false, func(r *abi.Record, _ []byte) error {
		if r.Kind == abi.KindBegan {
			begun[r.Call] = r.Intent
		}
		if in := begun[r.Call]; in != nil && r.Answer != nil && r.Answer.Outcome == abi.Unknown {
			all = append(all, doubt{r.Call, cli.CallKind(in), r.Answer.Again, in.Args, in.Reserve})
		}
		return nil
	})
	return all, err
}

func niceCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	return &cobra.Command{
		Use:               "nice PID PRIORITY",
		Short:             "Change the priority of a process: 0 is the most urgent",
		Args:              exactly(2, "a pid and a priority"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 || n > abi.MaxPriority {
				return cli.Usage("the default is 10", "the priority is %q, expected 0 (the most urgent) to %d", args[1], abi.MaxPriority)
			}
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error {
				_, err := c.Change(cmd.Context(), pid, api.Change{Priority: &n, By: t.User()})
				return err
			})
		},
	}
}

// limitFlags are the flags of a command that changes limits.
type limitFlags struct {
	limits abi.Limits
	unset  []string
	json   bool
}

func (l *limitFlags) add(flags *pflag.FlagSet, units []abi.Unit) {
	addLimits(flags, &l.limits, units)
	flags.StringSliceVar(&l.unset, "unset", nil, "remove the limit of these `names`")
	flags.BoolVar(&l.json, "json", false, "print a JSON object")
}

// change builds the request from the flags.
func (l *limitFlags) change(by string, units []abi.Unit) (api.Change, error) {
	c := api.Change{Limits: l.limits, Unset: l.unset, By: by}
	for _, name := range l.unset {
		u, ok := abi.UnitOf(name)
		if !ok {
			return c, cli.Usage("limits are: "+strings.Join(unitNames(units), ", "), "--unset %q, expected the name of a limit", name)
		}
		if _, set := l.limits.Get(u); set {
			return c, cli.Usage("give only one of them", "--%s and --unset %s", flagName(u), name)
		}
	}
	return c, nil
}

func limitCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var l limitFlags
	cmd := &cobra.Command{
		Use:   "limit PID --money 5 --unset steps ...",
		Short: "Change limits of a process",
		Long: `Change limits of a process. Limits that are not named stay. With a limit below what
is already used, no new call begins. The limits of the accounts above the process
still hold.`,
		Args:              exactly(1, "a pid"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := l.change(t.User(), abi.SettableUnits())
			if err != nil {
				return err
			}
			if ch.Limits.IsZero() && len(ch.Unset) == 0 {
				return cli.Usage("for example: kern limit 7 --money 5", "expected a limit to change")
			}
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error {
				p, err := c.Change(cmd.Context(), pid, ch)
				if err != nil {
					return err
				}
				if l.json {
					return t.JSON(p)
				}
				return t.Print("process %d: limits %s\n", pid, cli.LimitsLine(p.Limits))
			})
		},
	}
	l.add(cmd.Flags(), abi.SettableUnits())
	return cmd
}

func decideCommand(t *cli.Terminal, d *daemon.Directory, yes bool) *cobra.Command {
	var words string
	verb, short := "approve", "Approve what a process asks for"
	if !yes {
		verb, short = "deny", "Deny what a process asks for"
	}
	cmd := &cobra.Command{
		Use:   verb + " PID [CALL]",
		Short: short,
		Long: short + `. The call may be left out if the process asks only
one question; kern ps shows the questions.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return cli.Usage("kern ps shows the questions", "%d arguments, expected a pid, and the number of a call if the process asks several questions", len(args))
			}
			return nil
		},
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer := api.Decision{Yes: yes, By: t.User(), Words: words}
			if len(args) == 2 {
				n, err := strconv.ParseUint(args[1], 10, 64)
				if err != nil || n == 0 {
					return cli.Usage("kern ps shows the questions", "%q is not a call number", args[1])
				}
				answer.Call = n
			}
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error { return c.Decide(cmd.Context(), pid, answer) })
		},
	}
	cmd.Flags().StringVar(&words, "words", "", "a message for the process")
	return cmd
}
