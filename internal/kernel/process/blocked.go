package process

import (
	"fmt"

	"github.com/kern-run/kern/abi"
)

// ToolFailures counts failures in a row, by tool. A tool that failed blockAfter
// times is blocked for a while.
type ToolFailures map[string]FailureRun

// FailureRun is how often a tool failed in a row, and when it failed last.
type FailureRun struct {
	Fails int   `json:"fails"`
	Since int64 `json:"since"`
}

const (
	blockAfter = 3
	blockFor   = int64(30e9)
)

// Count counts the end of a call of a tool.
func (f *ToolFailures) Count(tool string, a *abi.Answer, at int64) {
	switch {
	case tool == "" || a.Outcome == abi.Refused:
	case a.Outcome == abi.Unknown || a.Err != nil && (a.Err.Code == abi.Interrupted || a.Err.Code.Mistake() || a.Err.Code.Contention()): // not the tool's fault
	case a.Outcome == abi.Failed:
		if *f == nil {
			*f = make(ToolFailures)
		}
		(*f)[tool] = FailureRun{(*f)[tool].Fails + 1, at}
	default:
		delete(*f, tool)
	}
}

// Blocked returns the refusal of a blocked tool; nil: the tool may be used. A
// clock that was set back ends the block.
func (f ToolFailures) Blocked(tool string, now int64) *abi.Error {
	t, ok := f[tool]
	if !ok || t.Fails < blockAfter || now >= t.Since+blockFor || now < t.Since {
		return nil
	}
	return &abi.Error{Code: abi.ToolBlocked,
		Message: fmt.Sprintf("%s failed %d times in a row and is blocked for %d more seconds", tool, t.Fails, (t.Since+blockFor-now+1e9-1)/1e9),
		Hint:    "use another tool meanwhile"}
}
