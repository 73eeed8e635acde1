package program

import (
	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
)

// What is said on the control socket between the caller and the guard, as
// lines of JSON. Its end on either side is the end of the other.

// A home says to a guard what to start; it stands in its arguments, before
// those of the program.
type home struct {
	Control int    `json:"control"` // the descriptor of the socket
	Inner   bool   `json:"inner"`   // the supervisor proper, below its keeper
	Front   bool   `json:"front"`   // the program has the terminal from its start
	Caller  int    `json:"caller"`  // to wake, should it sleep when the program goes on
	Path    string `json:"path"`

	Fence  *confine.Plan `json:"fence,omitempty"` // the program runs behind
	Bounds cgroup.Bounds `json:"bounds,omitzero"`
}

// An order is for the guard: a signal to the program's group, or to everything
// it started. SIGKILL to everything is the end.
type order struct {
	Signal int  `json:"signal"`
	All    bool `json:"all,omitempty"`
}

// A word is from the guard.
type word struct {
	Started int    `json:"started,omitempty"` // the program's pid, and group
	Failed  int    `json:"failed,omitempty"`  // it cannot be started: an errno
	Why     string `json:"why,omitempty"`     // it cannot be guarded
	Stopped int    `json:"stopped,omitempty"` // by this signal
	Ended   bool   `json:"ended,omitempty"`   // with the two below
	Exit    int    `json:"exit,omitempty"`
	Signal  int    `json:"signal,omitempty"`
	Gone    bool   `json:"gone,omitempty"` // and so is everything it started
	CPU     int64  `json:"cpu,omitempty"`
	Starved bool   `json:"starved,omitempty"`
	Crowded bool   `json:"crowded,omitempty"`
}
