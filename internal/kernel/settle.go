package kernel

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// Settle replaces what a call in doubt has reserved by what a person found that it used.
// The process may have exited.
func (k *Kernel) Settle(ctx context.Context, pid abi.Pid, s abi.Settlement) error {
	var t journal.Pending
	var bad *abi.Error
	if err := k.procs.inspect(pid, func(p *proc) { t, bad = p.settleDoubt(k, &s) }); err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	return t.Wait(ctx)
}

// settleDoubt records a settlement. p is a copy if its process is buried. The lock is
// held.
func (p *proc) settleDoubt(k *Kernel, s *abi.Settlement) (t journal.Pending, bad *abi.Error) {
	state := p.state
	d, doubt := state.Calls.Doubt[s.Call]
	if !doubt {
		e := &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("call %d of process %d is not in doubt", s.Call, state.Pid), Hint: "no call of it is in doubt"}
		if calls := slices.Sorted(maps.Keys(state.Calls.Doubt)); len(calls) > 0 {
			e.Hint = fmt.Sprintf("in doubt are the calls %v", calls)
		}
		return t, e
	}
	spent, bad := s.Of(d.Reserved)
	if bad != nil {
		return t, bad
	}
	if bad = k.cfg.Log.Err(); bad != nil {
		return t, bad
	}
	r := &abi.Record{Kind: abi.KindSettled, Call: s.Call, Settle: &abi.Settled{Released: d.Reserved, Spent: spent, Model: d.Model, By: s.By}}
	above := state.Account
	if p.k != nil {
		t = p.record(r)
	} else {
		g, buried := k.procs.machine.Buried[state.Pid]
		if sum := g.Unpack(); !buried || sum.Records != state.N {
			return t, &abi.Error{Code: abi.Interrupted, Message: "the process got another record meanwhile", Hint: "ask again"}
		}
		above = g.Above
		r.Pid, r.N, r.Time = state.Pid, state.N+1, k.cfg.Now().UnixNano()
		k.procs.machine.SettleBuried(r)
		t = k.cfg.Log.Put(r)
	}
	above.WakeWaiters() // other calls may fit now
	return t, nil
}
