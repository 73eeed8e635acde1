package kernel

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// What must hold of a kernel at every moment, and what must hold when nothing
// moves any more.

// inBubble runs f where time is the test's, and carries what it throws out of
// the bubble.
func inBubble(t *testing.T, f func()) {
	var thrown any
	synctest.Test(t, func(*testing.T) {
		defer func() {
			if thrown = recover(); thrown != nil {
				if _, ok := thrown.(runtime.Error); ok {
					t.Logf("%v\n%s", thrown, debug.Stack())
				}
			}
		}()
		f()
	})
	if thrown != nil {
		panic(thrown)
	}
}

// each calls f with every account, under a name that outlives a restart. k.mu
// is held.
func (k *Kernel) each(f func(name string, a *ledger.Account)) {
	for _, name := range slices.Sorted(maps.Keys(k.procs.machine.Accounts)) {
		f(name, k.procs.machine.Accounts[name])
	}
	for _, p := range k.procs.sorted() {
		f(fmt.Sprint(p.state.Pid), p.state.Account)
	}
}

// total is what is booked on an account in a unit, in this period.
func total(a *ledger.Account, u abi.Unit) int64 { return a.Counted(u) + a.Reserved[u] + a.Held[u] }

// allowances are sums above a limit that are excused, because a person lowered
// the limit under what was booked already.
type allowances map[string]abi.Usage

// note excuses what is booked now. k.mu is held.
func (x allowances) note(name string, a *ledger.Account) {
	var u abi.Usage
	for i := range u {
		u[i] = total(a, abi.Unit(i))
	}
	x[name] = u
}

// breach looks for an account that is over its limit, or under zero.
func (k *Kernel) breach(x allowances) (err error) {
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	k.each(func(name string, a *ledger.Account) {
		for u := range abi.Units {
			limit, set := a.Limits.Get(u)
			if sum := total(a, u); set && sum > limit && sum > x[name][u] {
				err = fmt.Errorf("account %s: %s settled %d + reserved %d + held %d > limit %d, %d excused", name, u, a.Settled[u], a.Reserved[u], a.Held[u], limit, x[name][u])
			}
			if a.Settled[u] < 0 || a.Reserved[u] < 0 || a.Held[u] < 0 || a.Doubt[u] < 0 || a.Doubt[u] > a.Reserved[u] {
				err = fmt.Errorf("account %s: %s settled %d, reserved %d, stuck %d, held %d", name, u, a.Settled[u], a.Reserved[u], a.Doubt[u], a.Held[u])
			}
		}
	})
	return err
}

// tally is an account recomputed from records, by a hand other than the
// kernel's.
type tally struct{ settled, reserved, stuck, held abi.Usage }

// tallies adds up the records on disk, and what the open calls hold.
func (m *rig) tallies() (map[string]*tally, error) {
	all := map[string]*tally{}
	up := map[abi.Pid][]string{} // the accounts a process is booked on
	open := map[callID]abi.Usage{}
	book := func(pid abi.Pid, f func(t *tally)) {
		for _, name := range up[pid] {
			f(all[name])
		}
	}
	err := m.store.Scan(func(r *abi.Record) error {
		id := callID{r.Pid, r.Call}
		switch r.Kind {
		case abi.KindAccount:
			if all[r.Change.Account] == nil {
				all[r.Change.Account] = &tally{}
			}
		case abi.KindSpawned:
			name := fmt.Sprint(r.Pid)
			all[name] = &tally{}
			above := up[r.Spawn.Parent]
			if r.Spawn.Parent == 0 && r.Spawn.Account != "" {
				above = []string{r.Spawn.Account}
			}
			up[r.Pid] = append([]string{name}, above...)
			if r.Spawn.Parent != 0 {
				book(r.Spawn.Parent, func(t *tally) { t.settled[abi.Children]++ })
			}
		case abi.KindBegan:
			open[id] = r.Intent.Reserve
			book(r.Pid, func(t *tally) { t.reserved.Add(&r.Intent.Reserve) })
		case abi.KindEnded, abi.KindRefused:
			had, begun := open[id]
			delete(open, id)
			if begun && r.Answer.Outcome == abi.Unknown {
				book(r.Pid, func(t *tally) { t.stuck.Add(&had) })
				break
			}
			book(r.Pid, func(t *tally) { t.reserved.Sub(&had); t.settled.Add(&r.Answer.Usage) })
		case abi.KindSettled:
			book(r.Pid, func(t *tally) {
				t.reserved.Sub(&r.Settle.Released)
				t.stuck.Sub(&r.Settle.Released)
				t.settled.Add(&r.Settle.Spent)
			})
		}
		return nil
	})
	k := m.Kernel
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	for _, p := range k.procs.sorted() {
		for _, o := range p.ops {
			book(p.state.Pid, func(t *tally) { t.held.Add(&o.held) })
		}
	}
	return all, err
}

// unbalanced compares every account with what its records add up to. Everything
// must be on disk.
func (m *rig) unbalanced() error {
	want, err := m.tallies()
	if err != nil {
		return err
	}
	k := m.Kernel
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	k.each(func(name string, a *ledger.Account) {
		if got := (tally{a.Settled, a.Reserved, a.Doubt, a.Held}); want[name] == nil || got != *want[name] {
			err = fmt.Errorf("account %s:\nbooked  %+v\nrecords %+v", name, got, want[name])
		}
	})
	return err
}

