package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/kern-run/kern/abi"
)

// Fork starts a process that continues from a moment of another.
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
		n, err := k.Kernel.Fork(ctx, pid, f.At, nil)
		if err == nil {
			k.Launch(n)
		}
		return abi.ForkResult{Pid: n}, err
	}
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
	n, err := k.Kernel.Fork(ctx, pid, f.At, b)
	if err != nil {
		return abi.ForkResult{}, errors.Join(err, os.RemoveAll(dir)) // made by export a moment ago
	}
	k.Launch(n)
	return abi.ForkResult{Pid: n, Workspace: dir}, nil
}
