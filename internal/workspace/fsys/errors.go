package fsys

import (
	"errors"
	"fmt"
	"strings"
)

// A Code classifies an Error for programs. Codes never change.
type Code string

// The codes.
const (
	Conflict    Code = "WORKSPACE_CONFLICT"    // somebody else changed a path; nothing was published
	Locked      Code = "WORKSPACE_LOCKED"      // another commit holds the lock
	Refused     Code = "WORKSPACE_REFUSED"     // a workspace never does this
	Quota       Code = "WORKSPACE_QUOTA"       // more bytes or files than the transaction may stage
	Busy        Code = "WORKSPACE_BUSY"        // a process still uses the view, or keeps writing to a file
	InDoubt     Code = "WORKSPACE_IN_DOUBT"    // an earlier commit waits for [Workspace.Resolve]
	Unsupported Code = "WORKSPACE_UNSUPPORTED" // this host cannot do it
	Missing     Code = "WORKSPACE_MISSING"     // no such commit, transaction or content
	Damaged     Code = "WORKSPACE_DAMAGED"     // the store does not read back as it was written
	Full        Code = "WORKSPACE_FULL"        // the history must not grow further
	Ended       Code = "WORKSPACE_ENDED"       // the transaction has ended, or the workspace is closed
)

// An Error says what failed, where, and what was expected.
type Error struct {
	Code  Code
	Paths []string // relative to the workspace if they lie in it
	Text  string
	Err   error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	if len(e.Paths) > 0 {
		const most = 8
		fmt.Fprintf(&b, ": %s", strings.Join(e.Paths[:min(most, len(e.Paths))], ", "))
		if n := len(e.Paths) - most; n > 0 {
			fmt.Fprintf(&b, " and %d more", n)
		}
	}
	b.WriteString(": " + e.Text)
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &Error{Code: c}) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Text == ""
}

// Errorf makes an Error; where is one path or empty.
func Errorf(c Code, where, format string, args ...any) *Error {
	e := &Error{Code: c, Text: fmt.Sprintf(format, args...)}
	if where != "" {
		e.Paths = []string{where}
	}
	for _, a := range args {
		if err, ok := a.(error); ok {
			e.Err = err
		}
	}
	return e
}

// Clip shortens a text that a message quotes.
func Clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

// Is reports whether err is an Error with this code.
func Is(err error, c Code) bool { return errors.Is(err, &Error{Code: c}) }
