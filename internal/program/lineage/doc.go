// Package lineage finds the ancestors of a process.
//
// A program that Kern starts has a supervisor above it, and cannot leave: the
// supervisor adopts every descendant that loses its parent (package reap). So the
// ancestors of a process tell which program it belongs to, also after a double fork
// or in a session of its own.
package lineage

// SupervisorName is the first argument of every supervisor.
const SupervisorName = "kern-supervisor"

// A Process is one process of the system. The time of its start tells it from a later
// process with the same number.
type Process struct {
	Pid     int
	Started uint64 // in ticks since the system started
}

// An Ancestor is a process, or a process above it.
type Ancestor struct {
	Process
	Supervisor bool // it supervises a program
}
