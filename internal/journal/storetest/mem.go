// Package storetest helps to test code that uses a journal. It has a store in
// memory, a store that fails on demand, and the conformance suite that every store
// must pass.
package storetest

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
)

// A Memory replaces the disk for stores that are opened one after the other. It is
// for tests and benchmarks of code above a journal. Its content ends with the
// program.
type Memory struct {
	mu      sync.Mutex
	epoch   uint64  // of the newest lease
	last    abi.Pid // the highest process number that is stored or given out
	highest abi.Pid // the highest process number that was removed
	procs   map[abi.Pid][]format.Entry
	order   []recordID // in commit order
	blobs   map[abi.Hash][]byte
}

type recordID struct {
	pid abi.Pid
	n   uint64
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{procs: map[abi.Pid][]format.Entry{}, blobs: map[abi.Hash][]byte{}}
}

// Mem returns an open store on a memory of its own.
func Mem() (journal.Store, journal.Lease) { return NewMemory().take() }

// Open opens a store on the memory. It makes every older lease stale.
func (m *Memory) Open() (journal.Store, journal.Lease, error) {
	s, l := m.take()
	return s, l, nil
}

func (m *Memory) take() (journal.Store, journal.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.last = m.highest
	for pid := range m.procs {
		m.last = max(m.last, pid)
	}
	s := &memStore{m: m}
	leases, l := journal.NewLeases(m.epoch, s.readTrees)
	s.leases = leases
	return s, l
}

type memStore struct {
	m      *Memory
	leases journal.Leases
	closed bool
}

// readTrees reads the parent of every process. The caller holds the lock.
func (s *memStore) readTrees(add journal.TreeMaker) error {
	for _, pid := range slices.Sorted(maps.Keys(s.m.procs)) {
		r, err := s.m.procs[pid][0].Record()
		if err != nil {
			return err
		}
		parent := abi.Pid(0)
		if r.Spawn != nil {
			parent = r.Spawn.Parent
		}
		add(pid, parent)
	}
	return nil
}

func (s *memStore) Claim(old journal.Lease, trees ...abi.Pid) (journal.Lease, error) {
	unlock, err := s.lock()
	if err != nil {
		return journal.Lease{}, err
	}
	defer unlock()
	return s.leases.Claim(old, trees, func(epoch uint64) error {
		if s.m.epoch != s.leases.Newest() {
			return journal.ErrStale
		}
		s.m.epoch = epoch
		return nil
	})
}

func (s *memStore) NewPid() (abi.Pid, error) {
	unlock, err := s.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	if s.m.last == math.MaxInt32 {
		return 0, fmt.Errorf("no process number above %d can be stored", math.MaxInt32)
	}
	s.m.last++
	return s.m.last, nil
}

func (s *memStore) lock() (unlock func(), err error) {
	s.m.mu.Lock()
	if s.closed {
		s.m.mu.Unlock()
		return nil, journal.ErrClosed
	}
	return s.m.mu.Unlock, nil
}

func (s *memStore) Append(l journal.Lease, batch []abi.Record) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	m := s.m
	if m.epoch != s.leases.Newest() {
		return journal.ErrStale
	}
	stored, err := s.leases.Check(l, batch)
	if err == nil {
		err = m.check(batch)
	}
	if err != nil {
		return err
	}
	stored()
	for i := range batch {
		r := &batch[i]
		for _, b := range r.Blobs {
			if _, ok := m.blobs[b.Hash]; !ok {
				m.blobs[b.Hash] = bytes.Clone(b.Bytes)
			}
		}
		m.procs[r.Pid] = append(m.procs[r.Pid], format.NewEntry(r, nil))
		m.order = append(m.order, recordID{r.Pid, r.N})
		m.last = max(m.last, r.Pid)
		if r.Kind == abi.KindRemoved && r.Removed != nil {
			m.remove(r.Removed.Pids)
		}
	}
	return nil
}

// remove drops processes. Their places in the order stay and name no record.
func (m *Memory) remove(pids []abi.Pid) {
	for _, pid := range pids {
		delete(m.procs, pid)
		m.highest = max(m.highest, pid)
	}
	for i, id := range m.order {
		if slices.Contains(pids, id.pid) {
			m.order[i] = recordID{}
		}
	}
}

