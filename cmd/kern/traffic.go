package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/server"
)

func trafficCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "traffic",
		Short: "Show how the limits of providers stand, and what waits for them",
		Long: `Show each model, for each key, that calls went to: the limits that are configured
(in kern.yaml) or that the provider told, what was used of them in the last
minute, calls that run and that wait, and what the next one waits for. A provider
that asks to slow down is paused; the calls to it wait, and none of them fails.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := server.Traffic(cmd.Context(), c)
			if err != nil {
				return err
			}
			if asJSON {
				return a.json(all)
			}
			if len(all) == 0 {
				a.note("kern: no calls to a model since the daemon started")
				return nil
			}
			rows := [][]string{{"RESOURCE", "USED IN A MINUTE", "RUN", "WAIT", "FOR"}}
			for _, v := range all {
				rows = append(rows, []string{clean(v.Name), v.Quota(), fmt.Sprint(v.Running), fmt.Sprint(v.Waiting), v.Next()})
			}
			return table(a.stdout, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}
