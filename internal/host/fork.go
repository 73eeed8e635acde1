package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/kern-run/kern/abi"
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
		n, err := k.Kernel.Fork(ctx, pid, f.At, nil)
		if err == nil {
			k.Launch(n)
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
	n, err := k.Kernel.Fork(ctx, pid, f.At, b)
	if err != nil {
		return abi.ForkResult{}, errors.Join(err, os.RemoveAll(dir)) // safe, because export has just made it
	}
	k.Launch(n)
	return abi.ForkResult{Pid: n, Workspace: dir}, nil
}
