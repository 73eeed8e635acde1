package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func settleCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var s abi.Settlement
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settle PROCESS CALL --spent DOLLARS | --none",
		Short: "Book what a call in doubt really used",
		Long: `Book what a call in doubt really used. A call is in doubt if Kern was killed between
its start and its end. It keeps its whole reservation, because nobody but the provider
knows what it used. Look it up in the provider's own records, and then say it here. The
rest of the reservation is free again. kern show lists the calls in doubt.

--none says that the provider has no such request. With --spent, tokens are booked as
reserved unless --input-tokens and --output-tokens say otherwise. The journal records
what was settled, and by which user.`,
		Example: `  kern settle 7 12 --spent 0.02
  kern settle 7 12 --spent 0.02 --input-tokens 1900 --output-tokens 350
  kern settle last 12 --none`,
		Args:              exactly(2, "a process and the number of a call"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if s.Call, err = strconv.ParseUint(args[1], 10, 64); err != nil || s.Call == 0 {
				return cli.Usage("kern show lists the calls in doubt", "%q is not the number of a call", args[1])
			}
			if s.None == !s.Spent.IsZero() {
				return cli.Usage("for example: kern settle 7 12 --spent 0.02", "expected either --spent or --none")
			}
			s.By = t.User()
			return withProcess(cmd.Context(), d, args[:1], func(c *api.Client, pid abi.Pid) error {
				p, err := c.Accounts.Settle(cmd.Context(), pid, s)
				if err != nil {
					return err
				}
				if asJSON {
					return t.JSON(p)
				}
				return t.Print("process %d: call %d is settled; the process used $%s\n", pid, s.Call, p.Usage.Money)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(flagLimit{abi.Money, &s.Spent}, "spent", "what the call cost, such as 0.02")
	flags.Var(flagLimit{abi.InputTokens, &s.Spent}, "input-tokens", "the input tokens of the call")
	flags.Var(flagLimit{abi.OutputTokens, &s.Spent}, "output-tokens", "the output tokens of the call")
	flags.BoolVar(&s.None, "none", false, "the call used nothing")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}
