// Package program starts, bounds, confines and kills other programs.
//
// A program is never started by its caller but by a supervisor, two small
// processes of this same binary:
//
//	caller ── keeper ── supervisor ── the program ── whatever it starts
//	   └────── control socket ──┘
//
// The supervisor is a child subreaper (package reap): every descendant that loses
// its parent becomes its child, so it can find and wait for all of them. It kills
// until no child is left when the program ends, when its time is up, on order, and
// when the control socket closes because the caller died. Only then it reports. It
// kills process groups as a whole, which works in one step even for a fork bomb,
// and finds the rest by walking the tree until nothing is there.
//
// A program cannot kill its supervisor where the system can forbid it: it runs in
// a Landlock domain that no signal leaves (Linux 6.12), and from which only root
// reads the supervisor's memory. On an older system the keeper, a subreaper too,
// inherits everything from a killed supervisor and kills it. A program of the same
// user that kills both at once escapes there; only a jail holds it. Every program
// has no_new_privs, because signals would not reach a set-user-id program.
//
// A supervisor is pooled or attached. A [Pool] runs command tools, one [Job] after
// the other: each program has a session of its own, and three pipes. [Start] runs
// an attached [Program], as kern exec does. It keeps the terminal, the session, all
// descriptors and the directory of its caller, in a process group of its own, as
// under a shell: it can be stopped, continued and read passwords. Keeper and
// supervisor are in another group of that session, so the system takes the group
// of the program for one with a shell, and stops it at Ctrl-Z.
//
// What this binary does when it starts itself again is a role: see [Main].
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

// A Spec is a program for [Start].
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
	CPU    time.Duration // of it and everything it started
	Lost   bool          // its supervisor was killed, so nobody saw the end
	Ctrl   bool          // Ctrl-C ended it; see [Interrupt]

	OutOfMemory    bool // the kernel killed something of it at the limit on memory
	OutOfProcesses bool // the kernel refused it a process
}

// Code is the exit code that a shell shows.
func (e Ended) Code() int {
	switch {
	case e.Lost:
		return 128 + 9
	case e.Signal != 0:
		return 128 + e.Signal
	}
	return e.Exit
}

// Exit codes of a program that was not started, as env, nohup and timeout have them.
const (
	CannotRun = 126
	NotFound  = 127
)

// A StartError is a program that was not started.
type StartError struct {
	Code  int
	Found bool // the file exists
	Err   error
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// Remedy says what to do about it.
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

// ErrNoSupervisor is the error of a system that cannot find all descendants of a
// program.
var ErrNoSupervisor = errors.New("this system cannot stop a program together with everything it started")

// Able returns [ErrNoSupervisor] on such a system.
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
