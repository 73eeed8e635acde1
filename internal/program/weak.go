package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// StartWeak runs a job without a supervisor. It kills the process group of the
// program, or the program alone where there are no groups. A process that leaves
// the group stays behind, and all of them do if this process is killed.
func StartWeak(j Job, files [3]*os.File) *Run {
	cmd := &exec.Cmd{Path: j.Path, Args: j.Argv, Env: j.Env, Dir: j.Dir, Stdin: files[0], Stdout: files[1], Stderr: files[2], SysProcAttr: ownGroup}
	err := os.Mkdir(j.Scratch, 0o700)
	if err == nil {
		err = cmd.Start()
	}
	reports := make(chan Report, 1)
	if err != nil {
		RemoveAll(j.Scratch)
		reports <- Report{Err: err.Error()}
		return &Run{Report: reports, Stop: func() {}, Nudge: func() {}}
	}
	kill := func() { killGroup(cmd.Process) }
	var late, ending atomic.Bool
	stop := sync.OnceFunc(func() {
		ending.Store(true)
		kill()
	})
	timer := time.AfterFunc(j.Timeout, func() {
		late.Store(!ending.Load())
		stop()
	})
	go func() {
		_ = cmd.Wait() // ProcessState says it all
		timer.Stop()
		r := Report{Ended: true, Killed: ending.Load(), Late: late.Load(), Gone: true}
		r.Exit, r.Signal, r.CPU = outcomeOf(cmd.ProcessState)
		kill() // the rest of the group
		RemoveAll(j.Scratch)
		reports <- r
	}()
	return &Run{Report: reports, Stop: stop, Nudge: kill}
}

// RemoveAll removes a directory, also if a program took the permissions of what
// is in it.
func RemoveAll(dir string) {
	if dir == "" || os.Remove(dir) == nil || os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir) // what remains belongs to another user
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close() // nothing is buffered in a descriptor
	}
}
