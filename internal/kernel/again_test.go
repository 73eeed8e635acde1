package kernel

import (
	"testing"

	"github.com/kern-run/kern/abi"
)

// TestInvalidResultAgain: a repeatable tool that gave an invalid result is tried again
// within its attempts. An irreversible one is not.
func TestInvalidResultAgain(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Money, 10)))
		if r := m.do(pid, 1, "act", deed{Effect: abi.Idempotent, Attempts: 3, Fail: abi.InvalidResult, Times: 2, Give: "fine"}); r.Outcome != abi.OK || r.Attempts != 3 {
			t.Errorf("%+v", r)
		}
		if r := m.do(pid, 2, "act", deed{Effect: abi.Irreversible, Attempts: 3, Fail: abi.InvalidResult, Times: 2}); code(r) != abi.InvalidResult || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
		m.idle()
	})
}