// Sweep drops the blobs that no record names.
func (s *memStore) Sweep() error {
	named := map[abi.Hash]bool{}
	err := s.Scan(func(r *abi.Record) error {
		for d := range r.Payloads() {
			named[d.Hash] = true
		}
		if r.Intent != nil {
			for _, h := range r.Intent.Parts {
				named[h] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	maps.DeleteFunc(s.m.blobs, func(h abi.Hash, _ []byte) bool { return !named[h] })
	return nil
}

// check refuses a bad record before anything of its batch is stored.
func (m *Memory) check(batch []abi.Record) error {
	var added map[abi.Pid]int
	if len(batch) > 1 {
		added = make(map[abi.Pid]int, len(batch))
	}
	for i := range batch {
		r := &batch[i]
		want := uint64(len(m.procs[r.Pid]) + added[r.Pid] + 1)
		if r.Pid < 0 || r.N != want {
			return &journal.BadRecord{Pid: r.Pid, N: r.N, Why: fmt.Sprintf("expected number %d", want)}
		}
		for _, b := range r.Blobs {
			if abi.HashOf(b.Bytes) != b.Hash {
				return &journal.BadRecord{Pid: r.Pid, N: r.N, Why: "a blob has another hash than its name"}
			}
		}
		if added != nil {
			added[r.Pid]++
		}
	}
	return nil
}

func (s *memStore) Scan(fn func(*abi.Record) error, trees ...abi.Pid) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	pids := slices.Sorted(maps.Keys(s.m.procs))
	if len(trees) > 0 {
		pids, err = s.leases.Processes(trees)
	}
	unlock()
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

func (s *memStore) Records(pid abi.Pid, after uint64) iter.Seq2[*abi.Record, error] {
	return func(yield func(*abi.Record, error) bool) {
		unlock, err := s.lock()
		if err != nil {
			yield(nil, err)
			return
		}
		list := s.m.procs[pid]
		unlock()
		for n := after; n < uint64(len(list)); n++ {
			r, err := list[n].Record()
			if err != nil {
				yield(nil, &journal.Damage{Pid: pid, N: n + 1, Why: err.Error()})
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *memStore) Answer(pid abi.Pid, call uint64) (*abi.Record, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	list := s.m.procs[pid]
	unlock()
	for _, e := range slices.Backward(list) {
		if e.Call != call || e.Kind != abi.KindEnded && e.Kind != abi.KindRefused {
			continue
		}
		r, err := e.Record()
		if err != nil {
			return nil, err
		}
		if r.Answer != nil && !r.Answer.Again {
			return r, nil
		}
	}
	return nil, nil
}

func (s *memStore) Blob(h abi.Hash) ([]byte, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	b, ok := s.m.blobs[h]
	if !ok {
		return nil, fmt.Errorf("%w: %s: there is none", journal.ErrBlob, h)
	}
	return bytes.Clone(b), nil
}

func (s *memStore) Feed(after journal.Cursor) journal.FeedReader {
	if after == journal.Newest {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		after = journal.Cursor(len(s.m.order))
	}
	return &memFeed{s, after}
}

type memFeed struct {
	s  *memStore
	at journal.Cursor
}

func (f *memFeed) Cursor() journal.Cursor { return f.at }

// maxNext is the largest number of records that Next returns.
const maxNext = 100

func (f *memFeed) Next(wants func(abi.Pid) bool) (list []journal.Entry, err error) {
	unlock, err := f.s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for ; len(list) < maxNext && f.at < journal.Cursor(len(f.s.m.order)); f.at++ {
		id := f.s.m.order[f.at]
		if id.n == 0 || wants != nil && !wants(id.pid) {
			continue
		}
		r, err := f.s.m.procs[id.pid][id.n-1].Record()
		if err != nil {
			return nil, &journal.Damage{Pid: id.pid, N: id.n, Why: err.Error()}
		}
		list = append(list, journal.Entry{Cursor: f.at + 1, Record: r})
	}
	return list, nil
}

func (s *memStore) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.closed = true
	return nil
}
