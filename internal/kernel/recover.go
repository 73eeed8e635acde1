package kernel

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// recover folds the journal and takes up the processes that live.
func (k *Kernel) recover() error {
	var trees []abi.Pid
	if k.cfg.Trees != nil {
		trees = append([]abi.Pid{0}, k.cfg.Trees...) // tree 0 has the limits of named accounts
	}
	if err := k.cfg.Store.Scan(k.cfg.replayInto(k.procs.machine), trees...); err != nil {
		return err
	}
	k.procs.mu.Lock() // a deadline that is over acts as soon as it is watched
	defer k.procs.mu.Unlock()
	k.procs.takeUp(k, k.procs.machine.Sorted())
	return nil
}

// replayInto folds records of processes that this run did not make.
func (c *Config) replayInto(m *process.Machine) func(r *abi.Record) error {
	return func(r *abi.Record) error {
		if r.Kind == abi.KindSpawned && c.Found != nil {
			if err := c.Found(r.Pid, r.Spawn); err != nil {
				return err
			}
		}
		return m.Replay(r, c.Store.Blob)
	}
}

// Adopt takes trees over from their holder, which must be dead or must have given
// them up: it claims their leases, folds their records and starts their processes.
// Appends of the old holder are refused from then on.
func (k *Kernel) Adopt(trees ...abi.Pid) error {
	if err := k.cfg.Log.Claim(trees...); err != nil {
		return err
	}
	// The records are read without the lock, because that takes a while.
	var records []*abi.Record
	if err := k.cfg.Store.Scan(func(r *abi.Record) error { records = append(records, r); return nil }, trees...); err != nil {
		return err
	}
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	var adopted []*process.State
	replay := k.cfg.replayInto(k.procs.machine)
	for _, r := range records {
		if err := replay(r); err != nil {
			return err
		}
		if s := k.procs.machine.States[r.Pid]; s != nil && r.Kind == abi.KindSpawned {
			adopted = append(adopted, s)
		}
	}
	adopted = slices.DeleteFunc(adopted, func(s *process.State) bool { return k.procs.isBuried(s.Pid) })
	for _, p := range k.procs.takeUp(k, adopted) {
		if p.state.Ending == nil {
			p.start()
		}
	}
	return nil
}

// takeUp continues processes that were folded. A call with an intent and no end is
// in doubt. A repeatable one continues under its number, any other is answered with
// OUTCOME_UNKNOWN; both keep the reservation of the attempt in doubt. A process
// that was ending continues to its exit. The lock is held.
func (ps *Processes) takeUp(k *Kernel, states []*process.State) []*proc {
	procs := make([]*proc, len(states))
	for i, s := range states {
		procs[i] = ps.add(k, s)
	}
	for _, p := range procs {
		p.answerDoubt()
		p.watchWall()
		if p.state.Term {
			p.watchTerm()
		}
	}
	// Children exit before their parents, and have higher pids.
	for _, p := range slices.Backward(procs) {
		// A parent that exited without its child: the child's end could not be written.
		if ps.isBuried(p.state.Spawn.Parent) {
			p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: "parent", Code: abi.ProcessKilled})
		}
		if p.state.Ending != nil {
			p.finishChildren()
			p.settleExit()
		}
	}
	return procs
}

// answerDoubt ends the attempts of p that are in doubt.
func (p *proc) answerDoubt() {
	for _, n := range slices.Sorted(maps.Keys(p.state.Calls.Open)) {
		in := p.state.Calls.Open[n].Intent
		a := &abi.Answer{Outcome: abi.Unknown, Attempt: in.Attempt, Again: in.Effect.Repeatable(), Err: &abi.Error{
			Code:    abi.OutcomeUnknown,
			Message: fmt.Sprintf("%s began, and the machine stopped before its end was seen", process.NameOf(in)),
			Hint:    "it was not tried again; look whether it took effect before you repeat it",
		}}
		if a.Again {
			a.Err.Hint = ""
		}
		// A tool call of the model needs an answer in the memory of the process.
		if !a.Again && in.For != "" {
			a.Page = &abi.Page{Role: "tool", ID: in.For}
			b, _ := json.Marshal(a.Err)
			a.Page.Tokens = p.k.cfg.Count(b)
		}
		p.record(&abi.Record{Kind: abi.KindEnded, Call: n, Answer: a})
	}
}
