//go:build !linux

package program

import (
	"errors"
	"fmt"
	"os"
)

// HideEnvironment does nothing: only a debugger reads the environment of a process here.
func HideEnvironment() error { return nil }

// Conceal refuses: this system cannot hide a process.
func Conceal() error { return errors.New("this process cannot be hidden on this system") }

// A Pool keeps supervisors on Linux. Here it refuses.
type Pool struct {
	Idle    int
	Command []string
}

// DefaultIdle is how many supervisors a Pool keeps by default.
const DefaultIdle = 4

// Warm returns ErrNoSupervisor.
func (p *Pool) Warm() error { return ErrNoSupervisor }

// Close does nothing.
func (p *Pool) Close() error { return nil }

// A Run is a job that runs. Exactly one report comes, also after Stop.
type Run struct {
	Report <-chan Report
	Stop   func()
	Nudge  func()
}

// Start returns ErrNoSupervisor.
func (p *Pool) Start(Job, [3]*os.File) (*Run, error) { return nil, ErrNoSupervisor }

// SignalName names a signal.
func SignalName(n int) string { return fmt.Sprintf("signal %d", n) }
