package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/sandbox"
)

// checkSandboxes tries each sandbox on this host: whether it opens, and what it
// cannot enforce.
func checkSandboxes(ctx context.Context, t *cli.Terminal, d *daemon.Directory) (list []check) {
	for _, name := range config.SandboxNames {
		t.Progress("testing the sandbox " + name + " ...")
		c := check{Name: "sandbox " + name}
		c.OK, c.Note = trySandbox(ctx, name)
		list = append(list, c)
	}
	t.Progress("")
	return list
}

func trySandbox(ctx context.Context, name string) (ok bool, note string) {
	box, err := host.OpenSandbox(name)
	if err != nil {
		return false, err.Error()
	}
	defer box.Close()
	out, err := box.Run(ctx, sandbox.Spec{Code: "print(6*7)"})
	if err != nil {
		return false, err.Error()
	}
	if out.Cause != sandbox.OK || strings.TrimSpace(string(out.Stdout)) != "42" {
		return false, fmt.Sprintf("a test program ended with %s: %s", out.Cause, out.Stderr)
	}
	prober, can := box.(sandbox.Prober)
	if !can {
		return true, "runs"
	}
	weak, err := prober.Probe(ctx)
	if err != nil {
		return false, err.Error()
	}
	if len(weak) == 0 {
		return true, "enforces every limit, as measured now"
	}
	var notes []string
	for _, w := range weak {
		notes = append(notes, fmt.Sprintf("%s: %s (fix: %s)", w.Name, w.Why, w.Fix))
	}
	return true, "works, but refuses code that needs " + strings.Join(notes, "; ")
}
