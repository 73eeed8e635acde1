package kernel

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

// window is what can be seen of a kernel from outside. Looking changes nothing.
type window struct{ k *Kernel }

// view is what a row may see of p. k.mu is held.
func (p *fold) view() View {
	v := View{Pid: p.Pid, Spawn: p.Spawn, Pages: p.Memory.Resident(), Index: p.Calls.Index, Term: p.Term, Exit: p.Exit}
	for a := p.acct; a != nil; a = a.Parent {
		if _, set := a.Limits.Get(abi.Money); set {
			v.Limited = true
		}
		for _, u := range []abi.Unit{abi.Tokens, abi.InputTokens, abi.OutputTokens} {
			_, set := a.Limits.Get(u)
			v.Counted = v.Counted || set
		}
	}
	return v
}

// at looks at a process. Of one that was let go the records are folded again,
// apart from what lives, and what looks sees the same.
func (w window) at(pid abi.Pid, look func(*proc)) (err error) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[pid]
	if p == nil {
		if _, gone := k.gone[pid]; !gone {
			return unknown(pid)
		}
		k.mu.Unlock()
		m := newMachine()
		err = m.read(k.cfg.Store, pid, func(*abi.Record) bool { return true })
		k.mu.Lock()
		if p = m.procs[pid]; err != nil || p == nil {
			return unread(fmt.Errorf("the records of process %d cannot be read: %v", pid, err)).Err
		}
		g, b := k.gone[pid], k.gone[pid].Unpack() // the sums of all below it are in the records of those
		p.acct.Parent, p.acct.Settled, p.acct.Reserved, p.acct.Doubt = g.above, b.Used, b.Reserved, b.Doubt
	}
	look(p)
	return nil
}

// View returns what a row may see of a process.
func (w window) View(pid abi.Pid) (v View, err error) {
	err = w.at(pid, func(p *proc) { v = p.view() })
	return v, err
}

func unknown(pid abi.Pid) *abi.Error {
	return &abi.Error{Code: abi.UnknownProcess, Message: fmt.Sprintf("there is no process %d", pid), Hint: "list them with: kern ps"}
}

// Where is where a process stands, for a loop that begins or goes on.
type Where struct {
	View       View
	Next       uint64     // the next free call number
	Unfinished []abi.Call // to be gone on with under their numbers, so that they are not done twice
	Last       *abi.Error // register R4
}

// Where says where a process stands.
func (w window) Where(pid abi.Pid) (at Where, err error) {
	var args []abi.Data
	err = w.at(pid, func(p *proc) { at, args = p.where() })
	for i := range at.Unfinished {
		if at.Unfinished[i].Args, err = w.k.Bytes(args[i]); err != nil {
			return at, err
		}
	}
	return at, err
}

// where is Where without the arguments of what is unfinished, which may be
// blobs.
func (p *fold) where() (w Where, args []abi.Data) {
	w = Where{View: p.view(), Next: p.Calls.Max + 1, Last: p.Regs.Err}
	for n, q := range p.Calls.Pending {
		if n >= NestedFrom {
			continue // whatever made it is gone
		}
		w.Unfinished = append(w.Unfinished, abi.Call{Pid: p.Pid, N: n, Row: q.Intent.Row, Within: q.Intent.Within, For: q.Intent.For})
	}
	slices.SortFunc(w.Unfinished, func(a, b abi.Call) int { return int(a.N) - int(b.N) })
	for _, c := range w.Unfinished {
		args = append(args, p.Calls.Pending[c.N].Intent.Args)
	}
	return w, args
}

// Info is what people see of a process.
type Info struct {
	process.Summary
	Pid    abi.Pid
	Parent abi.Pid // 0: none
	Kids   []abi.Pid
	State  abi.State
	Waits  []string
	Asks   []Asking
}

