package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
)

// flagGrant is the value of a flag for one limit of a process that continues another.
type flagGrant struct {
	unit  abi.Unit
	grant *abi.Grant
	text  *string
}

func (f flagGrant) String() string {
	if f.text == nil {
		return ""
	}
	return *f.text
}

func (f flagGrant) Set(s string) error {
	g := f.grant
	more, add := strings.CutPrefix(s, "+")
	switch {
	case s == "none":
		g.Unset = append(g.Unset, f.unit.String())
	case add:
		n, err := abi.ParseUnit(f.unit, more)
		if err != nil {
			return err
		}
		g.Add.Set(f.unit, n)
	default:
		n, err := abi.ParseUnit(f.unit, s)
		if err != nil {
			return err
		}
		g.Set.Set(f.unit, n)
	}
	*f.text = s
	return nil
}

func (f flagGrant) Type() string { return flagLimit{unit: f.unit}.Type() }

// addGrant adds a flag for each limit that a process gets which continues another.
func addGrant(flags *pflag.FlagSet, g *abi.Grant) {
	for _, u := range abi.SettableUnits() {
		flags.Var(flagGrant{u, g, new(string)}, flagName(u), unitHelp[u])
	}
}

// grantHelp explains the flags that addGrant adds.
const grantHelp = `Without flags the new process has what the old one had left of its limits. A flag
with a plus sign adds to what is left (--money +1). Without the sign it sets the limit
(--steps 50), and none removes it (--wall none).`

func continueCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var o abi.ContinueOptions
	var out output
	var detach bool
	var account string
	cmd := &cobra.Command{
		Use:   "continue PID [flags] [\"and now ...\"]",
		Short: "Go on with a process that has exited",
		Long: `Go on with a process that is done, or that was stopped by a limit, a signal or an
error. A new process takes over the conversation, and works in the same workspace. It
makes the calls that were refused at the limit. A call that had begun is not made
again. With a text the model gets that text as its next task.

` + grantHelp + `

The use is charged to the same named account as before, or to --account. A program of
kern exec or kern key keeps its conversation itself, so it cannot be continued here.`,
		Example: `  kern continue 7 --money +1
  kern continue last --steps +20
  kern continue writer "and now translate it"`,
		Annotations: map[string]string{ownInterrupts: "signals"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return cli.Usage("for example: kern continue 7 --steps +20", "%d arguments, expected a process, and the next task in quotes if there is one", len(args))
			}
			return nil
		},
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				var err error
				if o.Say, err = readTask(t, args[1:]); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("account") {
				o.Account = &account
			}
			var pid abi.Pid
			err := withProcess(cmd.Context(), d, args[:1], func(c *api.Client, old abi.Pid) (err error) {
				if err = notInside(cmd.Context(), t, c, "continue"); err == nil {
					pid, err = c.Forks.Continue(cmd.Context(), old, o)
				}
				return err
			})
			if err != nil {
				return explainNoStart(err, "script:")
			}
			return stayWith(cmd.Context(), t, d, pid, detach, out)
		},
	}
	addGrant(cmd.Flags(), &o.Grant)
	cmd.Flags().StringVar(&account, "account", "", "charge this named `account`; empty: none")
	addOutput(cmd.Flags(), &out, &detach)
	return cmd
}

// notInside refuses a command in a program that kern exec runs, because the limits of
// that program would not bind the new process.
func notInside(ctx context.Context, t *cli.Terminal, c *api.Client, verb string) error {
	outer, err := parentOf(ctx, t.Getenv, c)
	if err != nil || outer != 0 {
		return cmp.Or(err, cli.Usage("run kern "+verb+" outside of that program", "this command runs in the program of process %d, and the new process would not be bound by its limits", outer))
	}
	return nil
}

// offerMore asks the person whether a process that reached a limit shall go on with as
// much again. Without a terminal it prints the command for that. It returns the new
// process; 0: there is none.
func offerMore(ctx context.Context, t *cli.Terminal, s *cli.Session, raw json.RawMessage, out output) (pid abi.Pid, err error) {
	var r host.Result
	if json.Unmarshal(raw, &r) != nil || r.Exit != abi.ExitLimit || out.json || out.events {
		return 0, nil
	}
	u, _ := abi.LimitOf(r.Code)
	n, own := r.Limits.Get(u)
	if !own { // an account above it has no room, and more for the process does not help
		return 0, nil
	}
	if !t.CanAsk() || n == 0 {
		t.Note("  go on with: kern continue %d %s", r.Pid, abi.MoreFlag(u, n))
		return 0, nil
	}
	if !t.Confirm(fmt.Sprintf("limit reached; go on with %s more?", amountOf(u, n))) {
		return 0, nil
	}
	o := abi.ContinueOptions{}
	o.Grant.Add.Set(u, n)
	err = s.Do(ctx, func(c *api.Client) error { pid, err = c.Forks.Continue(ctx, r.Pid, o); return err })
	return pid, err
}

// amountOf writes an amount with its unit, such as $0.5 or 20 steps.
func amountOf(u abi.Unit, n int64) string {
	switch u {
	case abi.Money:
		return "$" + abi.FormatMoney(n)
	case abi.Wall:
		return abi.FormatUnit(u, n)
	}
	return abi.FormatUnit(u, n) + " " + strings.ReplaceAll(u.String(), "_", " ")
}
