package process

import (
	"fmt"

	"github.com/kern-run/kern/abi"
)

// ToolFailures are the tools whose last calls failed, by name. One that failed several
// times in a row rests for a while.
type ToolFailures map[string]FailureRun

// A FailureRun is how often a tool failed in a row, and when it did last.
type FailureRun struct {
	Fails int   `json:"fails"`
	Since int64 `json:"since"`
}

// How many failures in a row make a tool rest, and for how long.
const (
	blockAfter = 3
	blockFor   = int64(30e9)
)

// Note counts the end of a call of a tool.
func (r *ToolFailures) Count(tool string, a *abi.Answer, at int64) {
	switch {
	case tool == "" || a.Outcome == abi.Refused:
	case a.Outcome == abi.Unknown || a.Err != nil && (a.Err.Code == abi.Interrupted || a.Err.Code.Mistake()): // that says nothing of the tool
	case a.Outcome == abi.Failed:
		if *r == nil {
			*r = make(ToolFailures)
		}
		(*r)[tool] = FailureRun{(*r)[tool].Fails + 1, at}
	default:
		delete(*r, tool)
	}
}

// Blocked says that a tool rests; nil: it may be used.
func (r ToolFailures) Blocked(tool string, now int64) *abi.Error {
	t, ok := r[tool]
	if !ok || t.Fails < blockAfter || now >= t.Since+blockFor || now < t.Since { // the clock was set back
		return nil
	}
	return &abi.Error{Code: abi.ToolBlocked,
		Message: fmt.Sprintf("%s failed %d times in a row and rests for %d more seconds", tool, t.Fails, (t.Since+blockFor-now+1e9-1)/1e9),
		Hint:    "use another tool meanwhile"}
}
