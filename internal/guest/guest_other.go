//go:build !linux

package guest

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrNoGuard says that this system cannot find all descendants of a program.
var ErrNoGuard = errors.New("on this system a program cannot be stopped together with everything it started")

// Guard refuses: this system has none. It never returns.
func Guard([]string) {
	fmt.Fprintln(os.Stderr, ErrNoGuard)
	os.Exit(2)
}

// A Guest is a program that runs, which there is none of here.
type Guest struct{ Pid int }

// Start returns ErrNoGuard.
func Start(Spec) (*Guest, error) { return nil, ErrNoGuard }

// Wait returns at once.
func (g *Guest) Wait() Ended { return Ended{} }

// Pause does nothing.
func (g *Guest) Pause() {}

// Resume does nothing.
func (g *Guest) Resume() {}

// End does nothing.
func (g *Guest) End(time.Duration) {}

// Kill does nothing.
func (g *Guest) Kill() {}

// Signal does nothing.
func (g *Guest) Signal(syscall.Signal) {}
