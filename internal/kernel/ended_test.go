package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// What has ended is let go, and whatever is asked of it is answered as if it were
// there. The rigs of this package let go at once, so every history of every test
// goes this way; what stands here is what they do not ask.

// asked is all that can be asked of a process that has ended.
func (m *rig) asked(pid abi.Pid) string {
	m.t.Helper()
	i, err := m.Info(pid)
	v, err2 := m.View(pid)
	at, err3 := m.Where(pid)
	regs, err4 := m.Registers(pid)
	used, left := m.Stands(pid)
	o, err5 := m.Orders(m.t.Context(), pid, Orders{})
	waited, err6 := m.Wait(m.t.Context(), pid)
	b, err := json.MarshalIndent([]any{i, v, at, regs, used, left, o, waited, m.Ending(pid), m.Accounts(), m.dump(pid),
		fmt.Sprint(err, err2, err3, err4, err5, err6, m.Signal(m.t.Context(), pid, abi.Kill, "test"), m.Change(m.t.Context(), pid, abi.Edit{Priority: new(int)}),
			m.Decide(m.t.Context(), pid, 0, true, "test", ""))}, "", " ")
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

// tree plays a process with a child that both do this and that, and end.
func tree(t *testing.T, m *rig) (parent, child abi.Pid) {
	s := under(limits(abi.Money, 50, abi.Children, 3, abi.Wall, time.Hour))
	s.Account, s.Task = "team", []byte("a task")
	if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 1000), By: "test"}); err != nil {
		t.Fatal(err)
	}
	parent = m.spawn(s)
	m.do(parent, 1, "model", deed{Say: "hello", Reserve: money(2), Give: "an answer"})
	m.do(parent, 2, "act", deed{Reserve: money(2), Tool: "x", Fail: abi.ToolFailed, State: 3})
	m.do(parent, 3, "spawn", deed{Child: &abi.Spawn{Limits: limits(abi.Money, 7)}})
	child = parent + 1
	m.do(child, 1, "model", deed{Reserve: money(3), Give: "of the child"})
	m.do(child, 2, "send", deed{Pid: parent, Give: "dear parent"})
	m.do(child, 3, "act", deed{Reserve: money(1), Gate: "never", Effect: abi.Idempotent, Quiet: true, Fail: abi.ToolFailed})
	return parent, child
}

// TestLetGoIsKept compares a kernel that has let go with one that has not, and
// with itself after a restart, by all that can be asked.
//
// Mutants that die here: the children of what was let go are not folded, the
// account above it is not found, why it ended is forgotten.
func TestLetGoIsKept(t *testing.T) {
	said := map[int][]string{}
	for _, linger := range []int{100, 0} {
		synctest.Test(t, func(t *testing.T) {
			m := newRigOn(t, Config{}, storetest.NewMemory().Open)
			m.keep(linger)
			m.let("never")
			parent, child := tree(t, m)
			m.do(child, 4, "exit", deed{Give: "bye"})
			m.do(parent, 4, "wait", deed{})
			m.do(parent, 5, "exit", deed{Give: "what I have"})
			s := under(limits(abi.ModelCalls, 0))
			s.Account = "team"
			limited := m.spawn(s)
			m.do(limited, 1, "model", deed{Reserve: abi.Usage{abi.ModelCalls: 1}})
			m.do(limited, 2, "exit", deed{Code: abi.LimitModelCalls})
			killed := m.spawn(Spawning{})
			m.Signal(t.Context(), killed, abi.Kill, "test")
			m.idle()
			all := []abi.Pid{parent, child, limited, killed}
			for round := range 2 {
				if gone := len(m.procs.machine.Buried); gone != len(all) && linger == 0 || gone != 0 && linger > 0 && round == 0 {
					t.Errorf("%d of %d are let go", gone, len(all))
				}
				for i, pid := range all {
					said[linger] = append(said[linger], m.asked(pid))
					if round == 1 && said[linger][i] != said[linger][len(all)+i] {
						t.Errorf("process %d, linger %d, before and after a restart:\n%s\n%s", pid, linger, said[linger][i], said[linger][len(all)+i])
					}
					rec, err := m.Recording(t.Context(), pid)
					if err == nil {
						err = m.Check(rec)
					}
					if err != nil {
						t.Error(err)
					}
				}
				m.crash()
				m.idle()
			}
		})
	}
	for i := range said[0] {
		if said[0][i] != said[100][i] {
			t.Errorf("let go\n%s\nkept\n%s", said[0][i], said[100][i])
		}
	}
}

