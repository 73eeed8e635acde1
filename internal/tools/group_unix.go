//go:build unix

package tools

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// startGroup runs a job in a process group of its own, which is killed as a
// whole at the end. What leaves the group stays; see Runner.AcceptWeakKill.
func startGroup(j job, files [3]*os.File) (*flight, error) {
	cmd := &exec.Cmd{Path: j.Argv[0], Args: j.Argv, Env: j.Env, Dir: j.Dir, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	return startWeak(cmd, j, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gone is as good
	})
}

// outcomeOf is how a process ended.
func outcomeOf(s *os.ProcessState) (exit, signal int, cpu time.Duration) {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		signal = int(ws.Signal())
	}
	return s.ExitCode(), signal, s.UserTime() + s.SystemTime()
}
