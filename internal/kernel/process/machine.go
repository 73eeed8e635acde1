package process

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
)

// Machine is the state of every process and account: the fold of a whole
// journal. A kernel has a live one. Others are folded from records to show an
// earlier moment.
type Machine struct {
	Tree     Tree
	States   map[abi.Pid]*State
	Buried   map[abi.Pid]Buried // exited processes whose state was dropped; nil: drop none
	Accounts map[string]*ledger.Account
	NextPid  abi.Pid
	Sources  map[abi.Pid]abi.Pid // the processes that forks continue, by fork
	Book     *Book               // nil: keep none

	root     ledger.Account
	Settings uint64 // records of pid 0
}

// Buried is what a machine keeps of an exited process whose state was dropped.
type Buried struct {
	Above *ledger.Account // the account above the process
	PackedSummary
}

// NewMachine returns the fold of no records.
func NewMachine() *Machine {
	return &Machine{States: make(map[abi.Pid]*State), Accounts: make(map[string]*ledger.Account), Sources: make(map[abi.Pid]abi.Pid), NextPid: 1}
}

// ReadBlob returns the blob with a hash.
type ReadBlob func(abi.Hash) ([]byte, error)

// ReplayAll applies records while want returns true.
func (m *Machine) ReplayAll(records iter.Seq2[*abi.Record, error], blob ReadBlob, want func(*abi.Record) bool) error {
	for r, err := range records {
		if err != nil {
			return err
		}
		if !want(r) {
			return nil
		}
		if err := m.Replay(r, blob); err != nil {
			return err
		}
	}
	return nil
}

// Replay applies a record that was read from the journal.
func (m *Machine) Replay(r *abi.Record, blob ReadBlob) error {
	if r.Pid == 0 {
		m.Settings = r.N
		if r.Removed != nil {
			m.addRemoved(r.Removed)
		} else {
			m.setAccount(r.Change)
		}
		return nil
	}
	s := m.States[r.Pid]
	if r.Kind == abi.KindSpawned {
		if s != nil {
			return fmt.Errorf("process %d record %d: the process exists already", r.Pid, r.N)
		}
		// The state of a fork is a payload like any other, so it may be a blob.
		if f := r.Spawn.Fork; f != nil {
			b, err := blob(f.State.Hash)
			if !f.State.Hash.IsZero() && err != nil {
				return err
			} else if err == nil {
				f.State.Bytes = b
			}
		}
		s = m.Add(r.Pid, r.Spawn)
	}
	if _, buried := m.Buried[r.Pid]; s == nil && buried && r.Kind == abi.KindSettled {
		m.SettleBuried(r)
		return nil
	}
	if s == nil {
		return fmt.Errorf("process %d record %d: there is no such process", r.Pid, r.N)
	}
	if s.Apply(r); r.Kind != abi.KindExited {
		return nil
	}
	if m.Exit(s); m.Buried != nil {
		m.Bury(s)
	}
	return nil
}

// Add gives a new process its place in the tree and its account. The caller
// applies the record of the spawn next.
func (m *Machine) Add(pid abi.Pid, spawn *abi.Spawn) *State {
	s := &State{Pid: pid, Account: &ledger.Account{Parent: &m.root}, Calls: Calls{entries: m.entriesOf(spawn)}}
	if parent := m.States[spawn.Parent]; parent != nil {
		s.Account.Parent = parent.Account
		if parent.Children == nil {
			parent.Children, parent.Living = make(map[uint64]abi.Pid), make(map[abi.Pid]*State)
		}
		parent.Children[spawn.ParentCall], parent.Living[pid] = pid, s
	} else if g, ok := m.Buried[spawn.Parent]; ok { // the parent's own usage was booked when it was read
		s.Account.Parent = g.Above
	} else if spawn.Account != "" {
		s.Account.Parent = m.account(spawn.Account)
	}
	m.States[pid] = s
	if spawn.Fork != nil {
		m.Sources[pid] = spawn.Fork.Pid
	}
	m.Tree.Add(pid, spawn.Parent)
	m.NextPid = max(m.NextPid, pid+1)
	return s
}

// Exit takes a process that has exited from those that live.
func (m *Machine) Exit(s *State) {
	m.Tree.AddExit(s.Pid, s.Last)
	if parent := m.States[s.Spawn.Parent]; parent != nil {
		delete(parent.Living, s.Pid)
	}
}

