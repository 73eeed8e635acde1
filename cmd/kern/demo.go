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
in a temporary directory, its journal, processes, tools and kill -9. Each story
shows its commands and their output, and checks it. The exit code is 1 if a check
fails.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			failed, err := demo.Run(cmd.Context(), demo.Stage{Term: t, Self: self, Version: version})
			if err == nil && failed > 0 {
				err = &exitError{code: exitFailed}
			}
			return err
		},
	}
}
