// Package cgroup makes a control group for each run of a jail, on cgroup v1 or
// v2, reads back what it limits, and clears away what killed supervisors left.
//
// The two differ in how a program gets in before its first instruction. On v1
// the thread that will start it moves itself through the group's tasks. On v2
// a thread cannot go alone: the process enters, starts the program and leaves.
//
// A [Scope] is for a program that is not a run of a jail: it is there to be killed
// whole, and to bound the program where that is wished.
package cgroup

// Bounds are what may be in a pen at one time. Zero is no bound.
type Bounds struct {
	Memory    int64 `json:"memory,omitempty"`    // bytes, with those of files that are in memory
	Processes int   `json:"processes,omitempty"` // and threads
}
