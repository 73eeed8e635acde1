//go:build !linux

package jail

import (
	"context"
	"runtime"

	"github.com/kern-run/kern/internal/sandbox"
)

// A Backend does not exist here.
type Backend struct{}

// New refuses: the walls of a jail are Linux's.
func New(Config) (*Backend, error) { return nil, refusal() }

func refusal() error {
	return &sandbox.Refusal{Backend: "jail", Reason: "needs Linux, this is " + runtime.GOOS, Fix: "use the wasm backend"}
}

// Run refuses.
func (*Backend) Run(context.Context, sandbox.Spec) (sandbox.Outcome, error) {
	return sandbox.Outcome{Cause: sandbox.Refused}, refusal()
}

// Probe refuses.
func (*Backend) Probe(context.Context) ([]sandbox.Weakness, error) { return nil, refusal() }

// Warm is none.
func (*Backend) Warm() int { return 0 }

// Close does nothing.
func (*Backend) Close() error { return nil }
