//go:build !linux

package tools

import (
	"errors"
	"fmt"
	"os"
)

const canSupervise = false

// ErrNoSupervisor says that this system cannot find all descendants of a
// program, so there is no supervisor; see Runner.AcceptWeakKill.
var ErrNoSupervisor = errors.New("tool: no supervisor on this system; set Runner.AcceptWeakKill to run commands in a process group")

// Supervise refuses: this system has no supervisor. It never returns.
func Supervise() {
	fmt.Fprintln(os.Stderr, ErrNoSupervisor)
	os.Exit(2)
}

// Conceal refuses: this system has no such thing.
func Conceal() error { return errors.New("tool: a process cannot be hidden on this system") }

// A Pool keeps supervisors warm on Linux, and nothing here.
type Pool struct{ Idle int }

// DefaultIdle is how many supervisors a Pool keeps when nothing else is said.
const DefaultIdle = 4

// Warm returns ErrNoSupervisor.
func (p *Pool) Warm(Runner) error { return ErrNoSupervisor }

// Close does nothing.
func (p *Pool) Close() error { return nil }

func (r Runner) start(j job, files [3]*os.File) (*flight, error) { return startGroup(j, files) }
