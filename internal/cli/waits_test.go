package cli

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
)

// TestWaits: a call that waits and is tried again is one wait, noted after some
// seconds and at its end; a short wait and a wait for a child are not noted.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		w := Waits{Pid: 7, Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}
		add := func(call uint64, what string, attempt int, cause string, then time.Duration) {
			w.Add(&abi.LiveItem{Kind: abi.LiveWait, Pid: 7, Call: call, For: what, Attempt: attempt, Cause: cause})
			time.Sleep(then)
			synctest.Wait()
		}
		add(1, "back-off", 2, "503", time.Second)
		add(1, "", 2, "503", time.Second)
		add(1, "turn p/m", 3, "503", time.Second/2)
		add(1, "back-off", 4, "503", 10*time.Second)
		add(1, "", 0, "", 0)
		add(2, "turn p/m", 0, "", 2*time.Second)
		add(2, "", 0, "", 10*time.Second)
		add(3, "child 8", 0, "", 10*time.Second)
		add(4, "turn p/m", 0, "", 4*time.Second)
		add(4, "", 0, "", 0)
		add(5, "back-off", 2, "MODEL_RATE_LIMIT", 4*time.Second)
		add(6, "back-off", 2, "429", 0)
		w.Stop()
		time.Sleep(time.Minute)
		want := []string{
			"kern: process 7 is waiting for the provider (503, try 4)",
			"kern: process 7 goes on after 12s of waiting",
			"kern: process 7 is waiting for a turn at the provider p/m",
			"kern: process 7 goes on after 4.0s of waiting",
			"kern: process 7 is waiting for the provider (rate limit, try 2)",
		}
		if !slices.Equal(notes, want) {
			t.Errorf("%q, want %q", notes, want)
		}
	})
}
