package kernel

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// ask puts the question of a call before a person, once. The lock is held.
func (o *op) ask(j *Job) {
	if q := o.p.state.Calls.Pending[o.call.N]; q != nil && q.Ask != nil {
		return
	}
	r := &abi.Record{Kind: abi.KindAsked, Call: o.call.N, Note: &abi.Note{}}
	r.Note.Body = payload(r, []byte(j.Plan.Ask))
	r.Intent = o.draft.intentFor(r, j, o.held)
	o.p.record(r)
}

// Decide answers the question of a call with yes or no and a reason. Call 0 is
// the only open question of the process.
func (k *Kernel) Decide(ctx context.Context, pid abi.Pid, call uint64, yes bool, by, why string) error {
	k.procs.mu.Lock()
	p, err := k.writable(pid)
	if err != nil {
		k.procs.mu.Unlock()
		return err
	}
	var open []uint64
	for _, q := range p.info().Asks {
		open = append(open, q.Call)
	}
	if call == 0 && len(open) == 1 {
		call = open[0]
	}
	if !slices.Contains(open, call) {
		k.procs.mu.Unlock()
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no such open question; open are calls %v", pid, open)}
	}
	r := &abi.Record{Kind: abi.KindDecided, Call: call, Note: &abi.Note{Yes: yes, From: by}}
	r.Note.Body = abi.Data{Bytes: []byte(why), Size: int64(len(why))}
	t := p.record(r)
	if o := p.ops[call]; o != nil {
		o.waiting.poke()
	}
	p.start()
	k.procs.mu.Unlock()
	return t.Wait(ctx)
}

// Change edits the limits or the priority of a process.
func (k *Kernel) Change(ctx context.Context, pid abi.Pid, e abi.Edit) error {
	k.procs.mu.Lock()
	p, err := k.writable(pid)
	var t journal.Pending
	if err == nil {
		t, err = p.change(0, &e)
	}
	k.procs.mu.Unlock()
	if err != nil {
		return err
	}
	return t.Wait(ctx)
}

// Raise sets the limits that l names for the process of j, after policy or a
// person allowed it. The accounts above it bind as before.
func (j *Job) Raise(l abi.Limits) (now abi.Limits) {
	p := j.op.p
	p.k.procs.mu.Lock()
	defer p.k.procs.mu.Unlock()
	if p.state.Exit == nil { // a process that has exited gets no record
		_, _ = p.change(j.Call.N, &abi.Edit{Limits: l, By: "yield"}) // only a narrow edit can fail
	}
	return p.state.Account.Limits
}

// change makes an edit; call is 0 for an edit from outside. The lock is held.
func (p *proc) change(call uint64, e *abi.Edit) (t journal.Pending, err error) {
	c := abi.Change{Priority: e.Priority, By: e.By}
	if e.ChangesLimits() {
		now, wider := e.Apply(p.state.Account.Limits)
		if wider != nil {
			return t, wider
		}
		c.Limits = &now
	}
	t = p.record(&abi.Record{Kind: abi.KindChanged, Call: call, Change: &c})
	if c.Priority != nil {
		p.reorder()
	}
	p.watchWall()
	p.state.Account.WakeWaiters()
	return t, nil
}

// reorder moves the waiting calls of p to the places of its new priority.
func (p *proc) reorder() {
	p.priority.Store(int32(p.state.Priority))
	for _, o := range p.ops {
		if o.waiting.room != nil {
			o.waiting.room.Reorder(p.state.Priority)
		}
	}
	if p.k.cfg.Rank != nil {
		p.k.cfg.Rank(p.state.Pid, p.state.Priority)
	}
}

// SetAccount edits the limits of a named account, and makes the account if there
// is none.
func (k *Kernel) SetAccount(ctx context.Context, name string, e abi.Edit) error {
	k.procs.mu.Lock()
	t, bad := k.accounts.edit(name, &e)
	k.procs.mu.Unlock()
	if bad != nil {
		return bad
	}
	return t.Wait(ctx)
}

// settings changes the named accounts, which are the records of tree 0. The kernel's
// lock is held.
type settings struct {
	machine *process.Machine
	cfg     *Config
}

func (s settings) edit(name string, e *abi.Edit) (t journal.Pending, bad *abi.Error) {
	var odd []string
	e.Limits.Each(func(u abi.Unit, _ int64) {
		if u >= abi.Units {
			odd = append(odd, u.String())
		}
	})
	if name == "" || odd != nil {
		return t, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("account %q: an account adds up usage, so it cannot limit %v", name, odd),
			Hint: "name the account, and set these limits for each process"}
	}
	if bad = s.cfg.Log.Err(); bad != nil {
		return t, bad
	}
	machine := s.machine
	var l abi.Limits
	if a := machine.Accounts[name]; a != nil {
		l = a.Limits
	}
	if l, bad = e.Apply(l); bad != nil {
		return t, bad
	}
	c := &abi.Change{Account: name, Limits: &l, By: e.By}
	if c.Period, bad = periodFor(machine.Accounts[name], e.Per, s.cfg.Now()); bad != nil {
		return t, bad
	}
	return s.put(c), nil
}

// put records a change of a named account. The lock is held.
func (s settings) put(c *abi.Change) journal.Pending {
	r := &abi.Record{N: s.machine.SetAccount(c), Time: s.cfg.Now().UnixNano(), Kind: abi.KindAccount, Change: c}
	s.machine.Accounts[c.Account].WakeWaiters()
	return s.cfg.Log.Put(r)
}

// NeverRenews is the length of a period that has no end.
const NeverRenews = "never"

// periodFor returns the period that an edit begins; nil if it changes none. Earlier
// use does not count in the first period.
func periodFor(a *ledger.Account, per string, now time.Time) (*abi.Period, *abi.Error) {
	if per == NeverRenews {
		return new(abi.Period), nil
	}
	if per == "" || a != nil && a.Period.Per == per {
		return nil, nil
	}
	p, err := abi.NewPeriod(per, now)
	if err != nil {
		return nil, &abi.Error{Code: abi.InvalidArguments, Where: "/per", Message: err.Error(), Hint: "never ends the renewal"}
	}
	if a != nil {
		p.Base = a.Settled
	}
	return &p, nil
}

// renew begins the next period of each account on the path of a whose period is over.
// The record has what was settled before, so a replay does not depend on the order
// of the records of different trees. The lock is held.
func (s settings) renew(a *ledger.Account) {
	now := s.cfg.Now()
	for _, over := range a.Over(now.UnixNano()) {
		next, err := abi.NewPeriod(over.Period.Per, now)
		if err != nil || s.cfg.Log.Err() != nil {
			return // the limits stay as they are
		}
		next.Base = over.Settled
		limits := over.Limits
		s.put(&abi.Change{Account: over.Name, Limits: &limits, Period: &next, By: "kern"})
	}
}
