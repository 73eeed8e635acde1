package kernel

import (
	"strings"
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

// TestLimitBelowFirstCall: a refusal of the first call says which limit would admit it.
func TestLimitBelowFirstCall(t *testing.T) {
	lived(t, func(t *testing.T, m *rig) {
		pid := m.spawn(under(limits(abi.Tokens, 10)))
		if r := m.do(pid, 1, "model", deed{Reserve: abi.Usage{abi.Tokens: 25}}); r.Err == nil || !strings.Contains(r.Err.Hint, "a limit of 25") {
			t.Errorf("%+v", r.Err)
		}
		m.do(pid, 2, "model", deed{Reserve: abi.Usage{abi.Tokens: 5}})
		if r := m.do(pid, 3, "model", deed{Reserve: abi.Usage{abi.Tokens: 25}}); r.Err == nil || r.Err.Hint != "finish with what you have" {
			t.Errorf("%+v", r.Err)
		}
		m.idle()
	})
}
