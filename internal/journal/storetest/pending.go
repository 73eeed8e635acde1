package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// PendingState returns the state of a pending record at this moment. It is kept,
// waiting, refused with the record's number, or the code or text of its error.
func PendingState(p journal.Pending) string {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return OutcomeOf(p.Wait(ctx))
}

// OutcomeOf returns the state of a pending record after err.
func OutcomeOf(err error) string {
	var e *abi.Error
	var bad *journal.BadRecord
	switch {
	case err == nil:
		return "kept"
	case errors.Is(err, context.Canceled):
		return "waiting"
	case errors.As(err, &e):
		return string(e.Code)
	case errors.As(err, &bad):
		return fmt.Sprintf("refused %d:%d", bad.Pid, bad.N)
	}
	return err.Error()
}
