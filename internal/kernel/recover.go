package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// recover folds the journal. What was begun and has no end is in doubt: a call
// that may be repeated goes on under its number, any other is answered with
// OUTCOME_UNKNOWN; the reservation of the doubtful attempt is kept in both
// cases. A process that was ending goes on to its end.
func (k *Kernel) recover() error {
	if err := k.cfg.Store.Scan(func(r *abi.Record) error {
		if r.Kind == abi.KindSpawned && k.cfg.Found != nil {
			if err := k.cfg.Found(r.Pid, r.Spawn); err != nil {
				return err
			}
		}
		return k.replay(k.cfg.Store, r)
	}); err != nil {
		return err
	}
	k.mu.Lock() // a deadline that is over acts as soon as it is watched
	defer k.mu.Unlock()
	for _, p := range k.sorted() {
		p.k = k
		p.doubt()
		p.watchWall()
		if p.Term {
			p.watchTerm()
		}
	}
	for _, p := range slices.Backward(k.sorted()) { // children end before their parents
		if _, orphan := k.gone[p.Spawn.Parent]; orphan { // its own end could not be written
			p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: "parent", Code: abi.ProcessKilled})
		}
		if p.Ending != nil {
			p.finishKids()
			p.settleExit()
		}
	}
	return nil
}

// doubt answers what was begun and has no end.
func (p *proc) doubt() {
	for _, n := range slices.Sorted(maps.Keys(p.Calls.Open)) {
		in := p.Calls.Open[n].Intent
		a := &abi.Answer{Outcome: abi.Unknown, Attempt: in.Attempt, Again: in.Effect.Repeatable(), Err: &abi.Error{
			Code:    abi.OutcomeUnknown,
			Message: fmt.Sprintf("%s began, and the machine stopped before its end was seen", nameOf(in)),
			Hint:    "it was not tried again; look whether it took effect before you repeat it",
		}}
		if !a.Again && in.For != "" {
			a.Page = &abi.Page{Role: "tool", ID: in.For}
			b, _ := json.Marshal(a.Err)
			a.Page.Tokens = p.k.cfg.Count(b)
		}
		p.record(&abi.Record{Kind: abi.KindEnded, Call: n, Answer: a})
	}
}

func nameOf(in *abi.Intent) string {
	if in.Tool != "" {
		return in.Tool
	}
	return in.Row
}

// Resume tells Start of every process that can run.
func (k *Kernel) Resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.sorted() {
		if p.Ending == nil {
			p.start()
		}
	}
}

// Launch tells Start of a process that was spawned.
func (k *Kernel) Launch(pid abi.Pid) {
	_ = k.at(pid, (*proc).start)
}

// legacy is what a fork takes over from the process it continues.
type legacy struct {
	Memory json.RawMessage      `json:"memory"`
	Watch  process.Watchdog     `json:"watch"`
	Rests  process.ToolFailures `json:"rests,omitempty"`
	Index  int                  `json:"index"`
	Digest abi.Key              `json:"digest,omitzero"`
}

// Fork makes a process that continues from the state pid had after its record
// at, with the limits that were left then. at 0 is its last record.
func (k *Kernel) Fork(ctx context.Context, pid abi.Pid, at uint64) (abi.Pid, error) {
	return k.ForkAs(ctx, pid, at, nil)
}

// ForkAs is Fork under another definition; nil is that of pid.
func (k *Kernel) ForkAs(ctx context.Context, pid abi.Pid, at uint64, program []byte) (abi.Pid, error) {
	if err := k.cfg.Log.Flush(ctx); err != nil {
		return 0, k.broken()
	}
	old, err := k.past(pid, at)
	if err != nil {
		return 0, err
	}
	mem, err := json.Marshal(old.Memory)
	if err != nil {
		return 0, err
	}
	state, err := json.Marshal(legacy{mem, old.Watch, old.Rests, old.Calls.Index, old.Regs.Digest})
	if err != nil {
		return 0, err
	}
	if program == nil {
		if program, err = k.Bytes(old.Spawn.Program); err != nil {
			return 0, err
		}
	}
	s := Spawning{Spawn: *old.Spawn, Program: program}
	s.Spawn.Parent, s.Spawn.ParentCall, s.Spawn.Depth, s.Spawn.Task, s.Spawn.TaskTokens = 0, 0, 0, abi.Data{}, 0
	s.Spawn.Priority = old.Priority
	s.Limits = abi.Limits{}
	old.acct.Limits.Each(func(u abi.Unit, n int64) {
		switch {
		case u < abi.Units:
			n = max(0, n-old.acct.Settled[u]-old.acct.Doubt[u])
		case u == abi.Wall:
			n = max(0, n-(old.Last-old.Born))
		}
		s.Limits.Set(u, n)
	})
	s.Spawn.Fork = &abi.Fork{Pid: pid, At: old.N, State: abi.Data{Bytes: state, Size: int64(len(state))}}
	return k.Spawn(ctx, s)
}

// past folds the records of one process up to at, and of those below it up to
// the same moment, apart from the live state.
func (w window) past(pid abi.Pid, at uint64) (*proc, error) {
	k := w.k
	m := newMachine()
	if err := m.read(k.cfg.Store, pid, func(r *abi.Record) bool { return at == 0 || r.N <= at }); err != nil {
		return nil, err
	}
	p := m.procs[pid]
	if p == nil {
		return nil, unknown(pid)
	}
	if p.N < at {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has %d records, and %d was asked for", pid, p.N, at)}
	}
	then := p.Last
	if p.Exit != nil {
		then = math.MaxInt64 // all below it had ended, whatever the clock said
	}
	for _, kid := range k.below(pid) {
		if err := m.read(k.cfg.Store, kid, func(r *abi.Record) bool { return r.Time <= then }); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// below lists the descendants of a process, parents before children.
func (w window) below(pid abi.Pid) []abi.Pid {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	return w.k.tree.Descendants(pid)
}
