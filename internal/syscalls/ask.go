package syscalls

import (
	"context"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// AskArgs are the arguments of ask.
type AskArgs struct {
	Question string `json:"question"`
}

func planAsk(_ kernel.View, c abi.Call) (kernel.Plan, *abi.Error) {
	a, e := decode[AskArgs](c)
	return kernel.Plan{Effect: abi.Idempotent, Ask: a.Question}, e
}

func runAsk(_ context.Context, j *kernel.Job) kernel.Done {
	return done(map[string]any{"approved": true, "words": j.Answer})
}
