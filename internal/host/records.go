package host

import (
	"context"
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
		if err := r.log.Flush(r.ctx); err != nil { // it may be on its way
			return nil, err
		}
	}
	return nil, fmt.Errorf("process %d has no record %d", pid, n)
}

// Records reads the journal of a process after record n. With follow it goes on
// with what comes, until the terminal record. A reader that is slow keeps
// nobody waiting.
func (r *reader) Records(ctx context.Context, pid abi.Pid, n uint64, follow bool, f func(*abi.Record) error) error {
	for {
		changed := r.log.Changed()
		for r, err := range r.store.Records(pid, n) {
			if err != nil {
				return err
			}
			if err := f(r); err != nil {
				return err
			}
			if n = r.N; r.Kind == abi.KindExited {
				return nil
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.ctx.Done():
			return &abi.Error{Code: abi.DaemonGone, Message: "the kernel is closing"}
		}
	}
}

// Verify reads every record of a process and every payload that is named in
// them, and returns how many records are as they were written.
func (r *reader) Verify(ctx context.Context, pid abi.Pid) (int, error) {
	if err := r.log.Flush(ctx); err != nil {
		return 0, err
	}
	return journal.Verify(r.store, pid)
}
