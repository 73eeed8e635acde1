//go:build unix

package program

import (
	"os"
	"syscall"
	"time"
)

var ownGroup = &syscall.SysProcAttr{Setpgid: true}

func killGroup(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // it may be gone
}

// outcomeOf is how a process ended.
func outcomeOf(s *os.ProcessState) (exit, signal int, cpu time.Duration) {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		signal = int(ws.Signal())
	}
	return s.ExitCode(), signal, s.UserTime() + s.SystemTime()
}
