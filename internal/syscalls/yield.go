package syscalls

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// YieldArgs are the arguments of yield: the limits that the process wants.
type YieldArgs struct {
	Limits abi.Limits `json:"limits"`
	Why    string     `json:"why,omitempty"`
}

// planYield lets the policy decide, or asks a person.
func (w *World) planYield(v kernel.View, c abi.Call) (pl kernel.Plan, e *abi.Error) {
	a, e := decode[YieldArgs](c)
	if e != nil {
		return pl, e
	}
	pl.Effect, pl.Work = abi.Idempotent, &a
	if w.Yield != nil {
		allow, decided := w.Yield(v, a.Limits)
		if decided && !allow {
			return pl, &abi.Error{Code: abi.NotApproved, Message: "the policy of this host does not raise limits", Hint: "finish with what you have"}
		}
		if decided {
			return pl, nil
		}
	}
	want, err := json.Marshal(a.Limits)
	if err != nil {
		return pl, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	pl.Ask = fmt.Sprintf("may the limits be %s? %s", want, a.Why)
	return pl, nil
}

// runYield raises the limits after the policy or a person allowed it.
func runYield(_ context.Context, j *kernel.Job) kernel.Done {
	return done(map[string]abi.Limits{"limits": j.Raise(j.Plan.Work.(*YieldArgs).Limits)})
}
