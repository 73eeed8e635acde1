package process

import (
	"testing"

	"github.com/kern-run/kern/abi"
)

// TestPhases holds that no state is left that cannot be left, but the last.
func TestPhases(t *testing.T) {
	for s, to := range moves {
		ends := s == abi.Exited
		for _, next := range to {
			ends = ends || next == abi.Exited || moves[next][EventExit] == abi.Exited
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