// state is what people see of p: its journalled state, overlaid with what its
// open calls are doing, and what they wait for.
func (p *proc) state() (s abi.State, waits []string) {
	s = p.Phase
	running := 0
	for _, o := range p.ops {
		if o.waits != "" {
			waits = append(waits, o.waits)
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

// Asking is a question that a person has not answered.
type Asking struct {
	Call     uint64
	Question abi.Data
}

// Info describes a process. Nothing is read from the journal.
func (w window) Info(pid abi.Pid) (i Info, err error) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if g, gone := k.gone[pid]; gone {
		i = Info{Summary: g.Unpack(), Pid: pid, Parent: k.tree.Parent(pid), State: abi.Exited}
	} else if p := k.procs[pid]; p != nil {
		i = p.info()
	} else {
		return i, unknown(pid)
	}
	i.Kids = slices.Clone(k.tree.Children(pid))
	return i, nil
}

// brief is what is kept of p when it has ended.
func (p *fold) summary() process.Summary {
	a := p.acct
	b := process.Summary{Name: p.Spawn.Name, Account: p.Spawn.Account, Depth: p.Spawn.Depth, Priority: p.Priority, Born: p.Born, Last: p.Last, Records: p.N,
		Steps: p.Calls.Steps, Drift: p.Calls.Drift, Used: a.Settled, Reserved: a.Reserved, Doubt: a.Doubt, Limits: a.Limits, Exit: process.ExitOf(p.Exit)}
	b.Reserved.Add(&a.Held)
	return b
}

func (p *proc) info() Info {
	i := Info{Summary: p.summary(), Pid: p.Pid, Parent: p.Spawn.Parent}
	i.State, i.Waits = p.state()
	for n, q := range p.Calls.Pending {
		if q.Ask != nil && !q.Ask.Decided {
			i.Asks = append(i.Asks, Asking{n, q.Ask.Question})
		}
	}
	slices.SortFunc(i.Asks, func(a, b Asking) int { return int(a.Call) - int(b.Call) })
	return i
}

// Account describes a named account.
type Account struct {
	Name     string
	Limits   abi.Limits
	Used     abi.Usage
	Reserved abi.Usage
}

// Accounts describes the named accounts, by name.
func (w window) Accounts() []Account {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []Account
	for _, name := range slices.Sorted(maps.Keys(k.accounts)) {
		a := k.accounts[name]
		b := Account{name, a.Limits, a.Settled, a.Reserved}
		b.Reserved.Add(&a.Held)
		all = append(all, b)
	}
	return all
}

// Wait waits until a process has exited and that is on disk.
func (k *Kernel) Wait(ctx context.Context, pid abi.Pid) (i Info, err error) {
	if err = k.until(ctx, pid, func(p *proc) bool { return p.Exit != nil }); err == nil {
		err = k.cfg.Log.Flush(ctx)
	}
	if err != nil {
		return i, err
	}
	return k.Info(pid)
}

// Orders is what a process is told from outside, for who runs its program.
type Orders struct {
	Paused bool     `json:"paused,omitempty"`
	Term   bool     `json:"term,omitempty"`
	Exit   abi.Exit `json:"exit,omitempty"` // it is ending
	Reason string   `json:"reason,omitempty"`
}

// Orders waits until the orders of a process are not as they were. It does not
// wait for the disk, which may be full: what was begun can be ended all the same.
func (k *Kernel) Orders(ctx context.Context, pid abi.Pid, was Orders) (now Orders, err error) {
	err = k.until(ctx, pid, func(p *proc) bool {
		now = Orders{Paused: p.Phase == abi.Paused, Term: p.Term}
		if p.Ending != nil {
			now.Exit, now.Reason = p.Ending.Exit, p.Ending.Reason
		}
		return now != was
	})
	return now, err
}

// until waits for what a signal, mail or an end may bring about.
func (w window) until(ctx context.Context, pid abi.Pid, cond func(*proc) bool) error {
	for {
		var tell chan struct{}
		err := w.at(pid, func(p *proc) {
			if !cond(p) {
				tell = told(p)
			}
		})
		if err != nil || tell == nil {
			return err
		}
		select {
		case <-tell:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stands says what a process and all below it took, and what is left to it of
// each unit that is limited on its path: what is not settled, and is not
// reserved for ever. When it has exited, only its own limits count.
func (w window) Stands(pid abi.Pid) (used abi.Usage, left abi.Limits) {
	_ = w.at(pid, func(p *proc) {
		used = p.acct.Settled
		for a := p.acct; a != nil && (p.Exit == nil || a == p.acct); a = a.Parent {
			for u := range abi.Units {
				limit, set := a.Limits.Get(u)
				if was, ok := left.Get(u); set && (!ok || limit-a.Settled[u]-a.Doubt[u] < was) {
					left.Set(u, max(0, limit-a.Settled[u]-a.Doubt[u]))
				}
			}
		}
	})
	return used, left
}

// Ending says why a process takes no calls any more; nil while it does.
func (w window) Ending(pid abi.Pid) *abi.Error {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if g, gone := k.gone[pid]; gone {
		return g.Exit().Leaving(pid)
	}
	switch p := k.procs[pid]; {
	case p == nil:
		return unknown(pid)
	case p.Ending != nil:
		return process.ExitOf(p.Ending).Leaving(pid)
	}
	return nil
}

// Registers are R0..R7 of a process: a view of its state.
func (w window) Registers(pid abi.Pid) (all map[string]any, err error) {
	err = w.at(pid, func(p *proc) { all = p.registers() })
	return all, err
}

func (p *fold) registers() map[string]any {
	r := &p.Regs
	ctx := map[string]any{"tokens": p.Memory.Tokens()}
	if n, set := p.acct.Limits.Get(abi.Context); set {
		ctx["remaining"] = max(0, n-p.Memory.Tokens())
	}
	dog := map[string]any{"repeats": 0}
	if n := len(p.Watch.Ring); n > 0 {
		dog["repeats"] = p.Watch.Ring[n-1].Run
		hashes := make([]string, n)
		for i, s := range p.Watch.Ring {
			hashes[i] = fmt.Sprintf("%x", s.Key[:4]) + "-" + fmt.Sprintf("%x", s.Result[:4])
		}
		dog["window"] = hashes
	}
	if n, set := p.acct.Limits.Get(abi.Wall); set {
		dog["deadline"] = p.Born + n
	}
	if p.Watch.Warned {
		dog["warned"] = true
	}
	return map[string]any{
		"R0": map[string]any{"call": r.Call, "row": r.Row, "step": p.Calls.Steps},
		"R1": dog,
		"R2": ctx,
		"R3": fmt.Sprintf("%x", r.Digest[:]),
		"R4": r.Err,
		"R5": map[string]any{"tool": r.Tool, "args": r.Args},
		"R6": map[string]any{"open": p.Calls.positions(), "record": p.N, "commit": r.Commit},
		"R7": map[string]any{"task": p.Spawn.Task, "depth": p.Spawn.Depth, "usage": p.acct.Settled},
	}
}

// positions are the records of the calls that are open.
func (c *calls) positions() []uint64 {
	at := make([]uint64, 0, len(c.Open))
	for _, o := range c.Open {
		at = append(at, o.N)
	}
	slices.Sort(at)
	return at
}

// Dump writes the fold of a process, and the sums of its account, in a form
// that is the same to the byte for the same records.
func (w window) Dump(pid abi.Pid) (b []byte, err error) {
	var bad error
	if err = w.at(pid, func(p *proc) { b, bad = p.dump() }); err == nil {
		err = bad
	}
	return b, err
}
