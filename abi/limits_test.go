package abi

import (
	"fmt"
	"testing"
	"time"
)

// TestLimitsString: fmt prints the limits that are set, each in its unit.
func TestLimitsString(t *testing.T) {
	var l Limits
	if got := fmt.Sprint(l); got != "no limits" {
		t.Errorf("no limits print as %q", got)
	}
	l.Set(Money, 500_000_000)
	l.Set(Steps, 0)
	l.Set(Wall, int64(90*time.Second))
	if got, want := fmt.Sprintf("%v %+v", l, &l), "money 0.5, steps 0, wall 1m30s"; got != want+" "+want {
		t.Errorf("%q, want %q twice", got, want)
	}
}