// Bury drops the state of an exited process whose records can be read, and keeps
// its summary. At recovery its ancestors may be buried before it: their
// summaries gain what it used.
func (m *Machine) Bury(s *State) {
	sum := s.Summary()
	m.Buried[s.Pid] = Buried{s.Account.Parent, sum.Pack()}
	delete(m.States, s.Pid)
	// An ancestor that is not buried has its account, and this usage is booked there.
	for pid := m.Tree.Parent(s.Pid); ; pid = m.Tree.Parent(pid) {
		g, ok := m.Buried[pid]
		if !ok {
			return
		}
		g.PackedSummary = g.AddChild(&sum)
		m.Buried[pid] = g
	}
}

// SettleBuried books what a person found that a call in doubt used, for a process whose
// state was dropped.
func (m *Machine) SettleBuried(r *abi.Record) {
	d := r.Settle
	g := m.Buried[r.Pid]
	g.Above.SettleDoubt(&d.Released, &d.Spent)
	sum := g.Unpack()
	e := m.entriesOf(&abi.Spawn{Parent: m.Tree.Parent(r.Pid), Name: sum.Name, Account: sum.Account})
	e.addTo(r.Time, d.Model, &d.Spent)
	for pid := r.Pid; ; pid = m.Tree.Parent(pid) {
		g, buried := m.Buried[pid]
		if !buried {
			return
		}
		b := g.Unpack()
		if pid == r.Pid {
			b.Records = r.N
			b.Beyond.Drift += max(0, d.Spent[abi.Money]-d.Released[abi.Money])
		}
		b.Doubt.Sub(&d.Released)
		b.Reserved.Sub(&d.Released)
		b.Used.Add(&d.Spent)
		g.PackedSummary = b.Pack()
		m.Buried[pid] = g
	}
}

// Restore gives a state that was folded again its account and usage in m. The
// usage of its descendants is not in its own records.
func (m *Machine) Restore(s *State) {
	g := m.Buried[s.Pid]
	sum := g.Unpack()
	s.Account.Parent, s.Account.Settled, s.Account.Reserved, s.Account.Doubt = g.Above, sum.Used, sum.Reserved, sum.Doubt
}

// Absent says why no process with this pid can act.
func (m *Machine) Absent(pid abi.Pid) *abi.Error {
	if g, ok := m.Buried[pid]; ok {
		return g.Exit().Exited(pid)
	}
	return Unknown(pid)
}

// Unknown says that there is no process with this pid.
func Unknown(pid abi.Pid) *abi.Error {
	return &abi.Error{Code: abi.UnknownProcess, Message: fmt.Sprintf("there is no process %d", pid), Hint: "list them with: kern ps"}
}

// HasExited reports whether a process of the tree has exited.
func (m *Machine) HasExited(pid abi.Pid) bool {
	s := m.States[pid]
	return s == nil || s.Exit != nil
}

// Sorted returns the states that are kept, by pid.
func (m *Machine) Sorted() []*State {
	return slices.SortedFunc(maps.Values(m.States), func(a, b *State) int { return int(a.Pid - b.Pid) })
}

// SetAccount changes the limits of a named account, and returns the number of
// the record that says so.
func (m *Machine) SetAccount(c *abi.Change) (n uint64) {
	m.Settings++
	m.setAccount(c)
	return m.Settings
}

func (m *Machine) setAccount(c *abi.Change) {
	a := m.account(c.Account)
	if c.Limits != nil {
		a.Limits = *c.Limits
	}
	if c.Period != nil {
		a.Period = *c.Period
	}
}

func (m *Machine) account(name string) *ledger.Account {
	a := m.Accounts[name]
	if a == nil {
		a = &ledger.Account{Name: name, Parent: &m.root}
		m.Accounts[name] = a
	}
	return a
}

// Owner names the share that the turns of a process are taken from: its named
// account, or else the process at the top of its tree.
func (m *Machine) Owner(s *State) string {
	for parent := m.States[s.Spawn.Parent]; parent != nil; parent = m.States[s.Spawn.Parent] {
		s = parent
	}
	if s.Spawn.Account != "" {
		return s.Spawn.Account
	}
	return fmt.Sprintf("process %d", s.Pid)
}
