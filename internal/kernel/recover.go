package kernel

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// recover folds the journal. A call with an intent and no end is in doubt. A
// repeatable one continues under its number, any other is answered with
// OUTCOME_UNKNOWN; both keep the reservation of the attempt in doubt. A process
// that was ending continues to its exit.
func (k *Kernel) recover() error {
	machine := k.procs.machine
	if err := k.cfg.Store.Scan(func(r *abi.Record) error {
		if r.Kind == abi.KindSpawned && k.cfg.Found != nil {
			if err := k.cfg.Found(r.Pid, r.Spawn); err != nil {
				return err
			}
		}
		return machine.Replay(r, k.cfg.Store.Blob)
	}); err != nil {
		return err
	}
	k.procs.mu.Lock() // a deadline that is over acts as soon as it is watched
	defer k.procs.mu.Unlock()
	for _, s := range machine.Sorted() {
		k.procs.add(k, s)
	}
	for _, p := range k.procs.sorted() {
		p.answerDoubt()
		p.watchWall()
		if p.state.Term {
			p.watchTerm()
		}
	}
	// Children exit before their parents, and have higher pids.
	for _, p := range slices.Backward(k.procs.sorted()) {
		// A parent that exited without its child: the child's end could not be written.
		if k.procs.isBuried(p.state.Spawn.Parent) {
			p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: "parent", Code: abi.ProcessKilled})
		}
		if p.state.Ending != nil {
			p.finishChildren()
			p.settleExit()
		}
	}
	return nil
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
		// A tool call of the model needs an answer in the memory of the process.
		if !a.Again && in.For != "" {
			a.Page = &abi.Page{Role: "tool", ID: in.For}
			b, _ := json.Marshal(a.Err)
			a.Page.Tokens = p.k.cfg.Count(b)
		}
		p.record(&abi.Record{Kind: abi.KindEnded, Call: n, Answer: a})
	}
}
