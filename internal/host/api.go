package host

import (
	"context"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// API returns a server of the control API for the kernel. Its caller adds About,
// Keys, Request and Stop.
func (k *Kernel) API() *api.Server {
	return &api.Server{
		Kernel: k, Views: k, Workspaces: k.Files,
		Spawn:  func(ctx context.Context, r abi.Run) (abi.Pid, error) { return k.SpawnSpec(ctx, r) },
		Remove: k.remover.remove,
		Forks: api.Forks{Fork: k.Fork, Continue: func(ctx context.Context, pid abi.Pid, o abi.ContinueOptions) (abi.Pid, error) {
			return k.Continue(ctx, pid, o)
		}},
		Wait:   func(ctx context.Context, pid abi.Pid) error { _, err := k.Processes.Wait(ctx, pid); return err },
		Result: func(pid abi.Pid) (any, error) { return k.Result(pid) },
		Replay: func(ctx context.Context, pid abi.Pid, with *abi.Run) (abi.ReplayResult, error) {
			return k.Replay(ctx, pid, with)
		},
		Verify:  k.Verify,
		Records: k.Records,
		Stored:  api.Stored{Output: k.world.Journal.Output},
		Feed:    k.Feed.Follow,
		Reports: api.Reports{Traffic: k.Traffic, Spent: k.Processes.Spent},
	}
}
