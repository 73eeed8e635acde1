package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/sandbox"
)

// sandboxChecks tries each sandbox on this host: whether it opens, and what of
// a Spec it could not enforce.
func sandboxChecks(ctx context.Context, t *cli.Terminal, d *daemon.Directory) (list []check) {
	for _, name := range host.SandboxNames {
		t.Progress("trying the sandbox " + name + " on this host ...")
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
		return false, fmt.Sprintf("a first program ended with %s: %s", out.Cause, out.Stderr)
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
		return true, "enforces everything that can be asked of it, as measured now"
	}
	var notes []string
	for _, w := range weak {
		notes = append(notes, fmt.Sprintf("%s: %s (to mend it: %s)", w.Name, w.Why, w.Fix))
	}
	return true, "refuses what needs " + strings.Join(notes, "; ")
}
