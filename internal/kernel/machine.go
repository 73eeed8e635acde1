package kernel

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// machine is every process and every account: the fold of a whole journal. A
// kernel has one that lives; one that is only read shows how things were.
type machine struct {
	tree     process.Tree // all there are
	procs    map[abi.Pid]*proc
	gone     map[abi.Pid]gone           // those that were let go; nil: nobody is
	accounts map[string]*ledger.Account // named ones
	root     ledger.Account
	next     abi.Pid // the next pid
	settings uint64  // records of pid 0
}

func newMachine() machine {
	return machine{procs: make(map[abi.Pid]*proc), accounts: make(map[string]*ledger.Account), next: 1}
}

// read folds the records of one process as long as they are wanted.
func (m *machine) read(s journal.Store, pid abi.Pid, want func(*abi.Record) bool) error {
	for r, err := range s.Records(pid, 0) {
		if err != nil {
			return err
		}
		if !want(r) {
			return nil
		}
		if err := m.replay(s, r); err != nil {
			return err
		}
	}
	return nil
}

// replay applies one record, as it is read.
func (m *machine) replay(blobs journal.Store, r *abi.Record) error {
	if r.Pid == 0 {
		m.settings = r.N
		m.setAccount(r)
		return nil
	}
	p := m.procs[r.Pid]
	if r.Kind == abi.KindSpawned {
		if p != nil {
			return fmt.Errorf("process %d record %d: the process exists already", r.Pid, r.N)
		}
		if f := r.Spawn.Fork; f != nil {
			b, err := blobs.Blob(f.State.Hash)
			if !f.State.Hash.IsZero() && err != nil {
				return err
			} else if err == nil {
				f.State.Bytes = b
			}
		}
		p = m.link(r.Pid, r.Spawn)
		m.next = max(m.next, r.Pid+1)
	}
	if p == nil {
		return fmt.Errorf("process %d record %d: there is no such process", r.Pid, r.N)
	}
	if p.apply(r); r.Kind != abi.KindExited {
		return nil
	}
	if m.exits(p); m.gone != nil {
		m.bury(p)
	}
	return nil
}

// exits takes a process that has exited from those that live.
func (m *machine) exits(p *proc) {
	m.tree.AddExit(p.Pid, p.Last)
	if parent := m.procs[p.Spawn.Parent]; parent != nil {
		delete(parent.kids, p.Pid)
	}
}

func (m *machine) sorted() []*proc {
	return slices.SortedFunc(maps.Values(m.procs), func(a, b *proc) int { return int(a.Pid - b.Pid) })
}

// link gives a new process its place in the tree.
func (m *machine) link(pid abi.Pid, s *abi.Spawn) *proc {
	p := &proc{}
	p.acct = &ledger.Account{Parent: &m.root}
	p.Pid = pid
	if parent := m.procs[s.Parent]; parent != nil {
		p.acct.Parent = parent.acct
		if parent.made == nil {
			parent.made, parent.kids = make(map[uint64]abi.Pid), make(map[abi.Pid]*proc)
		}
		parent.made[s.ParentCall], parent.kids[pid] = pid, p
	} else if g, ok := m.gone[s.Parent]; ok { // what it took itself was read before
		p.acct.Parent = g.above
	} else if s.Account != "" {
		p.acct.Parent = m.account(s.Account)
	}
	m.procs[pid] = p
	m.tree.Add(pid, s.Parent)
	return p
}

func (m *machine) account(name string) *ledger.Account {
	a := m.accounts[name]
	if a == nil {
		a = &ledger.Account{Parent: &m.root}
		m.accounts[name] = a
	}
	return a
}

func (m *machine) setAccount(r *abi.Record) {
	a := m.account(r.Change.Account)
	a.Limits = *r.Change.Limits
}
