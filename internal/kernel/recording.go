package kernel

import (
	"context"
	"fmt"
	"math"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// A Recording is the journal of one process, to be replayed. A replay does not
// touch the live state.
type Recording struct {
	Records []*abi.Record

	answers answers
	machine *process.Machine
	at      int // records replayed
}

// Recording reads the journal of a process.
func (ps *Processes) Recording(ctx context.Context, pid abi.Pid) (*Recording, error) {
	if err := ps.answers.log.Flush(ctx); err != nil {
		return nil, ps.answers.broken()
	}
	r := &Recording{answers: ps.answers, machine: process.NewMachine()}
	for rec, err := range ps.answers.store.Records(pid, 0) {
		if err != nil {
			return nil, err
		}
		r.Records = append(r.Records, rec)
	}
	if len(r.Records) == 0 {
		return nil, process.Unknown(pid)
	}
	return r, nil
}

// Where returns the position of the process after its first n records. It is
// cheap when n grows from call to call.
func (r *Recording) Where(n int) (w Where, err error) {
	if n < r.at {
		r.machine, r.at = process.NewMachine(), 0
	}
	for ; r.at < n; r.at++ {
		if err := r.machine.Replay(r.Records[r.at], r.answers.store.Blob); err != nil {
			return w, err
		}
	}
	w, args := whereOf(r.machine.States[r.Records[0].Pid])
	return w, r.answers.fillArgs(w.Unfinished, args)
}

// Check replays the whole recording. It checks after every record that the
// account kept its limits, and at the end that the live state is the same to the
// byte.
func (ps *Processes) Check(r *Recording) error {
	m, blob := process.NewMachine(), r.answers.store.Blob
	pid := r.Records[0].Pid
	for _, rec := range r.Records {
		if err := m.Replay(rec, blob); err != nil {
			return err
		}
		if err := m.States[pid].CheckLimits(rec); err != nil {
			return err
		}
	}
	for _, child := range ps.descendants(pid) {
		if err := m.ReplayAll(r.answers.store.Records(child, 0), blob, everyRecord); err != nil {
			return err
		}
	}
	folded, err := m.States[pid].Dump()
	if err != nil {
		return err
	}
	live, err := ps.Dump(pid)
	if err != nil || string(folded) == string(live) {
		return err
	}
	// A process that got a record meanwhile cannot be compared.
	for _, p := range append(ps.descendants(pid), pid) {
		if i, err := ps.Info(p); err == nil && (m.States[p] == nil || i.Records != m.States[p].N) {
			return nil
		}
	}
	return fmt.Errorf("the live state is not the fold of its %d records:\nlive   %s\nfolded %s", len(r.Records), live, folded)
}

// stateAfter folds the records of a process up to record at (0: all), and the
// records of its descendants up to the same moment, apart from the live state.
func (ps *Processes) stateAfter(pid abi.Pid, at uint64) (*process.State, error) {
	m, store := process.NewMachine(), ps.answers.store
	if err := m.ReplayAll(store.Records(pid, 0), store.Blob, func(r *abi.Record) bool { return at == 0 || r.N <= at }); err != nil {
		return nil, err
	}
	s := m.States[pid]
	if s == nil {
		return nil, process.Unknown(pid)
	}
	if s.N < at {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has %d records, so there is no record %d", pid, s.N, at)}
	}
	then := s.Last
	if s.Exit != nil { // all descendants had exited, even if the clock was set back
		then = math.MaxInt64
	}
	for _, child := range ps.descendants(pid) {
		if err := m.ReplayAll(store.Records(child, 0), store.Blob, func(r *abi.Record) bool { return r.Time <= then }); err != nil {
			return nil, err
		}
	}
	return s, nil
}
