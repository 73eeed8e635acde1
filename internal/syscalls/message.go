package syscalls

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// SendArgs are the arguments of send.
type SendArgs struct {
	To      abi.Pid         `json:"to"`
	Message json.RawMessage `json:"message"`
}

func runSend(_ context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[SendArgs](j.Call)
	if e == nil {
		e = j.Send(a.To, a.Message)
	}
	if e != nil {
		return failed(e)
	}
	return done(map[string]bool{"sent": true})
}

// RecvArgs are the arguments of recv.
type RecvArgs struct {
	Timeout string `json:"timeout,omitempty"`
}

func runRecv(_ context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[RecvArgs](j.Call)
	if e != nil {
		return failed(e)
	}
	d, e := span("recv", "/timeout", a.Timeout)
	if e != nil {
		return failed(e)
	}
	from, body, n, e := j.Receive(d)
	switch {
	case e != nil:
		return failed(e)
	case n == 0:
		return done(map[string]bool{"timeout": true})
	}
	if !json.Valid(body) {
		body, _ = json.Marshal(string(body))
	}
	r := done(map[string]any{"from": from, "message": json.RawMessage(body)})
	r.Took = n
	return r
}

// SleepArgs are the arguments of sleep.
type SleepArgs struct {
	For string `json:"for"`
}

// planSleep puts the beginning of the sleep on disk, so that it ends when it
// would have ended, also across a restart.
func planSleep(_ kernel.View, c abi.Call) (kernel.Plan, *abi.Error) {
	a, e := decode[SleepArgs](c)
	if e == nil {
		_, e = span("sleep", "/for", a.For)
	}
	return kernel.Plan{Effect: abi.Idempotent, Intent: true}, e
}

func runSleep(ctx context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[SleepArgs](j.Call)
	if e != nil {
		return failed(e)
	}
	d, e := span("sleep", "/for", a.For)
	if e == nil {
		e = j.Sleep(d)
	}
	if e != nil {
		return failed(e)
	}
	return done(map[string]string{"slept": d.String()})
}

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

// YieldArgs are the arguments of yield: the limits as they should be.
type YieldArgs struct {
	Limits abi.Limits `json:"limits"`
	Why    string     `json:"why,omitempty"`
}

// planYield lets the policy decide, or else a person.
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

func runYield(_ context.Context, j *kernel.Job) kernel.Done {
	return done(map[string]abi.Limits{"limits": j.Raise(j.Plan.Work.(*YieldArgs).Limits)})
}

// ExitArgs are the arguments of exit. Code names the limit that made the
// process stop, if one did.
type ExitArgs struct {
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	Code   abi.Code        `json:"code,omitempty"`
}

func runExit(_ context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[ExitArgs](j.Call)
	if e != nil {
		return failed(e)
	}
	info := abi.ExitInfo{}
	if _, limit := abi.LimitOf(a.Code); limit {
		info.Code = a.Code
	}
	if a.Error != "" {
		info.Err = &abi.Error{Code: a.Code, Message: a.Error}
		if a.Code == "" {
			info.Err.Code = abi.ToolFailed
		}
	}
	out := []byte(a.Output)
	var text string
	if json.Unmarshal(a.Output, &text) == nil {
		out = []byte(text)
	}
	if e := j.Exit(info, out); e != nil {
		return failed(e)
	}
	return done(map[string]bool{"exited": true})
}
