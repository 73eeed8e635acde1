package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/server"
	"github.com/kern-run/kern/internal/sys"
)

func accountCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Set and show named accounts, which runs share for ever",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("kern account --help", "expected set, show or list")
		},
	}
	cmd.AddCommand(accountSet(a), accountShow(a), accountList(a))
	return cmd
}

// shared are the units that add up, so that an account can limit them.
func shared() (units []abi.Unit) {
	for _, u := range sys.Units() {
		if u < abi.Units {
			units = append(units, u)
		}
	}
	return units
}

func accountSet(a *app) *cobra.Command {
	var l limitFlags
	cmd := &cobra.Command{
		Use:   "set NAME --money 5 --tokens 1000000 ...",
		Short: "Make an account, or change its limits",
		Long: `Make an account, or change its limits. What is not named stays as it is, and what
was used stays used. Only what adds up over processes can be limited.`,
		Args: exactly(1, "the name of an account"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, u := range sys.Units() {
				if _, set := l.limits.Get(u); set && u >= abi.Units {
					return usage("give it to each run: kern run --"+flagName(u), "--%s does not add up over processes, so an account cannot limit it", flagName(u))
				}
			}
			ch, err := l.change(a.person(), shared())
			if err != nil {
				return err
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			b, err := c.SetAccount(cmd.Context(), args[0], ch)
			if err != nil {
				return err
			}
			return showAccount(a, b, l.json)
		},
	}
	l.add(cmd.Flags(), sys.Units())
	for _, u := range sys.Units() {
		if u >= abi.Units {
			_ = cmd.Flags().MarkHidden(flagName(u))
		}
	}
	return cmd
}

func accountShow(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what an account used, and what is left",
		Args:  exactly(1, "the name of an account"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Accounts(cmd.Context())
			if err != nil {
				return err
			}
			for _, b := range all {
				if b.Name == args[0] {
					return showAccount(a, b, asJSON)
				}
			}
			return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("there is no account %q", args[0]),
				Hint: "kern account list lists them; kern account set NAME --money 5 makes one"}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func showAccount(a *app, b server.Account, asJSON bool) error {
	if asJSON {
		return a.json(b)
	}
	rows := [][]string{{"account", clean(b.Name)}, {"limits", limitsLine(b.Limits)}, {"used", usedLine(b.Usage)}}
	if !b.Limits.IsZero() {
		rows = append(rows, []string{"left", limitsLine(b.Left)})
	}
	return table(a.stdout, rows)
}

// usedLine is what was used, in a line.
func usedLine(u server.Usage) string {
	return fmt.Sprintf("$%s, %s, %d tokens in, %d out, %s, %s", u.Money, plural(u.Steps, "step"), u.InputTokens, u.OutputTokens,
		plural(u.ModelCalls, "model call"), plural(u.ToolCalls, "tool call"))
}

func accountList(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the accounts",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Accounts(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.json(all)
			}
			if len(all) == 0 {
				a.note("kern: no accounts; make one with: kern account set NAME --money 5")
				return nil
			}
			rows := [][]string{{"ACCOUNT", "MONEY", "TOKENS", "LIMITS", "LEFT"}}
			for _, b := range all {
				rows = append(rows, []string{clean(b.Name), b.Usage.Money, fmt.Sprint(b.Usage.Tokens), limitsLine(b.Limits), limitsLine(b.Left)})
			}
			return table(a.stdout, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}
