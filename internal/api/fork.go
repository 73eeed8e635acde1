package api

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/program/lineage"
)

// Later is what comes after a process: forks and continuations.
type Later struct {
	Fork     func(ctx context.Context, pid abi.Pid, f abi.ForkOptions) (abi.ForkResult, error)
	Continue func(ctx context.Context, pid abi.Pid, o abi.ContinueOptions) (abi.Pid, error)
}

// A laterHandler answers requests that come after a process: forks, continuations and
// settlements.
type laterHandler struct{ server *Server }

func (h laterHandler) fork(ctx context.Context, pid abi.Pid, f *abi.ForkOptions) (any, error) {
	return h.server.Later.Fork(ctx, pid, *f)
}

// goOn continues a process that has exited.
func (h laterHandler) goOn(ctx context.Context, pid abi.Pid, o *abi.ContinueOptions) (any, error) {
	n, err := h.server.Later.Continue(ctx, pid, *o)
	return Started{n}, err
}

// settle settles a call in doubt, in the name of the user at the other end of the socket.
func (h laterHandler) settle(ctx context.Context, pid abi.Pid, s *abi.Settlement) (any, error) {
	if c, _ := ctx.Value(connKey{}).(net.Conn); c != nil {
		if uid, ok := lineage.UserOf(c); ok {
			s.By = strings.TrimSpace(fmt.Sprintf("%s (uid %d)", s.By, uid))
		}
	}
	if err := h.server.Kernel.Settle(ctx, pid, *s); err != nil {
		return nil, err
	}
	i, err := h.server.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	return h.server.view(&i, time.Now())
}

// A LaterClient makes requests that come after a process.
type LaterClient struct{ conn *connection }

// Fork starts a process that continues from an earlier record of another.
func (c LaterClient) Fork(ctx context.Context, pid abi.Pid, o abi.ForkOptions) (abi.ForkResult, error) {
	return ask[abi.ForkResult](ctx, c.conn, "POST", procPath(pid, "fork"), o)
}

// Continue starts a process that goes on where another one stopped.
func (c LaterClient) Continue(ctx context.Context, pid abi.Pid, o abi.ContinueOptions) (abi.Pid, error) {
	s, err := ask[Started](ctx, c.conn, "POST", procPath(pid, "continue"), o)
	return s.Pid, err
}

// Settle settles a call in doubt.
func (c LaterClient) Settle(ctx context.Context, pid abi.Pid, s abi.Settlement) (Process, error) {
	return ask[Process](ctx, c.conn, "POST", procPath(pid, "settle"), s)
}
