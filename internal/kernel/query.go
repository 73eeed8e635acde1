package kernel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// Processes holds the processes of a kernel and shows them. A query changes
// nothing.
type Processes struct {
	mu      sync.Mutex        // guards everything in the kernel that changes
	machine *process.Machine  // the state of all processes
	byPid   map[abi.Pid]*proc // those that are not buried
	answers answers
}

func newProcesses(from answers) *Processes {
	m := process.NewMachine()
	m.Buried, m.Book = make(map[abi.Pid]process.Buried), process.NewBook()
	return &Processes{machine: m, byPid: make(map[abi.Pid]*proc), answers: from}
}

// add makes a state a process of k. The lock is held.
func (ps *Processes) add(k *Kernel, s *process.State) *proc {
	p := &proc{state: s, k: k}
	ps.byPid[s.Pid] = p
	return p
}

// bury drops the state of an exited process. The lock is held.
func (ps *Processes) bury(p *proc) {
	ps.machine.Bury(p.state)
	delete(ps.byPid, p.state.Pid)
}

// isBuried reports whether pid exited and its state was dropped. The lock is held.
func (ps *Processes) isBuried(pid abi.Pid) bool {
	_, buried := ps.machine.Buried[pid]
	return buried
}

// sorted returns the processes that are not buried, by pid. The lock is held.
func (ps *Processes) sorted() []*proc {
	return slices.SortedFunc(maps.Values(ps.byPid), func(a, b *proc) int { return cmp.Compare(a.state.Pid, b.state.Pid) })
}

// inspect calls look with a process, under the lock. A buried process is folded
// again from its records, so look sees the same as before.
func (ps *Processes) inspect(pid abi.Pid, look func(*proc)) (err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byPid[pid]
	if p == nil {
		if !ps.isBuried(pid) {
			return process.Unknown(pid)
		}
		// Reading records takes a while, and buried processes do not change.
		ps.mu.Unlock()
		m := process.NewMachine()
		err = m.ReplayAll(ps.answers.store.Records(pid, 0), ps.answers.store.Blob, everyRecord)
		ps.mu.Lock()
		s := m.States[pid]
		if err != nil || s == nil {
			return unreadable(fmt.Errorf("the records of process %d cannot be read: %v", pid, err))
		}
		ps.machine.Restore(s)
		p = &proc{state: s}
	}
	look(p)
	return nil
}

func everyRecord(*abi.Record) bool { return true }

// View returns what a row may see of a process.
func (ps *Processes) View(pid abi.Pid) (v View, err error) {
	err = ps.inspect(pid, func(p *proc) { v = viewOf(p.state) })
	return v, err
}

func viewOf(s *process.State) View {
	v := View{Pid: s.Pid, Spawn: s.Spawn, Pages: s.Memory.Resident(), Index: s.Calls.Index, Term: s.Term, Exit: s.Exit, Chosen: s.Regs.Chosen}
	v.Context, _ = s.Account.Limits.Get(abi.Context)
	for a := s.Account; a != nil; a = a.Parent {
		if _, set := a.Limits.Get(abi.Money); set {
			v.Limited = true
		}
		_, set := a.Limits.Get(abi.OutputBytes)
		v.Bounded = v.Bounded || set
		for _, u := range []abi.Unit{abi.Tokens, abi.InputTokens, abi.OutputTokens} {
			_, set := a.Limits.Get(u)
			v.Counted = v.Counted || set
		}
	}
	return v
}

// Where is the position of a process, for a loop that begins or continues.
type Where struct {
	View       View
	Next       uint64     // the next free call number
	Unfinished []abi.Call // to be made again under their numbers, so that they do not run twice
	Stop       process.Stop
}

// Where returns the position of a process.
func (ps *Processes) Where(pid abi.Pid) (at Where, err error) {
	var args []abi.Data
	err = ps.inspect(pid, func(p *proc) { at, args = whereOf(p.state) })
	if err == nil {
		err = ps.answers.fillArgs(at.Unfinished, args)
	}
	return at, err
}

// whereOf returns the position without the arguments of unfinished calls, which
// may be blobs.
func whereOf(s *process.State) (w Where, args []abi.Data) {
	w = Where{View: viewOf(s), Next: s.Calls.Max + 1, Stop: s.Calls.Stop}
	w.Unfinished, args = s.Unfinished()
	return w, args
}

// Info is what people see of a process.
type Info struct {
	process.Summary
	Pid      abi.Pid
	Parent   abi.Pid // 0: none
	Children []abi.Pid
	State    abi.State
	Waits    []string
	Asks     []Asking
}

// Asking is a question that no person has answered.
type Asking struct {
	Call     uint64
	Question abi.Data
}

// Info describes a process. It reads nothing from the journal.
func (ps *Processes) Info(pid abi.Pid) (i Info, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if g, buried := ps.machine.Buried[pid]; buried {
		i = Info{Summary: g.Unpack(), Pid: pid, Parent: ps.machine.Tree.Parent(pid), State: abi.Exited}
	} else if p := ps.byPid[pid]; p != nil {
		i = p.info()
	} else {
		return i, process.Unknown(pid)
	}
	i.Children = slices.Clone(ps.machine.Tree.Children(pid))
	return i, nil
}

func (p *proc) info() Info {
	i := Info{Summary: p.state.Summary(), Pid: p.state.Pid, Parent: p.state.Spawn.Parent}
	i.State, i.Waits = p.phase()
	for n, q := range p.state.Calls.Pending {
		if q.Ask != nil && !q.Ask.Decided {
			i.Asks = append(i.Asks, Asking{n, q.Ask.Text})
		}
	}
	slices.SortFunc(i.Asks, func(a, b Asking) int { return cmp.Compare(a.Call, b.Call) })
	return i
}

