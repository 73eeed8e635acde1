package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func accountCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Set and show named accounts: limits that many processes share",
		Long: `Set and show named accounts. An account adds up what all its processes use, and
stops them together at its limits. It never resets. A process is charged to an
account with kern run --account NAME.`,
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
	cmd := &cobra.Command{
		Use:   "set NAME --money 5 --tokens 1000000 ...",
		Short: "Make an account, or change its limits",
		Long: `Make an account, or change its limits. Limits that are not named stay, and so does
what was used. An account can limit only units that add up over processes.`,
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
			return report(cmd.Context(), t, d, l.json, func(c *api.Client) (api.Account, error) { return c.Accounts.Set(cmd.Context(), args[0], ch) }, showAccount)
		},
	}
	l.add(cmd.Flags(), abi.SettableUnits())
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
	rows := [][]string{{"account", cli.Clean(b.Name)}, {"limits", cli.LimitsLine(b.Limits)}, {"used", usedLine(b.Usage)}}
	if !b.Limits.IsZero() {
		rows = append(rows, []string{"left", cli.LimitsLine(b.Left)})
	}
	return t.Facts(rows)
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
		rows = append(rows, []string{cli.Clean(b.Name), "$" + b.Usage.Money, fmt.Sprint(b.Usage.Tokens), cli.LimitsLine(b.Limits), cli.LimitsLine(b.Left)})
	}
	return t.Table([]cli.Column{{Head: "ACCOUNT", Least: 8}, {Head: "MONEY"}, {Head: "TOKENS", Spare: 1}, {Head: "LIMITS", Least: 12, Spare: 2}, {Head: "LEFT", Least: 12}}, rows)
}
