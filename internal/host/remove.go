package host

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
)

// A remover removes finished trees: when a person asks, and by the rules of kern.yaml.
type remover struct {
	kernel.Remover
	info  func(abi.Pid) (kernel.Info, error)
	dir   string
	rules config.JournalRules
}

// remove carries out a request.
func (m *remover) remove(ctx context.Context, r abi.Removal) (abi.RemovalResult, error) {
	trees, sources := m.Finished()
	out := abi.RemovalResult{Trees: []abi.RemovedTree{}, Kept: []abi.Pid{}, DryRun: r.DryRun}
	switch {
	case len(r.Pids) > 0:
		trees = slices.DeleteFunc(trees, func(t process.FinishedTree) bool { return !slices.Contains(r.Pids, t.Pids[0]) })
	default:
		trees = trees[:max(0, len(trees)-r.Keep)]
		trees = slices.DeleteFunc(trees, func(t process.FinishedTree) bool { return r.Before != 0 && t.Ended >= r.Before })
		trees, out.Kept = withoutSources(trees, sources)
	}
	tops := r.Pids
	for _, t := range trees {
		i, err := m.info(t.Pids[0])
		if err != nil {
			return out, err
		}
		out.Trees = append(out.Trees, abi.RemovedTree{Pid: t.Pids[0], Name: i.Name, Processes: len(t.Pids), Ended: t.Ended})
		out.Processes += len(t.Pids)
		if len(r.Pids) == 0 {
			tops = append(tops, t.Pids[0])
		}
	}
	out.Before = m.size()
	if !r.DryRun {
		if _, err := m.Remove(ctx, tops, r.By); err != nil {
			return out, err
		}
	}
	out.After = m.size()
	return out, nil
}

// withoutSources leaves out trees that processes outside continue, and lists those.
func withoutSources(trees []process.FinishedTree, sources map[abi.Pid]abi.Pid) (rest []process.FinishedTree, kept []abi.Pid) {
	kept = []abi.Pid{}
	for again := true; again; { // a tree that stays may continue another one
		again = false
		gone := make(map[abi.Pid]bool)
		for _, t := range trees {
			for _, pid := range t.Pids {
				gone[pid] = true
			}
		}
		needed := make(map[abi.Pid]bool)
		for fork, source := range sources {
			if gone[source] && !gone[fork] {
				needed[source] = true
			}
		}
		trees = slices.DeleteFunc(trees, func(t process.FinishedTree) bool {
			stays := slices.ContainsFunc(t.Pids, func(pid abi.Pid) bool { return needed[pid] })
			if stays {
				kept, again = append(kept, t.Pids[0]), true
			}
			return stays
		})
	}
	slices.Sort(kept)
	return trees, kept
}

// size is the number of bytes of the journal on the disk.
func (m *remover) size() (n int64) {
	for _, name := range []string{"journal.db", "journal.db-wal"} {
		if i, err := os.Stat(filepath.Join(m.dir, name)); err == nil {
			n += i.Size()
		}
	}
	return n
}

// keepRules applies the rules of kern.yaml at the start and every hour, until ctx ends.
func (m *remover) keepRules(ctx context.Context) {
	for m.rules != (config.JournalRules{}) {
		m.apply(ctx)
		select {
		case <-time.After(time.Hour):
		case <-ctx.Done():
			return
		}
	}
}

// byRules is the name of the daemon in the record of a removal.
const byRules = "kern.yaml"

// apply removes what is too old, and then the oldest until the journal is small enough.
// An error is tried again an hour later.
func (m *remover) apply(ctx context.Context) {
	if m.rules.Age > 0 {
		r := abi.Removal{Before: time.Now().Add(-m.rules.Age).UnixNano(), By: byRules}
		if _, err := m.remove(ctx, r); err != nil {
			return
		}
	}
	for m.rules.Bytes > 0 && ctx.Err() == nil {
		size := m.size()
		tops := m.oldest(size - m.rules.Bytes)
		if len(tops) == 0 {
			return
		}
		if _, err := m.Remove(ctx, tops, byRules); err != nil || m.size() >= size {
			return
		}
	}
}

// oldest returns the trees that ended first and have about this many bytes, a share of
// the journal by their number of records.
func (m *remover) oldest(bytes int64) (tops []abi.Pid) {
	if bytes <= 0 {
		return nil
	}
	trees, sources := m.Finished()
	trees, _ = withoutSources(trees, sources)
	counts := make([]int64, len(trees))
	var all int64
	for n, t := range trees {
		for _, pid := range t.Pids {
			if i, err := m.info(pid); err == nil {
				counts[n] += int64(i.Records)
			}
		}
		all += counts[n]
	}
	share := float64(m.size()) / float64(max(1, all))
	for n, t := range trees {
		if bytes <= 0 {
			break
		}
		tops = append(tops, t.Pids[0])
		bytes -= int64(share * float64(counts[n]))
	}
	// A fork that is not chosen needs its source.
	chosen, _ := withoutSources(trees[:len(tops)], sources)
	tops = tops[:0]
	for _, t := range chosen {
		tops = append(tops, t.Pids[0])
	}
	return tops
}
