package journal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
)

// A Lease is the right of one holder to append to the records of its trees. A
// tree is a top process and all processes below it; tree 0 has the settings. Epochs
// rise: a claimed tree belongs to the lease with the newer epoch, and the older
// lease is stale for it.
type Lease struct{ Epoch uint64 }

// ErrUnknownTree refuses a claim of a process that is no top process.
var ErrUnknownTree = errors.New("journal: no such tree")

// Leases says which lease holds which tree, for a store that is open in one
// process. The first lease holds all trees that nobody claimed. Until a second
// lease exists, a check compares one number.
type Leases struct {
	newest uint64                // epoch
	rest   uint64                // epoch of the lease that holds what is not in holders
	valid  map[uint64]bool       // epochs that were not replaced
	holder map[abi.Pid]uint64    // epochs, by claimed tree
	trees  map[abi.Pid]abi.Pid   // trees, by process; nil until the first claim
	read   func(TreeMaker) error // reads the trees of all processes that are stored
}

// A TreeMaker takes the parent of a process, parents before children.
type TreeMaker func(pid, parent abi.Pid)

// NewLeases returns the leases of a store that was just opened with an epoch, and
// the one lease that holds everything. read calls its argument for every stored
// process, in the order of their numbers.
func NewLeases(epoch uint64, read func(TreeMaker) error) (Leases, Lease) {
	l := Leases{newest: epoch, rest: epoch, valid: map[uint64]bool{epoch: true}, holder: map[abi.Pid]uint64{}, read: read}
	return l, Lease{epoch}
}

// Newest is the highest epoch.
func (l *Leases) Newest() uint64 { return l.newest }

// Claim makes the lease that replaces old and holds the trees of old and the
// claimed ones. save stores the new epoch; nothing changes when it fails. A zero
// old is the claim of a new holder.
func (l *Leases) Claim(old Lease, trees []abi.Pid, save func(epoch uint64) error) (Lease, error) {
	if old != (Lease{}) && !l.valid[old.Epoch] {
		return Lease{}, ErrStale
	}
	if err := l.load(); err != nil {
		return Lease{}, err
	}
	for _, top := range trees {
		if tree, ok := l.trees[top]; top != 0 && (!ok || tree != top) {
			return Lease{}, fmt.Errorf("%w: %d", ErrUnknownTree, top)
		}
	}
	epoch := l.newest + 1
	if err := save(epoch); err != nil {
		return Lease{}, err
	}
	delete(l.valid, old.Epoch)
	l.newest, l.valid[epoch] = epoch, true
	if l.rest == old.Epoch {
		l.rest = epoch
	}
	for tree, holder := range l.holder {
		if holder == old.Epoch {
			l.holder[tree] = epoch
		}
	}
	for _, tree := range trees {
		l.holder[tree] = epoch
	}
	return Lease{epoch}, nil
}

func (l *Leases) load() error {
	if l.trees != nil {
		return nil
	}
	trees := map[abi.Pid]abi.Pid{}
	err := l.read(func(pid, parent abi.Pid) {
		tree, ok := trees[parent]
		if !ok || parent == 0 {
			tree = pid
		}
		trees[pid] = tree
	})
	if err == nil {
		l.trees = trees
	}
	return err
}

// Check refuses a batch that the lease may not append: with [ErrStale] when the
// lease was replaced, and with a *[BadRecord] for the first record of a tree that
// another lease holds. The store calls stored when it has stored the batch.
func (l *Leases) Check(lease Lease, batch []abi.Record) (stored func(), err error) {
	if !l.valid[lease.Epoch] {
		return nil, ErrStale
	}
	if l.trees == nil {
		return func() {}, nil
	}
	added := map[abi.Pid]abi.Pid{}
	for i := range batch {
		r := &batch[i]
		tree, known := l.trees[r.Pid]
		if !known {
			if tree, known = added[r.Pid]; !known {
				tree = l.treeOf(r, added)
				added[r.Pid] = tree
			}
		}
		// A new top process is a new tree of this lease.
		if _, isNew := added[tree]; isNew && tree != 0 {
			continue
		}
		if l.holderOf(tree) != lease.Epoch {
			return nil, &BadRecord{Pid: r.Pid, N: r.N, Why: fmt.Sprintf("another lease holds tree %d", tree), Err: ErrStale}
		}
	}
	return func() {
		for pid, tree := range added {
			if l.trees[pid] = tree; pid == tree && pid != 0 && lease.Epoch != l.rest {
				l.holder[tree] = lease.Epoch
			}
		}
	}, nil
}

// treeOf is the tree of a process that is not stored yet: that of its parent, or
// its own.
func (l *Leases) treeOf(r *abi.Record, added map[abi.Pid]abi.Pid) abi.Pid {
	if r.Spawn == nil || r.Spawn.Parent == 0 {
		return r.Pid
	}
	if tree, ok := added[r.Spawn.Parent]; ok {
		return tree
	}
	if tree, ok := l.trees[r.Spawn.Parent]; ok {
		return tree
	}
	return r.Pid
}

func (l *Leases) holderOf(tree abi.Pid) uint64 {
	if epoch, ok := l.holder[tree]; ok {
		return epoch
	}
	return l.rest
}

// Processes lists the processes of some trees by number.
func (l *Leases) Processes(trees []abi.Pid) ([]abi.Pid, error) {
	if err := l.load(); err != nil {
		return nil, err
	}
	var list []abi.Pid
	for pid, tree := range l.trees {
		if slices.Contains(trees, tree) {
			list = append(list, pid)
		}
	}
	slices.Sort(list)
	return list, nil
}
