package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/demo"
)

func demoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the kernel at work, in half a minute and without an API key",
		Long: `Show the kernel at work. The model is a script; all else is real: a daemon of its
own in a temporary directory, its journal, processes, tools, and kill -9. Each
step says what happened and how that was checked; the exit code is 1 if a check
fails.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			colours := map[demo.Colour]string{demo.Title: bold, demo.Good: green, demo.Bad: red}
			failures, err := demo.Run(cmd.Context(), demo.Stage{Out: a.stdout, Self: self, Version: version, Usage: exitUsage, Progress: a.progress, Width: width(a, a.outTTY, a.stdout),
				Paint: func(c demo.Colour, text string) string { return a.paint(a.outTTY, colours[c], text) }})
			if err == nil && failures > 0 {
				err = &exitError{code: exitFailed}
			}
			return err
		},
	}
}
