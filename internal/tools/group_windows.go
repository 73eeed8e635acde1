package tools

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

// startGroup runs a job that is killed alone: see Runner.AcceptWeakKill.
func startGroup(j job, files [3]*os.File) (*flight, error) {
	cmd := &exec.Cmd{Path: j.Argv[0], Args: j.Argv, Env: j.Env, Dir: j.Dir, Stdin: files[0], Stdout: files[1], Stderr: files[2]}
	return startWeak(cmd, j, func() { _ = cmd.Process.Kill() })
}

func outcomeOf(s *os.ProcessState) (exit, signal int, cpu time.Duration) {
	return s.ExitCode(), 0, s.UserTime() + s.SystemTime()
}

func signalName(n int) string { return fmt.Sprintf("signal %d", n) }
