package process

import (
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
)

// Sums returns what the processes of m used under its named accounts.
func (m *Machine) Sums() (sums []abi.Sum) {
	for _, name := range slices.Sorted(maps.Keys(m.Accounts)) {
		a := m.Accounts[name]
		sums = append(sums, abi.Sum{Account: name, Used: a.Settled, Doubt: a.Doubt})
	}
	return sums
}

// addRemoved books what removed processes used. Their own records are gone.
func (m *Machine) addRemoved(r *abi.Removed) {
	for i := range r.Sums {
		s := &r.Sums[i]
		a := m.account(s.Account)
		a.Reserve(&s.Doubt)
		a.KeepInDoubt(&s.Doubt)
		a.Settle(&abi.Usage{}, &s.Used)
	}
	for i := range r.Spent {
		m.Book.Add(r.Spent[i])
	}
	for _, pid := range r.Pids {
		m.NextPid = max(m.NextPid, pid+1)
	}
}

// Remove forgets processes that have exited, whole trees of them. Their usage stays on
// the accounts above them. It returns the number of the record that says so.
func (m *Machine) Remove(pids []abi.Pid) (n uint64) {
	gone := make(map[abi.Pid]bool, len(pids))
	for _, pid := range pids {
		gone[pid] = true
		delete(m.States, pid)
		delete(m.Buried, pid)
		delete(m.Sources, pid)
	}
	m.Tree.remove(gone)
	m.Settings++
	return m.Settings
}

// Needed returns a process outside the list that continues one of the list, and that
// one. Both are 0 if there is none.
func (m *Machine) Needed(pids map[abi.Pid]bool) (by, source abi.Pid) {
	for fork, source := range m.Sources {
		if pids[source] && !pids[fork] {
			return fork, source
		}
	}
	return 0, 0
}

// A FinishedTree is a top process that has exited, with all its descendants.
type FinishedTree struct {
	Pids  []abi.Pid // the top first
	Ended int64     // time of the last exit
}

// Finished returns the finished trees, the one that ended first first.
func (t *Tree) Finished() (all []FinishedTree) {
	ended := make(map[abi.Pid]int64, len(t.exits))
	for _, e := range t.exits {
		ended[e.pid] = e.at
	}
	for pid, n := range t.nodes {
		if n.parent != 0 {
			continue
		}
		tree := FinishedTree{Pids: append([]abi.Pid{pid}, t.Descendants(pid)...)}
		lives := func(pid abi.Pid) bool { _, exited := ended[pid]; return !exited }
		if slices.ContainsFunc(tree.Pids, lives) {
			continue
		}
		for _, pid := range tree.Pids {
			tree.Ended = max(tree.Ended, ended[pid])
		}
		all = append(all, tree)
	}
	slices.SortFunc(all, func(a, b FinishedTree) int {
		if a.Ended != b.Ended {
			return int(min(max(a.Ended-b.Ended, -1), 1))
		}
		return int(a.Pids[0] - b.Pids[0])
	})
	return all
}

func (t *Tree) remove(gone map[abi.Pid]bool) {
	for pid := range gone {
		delete(t.nodes, pid)
	}
	t.exits = slices.DeleteFunc(t.exits, func(e exitTime) bool { return gone[e.pid] })
}
