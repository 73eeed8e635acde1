package kernel

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kern-run/kern/abi"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	the sums of removed processes are not booked again    TestRemove (the account after a restart)
//	their doubt is not booked again                       TestRemove
//	a tree with a living process is removed               TestNotRemovable
//	a source is removed without its fork                  TestNotRemovable

// TestRemove removes a tree whose account keeps what it used, also in doubt, before and
// after a restart.
func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newRig(t, Config{})
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 100)}); err != nil {
			t.Fatal(err)
		}
		s := Spawning{}
		s.Account = "team"
		used := money(3)
		gone, stays := m.spawn(s), m.spawn(s)
		if r := m.do(gone, 1, "spawn", deed{Child: &abi.Spawn{Rows: everyRow}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		m.do(gone, 2, "act", deed{Reserve: money(5), Use: &used})
		m.do(gone+2, 1, "act", deed{Reserve: money(5), Use: &used})
		m.start(gone, 3, "act", deed{Effect: abi.Irreversible, Reserve: money(7), Gate: "end"})
		m.idle()
		m.crash() // the call in the gate is in doubt now
		m.do(stays, 1, "act", deed{Reserve: money(5), Use: &used})
		for _, pid := range []abi.Pid{gone, stays} {
			if err := m.Signal(t.Context(), pid, abi.Kill, "ann"); err != nil {
				t.Fatal(err)
			}
			m.idle()
		}
		before := m.Accounts()
		if b := before[0]; b.Used[abi.Money] != 9 || b.Reserved[abi.Money] != 7 {
			t.Fatalf("the account has used %v and reserved %v", b.Used, b.Reserved)
		}
		pids, err := Remover{m.Kernel}.Remove(t.Context(), []abi.Pid{gone}, "ann")
		if err != nil || !slices.Equal(pids, []abi.Pid{gone, gone + 2}) {
			t.Fatal(pids, err)
		}
		look := func(when string) {
			t.Helper()
			if now := m.Accounts(); !reflect.DeepEqual(now, before) {
				t.Errorf("%s: the account is\n%+v, was\n%+v", when, now, before)
			}
			var e *abi.Error
			if _, err := m.Info(gone); !errors.As(err, &e) || e.Code != abi.UnknownProcess {
				t.Errorf("%s: the process: %v", when, err)
			}
			if all := m.List(); len(all) != 1 || all[0].Pid != stays {
				t.Errorf("%s: the list is %v", when, all)
			}
		}
		look("after the removal")
		m.crash()
		look("after a restart")
		if next := m.spawn(s); next != gone+3 {
			t.Errorf("the next process is %d, and %d was the last one", next, gone+2)
		}
	})
}

// TestNotRemovable: what lives, belongs to a larger tree or is continued stays, and with
// it everything else of the same request.
func TestNotRemovable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newRig(t, Config{})
		kill := func(pid abi.Pid) {
			t.Helper()
			if err := m.Signal(t.Context(), pid, abi.Kill, "ann"); err != nil {
				t.Fatal(err)
			}
			m.idle()
		}
		lives, done := m.spawn(Spawning{}), m.spawn(Spawning{})
		if r := m.do(lives, 1, "spawn", deed{Child: &abi.Spawn{Rows: everyRow}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		child := lives + 2
		kill(done)
		kill(child)
		fork, err := m.Fork(t.Context(), done, Forking{})
		if err != nil {
			t.Fatal(err)
		}
		kill(fork)
		rm := Remover{m.Kernel}
		for _, c := range []struct {
			pids []abi.Pid
			want string
		}{
			{[]abi.Pid{fork, lives}, "process 1 has not exited"},
			{[]abi.Pid{fork, child}, "process 3 is a child of process 1"},
			{[]abi.Pid{done}, "process 4 continues process 2"},
			{[]abi.Pid{fork, 77}, "there is no process 77"},
		} {
			pids, err := rm.Remove(context.Background(), c.pids, "ann")
			if pids != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, %v; want %s", c.pids, pids, err, c.want)
			}
		}
		if n := len(m.List()); n != 4 {
			t.Errorf("%d processes are left", n)
		}
		if pids, err := rm.Remove(t.Context(), []abi.Pid{done, fork}, "ann"); err != nil || len(pids) != 2 {
			t.Error(pids, err)
		}
		kill(lives)
		trees, _ := rm.Finished()
		if len(trees) != 1 || !slices.Equal(trees[0].Pids, []abi.Pid{lives, child}) {
			t.Errorf("finished: %+v", trees)
		}
	})
}
