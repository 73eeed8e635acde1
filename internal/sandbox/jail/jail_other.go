//go:build !linux

package jail

import (
	"context"
	"runtime"

	"github.com/kern-run/kern/internal/sandbox"
)

// A Backend needs Linux; on this system New returns none.
type Backend struct{}

// New returns a refusal, because the walls of a jail need Linux.
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

// Warm returns 0.
func (*Backend) Warm() int { return 0 }

// Close does nothing.
func (*Backend) Close() error { return nil }
