//go:build !linux

package program

import (
	"time"

	"github.com/kern-run/kern/internal/program/cgroup"
)

// A Program is a program that runs, which there is none of here.
type Program struct{ Pid int }

// Start returns ErrNoSupervisor.
func Start(Spec) (*Program, error) { return nil, ErrNoSupervisor }

// Bounded returns ErrNoSupervisor.
func Bounded(cgroup.Bounds) error { return ErrNoSupervisor }

// Wait returns at once.
func (p *Program) Wait() Ended { return Ended{} }

// Pause does nothing.
func (p *Program) Pause() {}

// Resume does nothing.
func (p *Program) Resume() {}

// End does nothing.
func (p *Program) End(time.Duration, time.Duration, func()) {}

// Kill does nothing.
func (p *Program) Kill() {}

// Interrupt does nothing.
func Interrupt() {}

// Over says that there is none.
func (p *Program) Over() bool { return true }
