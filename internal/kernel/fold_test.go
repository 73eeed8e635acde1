package kernel

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// P4: state is a fold of the journal. What is live, what is recovered and what
// is replayed record by record go through the same apply, and are the same to
// the byte; the fold of a journal that was cut is the state at the cut.

// cut is how things stood when so many records were on disk.
type cut struct {
	records int
	dumps   map[abi.Pid]string
	teams   map[string]ledger.Account
}

func (m *rig) standing() (c cut) {
	c.dumps, c.teams = map[abi.Pid]string{}, map[string]ledger.Account{}
	for _, i := range m.List() {
		c.dumps[i.Pid] = m.dump(i.Pid)
	}
	m.Kernel.procs.mu.Lock()
	defer m.Kernel.procs.mu.Unlock()
	for name, a := range m.procs.machine.Accounts {
		c.teams[name] = ledger.Account{Limits: a.Limits, Settled: a.Settled, Reserved: a.Reserved, Doubt: a.Doubt}
	}
	m.tap.mu.Lock()
	defer m.tap.mu.Unlock()
	c.records = len(m.tap.order)
	return c
}

// foldOf folds records in the order in which they were made.
func (m *rig) foldOf(records []abi.Record) (*process.Machine, error) {
	read := process.NewMachine()
	for i := range records {
		r := records[i] // as it is read: no part is shared with what is live
		e := format.NewEntry(&r, nil)
		back, err := e.Record()
		if err != nil {
			return nil, err
		}
		if err := read.Replay(back, m.store.Blob); err != nil {
			return nil, fmt.Errorf("record %d of process %d: %w", r.N, r.Pid, err)
		}
	}
	return read, nil
}

func (c *cut) same(read *process.Machine) error {
	if len(read.States) != len(c.dumps) {
		return fmt.Errorf("%d processes, were %d", len(read.States), len(c.dumps))
	}
	for pid, live := range c.dumps {
		folded, err := read.States[pid].Dump()
		if err != nil {
			return err
		}
		if string(folded) != live {
			return fmt.Errorf("process %d after %d records\nlive   %s\nfolded %s", pid, c.records, live, folded)
		}
	}
	for name, a := range c.teams {
		if b := read.Accounts[name]; b == nil || a.Limits != b.Limits || a.Settled != b.Settled || a.Reserved != b.Reserved || a.Doubt != b.Doubt {
			return fmt.Errorf("account %s after %d records: %+v, folded %+v", name, c.records, a, b)
		}
	}
	return nil
}

// TestFoldOfCut plays random histories, notes how things stand whenever nothing
// moves, and folds the journal cut at every one of these moments.
func TestFoldOfCut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			h := newHistory(t)
			defer func() { h.halt() }()
			var cuts []cut
			actions := h.actions()
			delete(actions, "crash")
			delete(actions, "tear")
			actions[""] = func(t *rapid.T) {
				h.settle(t)
				cuts = append(cuts, h.standing())
			}
			rt.Repeat(actions)
			h.tap.mu.Lock()
			order := h.tap.order
			h.tap.mu.Unlock()
			for _, c := range cuts {
				read, err := h.foldOf(order[:c.records])
				if err == nil {
					err = c.same(read)
				}
				if err != nil {
					h.fail(rt, err)
				}
			}
			// Every prefix can be folded, also where nobody looked.
			for n := range order {
				if _, err := h.foldOf(order[:n]); err != nil {
					h.fail(rt, err)
				}
			}
		})
	})
}

// TestRecoveredIsLive: with nothing in doubt, a kernel that was opened again is
// the one that was closed, to the byte, and opening adds no record.
func TestRecoveredIsLive(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		busy(t, m)
		m.idle()
		before := m.standing()
		m.crash()
		synctest.Wait()
		after := m.standing()
		for pid, d := range before.dumps {
			if after.dumps[pid] != d {
				t.Errorf("process %d\nlive      %s\nrecovered %s", pid, d, after.dumps[pid])
			}
		}
		if after.records != 0 {
			t.Errorf("opening wrote %d records", after.records)
		}
		for _, i := range m.List() {
			rec, err := m.Recording(context.Background(), i.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Check(rec); err != nil {
				t.Errorf("replayed: %v", err)
			}
		}
	})
}

// busy makes a record of every kind.
func busy(t *testing.T, m *rig) {
	ctx := t.Context()
	if err := m.SetAccount(ctx, "team", abi.Edit{Limits: limits(abi.Money, 100), By: "test"}); err != nil {
		t.Fatal(err)
	}
	s := under(limits(abi.Money, 50, abi.Children, 3))
	s.Account, s.Task = "team", []byte("task")
	pid := m.spawn(s)
	m.do(pid, 1, "model", deed{Say: "hello", Reserve: money(2), Give: "an answer"})
	m.do(pid, 2, "act", deed{Reserve: money(2), Tool: "x", Fail: abi.ToolFailed})
	m.do(pid, 3, "act", deed{Reserve: money(2), Tool: "x", Effect: abi.Idempotent, Fail: abi.ToolFailed, Times: 1, Attempts: 2})
	m.do(pid, 4, "spawn", deed{})
	m.do(2, 1, "send", deed{Pid: pid, Give: "a"})
	m.do(2, 2, "send", deed{Pid: pid, Give: "b"})
	m.do(pid, 5, "recv", deed{})
	m.do(pid, 6, "act", deed{Reserve: money(1000)})
	m.do(pid, 7, "nothing", deed{})
	ask := m.start(pid, 8, "act", deed{Ask: "may it?"})
	synctest.Wait()
	if err := m.Decide(ctx, pid, 0, false, "a person", "no"); err != nil {
		t.Fatal(err)
	}
	if r := <-ask; code(r) != abi.NotApproved {
		t.Errorf("%+v", r)
	}
	m.start(pid, 9, "act", deed{Ask: "and now?"})
	urgent := 3
	l := limits(abi.Money, 60)
	if err := m.Change(ctx, pid, abi.Edit{Limits: l, Priority: &urgent}); err != nil {
		t.Fatal(err)
	}
	m.Signal(ctx, pid, abi.Stop, "test")
	m.do(2, 3, "exit", deed{Give: "bye"})
	if _, err := m.Fork(ctx, pid, Forking{At: 4}); err != nil {
		t.Fatal(err)
	}
}

// lagging is a store that lets something happen after the records of a process
// were read.
type lagging struct {
	journal.Store
	pid  abi.Pid
	then func()
}

func (s *lagging) Records(pid abi.Pid, after uint64) iter.Seq2[*abi.Record, error] {
	return func(yield func(*abi.Record, error) bool) {
		s.Store.Records(pid, after)(yield)
		if pid == s.pid && s.then != nil {
			s.then()
		}
	}
}

// TestCheckOfATree: what a child does while its parent is compared with its
// records is no difference.
//
// Mutant that dies here: only the parent is asked whether it went on.
func TestCheckOfATree(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		var slow *lagging
		m.wrap = func(s journal.Store) journal.Store { slow = &lagging{Store: s}; return slow }
		m.crash()
		pid := m.spawn(Spawning{})
		m.do(pid, 1, "spawn", deed{Child: &abi.Spawn{Rows: everyRow}})
		r, err := m.Recording(t.Context(), pid)
		if err != nil {
			t.Fatal(err)
		}
		slow.pid, slow.then = pid+1, func() { m.do(pid+1, 1, "act", deed{Reserve: money(1)}) }
		if err := m.Check(r); err != nil {
			t.Error(err)
		}
		if n := m.effects(pid+1, 1); n != 1 {
			t.Errorf("the child acted %d times meanwhile", n)
		}
	})
}
