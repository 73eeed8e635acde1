package kernel

import (
	"context"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
)

// TestSettle: a person settles a call in doubt, at any time in the life of the process
// and after it. The accounts above are settled too, and stay so after a restart.
//
// Mutants that die here: only its own account, a buried process that keeps its doubt, a
// call that is settled twice, a settlement that a restart forgets.
func TestSettle(t *testing.T) {
	for name, when := range map[string]func(m *rig, pid abi.Pid){
		"it lives":        func(*rig, abi.Pid) {},
		"it has exited":   func(m *rig, pid abi.Pid) { m.do(pid, 9, "exit", deed{}) },
		"it is buried":    func(m *rig, pid abi.Pid) { m.do(pid, 9, "exit", deed{}); m.keep(0); m.bury() },
		"after a crash":   func(m *rig, pid abi.Pid) { m.crash() },
		"buried, a crash": func(m *rig, pid abi.Pid) { m.do(pid, 9, "exit", deed{}); m.crash() },
	} {
		t.Run(name, func(t *testing.T) {
			lived(t, func(t *testing.T, m *rig) {
				ctx := context.Background()
				if err := m.SetAccount(ctx, "team", abi.Edit{Limits: limits(abi.Money, 20)}); err != nil {
					t.Fatal(err)
				}
				s := under(limits(abi.Money, 10))
				s.Account, s.Rows = "team", everyRow
				parent := m.spawn(s)
				r := m.do(parent, 1, "spawn", deed{Child: &abi.Spawn{Limits: limits(abi.Money, 5)}})
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				kid := parent + 1
				m.do(kid, 1, "act", deed{Reserve: money(4), Panic: true})
				m.do(kid, 2, "act", deed{Reserve: money(1), Give: "fine"})
				when(m, kid)

				refused := func(call uint64, s abi.Settlement, want string) {
					t.Helper()
					s.Call, s.By = call, "ann"
					if err := m.Settle(ctx, kid, s); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("call %d: %v, want %s", call, err, want)
					}
				}
				refused(2, abi.Settlement{None: true}, "is not in doubt")
				refused(1, abi.Settlement{}, "expected what the call used")
				refused(1, abi.Settlement{Spent: limits(abi.Steps, 1)}, "expected money")
				if err := m.Settle(ctx, kid, abi.Settlement{Call: 1, Spent: limits(abi.Money, 3), By: "ann"}); err != nil {
					t.Fatal(err)
				}
				refused(1, abi.Settlement{None: true}, "is not in doubt")
				look := func() {
					t.Helper()
					for _, pid := range []abi.Pid{kid, parent} {
						if i, err := m.Info(pid); err != nil || i.Doubt != (abi.Usage{}) || i.Reserved != (abi.Usage{}) || i.Used[abi.Money] != 4 {
							t.Errorf("process %d: %+v %v", pid, i, err)
						}
					}
					if a := m.Accounts()[0]; a.Used[abi.Money] != 4 || a.Reserved != (abi.Usage{}) {
						t.Errorf("%+v", a)
					}
					rec, err := m.Recording(ctx, kid)
					if err == nil {
						err = m.Check(rec)
					}
					settled := 0
					for _, r := range rec.Records {
						if r.Kind == abi.KindSettled && r.Settle.By == "ann" {
							settled++
						}
					}
					if err != nil || settled != 1 {
						t.Errorf("%d settlements, %v", settled, err)
					}
					m.idle()
				}
				look()
				m.crash()
				look()
				m.do(parent, 8, "exit", deed{})
				m.keep(0)
				m.bury()
				look()
				m.crash()
				look()
			})
		})
	}
}
