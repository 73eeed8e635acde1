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

// A laterHandler answers requests that come after a process: forks, continuations and
// settlements.
type laterHandler struct{ server *Server }

func (h laterHandler) fork(ctx context.Context, pid abi.Pid, f *abi.ForkOptions) (any, error) {
	return h.server.Fork(ctx, pid, *f)
}

// goOn continues a process that has exited.
func (h laterHandler) goOn(ctx context.Context, pid abi.Pid, o *abi.ContinueOptions) (any, error) {
	n, err := h.server.Continue(ctx, pid, *o)
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
