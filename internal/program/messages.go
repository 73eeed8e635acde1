package program

import (
	"time"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
)

// A Job is one program for a supervisor to run.
type Job struct {
	Path string   // of the executable
	Argv []string // with the name of the program first
	Env  []string
	Dir  string // where the program starts; "": where the supervisor is

	Timeout time.Duration // after it everything is killed; 0: never
	Scratch string        // a directory that exists as long as the job does; "": none

	Jail   *confine.Plan // nil: the program is not confined
	Bounds cgroup.Bounds // of the program and everything it starts
}

// attachment is how a program shares the session of its caller.
type attachment struct {
	Front  bool `json:"front"`  // the program has the terminal from its start
	Caller int  `json:"caller"` // the process to wake when the program goes on
}

// An order goes to a supervisor. It starts a job, or sends a signal to the one
// that runs: to its process group, or to everything it started. SIGKILL to
// everything ends the job.
type order struct {
	job      *Job
	attached *attachment // nil: the program has a session of its own
	signal   int
	all      bool
}

// A Report comes from a supervisor. A pooled supervisor sends the last one only.
type Report struct {
	Started int    `json:"started,omitempty"` // pid and process group of the program
	Errno   int    `json:"errno,omitempty"`   // the program cannot be executed
	Err     string `json:"err,omitempty"`     // the program did not run
	Stopped int    `json:"stopped,omitempty"` // the signal that stopped the program

	Ended  bool `json:"ended,omitempty"`  // the program ended, with Exit or Signal
	Killed bool `json:"killed,omitempty"` // the job was being killed before that
	Late   bool `json:"late,omitempty"`   // because of its timeout
	Exit   int  `json:"exit,omitempty"`
	Signal int  `json:"signal,omitempty"`

	Gone           bool          `json:"gone,omitempty"` // so is everything the program started
	CPU            time.Duration `json:"cpu,omitempty"`  // of all of it
	OutOfMemory    bool          `json:"out_of_memory,omitempty"`
	OutOfProcesses bool          `json:"out_of_processes,omitempty"`

	Lost bool `json:"-"` // the supervisor was killed; Err says what is left
}
