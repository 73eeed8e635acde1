// Package cgroup makes control groups for programs, on cgroup v1 or v2. It reads
// back what a group limits, and removes what killed supervisors left.
//
// The versions differ in how a program gets in before its first instruction. On v1
// the thread that starts it moves itself, by the tasks file of the group. On v2 a
// thread cannot move alone: the process enters, starts the program and leaves.
//
// A [Group] holds one run of the sandbox jail. A [Scope] holds any other program, so
// that the kernel kills all of it in one step; with [Bounds] it limits the program.
package cgroup

// Bounds are limits on a scope. Zero is no limit.
type Bounds struct {
	Memory    int64 `json:"memory,omitempty"`    // bytes, with those of files that are in memory
	Processes int   `json:"processes,omitempty"` // and threads
}
