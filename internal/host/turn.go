package host

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/quota"
)

// turn waits for the turn of a call at a provider, for the kernel.
func (k *Kernel) turn(ctx context.Context, t kernel.Turn) (release func(*kernel.Done), err error) {
	turn, err := k.turns.Acquire(ctx, quota.Demand{Resource: t.Resource, Owner: t.Owner, Pid: int64(t.Pid), Priority: t.Priority, CurrentPriority: t.Now,
		In: t.In, Out: t.Out, HasFallback: t.Other})
	switch {
	case errors.Is(err, quota.ErrBackoff):
		return nil, kernel.ErrElsewhere
	case err != nil:
		return nil, err
	}
	return func(d *kernel.Done) {
		if over := turn.Release(feedback(d)); over != "" && d.Away {
			d.Away = false
			d.Err = &abi.Error{Code: abi.ModelBadRequest, Message: "the provider turned the call away though nothing of its minute was used: " + over,
				Hint: "send less in one request, ask for less output, or have the provider grant more"}
		}
	}, nil
}

// feedback describes, for the quota, how the provider treated a call.
func feedback(d *kernel.Done) quota.Feedback {
	if d == nil {
		return quota.Feedback{Status: quota.NotSent}
	}
	f, heard := d.Feedback.(quota.Feedback)
	if !heard && d.Err != nil && d.Usage == (abi.Usage{}) {
		f.Status = quota.Cut // the call failed in Kern, and says nothing about the provider
	}
	f.In, f.Out = d.Usage[abi.InputTokens], d.Usage[abi.OutputTokens]
	return f
}

// Traffic returns the limits of providers and their use in the last minute.
func (k *Kernel) Traffic() []quota.Snapshot { return k.turns.Snapshots() }

// Info describes a process. A wait for a turn includes its reason.
func (k *Kernel) Info(pid abi.Pid) (kernel.Info, error) {
	i, err := k.Processes.Info(pid)
	k.explain(&i)
	return i, err
}

// List describes every process, by pid. The list grows for ever, because it keeps
// exited processes: use [Kernel.Recent] for a short list, [Kernel.After] for pages.
func (k *Kernel) List() []kernel.Info { return k.After(0, math.MaxInt) }

// Recent describes, by pid, the living processes, the n that exited last, the n last
// children of each living one, and every process above these. More is the number of
// other processes.
func (k *Kernel) Recent(n int) (list []kernel.Info, more int) {
	pids, more := k.Processes.Recent(n)
	return k.describe(pids), more
}

// After describes, by pid, the first n processes above pid.
func (k *Kernel) After(pid abi.Pid, n int) []kernel.Info {
	return k.describe(k.Processes.After(pid, n))
}

// describe returns Info of several processes that exist.
func (k *Kernel) describe(pids []abi.Pid) []kernel.Info {
	list := make([]kernel.Info, len(pids))
	for n, pid := range pids {
		list[n], _ = k.Info(pid)
	}
	return list
}

func (k *Kernel) explain(i *kernel.Info) {
	for n, w := range i.Waits {
		if at, ok := strings.CutPrefix(w, "turn "); ok {
			if why := k.turns.WaitReason(at); why != "" {
				i.Waits[n] += ": " + why
			}
		}
	}
}
