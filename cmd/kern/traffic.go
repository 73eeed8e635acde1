package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/quota"
)

func trafficCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "traffic",
		Short: "Show how the limits of providers stand, and what waits for them",
		Long: `Show each model, for each key, that calls went to: the requests, the tokens, and
those of input and of output in the last minute, each of how many where there is a
limit, in kern.yaml or told by the provider; the calls that run and that wait, and
what the next one waits for. A provider that asks to slow down is paused; the
calls to it wait, and none of them fails. One that cannot be reached, or fails,
rests: calls that can go to another provider do, and one of them tries it again
when the time has come that is told.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(cmd.Context(), t, d, asJSON, func(c *api.Client) ([]quota.View, error) { return c.Traffic(cmd.Context()) }, showTraffic)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func showTraffic(t *cli.Terminal, all []quota.View) error {
	if len(all) == 0 {
		t.Note("kern: no calls to a model since the daemon started")
		return nil
	}
	var rows [][]string
	for _, v := range all {
		rows = append(rows, []string{cli.Clean(v.Name), v.Of("requests"), v.Of("tokens"), v.Of("input_tokens"), v.Of("output_tokens"),
			fmt.Sprint(v.Running), fmt.Sprint(v.Waiting), v.Next()})
	}
	return t.Table([]cli.Column{{Head: "RESOURCE", Least: 16, End: true}, {Head: "REQUESTS", Spare: 3}, {Head: "TOKENS", Spare: 4}, {Head: "INPUT", Spare: 2}, {Head: "OUTPUT", Spare: 1}, {Head: "RUN", Spare: 5}, {Head: "WAIT"}, {Head: "FOR", Least: 18}}, rows)
}
