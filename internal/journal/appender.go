package journal

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/abi"
)

// fullPause is how long the log waits before it tries again to write to a full disk.
const fullPause = 250 * time.Millisecond

// An appender writes batches to the store under the lease of the log. It waits while
// the disk is full, and takes records out that the store refuses. One goroutine at a
// time uses it, except where a method says otherwise.
type appender struct {
	store   Store
	pause   time.Duration
	stop    chan struct{} // closed when the log closes
	changes changes       // announces commits and trouble
	trouble atomic.Pointer[abi.Error]
	refused map[abi.Pid]error // why processes may not append any more

	leaseMu sync.RWMutex // held for writing while the lease is replaced
	lease   Lease
}

// append stores what can be stored of a batch, and reports whether it stored
// anything. An error means that nothing more can be written. If the store refuses a
// record, the batch is stored record by record: the refused record then fails alone,
// with the later ones of its process.
func (a *appender) append(g *group, batch []abi.Record) (stored bool, err error) {
	at := a.refuseLater(g, batch)
	if at != nil {
		batch = pick(batch, at)
	}
	if len(batch) == 0 {
		return false, nil
	}
	if err := a.appendPatiently(batch); !isBad(err) {
		return err == nil, err
	}
	for i := range batch {
		rec := &batch[i]
		if a.refused[rec.Pid] == nil {
			switch err := a.appendPatiently(batch[i : i+1]); {
			case isBad(err):
				a.refused[rec.Pid] = err
			case err != nil:
				return stored, err
			default:
				stored = true
				continue
			}
		}
		n := i
		if at != nil {
			n = at[i]
		}
		g.refuse(n, a.refused[rec.Pid])
	}
	return stored, nil
}

// refuseLater refuses the records of processes that had a record refused before. It
// returns the indexes of the others, or nil if no record was refused.
func (a *appender) refuseLater(g *group, batch []abi.Record) []int {
	if len(a.refused) == 0 {
		return nil
	}
	at := make([]int, 0, len(batch))
	for i := range batch {
		if err := a.refused[batch[i].Pid]; err != nil {
			g.refuse(i, err)
		} else {
			at = append(at, i)
		}
	}
	return at
}

func pick(batch []abi.Record, at []int) []abi.Record {
	out := make([]abi.Record, len(at))
	for i, n := range at {
		out[i] = batch[n]
	}
	return out
}

func isBad(err error) bool {
	var bad *BadRecord
	return errors.As(err, &bad)
}

// appendPatiently appends a batch, and waits for room until the log closes. After a
// *[BadRecord] the log can continue; after any other error it cannot.
func (a *appender) appendPatiently(batch []abi.Record) error {
	for last := false; ; {
		err := a.appendOnce(batch)
		switch {
		case err == nil || isBad(err):
			a.trouble.Store(nil)
			return err
		case !errors.Is(err, ErrFull):
			e := broken(err)
			a.stall(e)
			return e
		}
		full := &abi.Error{Code: abi.StorageFull, Message: "the journal cannot be written: " + err.Error(),
			Hint: "Make room on the disk of the data directory. Kern then continues by itself."}
		a.stall(full)
		if last {
			return full
		}
		last = !a.rest()
	}
}

// appendOnce appends a batch under the current lease.
func (a *appender) appendOnce(batch []abi.Record) error {
	a.leaseMu.RLock()
	defer a.leaseMu.RUnlock()
	return a.store.Append(a.lease, batch)
}

// claim replaces the lease by one that holds more trees. Any goroutine may call it.
func (a *appender) claim(trees []abi.Pid) error {
	a.leaseMu.Lock()
	defer a.leaseMu.Unlock()
	lease, err := a.store.Claim(a.lease, trees...)
	if err == nil {
		a.lease = lease
	}
	return err
}

// broken says that nothing can be written any more.
func broken(err error) *abi.Error {
	return &abi.Error{Code: abi.StorageBroken, Message: "the journal cannot be written: " + err.Error(),
		Hint: "Start the daemon again. Everything that was acknowledged is safe."}
}

// stall notes that nothing can be written, and wakes the callers that wait for a
// change.
func (a *appender) stall(e *abi.Error) {
	if a.trouble.Swap(e) == nil {
		a.changes.announce()
	}
}

// rest waits before the next try, and reports whether the log is still open.
func (a *appender) rest() bool {
	t := time.NewTimer(a.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a.stop:
		return false
	}
}
