package syscalls

import (
	"context"
	"encoding/json"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// SendArgs are the arguments of send.
type SendArgs struct {
	To      abi.Pid         `json:"to"`
	Message json.RawMessage `json:"message"`

	Priority *int `json:"priority,omitempty"` // 0 is the most urgent, as of processes
}

func runSend(_ context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[SendArgs](j.Call)
	if e == nil {
		ahead := 0
		if a.Priority != nil {
			ahead = abi.DefaultPriority - *a.Priority
		}
		e = j.Send(a.To, a.Message, ahead)
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
	d, e := parseDuration("recv", "/timeout", a.Timeout)
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