// TestAskedOfTheGone: a call of a process that was let go has the answer it had,
// content that differs is seen, and no other call is made.
//
// Mutants that die here: the journal is not asked, other content is answered.
func TestAskedOfTheGone(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		first := m.do(pid, 1, "act", deed{Give: "x", Reserve: money(1)})
		refused := m.do(pid, 2, "nothing", deed{})
		m.do(pid, 3, "exit", deed{Give: "bye"})
		m.idle()
		for range 2 {
			if _, gone := m.procs.machine.Buried[pid]; !gone {
				t.Fatal("it was not let go")
			}
			if r := m.do(pid, 1, "act", deed{Give: "x", Reserve: money(1)}); !reflect.DeepEqual(r, first) || m.effects(pid, 1) != 1 {
				t.Errorf("%+v, was %+v, ran %d times", r, first, m.effects(pid, 1))
			}
			if r := m.do(pid, 2, "nothing", deed{}); !reflect.DeepEqual(r, refused) {
				t.Errorf("%+v, was %+v", r, refused)
			}
			if r := m.do(pid, 3, "exit", deed{Give: "bye"}); string(r.Value) != `"bye"` {
				t.Errorf("its exit: %+v", r)
			}
			if r := m.do(pid, 1, "act", deed{Give: "y"}); code(r) != abi.Diverged {
				t.Errorf("other content: %+v", r)
			}
			if r := m.do(pid, 4, "act", deed{}); code(r) != abi.ProcessExited || r.Outcome != abi.Refused || r.Err.Message != "process 1 has exited: done" {
				t.Errorf("another call: %+v", r)
			}
			if r := m.do(pid, 0, "act", deed{}); code(r) != abi.InvalidCall {
				t.Errorf("no number: %+v", r)
			}
			if r := m.do(pid+1, 1, "act", deed{}); code(r) != abi.UnknownProcess {
				t.Errorf("nobody: %+v", r)
			}
			m.crash()
		}
	})
}

// TestWaitForTheGone: a parent is told of children that were let go long ago, of
// each once, and nothing reaches them.
//
// Mutant that dies here: who was let go is no child any more.
func TestWaitForTheGone(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		parent := m.spawn(Spawning{})
		for n := uint64(1); n <= 3; n++ {
			m.do(parent, n, "spawn", deed{Nonce: int(n)})
			m.do(parent+abi.Pid(n), 1, "exit", deed{})
		}
		m.idle()
		if len(m.procs.machine.Buried) != 3 {
			t.Fatalf("%d are let go", len(m.procs.machine.Buried))
		}
		m.crash()
		if r := m.do(parent, 1, "spawn", deed{Nonce: 1}); string(r.Value) != "2" || len(m.List()) != 4 {
			t.Errorf("the spawn asked again: %s of %d", r.Value, len(m.List()))
		}
		if r := m.do(parent, 10, "wait", deed{Pid: 3}); string(r.Value) != "3" {
			t.Errorf("by name: %s %v", r.Value, r.Err)
		}
		for n, want := range []string{"2", "4"} {
			if r := m.do(parent, uint64(11+n), "wait", deed{}); string(r.Value) != want {
				t.Errorf("wait %d: %s %v, want %s", n, r.Value, r.Err, want)
			}
		}
		if r := m.do(parent, 13, "wait", deed{}); code(r) != abi.UnknownProcess {
			t.Errorf("nobody is left: %s %v", r.Value, r.Err)
		}
		if r := m.do(parent, 14, "send", deed{Pid: 2, Give: "are you there?"}); code(r) != abi.ProcessExited {
			t.Errorf("a message to the gone: %+v", r)
		}
		m.do(parent, 15, "exit", deed{})
		m.idle()
		if i, _ := m.Info(parent); i.Exit == nil || i.Used[abi.Children] != 3 || len(i.Children) != 3 {
			t.Errorf("%+v", i)
		}
	})
}

// TestForkOfTheGone: a fork of what was let go has what was left.
func TestForkOfTheGone(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		m.let("never")
		parent, child := tree(t, m)
		m.do(child, 4, "exit", deed{})
		m.do(parent, 5, "exit", deed{})
		m.idle()
		fork, err := m.Fork(t.Context(), parent, Forking{})
		if err != nil {
			t.Fatal(err)
		}
		old, _ := m.View(parent)
		v, _ := m.View(fork)
		i, _ := m.Info(fork)
		if n, _ := i.Limits.Get(abi.Money); n != 50-2-2-3-1 || !reflect.DeepEqual(v.Pages, old.Pages) || len(v.Pages) != 3 {
			t.Errorf("%d of money is left, pages %v; were %v", n, v.Pages, old.Pages)
		}
	})
}

