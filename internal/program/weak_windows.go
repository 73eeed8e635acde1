package program

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

var ownGroup *syscall.SysProcAttr

func killGroup(p *os.Process) { _ = p.Kill() }

func outcomeOf(s *os.ProcessState) (exit, signal int, cpu time.Duration) {
	return s.ExitCode(), 0, s.UserTime() + s.SystemTime()
}

// SignalName names a signal.
func SignalName(n int) string { return fmt.Sprintf("signal %d", n) }
