package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/kern-run/kern/abi"
)

// Pulse sets how often a stream that is held back says so.
func Pulse(g *Gateway, d time.Duration) { g.cfg.Pulse = d }

// OpenMax is how many tool calls of a process are open at most.
const OpenMax = maxPending

// Answered has f called each time the kernel has answered a call, before the
// gateway goes on.
func Answered(g *Gateway, f func(abi.Call, abi.Result)) { g.cfg.Kernel = after{g.cfg.Kernel, f} }

type after struct {
	Kernel
	f func(abi.Call, abi.Result)
}

func (a after) Do(ctx context.Context, c abi.Call) abi.Result {
	res := a.Kernel.Do(ctx, c)
	a.f(c, res)
	return res
}

func (a after) DoVia(ctx context.Context, c abi.Call, via any) abi.Result {
	res := a.Kernel.DoVia(ctx, c, via)
	a.f(c, res)
	return res
}

// HoldBodies sets how many bytes of bodies are held at a time, in all and by one tree.
func (g *Gateway) HoldBodies(all, tree int64) { g.budget.all, g.budget.tree = all, tree }

// HeldBodies returns how many bytes of bodies are held.
func (g *Gateway) HeldBodies() int64 {
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	return g.budget.held
}

// Bound bounds the connections to a server.
func Bound(s *http.Server, most int) {
	c := connections{most: most}
	s.ConnContext, s.ConnState = c.accept, c.changed
}
