package kern

import (
	"context"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/traffic"
)

// turn waits for the turn of a call at a provider, for the kernel.
func (k *Kernel) turn(ctx context.Context, t kernel.Turn) (release func(*kernel.Done), err error) {
	turn, err := k.turns.Acquire(ctx, traffic.Ask{Resource: t.Resource, Owner: t.Owner, Pid: int64(t.Pid), Priority: t.Priority, In: t.In, Out: t.Out})
	if err != nil {
		return nil, err
	}
	return func(d *kernel.Done) { turn.Release(feedback(d)) }, nil
}

// feedback is what a call tells of the provider it was at.
func feedback(d *kernel.Done) traffic.Feedback {
	if d == nil {
		return traffic.Feedback{Word: traffic.Unsent}
	}
	f, _ := d.Heard.(traffic.Feedback)
	f.In, f.Out = d.Usage[abi.InputTokens], d.Usage[abi.OutputTokens]
	return f
}

// Traffic shows how the limits of providers stand.
func (k *Kernel) Traffic() []traffic.View { return k.turns.View() }

// Info describes a process; a wait for a turn with what is in its way.
func (k *Kernel) Info(pid abi.Pid) (kernel.Info, error) {
	i, err := k.Kernel.Info(pid)
	k.explain(&i)
	return i, err
}

// List describes every process, by pid.
func (k *Kernel) List() []kernel.Info {
	all := k.Kernel.List()
	for i := range all {
		k.explain(&all[i])
	}
	return all
}

func (k *Kernel) explain(i *kernel.Info) {
	for n, w := range i.Waits {
		if at, ok := strings.CutPrefix(w, "turn "); ok {
			if why := k.turns.Why(at); why != "" {
				i.Waits[n] += ": " + why
			}
		}
	}
}
