package main

import (
	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func serveCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	detached := false
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon of the data directory in the foreground",
		Long: `Run the daemon of the data directory in the foreground.

Any command that needs the daemon starts it in the background. Use serve to see
what the daemon does, or to run it under a service manager.`,
		Annotations: map[string]string{ownInterrupts: "stop"},
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.Serve(cmd.Context(), daemon.Options{Detached: detached, Interrupts: t.Interrupts})
		},
	}
	cmd.Flags().BoolVar(&detached, daemon.DetachedFlag, false, "")
	_ = cmd.Flags().MarkHidden(daemon.DetachedFlag)
	return cmd
}

func stopDaemonCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	return &cobra.Command{
		Use:   "stop-daemon",
		Short: "Stop the daemon; processes continue when it starts again",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stopped, err := d.Stop(cmd.Context())
			if err != nil || stopped {
				return err
			}
			dir, err := d.Path()
			t.Note("kern: no daemon serves %s", dir)
			return err
		},
	}
}
