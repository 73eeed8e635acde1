// Package roll is who was ever there: every process, whose child it is, and which
// have ended, in that order. It knows nothing else of them, so it holds those that
// ended long ago at the price of their names. The zero Roll is empty.
package roll

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kern-run/kern/abi"
)

// A Roll is a tree of processes.
type Roll struct {
	all  map[abi.Pid]entry
	ends []end   // by their times, unless late
	late bool    // one of them came after a later one
	last abi.Pid // the highest there is
}

type entry struct {
	parent abi.Pid
	kids   []abi.Pid // in the order of their births
}

type end struct {
	at  int64
	pid abi.Pid
}

// Born adds a process; parent 0: it has none.
func (r *Roll) Born(pid, parent abi.Pid) {
	if r.all == nil {
		r.all = make(map[abi.Pid]entry)
	}
	r.all[pid] = entry{parent: parent}
	r.last = max(r.last, pid)
	if p, ok := r.all[parent]; ok {
		p.kids = append(p.kids, pid)
		r.all[parent] = p
	}
}

// Ended says that a process ended, and when.
func (r *Roll) Ended(pid abi.Pid, at int64) {
	r.late = r.late || len(r.ends) > 0 && at < r.ends[len(r.ends)-1].at
	r.ends = append(r.ends, end{at, pid})
}

// Living counts those that have not ended.
func (r *Roll) Living() int { return len(r.all) - len(r.ends) }

// Parent is whose child a process is; 0: nobody's.
func (r *Roll) Parent(pid abi.Pid) abi.Pid { return r.all[pid].parent }

// Kids are the children of a process, the oldest first. Nobody may change them.
func (r *Roll) Kids(pid abi.Pid) []abi.Pid { return r.all[pid].kids }

// Below are the descendants of a process, parents before their children.
func (r *Roll) Below(pid abi.Pid) (all []abi.Pid) {
	all = slices.Clone(r.Kids(pid))
	for i := 0; i < len(all); i++ {
		all = append(all, r.Kids(all[i])...)
	}
	return all
}

// After are up to n processes, by pid: the first above pid.
func (r *Roll) After(pid abi.Pid, n int) (all []abi.Pid) {
	for pid++; pid <= r.last && len(all) < n; pid++ {
		if _, there := r.all[pid]; there {
			all = append(all, pid)
		}
	}
	return all
}

// Recent are, by pid, those that live, the n that ended last, the n last children
// of each that lives, and all above those. More is how many others there are.
func (r *Roll) Recent(living []abi.Pid, n int) (all []abi.Pid, more int) {
	if r.late {
		slices.SortStableFunc(r.ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
		r.late = false
	}
	pick := make(map[abi.Pid]bool)
	add := func(pid abi.Pid) {
		for pid != 0 && !pick[pid] {
			pick[pid] = true
			pid = r.all[pid].parent
		}
	}
	for _, e := range r.ends[max(0, len(r.ends)-n):] {
		add(e.pid)
	}
	for _, pid := range living {
		add(pid)
		kids := r.Kids(pid)
		for _, kid := range kids[max(0, len(kids)-n):] {
			add(kid)
		}
	}
	return slices.Sorted(maps.Keys(pick)), len(r.all) - len(pick)
}
