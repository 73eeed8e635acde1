package kernel

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/process"
)

// A Remover removes processes of a kernel that have exited.
type Remover struct{ Kernel *Kernel }

// Finished returns the trees whose processes have all exited, the one that ended first
// first, and the process that each fork continues.
func (rm Remover) Finished() (trees []process.FinishedTree, sources map[abi.Pid]abi.Pid) {
	ps := rm.Kernel.procs
	ps.mu.Lock()
	defer ps.mu.Unlock()
	sources = make(map[abi.Pid]abi.Pid, len(ps.machine.Sources))
	for fork, source := range ps.machine.Sources {
		sources[fork] = source
	}
	return ps.machine.Tree.Finished(), sources
}

// Remove removes finished trees, given by their top processes, from the journal and from
// memory: all of them, or none with an error. Their usage stays on the named accounts
// above them. It returns the removed processes. If it returns these and an error, only
// their bytes are still on the disk: the next start erases them.
func (rm Remover) Remove(ctx context.Context, tops []abi.Pid, by string) (pids []abi.Pid, err error) {
	k := rm.Kernel
	k.procs.mu.Lock()
	pids, err = rm.removable(tops)
	k.procs.mu.Unlock()
	if err != nil || len(pids) == 0 {
		return nil, err
	}
	if err := k.cfg.Log.Flush(ctx); err != nil {
		return nil, k.answers.broken()
	}
	// The sums are read without the lock, because exited processes do not change.
	sums, spent, err := rm.sumsOf(pids)
	if err != nil {
		return nil, err
	}
	k.procs.mu.Lock()
	again, err := rm.removable(tops)
	if err == nil && !slices.Equal(again, pids) {
		err = &abi.Error{Code: abi.InvalidCall, Message: "a process changed while it was to be removed", Hint: "try again"}
	}
	if e := k.cfg.Log.Err(); err == nil && e != nil {
		err = e
	}
	if err != nil {
		k.procs.mu.Unlock()
		return nil, err
	}
	// Memory forgets first, so that nobody looks for records that are gone.
	r := &abi.Record{N: k.procs.machine.Remove(pids), Time: k.cfg.Now().UnixNano(), Kind: abi.KindRemoved,
		Removed: &abi.Removed{Pids: pids, By: by, Sums: sums, Spent: spent}}
	for _, pid := range pids {
		delete(k.procs.byPid, pid)
	}
	k.exits.queue = slices.DeleteFunc(k.exits.queue, func(e writtenExit) bool { return slices.Contains(pids, e.p.state.Pid) })
	t := k.cfg.Log.Put(r)
	k.procs.mu.Unlock()
	if err := t.Wait(ctx); err != nil {
		return nil, err
	}
	if s, ok := k.cfg.Store.(journal.Sweeper); ok {
		err = s.Sweep()
	}
	return pids, err
}

// removable returns all processes of finished trees, by pid. The lock is held.
func (rm Remover) removable(tops []abi.Pid) (pids []abi.Pid, err error) {
	ps := rm.Kernel.procs
	gone := make(map[abi.Pid]bool)
	for _, top := range tops {
		if ps.byPid[top] == nil && !ps.isBuried(top) {
			return nil, process.Unknown(top)
		}
		if parent := ps.machine.Tree.Parent(top); parent != 0 {
			return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d is a child of process %d, and only whole trees can be removed", top, parent),
				Hint: fmt.Sprintf("kern rm %d removes the tree", topOf(&ps.machine.Tree, top))}
		}
		for _, pid := range append([]abi.Pid{top}, ps.machine.Tree.Descendants(top)...) {
			if !ps.machine.HasExited(pid) {
				return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has not exited, so process %d cannot be removed", pid, top),
					Hint: fmt.Sprintf("end it first, with: kern kill %d", pid)}
			}
			gone[pid] = true
		}
	}
	if by, source := ps.machine.Needed(gone); by != 0 {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d continues process %d, so process %d cannot be removed", by, source, source),
			Hint: fmt.Sprintf("remove both, with: kern rm %d %d", topOf(&ps.machine.Tree, source), topOf(&ps.machine.Tree, by))}
	}
	for pid := range gone {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// topOf returns the process at the top of the tree of a process.
func topOf(t *process.Tree, pid abi.Pid) abi.Pid {
	for parent := t.Parent(pid); parent != 0; parent = t.Parent(pid) {
		pid = parent
	}
	return pid
}

// sumsOf folds the records of whole trees for themselves.
func (rm Remover) sumsOf(pids []abi.Pid) ([]abi.Sum, []abi.Spent, error) {
	store := rm.Kernel.cfg.Store
	m := process.NewMachine()
	m.Buried, m.Book = make(map[abi.Pid]process.Buried), process.NewBook()
	records := func(yield func(*abi.Record, error) bool) {
		for _, pid := range pids { // parents have lower pids
			for r, err := range store.Records(pid, 0) {
				if !yield(r, err) {
					return
				}
			}
		}
	}
	if err := m.ReplayAll(iter.Seq2[*abi.Record, error](records), store.Blob, everyRecord); err != nil {
		return nil, nil, err
	}
	return m.Sums(), m.Book.Lines(), nil
}
