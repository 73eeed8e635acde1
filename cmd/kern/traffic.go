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
		Short: "Show the limits of providers and the calls that wait for them",
		Long: `Show each model and key that calls went to: requests, tokens, input tokens and
output tokens of the last minute, each with its limit if there is one. A limit
comes from kern.yaml or from the provider. RUNNING and WAITING count calls.

When a provider says to slow down, its calls wait and none fails. When a provider
fails or cannot be reached, calls with a fallback go to another provider, and one
call tests the provider again after the time shown.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(cmd.Context(), t, d, asJSON, func(c *api.Client) ([]quota.Snapshot, error) { return c.Traffic(cmd.Context()) }, showTraffic)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func showTraffic(t *cli.Terminal, all []quota.Snapshot) error {
	if len(all) == 0 {
		t.Note("kern: no model calls since the daemon started")
		return nil
	}
	var rows [][]string
	for _, v := range all {
		rows = append(rows, []string{cli.Clean(v.Name), v.Of("requests"), v.Of("tokens"), v.Of("input_tokens"), v.Of("output_tokens"),
			fmt.Sprint(v.Running), fmt.Sprint(v.Waiting), v.Next()})
	}
	return t.Table([]cli.Column{{Head: "MODEL", Least: 16, End: true}, {Head: "REQUESTS", Spare: 3}, {Head: "TOKENS", Spare: 4}, {Head: "INPUT", Spare: 2}, {Head: "OUTPUT", Spare: 1}, {Head: "RUNNING", Spare: 5}, {Head: "WAITING"}, {Head: "NEXT CALL WAITS FOR", Least: 18}}, rows)
}
