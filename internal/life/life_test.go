package life

import (
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestMoves holds that no state is left that cannot be left, but the last.
func TestMoves(t *testing.T) {
	for s, to := range moves {
		ends := s == abi.Exited
		for _, next := range to {
			ends = ends || next == abi.Exited || moves[next][Exit] == abi.Exited
			if moves[next] == nil {
				t.Errorf("%s leads to %s, which is no state", s, next)
			}
		}
		if !ends {
			t.Errorf("%s does not lead to the end", s)
		}
	}
	if len(moves[abi.Exited]) != 0 {
		t.Error("exited is left again")
	}
}
