package sys

import (
	"errors"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/workspace"
)

// WorkspaceError is an error of a workspace as a process sees it: its code is
// the same, and the paths stand in Where as far as there is one, else in the
// message.
func WorkspaceError(err error) *abi.Error {
	var mine *abi.Error
	if errors.As(err, &mine) {
		return mine
	}
	var e *workspace.Error
	if !errors.As(err, &e) {
		return &abi.Error{Code: abi.WorkspaceUnsupported, Message: "the workspace cannot be used: " + err.Error()}
	}
	out := &abi.Error{Code: abi.Code(e.Code), Message: e.Error(), Hint: spaceHints[e.Code]}
	if len(e.Paths) == 1 {
		out.Where = e.Paths[0]
	}
	return out
}

// spaceHints say what to do next.
var spaceHints = map[workspace.Code]string{
	workspace.Conflict:    "nothing of this call was published; look at the files named as they are now, then call it again",
	workspace.Locked:      "nothing of this call was published; call it again",
	workspace.Quota:       "nothing of this call was published; write less in one call",
	workspace.Refused:     "nothing of this call was published",
	workspace.Busy:        "nothing of this call was published; let the tool end what it starts",
	workspace.InDoubt:     "start the daemon again: it decides what was left in doubt",
	workspace.Damaged:     "look at it with: kern workspace verify DIR",
	workspace.Unsupported: "choose another view, or another place for the data directory",
}
