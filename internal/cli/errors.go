package cli

import (
	"errors"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// A UsageError is a command line, or a file that it names, that cannot be used.
type UsageError struct{ Message, Advice string }

func (e *UsageError) Error() string { return e.Message }

// Hint says what to do next.
func (e *UsageError) Hint() string { return e.Advice }

// Usage makes a [UsageError] with a hint.
func Usage(hint, format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...), hint}
}

// explain is the message of an error, and a hint what to do next.
func explain(err error) (message, hint string) {
	message = err.Error()
	var advised interface {
		error
		Hint() string
	}
	var e *abi.Error
	var v *api.VersionError
	switch {
	case errors.As(err, &advised):
		hint = advised.Hint()
	case errors.As(err, &e):
		hint = e.Hint
		if len(e.Expected) > 0 {
			message += "; expected " + string(e.Expected)
		}
	case errors.As(err, &v):
		hint = "stop it with: kern stop-daemon; the next command starts a daemon of this version, and processes continue"
	case errors.Is(err, api.ErrLost):
		hint = "kern ps starts the daemon again and lists the processes; its log is daemon.log in the data directory"
	default:
		hint = "kern doctor checks this host and its configuration"
	}
	return message, hint
}