// forgotten looks for a call that waits although nothing keeps it waiting.
// Nothing may move meanwhile.
func (m *rig) forgotten() (err error) {
	k := m.Kernel
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	for _, p := range k.procs.sorted() {
		for n, o := range p.ops {
			switch o.waiting.on {
			case waitRoom, waitCont, waitApproval:
				v := admit(&admission{p.state, &o.call, o.row, &o.job.Plan, nil, p.claimsBefore(&o.call), k.cfg.Now().UnixNano()})
				if v.refused != nil && o.waiting.on == waitApproval {
					continue // it hears of that when a person has decided
				}
				if v.wait != o.waiting.on {
					err = fmt.Errorf("process %d call %d waits for %s, and would get %q, refusal %v", p.state.Pid, n, o.waiting.on, v.wait, v.refused)
					if o.waiting.forRoom() {
						err = fmt.Errorf("%w\n  of %+v, claims %+v", err, *o.waiting.room, p.claimsBefore(&o.call))
					}
				}
			}
		}
	}
	return err
}

// unfolded compares the live state of every process with the fold of the
// records on disk, to the byte.
func (m *rig) unfolded() error {
	read := process.NewMachine()
	read.Book = process.NewBook()
	settled := int64(0)
	if err := m.store.Scan(func(r *abi.Record) error {
		if r.Answer != nil && r.Answer.Outcome != abi.Unknown {
			settled += r.Answer.Usage[abi.Money]
		}
		if r.Settle != nil {
			settled += r.Settle.Spent[abi.Money]
		}
		return read.Replay(r, m.store.Blob)
	}); err != nil {
		return err
	}
	for _, s := range read.Book.Lines() {
		settled -= s.Usage[abi.Money]
	}
	if settled != 0 {
		return fmt.Errorf("the book lacks %d of the money that was settled", settled)
	}
	return m.differs(read)
}

func (m *rig) differs(read *process.Machine) error {
	k := m.Kernel
	for _, pid := range read.Tree.After(0, math.MaxInt) {
		s := read.States[pid]
		live, err := m.Dump(pid)
		if err != nil {
			return err
		}
		folded, err := s.Dump()
		if err != nil {
			return err
		}
		if string(live) != string(folded) {
			return fmt.Errorf("process %d\nlive   %s\nfolded %s", pid, live, folded)
		}
		i, err := m.Info(pid)
		if err != nil {
			return err
		}
		if !slices.Equal(i.Children, read.Tree.Children(pid)) {
			return fmt.Errorf("process %d: children %v, folded %v", pid, i.Children, read.Tree.Children(pid))
		}
		want := (&proc{state: s}).info()
		if want.Children = i.Children; s.Exit != nil && !reflect.DeepEqual(i, want) {
			return fmt.Errorf("process %d: %+v, folded %+v", pid, i, want)
		}
	}
	k.procs.mu.Lock()
	defer k.procs.mu.Unlock()
	live := k.procs.machine
	if got, want := live.Book.Lines(), read.Book.Lines(); read.Book != nil && !reflect.DeepEqual(got, want) {
		return fmt.Errorf("the book has %+v, folded %+v", got, want)
	}
	for _, s := range live.States {
		for _, pid := range live.Tree.Children(s.Pid) {
			if _, there := s.Living[pid]; there == live.HasExited(pid) {
				return fmt.Errorf("process %d has the children %v, and %d has exited: %v", s.Pid, slices.Sorted(maps.Keys(s.Living)), pid, !there)
			}
		}
	}
	if all := live.Tree.After(0, math.MaxInt); !slices.Equal(all, read.Tree.After(0, math.MaxInt)) || len(all) != len(k.procs.byPid)+len(live.Buried) || len(live.States) != len(k.procs.byPid) || live.Tree.Living() != read.Tree.Living() ||
		read.NextPid != live.NextPid || read.Settings != live.Settings {
		return fmt.Errorf("processes %v, %d live, next %d, settings %d; folded %v, %d, %d, %d", all, live.Tree.Living(), live.NextPid, live.Settings,
			read.Tree.After(0, math.MaxInt), read.Tree.Living(), read.NextPid, read.Settings)
	}
	for name, a := range k.procs.machine.Accounts {
		b := read.Accounts[name]
		if a.Limits != b.Limits || a.Settled != b.Settled || a.Reserved != b.Reserved || a.Doubt != b.Doubt || a.Period != b.Period {
			return fmt.Errorf("account %s: %+v, folded %+v", name, *a, *b)
		}
	}
	return nil
}

// undead looks for a process whose records do not end as they must: one
// terminal record, the last one, after those of all its children.
func (m *rig) undead() error {
	ended := map[abi.Pid]int64{}
	kids := map[abi.Pid][]abi.Pid{}
	m.tap.mu.Lock()
	defer m.tap.mu.Unlock()
	for i := range m.tap.order {
		r := &m.tap.order[i]
		if at, ok := ended[r.Pid]; ok && r.Kind != abi.KindSettled {
			return fmt.Errorf("process %d has a %s after its terminal record %d", r.Pid, r.Kind, at)
		}
		switch r.Kind {
		case abi.KindSpawned:
			kids[r.Spawn.Parent] = append(kids[r.Spawn.Parent], r.Pid)
		case abi.KindExited:
			ended[r.Pid] = int64(r.N)
			if r.Exit == nil || r.Exit.Exit == "" {
				return fmt.Errorf("process %d ended without a type", r.Pid)
			}
			for _, kid := range kids[r.Pid] {
				if _, ok := ended[kid]; !ok {
					return fmt.Errorf("process %d ended before its child %d", r.Pid, kid)
				}
			}
		}
	}
	return nil
}

// checks is everything that must hold when nothing moves.
func (m *rig) checks(x allowances) error {
	m.bury()
	for _, check := range []func() error{func() error { return m.breach(x) }, m.unbalanced, m.forgotten, m.unfolded, m.undead, m.disagreed} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
