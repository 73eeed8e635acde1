//go:build !linux

package program

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/kern-run/kern/internal/program/cgroup"
)

// Guard refuses: this system has none. It never returns.
func Guard([]string) {
	fmt.Fprintln(os.Stderr, ErrNoGuard)
	os.Exit(2)
}

// A Guest is a program that runs, which there is none of here.
type Guest struct{ Pid int }

// Start returns ErrNoGuard.
func Start(Spec) (*Guest, error) { return nil, ErrNoGuard }

// Bounded returns ErrNoGuard.
func Bounded(cgroup.Bounds) error { return ErrNoGuard }

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

// Interrupt does nothing.
func Interrupt() {}

// Over says that there is none.
func (g *Guest) Over() bool { return true }

// SignalName is what a signal is called.
func SignalName(n int) string { return syscall.Signal(n).String() }

// Signal does nothing.
func (g *Guest) Signal(syscall.Signal) {}
