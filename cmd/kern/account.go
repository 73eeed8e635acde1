package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/kernel"
)

func accountCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Set and show named accounts: limits that many processes share",
		Long: `Set and show named accounts. An account adds up what all its processes use, and
stops them together at its limits. The limits hold for ever, or renew with each day,
week or month (kern account set NAME --money 10 --per day). A process is charged to
an account with kern run --account NAME.`,
		Args: needSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Usage("kern account --help", "expected set, show or list")
		},
	}
	cmd.AddCommand(accountSet(t, d), accountShow(t, d), accountList(t, d))
	return cmd
}

// accountUnits are the units that add up over processes, so that an account can
// limit them.
func accountUnits() (units []abi.Unit) {
	for _, u := range abi.SettableUnits() {
		if u < abi.Units {
			units = append(units, u)
		}
	}
	return units
}

func accountSet(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var l limitFlags
	var per string
	cmd := &cobra.Command{
		Use:   "set NAME --money 5 --tokens 1000000 ...",
		Short: "Make an account, or change its limits",
		Long: `Make an account, or change its limits. Limits that are not named stay, and so does
what was used. An account can limit only units that add up over processes.

With --per the limits renew at midnight UTC: each day, each Monday, or on the first
of each month. The first period begins now, and what was used before does not count.
A call that runs at midnight counts in the new period, and so does an amount in
doubt. --per never makes the limits hold for ever again: then all that was ever used
counts.`,
		Example: `  kern account set team --money 10 --per day
  kern run --account team -f agent.yaml "write the report"
  kern account show team`,
		Args: exactly(1, "the name of an account"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, u := range abi.SettableUnits() {
				if _, set := l.limits.Get(u); set && u >= abi.Units {
					return cli.Usage("give each run its own limit: kern run --"+flagName(u), "--%s does not add up over processes, so an account cannot have this limit", flagName(u))
				}
			}
			ch, err := l.change(t.User(), accountUnits())
			if err != nil {
				return err
			}
			if ch.Per = per; per != "" && per != kernel.NeverRenews && !slices.Contains(abi.Periods(), per) {
				return cli.Usage("never ends the renewal", "--per is %q, expected %s or never", per, strings.Join(abi.Periods(), ", "))
			}
			return report(cmd.Context(), t, d, l.json, func(c *api.Client) (api.Account, error) { return c.Accounts.Set(cmd.Context(), args[0], ch) }, showAccount)
		},
	}
	l.add(cmd.Flags(), abi.SettableUnits())
	cmd.Flags().StringVar(&per, "per", "", "renew the limits each `period`: day, week or month; never ends that")
	for _, u := range abi.SettableUnits() {
		if u >= abi.Units {
			_ = cmd.Flags().MarkHidden(flagName(u))
		}
	}
	return cmd
}

func accountShow(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what an account used, and what is left",
		Args:  exactly(1, "the name of an account"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(cmd.Context(), t, d, asJSON, func(c *api.Client) (api.Account, error) {
				all, err := c.Accounts.List(cmd.Context())
				if err != nil {
					return api.Account{}, err
				}
				for _, b := range all {
					if b.Name == args[0] {
						return b, nil
					}
				}
				return api.Account{}, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("there is no account %q", args[0]),
					Hint: "kern account list lists them; kern account set NAME --money 5 makes one"}
			}, showAccount)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func showAccount(t *cli.Terminal, b api.Account) error {
	rows := [][]string{{"account", cli.Clean(b.Name)}, {"limits", accountLimits(&b)}, {"used", usedLine(b.Usage)}}
	if b.Renews != nil {
		rows = append(rows, []string{"this " + b.Per, usedLine(*b.InPeriod)}, []string{"renews", b.Renews.Format("2006-01-02 15:04 UTC")})
	}
	if !b.Limits.IsZero() {
		rows = append(rows, []string{"left", cli.LimitsLine(b.Left)})
	}
	return t.Facts(rows)
}

// accountLimits lists the limits of an account, with the period in which they renew.
func accountLimits(b *api.Account) string {
	s := cli.LimitsLine(b.Limits)
	if b.Per != "" {
		s += " a " + b.Per
	}
	return s
}

// usedLine formats usage in one line.
func usedLine(u api.Usage) string {
	return fmt.Sprintf("$%s, %s, %d tokens in, %d out, %s, %s", u.Money, cli.Plural(u.Steps, "step"), u.InputTokens, u.OutputTokens,
		cli.Plural(u.ModelCalls, "model call"), cli.Plural(u.ToolCalls, "tool call"))
}

func accountList(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the accounts",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(cmd.Context(), t, d, asJSON, func(c *api.Client) ([]api.Account, error) { return c.Accounts.List(cmd.Context()) }, listAccounts)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func listAccounts(t *cli.Terminal, all []api.Account) error {
	if len(all) == 0 {
		t.Note("kern: no accounts; make one with: kern account set NAME --money 5")
		return nil
	}
	var rows [][]string
	for _, b := range all {
		rows = append(rows, []string{cli.Clean(b.Name), "$" + b.Usage.Money, fmt.Sprint(b.Usage.Tokens), accountLimits(&b), cli.LimitsLine(b.Left)})
	}
	return t.Table([]cli.Column{{Head: "ACCOUNT", Least: 8}, {Head: "MONEY"}, {Head: "TOKENS", Spare: 1}, {Head: "LIMITS", Least: 12, Spare: 2}, {Head: "LEFT", Least: 12}}, rows)
}
