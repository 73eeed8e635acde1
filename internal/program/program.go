// Package program starts, bounds, confines and kills other programs.
//
// The caller never starts a program itself. A supervisor starts it. The supervisor
// comes with a keeper; both are small processes of this same binary:
//
//	caller ── keeper ── supervisor ── the program ── whatever it starts
//	   └────── control socket ──┘
//
// The supervisor is a child subreaper (package reap): every descendant that loses
// its parent becomes its child, so the supervisor can find and wait for all of them.
// The supervisor kills until no child is left, and reports only then. It does so when
// the program ends, when the time is up, on order, or when the control socket closes.
// The socket closes if the caller dies. The supervisor kills whole process groups,
// because that stops even a fork bomb in one step. It finds the rest by walking the
// process tree until no process is left.
//
// On Linux 6.12 and later, a program cannot kill its supervisor. The program runs in
// a Landlock domain that no signal leaves, and from which only root reads the
// supervisor's memory. On an older system the keeper, also a subreaper, inherits
// every descendant of a killed supervisor and kills it. A program of the same user
// that kills both at once escapes there; only a jail holds it. Every program has
// no_new_privs, because signals would not reach a set-user-id program.
//
// A supervisor is pooled or attached. A [Pool] runs command tools, one [Job] after
// the other: each program has a session of its own, and three pipes. [Start] runs
// an attached [Program], as kern exec does. An attached program keeps the terminal,
// the session, all descriptors and the directory of its caller. It has a process
// group of its own, as under a shell, so it can be stopped, continued and read
// passwords. Keeper and supervisor are in another group of that session. The system
// therefore treats the program's group as a shell's job, and stops it at Ctrl-Z.
//
// [Main] runs the role in which this binary started itself again.
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

// A Spec describes a program for [Start].
type Spec struct {
	Argv []string
	Env  []string
	Jail *confine.Plan // nil: the program is not confined

	Bounds cgroup.Bounds // of the program and everything it starts
}

// Ended reports how a program ended.
type Ended struct {
	Exit   int           // its exit code, if no signal ended it
	Signal int           // the signal that ended it
	CPU    time.Duration // of it and everything it started
	Lost   bool          // its supervisor was killed, so the exit status is unknown
	Ctrl   bool          // Ctrl-C ended it; see [Interrupt]

	OutOfMemory    bool // the kernel killed a process of it at the memory limit
	OutOfProcesses bool // the kernel refused to start another process for it
}

// Code returns the exit code that a shell shows: 128 plus the signal after a signal.
func (e Ended) Code() int {
	switch {
	case e.Lost:
		return 128 + 9
	case e.Signal != 0:
		return 128 + e.Signal
	}
	return e.Exit
}

// Exit codes for a program that did not start, the same as env, nohup and timeout use.
const (
	CannotRun = 126
	NotFound  = 127
)

// A StartError says why a program did not start.
type StartError struct {
	Code  int
	Found bool // the file exists
	Err   error
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// Remedy returns a hint for the person: what to change so that the program starts.
func (e *StartError) Remedy() string {
	var named *exec.Error
	switch {
	case errors.As(e.Err, &named) && strings.Contains(named.Name, "="):
		return "set a variable before kern exec, or with env: -- env " + named.Name + " PROGRAM"
	case errors.Is(e, os.ErrPermission):
		return "make the file executable with chmod +x, or name its interpreter too: -- python agent.py"
	case errors.Is(e, syscall.EISDIR):
		return "name a program in that directory"
	case errors.Is(e, syscall.E2BIG):
		return "its arguments and environment are larger than this system allows: pass a file, or standard input"
	case e.Code == CannotRun:
		return "the file exists, but this system cannot run it"
	case e.Found:
		return "the file exists, but the interpreter that it names does not"
	}
	return "check the name and PATH; everything before -- belongs to Kern"
}

// Find finds a program as a shell would.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) { // PATH names the directory, so a shell would run it
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

// ErrNoSupervisor says that this system cannot find all descendants of a program.
var ErrNoSupervisor = errors.New("this system cannot stop a program together with everything it started")

// Able returns [ErrNoSupervisor] if this system cannot run a supervisor.
func Able() error {
	if !reap.Able {
		return ErrNoSupervisor
	}
	return nil
}

// startError returns the [StartError] for a program that was found and does not start.
func startError(name string, e syscall.Errno) error {
	code := CannotRun
	if e == syscall.ENOENT {
		code = NotFound
	}
	return &StartError{code, true, &os.PathError{Op: "exec", Path: name, Err: e}}
}
