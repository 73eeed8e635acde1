package kernel

import (
	"context"
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
)

// window is what can be seen of a kernel from outside. Looking changes nothing.
type window struct{ k *Kernel }

// view is what a row may see of p. k.mu is held.
func (p *fold) view() View {
	v := View{Pid: p.Pid, Spawn: p.Spawn, Pages: p.Memory.Resident(), Index: p.Calls.Index, Term: p.Term}
	for a := p.acct; a != nil; a = a.parent {
		if _, set := a.limits.Get(abi.Money); set {
			v.Limited = true
		}
		for _, u := range []abi.Unit{abi.Tokens, abi.InputTokens, abi.OutputTokens} {
			_, set := a.limits.Get(u)
			v.Counted = v.Counted || set
		}
	}
	return v
}

// View returns what a row may see of a process.
func (w window) View(pid abi.Pid) (View, error) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[pid]
	if p == nil {
		return View{}, unknown(pid)
	}
	return p.view(), nil
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
	k := w.k
	k.mu.Lock()
	p := k.procs[pid]
	if p == nil {
		k.mu.Unlock()
		return at, unknown(pid)
	}
	at, args := p.where()
	k.mu.Unlock()
	for i := range at.Unfinished {
		if at.Unfinished[i].Args, err = k.Bytes(args[i]); err != nil {
			return at, err
		}
	}
	return at, nil
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
	Pid      abi.Pid
	Spawn    *abi.Spawn
	State    abi.State
	Waits    []string
	Priority int
	Born     int64
	Last     int64
	Steps    int64
	Used     abi.Usage // settled
	Reserved abi.Usage // may still be used; Doubt is a part of it
	Doubt    abi.Usage
	Limits   abi.Limits
	Drift    int64
	Exit     *abi.ExitInfo
	Asks     []Asking
	Kids     []abi.Pid
	Records  uint64
}

// Asking is a question that a person has not answered.
type Asking struct {
	Call     uint64
	Question abi.Data
}

// Info describes a process.
func (w window) Info(pid abi.Pid) (Info, error) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[pid]
	if p == nil {
		return Info{}, unknown(pid)
	}
	return p.info(), nil
}

func (p *proc) info() Info {
	a := p.acct
	i := Info{Pid: p.Pid, Spawn: p.Spawn, Priority: p.Priority, Born: p.Born, Last: p.Last, Steps: p.Calls.Steps,
		Used: a.settled, Reserved: a.reserved, Doubt: a.stuck, Limits: a.limits, Drift: p.Calls.Drift, Exit: p.Exit,
		Kids: slices.Clone(p.kids), Records: p.N}
	i.Reserved.Add(&a.held)
	i.State, i.Waits = p.state()
	for n, q := range p.Calls.Pending {
		if q.Ask != nil && !q.Ask.Decided {
			i.Asks = append(i.Asks, Asking{n, q.Ask.Question})
		}
	}
	slices.SortFunc(i.Asks, func(a, b Asking) int { return int(a.Call) - int(b.Call) })
	return i
}

// List describes every process, by pid.
func (w window) List() []Info {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Info, 0, len(k.procs))
	for _, p := range k.procs {
		all = append(all, p.info())
	}
	slices.SortFunc(all, func(a, b Info) int { return int(a.Pid) - int(b.Pid) })
	return all
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
	for name, a := range k.accounts {
		b := Account{name, a.limits, a.settled, a.reserved}
		b.Reserved.Add(&a.held)
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Account) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// Wait waits until a process has exited and that is on disk.
func (k *Kernel) Wait(ctx context.Context, pid abi.Pid) (Info, error) {
	for {
		k.mu.Lock()
		p := k.procs[pid]
		if p == nil {
			k.mu.Unlock()
			return Info{}, unknown(pid)
		}
		if p.Exit != nil {
			i := p.info()
			k.mu.Unlock()
			return i, k.cfg.Log.Flush(ctx)
		}
		if p.tell == nil {
			p.tell = make(chan struct{})
		}
		tell := p.tell
		k.mu.Unlock()
		select {
		case <-tell:
		case <-ctx.Done():
			return Info{}, ctx.Err()
		}
	}
}

// Stands says what a process and all below it took, and what is left to it of
// each unit that is limited on its path: what is not settled, and is not
// reserved for ever.
func (w window) Stands(pid abi.Pid) (used abi.Usage, left abi.Limits) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[pid]
	if p == nil {
		return used, left
	}
	for a := p.acct; a != nil; a = a.parent {
		for u := range abi.Units {
			limit, set := a.limits.Get(u)
			if was, ok := left.Get(u); set && (!ok || limit-a.settled[u]-a.stuck[u] < was) {
				left.Set(u, max(0, limit-a.settled[u]-a.stuck[u]))
			}
		}
	}
	return p.acct.settled, left
}

// Ending says why a process takes no calls any more; nil while it does.
func (w window) Ending(pid abi.Pid) *abi.Error {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[pid]
	if p == nil {
		return unknown(pid)
	}
	if p.Ending == nil {
		return nil
	}
	q := p.fold
	q.Exit = nil // it says less than the end
	return ended(&q)
}

// Registers are R0..R7 of a process: a view of its state.
func (w window) Registers(pid abi.Pid) (map[string]any, error) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[pid]
	if p == nil {
		return nil, unknown(pid)
	}
	r := &p.Regs
	ctx := map[string]any{"tokens": p.Memory.Tokens()}
	if n, set := p.acct.limits.Get(abi.Context); set {
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
	if n, set := p.acct.limits.Get(abi.Wall); set {
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
		"R7": map[string]any{"task": p.Spawn.Task, "depth": p.Spawn.Depth, "usage": p.acct.settled},
	}, nil
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
func (w window) Dump(pid abi.Pid) ([]byte, error) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[pid]
	if p == nil {
		return nil, unknown(pid)
	}
	return p.dump()
}
