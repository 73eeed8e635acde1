package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/tools"
)

// Fork starts a process that continues another process from record f.At. It copies
// the files of that record into a new workspace.
func (k *Kernel) Fork(ctx context.Context, pid abi.Pid, f abi.ForkOptions) (abi.ForkResult, error) {
	v, err := k.View(pid)
	if err != nil {
		return abi.ForkResult{}, err
	}
	l, err := k.world.Load(v.Spawn.Program)
	if err != nil {
		return abi.ForkResult{}, err
	}
	if l.Agent.Workspace == "" {
		if f.Workspace != "" {
			return abi.ForkResult{}, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no workspace to be copied", pid), Got: f.Workspace}
		}
		n, err := k.Kernel.Fork(ctx, pid, kernel.Forking{At: f.At, Grant: f.Grant})
		if err == nil {
			k.Resume(n)
		}
		return abi.ForkResult{Pid: n}, err
	}
	// The files come first, because the fork needs them from its first call on.
	dir, err := k.Files.export(ctx, pid, f, l.Agent.Workspace)
	if err != nil {
		return abi.ForkResult{}, err
	}
	p := l.Agent
	p.Workspace = dir
	b, err := json.Marshal(p)
	if err != nil {
		return abi.ForkResult{}, err
	}
	n, err := k.Kernel.Fork(ctx, pid, kernel.Forking{At: f.At, Program: b, Grant: f.Grant})
	if err != nil {
		return abi.ForkResult{}, errors.Join(err, os.RemoveAll(dir)) // safe, because export has just made it
	}
	k.Resume(n)
	return abi.ForkResult{Pid: n, Workspace: dir}, nil
}

// Continue starts a process that goes on where another one stopped: with its
// conversation, its workspace and what it had left of its limits.
func (k *Kernel) Continue(ctx context.Context, pid abi.Pid, o abi.ContinueOptions, goTools ...*tools.Tool) (abi.Pid, error) {
	v, err := k.View(pid)
	if err != nil {
		return 0, err
	}
	l, err := k.world.Load(v.Spawn.Program)
	switch {
	case err != nil:
		return 0, err
	case l.Agent.Hosted:
		return 0, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d was a program with a loop of its own, so Kern cannot continue it", pid),
			Hint: "start the program again with more: kern exec --money 2 -- PROGRAM, or kern key new --money 2"}
	}
	if err := k.spaces.check(&l.Agent); err != nil {
		return 0, err
	}
	n, err := k.Kernel.Fork(ctx, pid, kernel.Forking{Continue: &o})
	if err != nil {
		return 0, err
	}
	k.goTools.put(n, goTools)
	k.Resume(n)
	return n, nil
}
