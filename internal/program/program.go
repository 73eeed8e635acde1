// Package program runs a program that knows nothing of Kern, so that it feels at
// home and nothing of it is left at the end.
//
// The program has the terminal, the standard streams, every other descriptor,
// the directory and the signals of who called it, in a process group of its
// own, as a shell would run it: it can be suspended, brought to the fore and
// read passwords. It is started by a guard, two small processes of this same
// program (see package reap), and so ends with everything it started: when it
// ends by itself, when [Guest.End] or [Guest.Kill] is called, when the caller
// is killed with SIGKILL, and when the guard is.
package program

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/program/reap"
)

// A Spec says what to run.
type Spec struct {
	Argv []string
	Env  []string
	Jail *confine.Plan // nil: the program is not confined

	Bounds cgroup.Bounds // of the program and everything it starts
}

// An Ended is how a program ended.
type Ended struct {
	Exit   int           // its exit code, if no signal ended it
	Signal int           // the signal that ended it
	CPU    time.Duration // of it and of all it started
	Lost   bool          // its supervisor was killed, so nobody saw the end
	Ctrl   bool          // Ctrl-C ended it; see [Interrupt]

	OutOfMemory    bool // the kernel killed something of it at the limit on memory
	OutOfProcesses bool // the kernel refused it a process
}

// Code is the exit code that a shell shows for it.
func (e Ended) Code() int {
	switch {
	case e.Lost:
		return 128 + 9
	case e.Signal != 0:
		return 128 + e.Signal
	}
	return e.Exit
}

// Exit codes of what could not be started, as env, nohup and timeout have them.
const (
	CannotRun = 126
	NotFound  = 127
)

// A StartError is a program that was not started.
type StartError struct {
	Code  int
	Found bool // it is there
	Err   error
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// Remedy is what to do about it.
func (e *StartError) Remedy() string {
	var named *exec.Error
	switch {
	case errors.As(e.Err, &named) && strings.Contains(named.Name, "="):
		return "a variable is set before kern exec, or with env: -- env " + named.Name + " PROGRAM"
	case errors.Is(e, os.ErrPermission):
		return "chmod +x makes a file a program; a script also starts with the name of what runs it, such as: -- python agent.py"
	case errors.Is(e, syscall.EISDIR):
		return "name a program in it"
	case errors.Is(e, syscall.E2BIG):
		return "its arguments and environment are more than this system takes: give it a file, or its standard input"
	case e.Code == CannotRun:
		return "it is there, and this system cannot run it"
	case e.Found:
		return "it is there; what its first line, or its own head, names to run it is not"
	}
	return "look at the name, and at PATH; what stands before -- is Kern's"
}

// Find finds a program as a shell would.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) { // the PATH names the directory: so would a shell
		err = nil
	}
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, os.ErrPermission) || strings.Contains(name, "/") && !errors.Is(err, os.ErrNotExist):
		return "", &StartError{CannotRun, true, err}
	}
	return "", &StartError{NotFound, false, err}
}

// ErrNoSupervisor says that a system cannot find all descendants of a program.
var ErrNoSupervisor = errors.New("on this system a program cannot be stopped together with everything it started")

// Able returns [ErrNoSupervisor] where this system is one of those.
func Able() error {
	if !reap.Able {
		return ErrNoSupervisor
	}
	return nil
}

// startError is the error of a program that was found and does not start.
func startError(name string, e syscall.Errno) error {
	code := CannotRun
	if e == syscall.ENOENT {
		code = NotFound
	}
	return &StartError{code, true, &os.PathError{Op: "exec", Path: name, Err: e}}
}
