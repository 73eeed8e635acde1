package process

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
)

// Tree is every process there ever was: its parent, and the order of exits. It
// holds nothing else, so a process that exited long ago costs only its number.
// The zero Tree is empty.
type Tree struct {
	nodes    map[abi.Pid]node
	exits    []exitTime // by time, unless unsorted
	unsorted bool       // an exit was added after a later one
	last     abi.Pid    // the highest pid
}

type node struct {
	parent   abi.Pid
	children []abi.Pid // in the order of their spawns
}

type exitTime struct {
	at  int64
	pid abi.Pid
}

// Add adds a process. Parent 0 means that it has none.
func (t *Tree) Add(pid, parent abi.Pid) {
	if t.nodes == nil {
		t.nodes = make(map[abi.Pid]node)
	}
	t.nodes[pid] = node{parent: parent}
	t.last = max(t.last, pid)
	if p, ok := t.nodes[parent]; ok {
		p.children = append(p.children, pid)
		t.nodes[parent] = p
	}
}

// AddExit records when a process exited.
func (t *Tree) AddExit(pid abi.Pid, at int64) {
	t.unsorted = t.unsorted || len(t.exits) > 0 && at < t.exits[len(t.exits)-1].at
	t.exits = append(t.exits, exitTime{at, pid})
}

// Living counts the processes that have not exited.
func (t *Tree) Living() int { return len(t.nodes) - len(t.exits) }

// Parent returns the parent of a process; 0: it has none.
func (t *Tree) Parent(pid abi.Pid) abi.Pid { return t.nodes[pid].parent }

// Children returns the children of a process, the oldest first. The caller must
// not change the slice.
func (t *Tree) Children(pid abi.Pid) []abi.Pid { return t.nodes[pid].children }

// Descendants returns the descendants of a process, parents before children.
func (t *Tree) Descendants(pid abi.Pid) (all []abi.Pid) {
	all = slices.Clone(t.Children(pid))
	for i := 0; i < len(all); i++ {
		all = append(all, t.Children(all[i])...)
	}
	return all
}

// After returns up to n pids above pid, in order.
func (t *Tree) After(pid abi.Pid, n int) (all []abi.Pid) {
	for pid++; pid <= t.last && len(all) < n; pid++ {
		if _, there := t.nodes[pid]; there {
			all = append(all, pid)
		}
	}
	return all
}

// Recent returns, by pid, the processes that live, the n that exited last, the n
// last children of each that lives, and all ancestors of those. More is how many
// others there are.
func (t *Tree) Recent(living []abi.Pid, n int) (all []abi.Pid, more int) {
	// A clock that was set back leaves exits out of order.
	if t.unsorted {
		slices.SortStableFunc(t.exits, func(a, b exitTime) int { return cmp.Compare(a.at, b.at) })
		t.unsorted = false
	}
	pick := make(map[abi.Pid]bool)
	add := func(pid abi.Pid) {
		// Without its ancestors a process could not be shown in its tree.
		for pid != 0 && !pick[pid] {
			pick[pid] = true
			pid = t.nodes[pid].parent
		}
	}
	for _, e := range t.exits[max(0, len(t.exits)-n):] {
		add(e.pid)
	}
	for _, pid := range living {
		add(pid)
		children := t.Children(pid)
		for _, child := range children[max(0, len(children)-n):] {
			add(child)
		}
	}
	return slices.Sorted(maps.Keys(pick)), len(t.nodes) - len(pick)
}
