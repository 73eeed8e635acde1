package api

import (
	"context"

	"github.com/kern-run/kern/abi"
)

// Forks starts processes that share the history of another one. A continuation is a fork
// at the end.
type Forks struct {
	Fork     func(ctx context.Context, pid abi.Pid, f abi.ForkOptions) (abi.ForkResult, error)
	Continue func(ctx context.Context, pid abi.Pid, o abi.ContinueOptions) (abi.Pid, error)
}

func (f *Forks) fork(ctx context.Context, pid abi.Pid, o *abi.ForkOptions) (any, error) {
	return f.Fork(ctx, pid, *o)
}

// goOn continues a process that has exited.
func (f *Forks) goOn(ctx context.Context, pid abi.Pid, o *abi.ContinueOptions) (any, error) {
	n, err := f.Continue(ctx, pid, *o)
	return Started{n}, err
}

// A ForkClient starts processes that share the history of another one.
type ForkClient struct{ conn *connection }

// Fork starts a process that continues from an earlier record of another.
func (c ForkClient) Fork(ctx context.Context, pid abi.Pid, o abi.ForkOptions) (abi.ForkResult, error) {
	return ask[abi.ForkResult](ctx, c.conn, "POST", procPath(pid, "fork"), o)
}

// Continue starts a process that goes on where another one stopped.
func (c ForkClient) Continue(ctx context.Context, pid abi.Pid, o abi.ContinueOptions) (abi.Pid, error) {
	s, err := ask[Started](ctx, c.conn, "POST", procPath(pid, "continue"), o)
	return s.Pid, err
}
