package sqlite

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// Claim implements [journal.Store]. Only the newest epoch is in the file. The leases
// are in memory, because the lock of the directory admits one process, and the first
// lease of that process holds every tree.
func (s *store) Claim(old journal.Lease, trees ...abi.Pid) (journal.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return journal.Lease{}, journal.ErrClosed
	}
	l, err := s.leases.Claim(old, trees, func(epoch uint64) error {
		return s.w.transaction(func(w *writer) error {
			if n, err := w.epoch.number(); err != nil {
				return err
			} else if uint64(n) != s.leases.Newest() {
				return journal.ErrStale
			}
			return w.setEpoch(int64(epoch))
		})
	})
	if err == nil {
		s.mark.write(s.end.Load(), s.total)
	}
	return l, orFull(err)
}

// setEpoch stores a new epoch, in a transaction of the caller. It also stores the
// epoch in the table feed, as a note that its holder keeps the commit order.
func (w *writer) setEpoch(epoch int64) error {
	if err := w.run(fmt.Sprintf("PRAGMA user_version=%d", epoch)); err != nil {
		return err
	}
	return w.run(fmt.Sprintf("INSERT OR REPLACE INTO feed(id, body) VALUES(%d, %d)", epochBlock, epoch))
}

// readTrees calls add with the parent of every process, which the first record of
// the process names.
func (p *readers) readTrees(add journal.TreeMaker) error {
	return p.with(func(r *reader) error {
		first, err := r.prepare(columns + "WHERE id IN (SELECT id FROM runs WHERE id & 0xffffffff = 1) ORDER BY id")
		if err != nil {
			return err
		}
		defer first.close()
		rows, err := first.query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for {
			var v rawRow
			if more, err := next(rows, v[:]); err != nil || !more {
				return err
			}
			e, _, ok := v.entry()
			if !ok {
				return &journal.Damage{Pid: e.Pid, N: e.N, Why: "its columns are not of their types"}
			}
			rec, err := e.Record()
			if err != nil {
				return &journal.Damage{Pid: e.Pid, N: e.N, Why: err.Error()}
			}
			parent := abi.Pid(0)
			if rec.Spawn != nil {
				parent = rec.Spawn.Parent
			}
			add(e.Pid, parent)
		}
	})
}

// NewPid implements [journal.Store]. It takes no lock, so it never waits for the
// sync of a commit.
func (s *store) NewPid() (abi.Pid, error) { return s.pids.next() }

// pids holds the highest pid that is stored or given out.
type pids struct{ last atomic.Int64 }

func (p *pids) next() (abi.Pid, error) {
	for {
		last := p.last.Load()
		if last == math.MaxInt32 {
			return 0, fmt.Errorf("journal: no process number above %d can be stored", math.MaxInt32)
		}
		if p.last.CompareAndSwap(last, last+1) {
			return abi.Pid(last) + 1, nil
		}
	}
}

// raise makes sure that next never returns a stored pid.
func (p *pids) raise(pid abi.Pid) {
	for {
		last := p.last.Load()
		if int64(pid) <= last || p.last.CompareAndSwap(last, int64(pid)) {
			return
		}
	}
}

// Scan implements [journal.Reader].
func (s *store) Scan(fn func(*abi.Record) error, trees ...abi.Pid) error {
	if len(trees) == 0 {
		s.mu.Lock()
		err := journal.ErrClosed
		if s.w != nil {
			err = s.settle()
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if err := s.readers.scanAll(fn); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mark.damage // not before, because the scan names the place of the damage
	}
	s.mu.Lock()
	if s.w == nil {
		s.mu.Unlock()
		return journal.ErrClosed
	}
	pids, err := s.leases.Processes(trees)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		for r, err := range s.Records(pid, 0) {
			if err != nil {
				return err
			}
			if err := fn(r); err != nil {
				return err
			}
		}
	}
	return nil
}