// phase returns the recorded phase of p combined with what its open calls do:
// running if one runs, waiting if all wait, and for what.
func (p *proc) phase() (s abi.State, waits []string) {
	s = p.state.Phase
	running := 0
	for _, o := range p.ops {
		if o.waiting.on != "" {
			waits = append(waits, o.waiting.on)
		} else {
			running++
		}
	}
	switch {
	case running > 0:
		return process.NextPhase(s, process.EventRun), waits
	case len(p.ops) > 0:
		return process.NextPhase(s, process.EventWait), waits
	}
	return process.NextPhase(s, process.EventIdle), nil
}

// Recent returns, by pid, the processes that live, the n that exited last, the n
// last children of each that lives, and all ancestors of those. More is how many
// others there are.
func (ps *Processes) Recent(n int) (pids []abi.Pid, more int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var living []abi.Pid
	for pid, p := range ps.byPid {
		if p.state.Exit == nil {
			living = append(living, pid)
		}
	}
	return ps.machine.Tree.Recent(living, n)
}

// After returns up to n pids above pid, in order.
func (ps *Processes) After(pid abi.Pid, n int) []abi.Pid {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.machine.Tree.After(pid, n)
}

// descendants lists the descendants of a process, parents before children.
func (ps *Processes) descendants(pid abi.Pid) []abi.Pid {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.machine.Tree.Descendants(pid)
}

// Account describes a named account.
type Account struct {
	Name     string
	Limits   abi.Limits
	Used     abi.Usage
	Reserved abi.Usage
	Period   abi.Period // of its limits; Per is empty if they do not renew
}

// Spent returns what all calls used, by hour, model, account and name.
func (ps *Processes) Spent() []abi.Spent {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.machine.Book.Lines()
}

// Accounts describes the named accounts, by name.
func (ps *Processes) Accounts() []Account {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var all []Account
	for _, name := range slices.Sorted(maps.Keys(ps.machine.Accounts)) {
		a := ps.machine.Accounts[name]
		b := Account{name, a.Limits, a.Settled, a.Reserved, a.Period}
		b.Reserved.Add(&a.Held)
		all = append(all, b)
	}
	return all
}

// Wait waits until a process has exited and its terminal record is on disk.
func (ps *Processes) Wait(ctx context.Context, pid abi.Pid) (i Info, err error) {
	if err = ps.until(ctx, pid, func(p *proc) bool { return p.state.Exit != nil }); err == nil {
		err = ps.answers.log.Flush(ctx)
	}
	if err != nil {
		return i, err
	}
	return ps.Info(pid)
}

// Orders are the signals in force for a process, for the code that runs its program.
type Orders struct {
	Paused bool     `json:"paused,omitempty"`
	Term   bool     `json:"term,omitempty"`
	Exit   abi.Exit `json:"exit,omitempty"` // the process is ending
	Reason string   `json:"reason,omitempty"`
}

// Orders waits until the orders of a process differ from was. It does not wait
// for the disk, because a program can be ended while the disk is full.
func (ps *Processes) Orders(ctx context.Context, pid abi.Pid, was Orders) (now Orders, err error) {
	err = ps.until(ctx, pid, func(p *proc) bool {
		now = Orders{Paused: p.state.Phase == abi.Paused, Term: p.state.Term}
		if p.state.Ending != nil {
			now.Exit, now.Reason = p.state.Ending.Exit, p.state.Ending.Reason
		}
		return now != was
	})
	return now, err
}

// until waits until ready returns true of a process. News of the process makes it
// look again.
func (ps *Processes) until(ctx context.Context, pid abi.Pid, ready func(*proc) bool) error {
	for {
		var news <-chan struct{}
		err := ps.inspect(pid, func(p *proc) {
			if !ready(p) {
				news = p.news.next()
			}
		})
		if err != nil || news == nil {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stands returns what a process and its descendants used, and what settled
// amounts and amounts in doubt leave it of each unit that is limited on its path.
// Of a process that has exited only its own limits count.
func (ps *Processes) Stands(pid abi.Pid) (used abi.Usage, left abi.Limits) {
	_ = ps.inspect(pid, func(p *proc) {
		own := p.state.Account
		used = own.Settled
		for a := own; a != nil && (p.state.Exit == nil || a == own); a = a.Parent {
			for u := range abi.Units {
				n, limited := a.Unsettled(u)
				if least, ok := left.Get(u); limited && (!ok || n < least) {
					left.Set(u, max(0, n))
				}
			}
		}
	})
	return used, left
}

// Ending says why a process takes no calls any more; nil while it does.
func (ps *Processes) Ending(pid abi.Pid) *abi.Error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if g, buried := ps.machine.Buried[pid]; buried {
		return g.Exit().Leaving(pid)
	}
	switch p := ps.byPid[pid]; {
	case p == nil:
		return process.Unknown(pid)
	case p.state.Ending != nil:
		return process.ExitOf(p.state.Ending).Leaving(pid)
	}
	return nil
}

// Registers returns R0 to R7 of a process.
func (ps *Processes) Registers(pid abi.Pid) (regs abi.Registers, err error) {
	err = ps.inspect(pid, func(p *proc) { regs = p.state.Registers() })
	return regs, err
}

// Dump writes the state of a process and the sums of its account. The same
// records give the same bytes.
func (ps *Processes) Dump(pid abi.Pid) (b []byte, err error) {
	var bad error
	if err = ps.inspect(pid, func(p *proc) { b, bad = p.state.Dump() }); err == nil {
		err = bad
	}
	return b, err
}
