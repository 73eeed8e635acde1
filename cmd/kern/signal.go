package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func signalCommand(t *cli.Terminal, d *daemon.Directory, s abi.Signal, short, again string) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   string(s) + " PROCESS...",
		Short: short,
		Long: short + `. --all means every living process that no
other process started. ` + again + "\n\n" + processArgs,
		Example: fmt.Sprintf("  kern %[1]s 7\n  kern %[1]s last\n  kern %[1]s crew 8 9\n  kern %[1]s --all", s),
		Args: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return cli.Usage("kern ps lists the processes", "%s, expected one process or more, or --all", cli.Plural(int64(len(args)), "argument"))
			}
			return nil
		},
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if all {
				err := askDaemon(ctx, t, d, func(c *api.Client) (err error) { args, err = livingTops(ctx, c); return err })
				if err == nil && len(args) == 0 {
					t.Note("kern: no process lives")
				}
				if err != nil {
					return err
				}
			}
			return eachProcess(ctx, t, d, args, func(session *cli.Session, pid abi.Pid) error {
				var p api.Process
				err := session.Once(func(c *api.Client) error {
					err := c.Signal(ctx, pid, api.Signal{Signal: s, By: t.User()})
					if err == nil && (asJSON || t.ErrTTY) {
						p, err = c.Show(ctx, pid)
					}
					return err
				})
				switch {
				case err != nil:
					return err
				case asJSON:
					return t.JSON(p)
				case t.ErrTTY:
					t.Note("kern: sent %s to %s", s, nameOf(&p))
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every living process that no other process started")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each process as a JSON object")
	return cmd
}

// nameOf names a process for a person, by pid and by name.
func nameOf(p *api.Process) string {
	if p.Name == "" {
		return fmt.Sprintf("process %d", p.Pid)
	}
	return fmt.Sprintf("process %d (%s)", p.Pid, cli.Clean(p.Name))
}

// livingTops are the pids of the living processes without a living parent.
func livingTops(ctx context.Context, c *api.Client) (pids []string, err error) {
	list, _, err := c.Recent(ctx, 0)
	for _, p := range list {
		if p.State != abi.Exited && p.Parent == 0 {
			pids = append(pids, fmt.Sprint(p.Pid))
		}
	}
	return pids, err
}

func resumeCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume PROCESS...",
		Short: "Continue paused processes, and list unknown outcomes",
		Long: `Continue paused processes, as cont does, and list the calls with an unknown
outcome, because the machine stopped while they ran. Kern does not repeat them.
Check in the outside world whether they took effect.`,
		Args:              atLeast(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachProcess(cmd.Context(), t, d, args, func(s *cli.Session, pid abi.Pid) error {
				return s.Once(func(c *api.Client) error { return resumeProcess(cmd.Context(), t, d, c, pid, asJSON) })
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each process")
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "nice PROCESS... PRIORITY",
		Short:             "Change the priority of processes: 0 is the most urgent",
		Args:              atLeast(2, "a process and a priority"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			priority := args[len(args)-1]
			n, err := strconv.Atoi(priority)
			if err != nil || n < 0 || n > abi.MaxPriority {
				return cli.Usage("the default is 10", "the priority is %q, expected 0 (the most urgent) to %d", priority, abi.MaxPriority)
			}
			return eachProcess(cmd.Context(), t, d, args[:len(args)-1], func(s *cli.Session, pid abi.Pid) error {
				return s.Do(cmd.Context(), func(c *api.Client) error {
					p, err := c.Change(cmd.Context(), pid, api.Change{Priority: &n, By: t.User()})
					if err == nil && asJSON {
						err = t.JSON(p)
					}
					return err
				})
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each process as a JSON object")
	return cmd
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
		Use:   "limit PROCESS... --money 5 --unset steps ...",
		Short: "Change limits of processes",
		Long: `Change limits of processes. Limits that are not named stay. With a limit below what
is already used, no new call begins. The limits of the accounts above the process
still hold.`,
		Args:              atLeast(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := l.change(t.User(), abi.SettableUnits())
			if err != nil {
				return err
			}
			if ch.Limits.IsZero() && len(ch.Unset) == 0 {
				return cli.Usage("for example: kern limit 7 --money 5", "expected a limit to change")
			}
			return eachProcess(cmd.Context(), t, d, args, func(s *cli.Session, pid abi.Pid) error {
				return s.Do(cmd.Context(), func(c *api.Client) error {
					p, err := c.Change(cmd.Context(), pid, ch)
					if err != nil {
						return err
					}
					if l.json {
						return t.JSON(p)
					}
					return t.Print("process %d: limits %s\n", pid, cli.LimitsLine(p.Limits))
				})
			})
		},
	}
	l.add(cmd.Flags(), abi.SettableUnits())
	return cmd
}

func decideCommand(t *cli.Terminal, d *daemon.Directory, yes bool) *cobra.Command {
	var words string
	var asJSON bool
	verb, short := "approve", "Approve what a process asks for"
	if !yes {
		verb, short = "deny", "Deny what a process asks for"
	}
	cmd := &cobra.Command{
		Use:   verb + " PROCESS [CALL]",
		Short: short,
		Long: short + `. The call may be left out if the process asks only
one question; kern ps shows the questions.

` + processArgs,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return cli.Usage("kern ps shows the questions", "%d arguments, expected a process, and the number of a call if the process asks several questions", len(args))
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
			return withProcess(cmd.Context(), d, args, func(c *api.Client, pid abi.Pid) error {
				err := c.Decide(cmd.Context(), pid, answer)
				if err != nil || !asJSON {
					return err
				}
				p, err := c.Show(cmd.Context(), pid)
				if err != nil {
					return err
				}
				return t.JSON(p)
			})
		},
	}
	cmd.Flags().StringVar(&words, "words", "", "a message for the process")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the process as a JSON object")
	return cmd
}
