package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/demo"
)

func demoCommand(t *cli.Terminal) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the kernel at work, in half a minute and without an API key",
		Long: `Show the kernel at work. The model is a script. Everything else is real: a daemon
in a temporary directory, its journal, processes, tools and kill -9. Each step
says what happened and how it was checked. The exit code is 1 if a check fails.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			colours := map[demo.Colour]string{demo.Title: cli.Bold, demo.Good: cli.Green, demo.Bad: cli.Red}
			failures, err := demo.Run(cmd.Context(), demo.Stage{Out: t.Out, Self: self, Version: version, Usage: exitUsage, Progress: t.Progress, Width: t.Width(),
				Paint: func(c demo.Colour, text string) string { return t.Paint(colours[c], text) }})
			if err == nil && failures > 0 {
				err = &exitError{code: exitFailed}
			}
			return err
		},
	}
}
