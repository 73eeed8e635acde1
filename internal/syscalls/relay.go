package syscalls

import (
	"context"
	"encoding/json"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// An External plans and runs a call in place of its row. It is a request that a program
// wrote for a model, or a tool call that the program carries out. The value comes with
// the call ([kernel.Kernel.DoVia]) and does not survive a restart.
type External interface {
	Plan(v kernel.View) (kernel.Plan, *abi.Error)
	Run(ctx context.Context, j *kernel.Job) kernel.Done
}

// Relayed describes, in the arguments of a model call, a request that a program wrote.
// The text of the request is in the parts of the intent, because it repeats the earlier
// requests with a little more; see package gateway.
type Relayed struct {
	Format   string `json:"face"`
	Model    string `json:"model"`
	Messages int    `json:"messages"`
}

// planExternal plans a call that its [External] runs.
func planExternal(v kernel.View) (pl kernel.Plan, e *abi.Error) {
	r, ok := v.Via.(External)
	if !ok {
		return pl, &abi.Error{Code: abi.ToolGone, Message: "the program that made this request is not here"}
	}
	pl, e = r.Plan(v)
	pl.Work = r
	return pl, e
}

// KeyArgs are the arguments of key.
type KeyArgs struct {
	Name     string     `json:"name,omitempty"`
	Key      string     `json:"key"` // the SHA-256 of the key, in hex
	Priority *int       `json:"priority,omitempty"`
	Limits   abi.Limits `json:"limits,omitzero"`
	Held     bool       `json:"held,omitempty"` // the process ends when no client holds it
	Title    string     `json:"title,omitempty"`
}

// planKey plans the start of a child that a program reaches by a key.
func planKey(v kernel.View, c abi.Call) (pl kernel.Plan, e *abi.Error) {
	pl = kernel.Plan{Effect: abi.Idempotent, Child: true, Reserve: abi.Usage{abi.Children: 1}}
	a, e := decode[KeyArgs](c)
	if e != nil {
		return pl, e
	}
	p := abi.Agent{Name: a.Name, Hosted: true, Held: a.Held, Key: a.Key}
	b, err := json.Marshal(p)
	if err != nil {
		return pl, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	s := &kernel.Spawning{Program: b}
	s.Name, s.Limits, s.Rows, s.Watchdog, s.Priority, s.Title = a.Name, a.Limits, p.Grants(), v.Spawn.Watchdog, v.Spawn.Priority, a.Title
	if a.Priority != nil {
		s.Priority = max(*a.Priority, v.Spawn.Priority)
	}
	pl.Work = s
	return pl, nil
}

// RunArgs are the arguments of run: an agent that is ready to be recorded, and the
// task and the limits of its process.
type RunArgs struct {
	Program  json.RawMessage `json:"program"`
	Task     string          `json:"task"`
	Priority int             `json:"priority"`
	Watchdog abi.Watchdog    `json:"watchdog,omitzero"`
	Limits   abi.Limits      `json:"limits,omitzero"`
}

// planRun plans the start of a child that runs a given agent.
func planRun(v kernel.View, c abi.Call) (pl kernel.Plan, e *abi.Error) {
	pl = kernel.Plan{Effect: abi.Idempotent, Child: true, Reserve: abi.Usage{abi.Children: 1}}
	a, e := decode[RunArgs](c)
	if e != nil {
		return pl, e
	}
	var p abi.Agent
	if err := json.Unmarshal(a.Program, &p); err != nil {
		return pl, &abi.Error{Code: abi.InvalidArguments, Message: err.Error(), Where: "/program"}
	}
	s := &kernel.Spawning{Program: a.Program, Task: []byte(a.Task)}
	s.Name, s.Limits, s.Rows, s.Watchdog, s.Priority = p.Name, a.Limits, p.Grants(), a.Watchdog, max(a.Priority, v.Spawn.Priority)
	pl.Work = s
	return pl, nil
}
