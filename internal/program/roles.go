package program

import (
	"errors"
	"os"
)

// A role is what this binary does when it starts itself again. Its name is the
// first argument of the new process.
type role struct {
	name string
	run  func() // never returns
}

var ready bool

// Main turns a process that was started in a role into that role, and never
// returns then. In any other process it returns at once. Call it first in main
// and in TestMain: without it this process starts no supervisor and no jail.
func Main() {
	ready = true
	for _, r := range roles {
		if len(os.Args) > 0 && os.Args[0] == r.name {
			r.run()
			os.Exit(2)
		}
	}
}

// Ready reports whether Main was called. A library must not start a binary again
// whose main does not expect it.
func Ready() bool { return ready }

// ErrNotReady is the error of a process that did not call [Main].
var ErrNotReady = errors.New("this program cannot start itself again as a supervisor; call kern.Child first in main")
