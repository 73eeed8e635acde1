package syscalls

import (
	"context"
	"encoding/json"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// ExitArgs are the arguments of exit. Code names the limit that made the process
// stop, if there is one.
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
