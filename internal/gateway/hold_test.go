package gateway

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/sys"
)

// TestMissed: a process that nobody holds is ended once, when its time is over,
// and nothing is kept of it; one that was held meanwhile has all its time again.
//
// Mutants that die here: the timer of one that was missed is kept, that of one
// that was taken is not stopped.
func TestMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ended []abi.Pid
		h := &holds{end: func(pid abi.Pid, why sys.ExitArgs) error {
			if why.Code != abi.ProgramGone || why.Error != "the command that ran the program is gone, and the program with it" {
				t.Errorf("%d ended with %+v", pid, why)
			}
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, pid)
			return nil
		}}
		want := func(pids ...abi.Pid) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ended, pids) {
				t.Errorf("ended %v, want %v", ended, pids)
			}
		}
		h.miss(1, rejoinTime)
		h.miss(2, rejoinTime)
		time.Sleep(rejoinTime - leaveTime/2)
		h.take(2)
		if h.leave(2) {
			h.miss(2, leaveTime)
		}
		time.Sleep(leaveTime * 3 / 4)
		synctest.Wait()
		want(1) // only the first had its time
		time.Sleep(leaveTime)
		synctest.Wait()
		want(1, 2)
		if len(h.timers) > 0 || len(h.count) > 0 {
			t.Errorf("timers left %v, counts left %v", h.timers, h.count)
		}
	})
}
