package kernel

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// shared is a store that another kernel closes.
type shared struct{ journal.Store }

func (shared) Close() error { return nil }

// TestAdopt: two kernels share a store. One adopts a tree of the other: it folds
// the tree alone and continues it, the other is refused for this tree, and both
// keep their own trees.
func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := storetest.NewMemory()
		first := newRigOn(t, Config{}, mem.Open)
		if err := first.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 100)}); err != nil {
			t.Fatal(err)
		}
		s := Spawning{}
		s.Account = "team"
		moves, stays := first.spawn(s), first.spawn(s)
		used := money(3)
		child := first.do(moves, 1, "spawn", deed{Child: &abi.Spawn{Rows: everyRow}})
		if child.Err != nil {
			t.Fatal(child.Err)
		}
		first.do(moves, 2, "act", deed{Reserve: money(5), Use: &used})
		first.do(stays, 1, "act", deed{Reserve: money(5), Use: &used})
		doubtful := first.start(moves, 3, "act", deed{Effect: abi.Irreversible, Reserve: money(7), Gate: "end"})
		first.idle()
		before, err := first.Info(moves)
		if err != nil {
			t.Fatal(err)
		}

		lease, err := first.store.Claim(journal.Lease{})
		if err != nil {
			t.Fatal(err)
		}
		second := newRigOn(t, Config{Trees: []abi.Pid{}}, func() (journal.Store, journal.Lease, error) {
			return shared{first.tap.Store}, lease, nil
		})
		if list := second.List(); len(list) != 0 {
			t.Errorf("a kernel without trees has %v", list)
		}
		if err := second.Adopt(stays + 1); !errors.Is(err, journal.ErrUnknownTree) {
			t.Errorf("a process that is no top process was adopted: %v", err)
		}
		if err := second.Adopt(moves); err != nil {
			t.Fatal(err)
		}
		after, err := second.Info(moves)
		if err != nil || after.Used != before.Used || len(after.Children) != 1 || len(second.List()) != 2 {
			t.Errorf("adopted: %+v, %v, %d processes; was %+v", after, err, len(second.List()), before)
		}
		// The call that was running is in doubt, and its reservation stays.
		if r := second.do(moves, 3, "act", deed{Effect: abi.Irreversible, Reserve: money(7), Gate: "end"}); r.Outcome != abi.Unknown {
			t.Errorf("the call in doubt: %+v", r)
		}
		if accounts := second.Accounts(); len(accounts) != 1 || accounts[0].Used[abi.Money] != 3 {
			t.Errorf("the account that both use: %+v", accounts)
		}
		first.let("end")
		if r := <-doubtful; r.Outcome != abi.Unknown {
			t.Errorf("the call of the old holder ended as %+v", r)
		}
		if r := first.do(moves, 4, "act", deed{Effect: abi.Irreversible}); r.Err == nil || first.effects(moves, 4) != 0 {
			t.Errorf("the old holder ran a call: %+v", r)
		}
		for _, c := range []struct {
			m   *rig
			pid abi.Pid
		}{{first, stays}, {second, moves}, {second, after.Children[0]}} {
			if r := c.m.do(c.pid, 4, "act", deed{Reserve: money(5), Use: &used}); r.Err != nil {
				t.Errorf("a call of process %d: %v", c.pid, r.Err)
			}
		}
		if a, b, c := first.spawn(s), second.spawn(s), first.spawn(s); a == b || b == c || a == c {
			t.Errorf("two processes have one number: %d, %d, %d", a, b, c)
		}
		if err := second.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 9)}); !errors.Is(err, journal.ErrStale) {
			t.Errorf("the settings belong to the other kernel: %v", err)
		}
		second.halt()
		// The next holder of everything finds both kernels' records.
		first.crash()
		if i, err := first.Info(moves); err != nil || i.Used[abi.Money] != 9 {
			t.Errorf("after all: %+v, %v", i.Used, err)
		}
		first.idle()
	})
}
