package process

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
)

// A Tree is a tree of processes.
type Tree struct {
	nodes    map[abi.Pid]node
	exits    []exitTime // by their times, unless unsorted
	unsorted bool       // one of them came after a later one
	last     abi.Pid    // the highest there is
}

type node struct {
	parent   abi.Pid
	children []abi.Pid // in the order of their births
}

type exitTime struct {
	at  int64
	pid abi.Pid
}

// Born adds a process; parent 0: it has none.
func (r *Tree) Add(pid, parent abi.Pid) {
	if r.nodes == nil {
		r.nodes = make(map[abi.Pid]node)
	}
	r.nodes[pid] = node{parent: parent}
	r.last = max(r.last, pid)
	if p, ok := r.nodes[parent]; ok {
		p.children = append(p.children, pid)
		r.nodes[parent] = p
	}
}

// Ended says that a process ended, and when.
func (r *Tree) AddExit(pid abi.Pid, at int64) {
	r.unsorted = r.unsorted || len(r.exits) > 0 && at < r.exits[len(r.exits)-1].at
	r.exits = append(r.exits, exitTime{at, pid})
}

// Living counts those that have not ended.
func (r *Tree) Living() int { return len(r.nodes) - len(r.exits) }

// Parent is whose child a process is; 0: nobody's.
func (r *Tree) Parent(pid abi.Pid) abi.Pid { return r.nodes[pid].parent }

// Kids are the children of a process, the oldest first. Nobody may change them.
func (r *Tree) Children(pid abi.Pid) []abi.Pid { return r.nodes[pid].children }

// Below are the descendants of a process, parents before their children.
func (r *Tree) Descendants(pid abi.Pid) (all []abi.Pid) {
	all = slices.Clone(r.Children(pid))
	for i := 0; i < len(all); i++ {
		all = append(all, r.Children(all[i])...)
	}
	return all
}

// After are up to n processes, by pid: the first above pid.
func (r *Tree) After(pid abi.Pid, n int) (all []abi.Pid) {
	for pid++; pid <= r.last && len(all) < n; pid++ {
		if _, there := r.nodes[pid]; there {
			all = append(all, pid)
		}
	}
	return all
}

// Recent are, by pid, those that live, the n that ended last, the n last children
// of each that lives, and all above those. More is how many others there are.
func (r *Tree) Recent(living []abi.Pid, n int) (all []abi.Pid, more int) {
	if r.unsorted {
		slices.SortStableFunc(r.exits, func(a, b exitTime) int { return cmp.Compare(a.at, b.at) })
		r.unsorted = false
	}
	pick := make(map[abi.Pid]bool)
	add := func(pid abi.Pid) {
		for pid != 0 && !pick[pid] {
			pick[pid] = true
			pid = r.nodes[pid].parent
		}
	}
	for _, e := range r.exits[max(0, len(r.exits)-n):] {
		add(e.pid)
	}
	for _, pid := range living {
		add(pid)
		children := r.Children(pid)
		for _, child := range children[max(0, len(children)-n):] {
			add(child)
		}
	}
	return slices.Sorted(maps.Keys(pick)), len(r.nodes) - len(pick)
}
