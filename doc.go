// Package kern runs AI agents as processes under a kernel.
//
// An agent is a process. Every model call, tool call and child it starts is a
// system call: admitted against hard limits before it happens, journalled,
// run, and settled. So an agent stops when it must, survives a crash, and does
// nothing twice.
//
// A program opens a data directory with [Open] and runs agents with
// [Kernel.Run]. The command kern is such a program; its daemon and a Go program
// go through the same code. This package only joins the parts: what happens to
// a call is told by one function, Do, in internal/kernel/do.go.
package kern
