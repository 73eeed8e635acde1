package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// reader reads the journal of processes.
type reader struct {
	store journal.Store
	log   *journal.Log
	ctx   context.Context // of the loops
}

// Record reads one record of the journal.
func (r *reader) Record(pid abi.Pid, n uint64) (*abi.Record, error) {
	for range 2 {
		for r, err := range r.store.Records(pid, n-1) {
			if err == nil && r.N != n {
				err = fmt.Errorf("process %d has no record %d", pid, n)
			}
			return r, err
		}
		if err := r.log.Flush(r.ctx); err != nil { // the record may still be in memory
			return nil, err
		}
	}
	return nil, fmt.Errorf("process %d has no record %d", pid, n)
}

// errClosing ends readers that follow the journal when the kernel closes.
var errClosing = &abi.Error{Code: abi.DaemonGone, Message: "the kernel is closing"}

// Records calls f with every record of a process after record n. With follow it
// continues with later records, until the exit. A slow f delays no process.
func (r *reader) Records(ctx context.Context, pid abi.Pid, n uint64, follow bool, f func(*abi.Record) error) error {
	records := r.store.Records(pid, n)
	if follow {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(r.ctx, func() { cancel(errClosing) })()
		records = r.log.Records(ctx, pid, n)
	}
	for r, err := range records {
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, journal.ErrClosed):
			return errClosing
		case err != nil:
			return err
		}
		if err := f(r); err != nil || follow && r.Kind == abi.KindExited {
			return err
		}
	}
	return nil
}

// Verify reads every record of a process and every payload that they name. It
// returns the number of undamaged records.
func (r *reader) Verify(ctx context.Context, pid abi.Pid) (int, error) {
	if err := r.log.Flush(ctx); err != nil {
		return 0, err
	}
	return journal.Verify(r.store, pid)
}
