package syscalls

import (
	"context"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// SleepArgs are the arguments of sleep.
type SleepArgs struct {
	For string `json:"for"`
}

// planSleep asks for an intent record, because with its time the sleep ends at the same
// time in spite of a restart.
func planSleep(_ kernel.View, c abi.Call) (kernel.Plan, *abi.Error) {
	a, e := decode[SleepArgs](c)
	if e == nil {
		_, e = parseDuration("sleep", "/for", a.For)
	}
	return kernel.Plan{Effect: abi.Idempotent, Intent: true}, e
}

func runSleep(ctx context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[SleepArgs](j.Call)
	if e != nil {
		return failed(e)
	}
	d, e := parseDuration("sleep", "/for", a.For)
	if e == nil {
		e = j.Sleep(d)
	}
	if e != nil {
		return failed(e)
	}
	return done(map[string]string{"slept": d.String()})
}