// held is a store that keeps what it is given from the disk.
type held struct {
	journal.Store
	gate chan struct{}
}

func (s *held) Append(l journal.Lease, batch []abi.Record) error {
	<-s.gate
	return s.Store.Append(l, batch)
}

// TestNotBeforeTheDisk: nobody is let go whose end is not on disk, for there
// would be nothing to read it from.
//
// Mutant that dies here: letGo does not look at the pending record.
func TestNotBeforeTheDisk(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		one, two := m.spawn(Spawning{}), m.spawn(Spawning{})
		m.idle()
		m.tap.mu.Lock()
		slow := &held{m.tap.Store, make(chan struct{})}
		m.tap.Store = slow
		m.tap.mu.Unlock()
		for _, pid := range []abi.Pid{one, two} {
			m.calls.Go(func() { _ = m.Signal(context.Background(), pid, abi.Kill, "test") }) // it waits for the disk
		}
		synctest.Wait()
		m.bury()
		for _, pid := range []abi.Pid{one, two} {
			i, err := m.Info(pid)
			if err != nil || i.Exit == nil || i.State != abi.Exited {
				t.Errorf("process %d: %+v %v", pid, i, err)
			}
		}
		if len(m.procs.machine.Buried) > 0 {
			t.Errorf("%d are let go", len(m.procs.machine.Buried))
		}
		close(slow.gate)
		m.idle()
		if len(m.procs.machine.Buried) != 2 {
			t.Errorf("%d are let go", len(m.procs.machine.Buried))
		}
	})
}

// TestRefusedStays: a process whose end the journal refused is kept, for it is
// nowhere else, and keeps nobody else.
func TestRefusedStays(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		one, two := m.spawn(Spawning{}), m.spawn(Spawning{})
		m.tap.refuse = one
		m.start(one, 1, "exit", deed{})
		synctest.Wait()
		m.do(two, 1, "exit", deed{})
		synctest.Wait()
		m.bury()
		if _, gone := m.procs.machine.Buried[two]; !gone || len(m.procs.machine.Buried) != 1 {
			t.Errorf("let go: %v", m.procs.machine.Buried)
		}
		if i, err := m.Info(one); err != nil || i.Exit == nil || len(m.exits.queue) > 0 {
			t.Errorf("%+v %v", i, err)
		}
	})
}

// TestOrphan: a process whose parent has ended does not go on, whatever became of
// its own end.
//
// Mutant that dies here: recovery does not look for orphans.
func TestOrphan(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		parent := m.spawn(Spawning{})
		m.do(parent, 1, "spawn", deed{})
		m.tap.refuse = parent + 1
		m.start(parent+1, 1, "exit", deed{})
		synctest.Wait()
		m.do(parent, 2, "exit", deed{})
		synctest.Wait() // its end is on disk
		m.crash()
		synctest.Wait()
		if i, err := m.Info(parent + 1); err != nil || i.Exit == nil || i.Exit.Reason != "parent" {
			t.Errorf("%+v %v", i.Exit, err)
		}
		if err := m.checks(allowances{}); err != nil { // also that its parent is known to have had it
			t.Error(err)
		}
	})
}

// TestUnreadable: of what was let go and cannot be read any more it is said so, and
// what lists show of it is known without.
func TestUnreadable(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(Spawning{})
		m.do(pid, 1, "exit", deed{})
		m.idle()
		m.store.Close()
		if _, err := m.View(pid); err == nil || err.(*abi.Error).Code != abi.StorageBroken {
			t.Errorf("%v", err)
		}
		if i, err := m.Info(pid); err != nil || i.Exit == nil || i.Exit.Exit != abi.ExitDone || i.Records != 4 {
			t.Errorf("%+v %v", i, err)
		}
		if r := m.Do(context.Background(), call(pid, 1, "exit", deed{})); code(r) != abi.StorageBroken || r.Outcome != abi.Unknown {
			t.Errorf("%+v", r)
		}
		if e := m.Ending(pid); e == nil || e.Code != abi.ProcessEnding {
			t.Errorf("its end is known without: %v", e)
		}
	})
}
