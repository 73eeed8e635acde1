package gateway

import (
	"context"
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
