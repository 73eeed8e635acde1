package kernel

import (
	"context"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// A process that has ended does nothing any more, and there is no end to those
// that have. So the kernel lets go of them: it keeps their places in the tree and
// what [Info] says of them. All else is in the journal, and who asks for it gets
// their records folded anew: see [window.at].

// gone is what is kept of one that was let go.
type gone struct {
	above *ledger.Account // it was booked on
	process.PackedSummary
}

// lingering is how many of those that ended last are kept whole: a parent that
// waited asks for more than the end, and so does whoever ran it.
const lingering = 32

// An end is the terminal record of a process on its way to the disk.
type end struct {
	p *proc
	t journal.Ticket
}

// letGo lets go of those that ended longest ago, once that is on disk. k.mu is
// held.
func (k *Kernel) letGo() {
	for len(k.lately) > k.linger && k.lately[0].t.Ended() {
		e := k.lately[0]
		k.lately = slices.Delete(k.lately, 0, 1)
		if e.t.Wait(context.Background()) == nil { // else there is nothing to read it from
			k.bury(e.p)
		}
	}
}

// bury lets go of a process whose records can be read. At recovery those above it
// were read, and let go, before it: what it took is added to what is kept of them.
func (m *machine) bury(p *proc) {
	b := p.summary()
	m.gone[p.Pid] = gone{p.acct.Parent, b.Pack()}
	delete(m.procs, p.Pid)
	for pid := m.tree.Parent(p.Pid); ; pid = m.tree.Parent(pid) {
		g, ok := m.gone[pid]
		if !ok {
			return
		}
		g.PackedSummary = g.AddChild(&b)
		m.gone[pid] = g
	}
}

// absent says why there is nobody to act on under a pid.
func (m *machine) absent(pid abi.Pid) *abi.Error {
	if g, ok := m.gone[pid]; ok {
		return g.Exit().Exited(pid)
	}
	return unknown(pid)
}

// exited reports whether a process that was there does not live.
func (m *machine) exited(pid abi.Pid) bool {
	p := m.procs[pid]
	return p == nil || p.Exit != nil
}

// Recent names, by pid, the processes that live, the n that exited last, the n last
// children of each that lives, and all above those. More is how many others there
// are.
func (w window) Recent(n int) (pids []abi.Pid, more int) {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	var living []abi.Pid
	for pid, p := range k.procs {
		if p.Exit == nil {
			living = append(living, pid)
		}
	}
	return k.tree.Recent(living, n)
}

// After names up to n processes, by pid: the first above pid.
func (w window) After(pid abi.Pid, n int) []abi.Pid {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	return w.k.tree.After(pid, n)
}
