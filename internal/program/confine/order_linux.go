package confine

import (
	"time"

	"github.com/kern-run/kern/internal/program/frame"
)

// An Order tells init which box to build. The same message carries descriptors: stdin,
// stdout and stderr of the program, then the tasks files, then the workspace.
type Order struct {
	Argv     []string
	Env      []string
	Shown    []string // host directories that the program may read
	Filter   string   // seccomp program
	Landlock int      // Landlock ABI to use; 0: no Landlock
	Root     bool     // the box maps two users, root and the program's; false: one user
	Lent     bool     // the workspace comes as a mount descriptor
	Dir      string   // path of the workspace; init opens it unless Lent
	Links    int      // number of the program's sockets to the backend, from descriptor 3 on
	Warm     bool     // the program waits for a claim, and puts Landlock in force itself
	Tasks    int      // number of cgroup files; a thread enters the cgroup by writing to them
	Gate     bool     // init waits before it starts the program: the backend moves init into the cgroup
	Group    string   // name of the cgroup in which the program must start
	Groups   int      // number of hierarchies that have this cgroup
	Probe    bool     // add this binary and a writable directory without a Landlock rule to the box
	Bounds   Bounds
}

// Bounds are the limits that init enforces.
type Bounds struct {
	FileBytes int64
	Files     int
	Data      int64         // memory of one process; beyond it an allocation fails, and nothing is killed
	Memory    int64         // memory of the run; set only without a cgroup
	Processes int           // set only without a cgroup
	CPU       time.Duration // set only without a cgroup
}

// The kinds of [Note].
const (
	Poised  = "poised"  // init is about to start the program and waits for a Claim
	Started = "started" // the program runs; the message carries the backend's ends of its sockets
	Claimed = "claimed" // a warm box now has the bounds and workspace of its run
	Failed  = "failed"  // the program did not run
	Done    = "done"    // the program ended
)

// A Note is a message from init to the backend.
type Note struct {
	Kind   string
	Err    string
	Barred bool // with Failed: the kernel gave init no rights in its namespaces
	Exit   int
	Signal string
	Full   bool          // the program used all private files or bytes
	Over   string        // the limit for which init killed the program, if any
	CPU    time.Duration // as init measured it; exact only with a cgroup
	Peak   int64         // most memory in bytes
}

// A Claim is a message from the backend to init. It gives a warm box to one run, or
// answers Poised.
type Claim struct {
	Go     bool   // answers Poised; the other fields are empty
	Lent   bool   // the message carries the workspace as a mount descriptor
	Dir    string // path of the workspace
	Bounds Bounds
}

// Pack reads or writes o through p.
func (o *Order) Pack(p *frame.Packer) {
	p.Strings(&o.Argv)
	p.Strings(&o.Env)
	p.Strings(&o.Shown)
	p.String(&o.Filter)
	frame.Number(p, &o.Landlock)
	p.Bool(&o.Root)
	p.Bool(&o.Lent)
	p.String(&o.Dir)
	frame.Number(p, &o.Links)
	p.Bool(&o.Warm)
	frame.Number(p, &o.Tasks)
	p.Bool(&o.Gate)
	p.String(&o.Group)
	frame.Number(p, &o.Groups)
	p.Bool(&o.Probe)
	o.Bounds.Pack(p)
}

// Pack reads or writes b through p.
func (b *Bounds) Pack(p *frame.Packer) {
	frame.Number(p, &b.FileBytes)
	frame.Number(p, &b.Files)
	frame.Number(p, &b.Data)
	frame.Number(p, &b.Memory)
	frame.Number(p, &b.Processes)
	frame.Number(p, &b.CPU)
}

// Pack reads or writes n through p.
func (n *Note) Pack(p *frame.Packer) {
	p.String(&n.Kind)
	p.String(&n.Err)
	p.Bool(&n.Barred)
	frame.Number(p, &n.Exit)
	p.String(&n.Signal)
	p.Bool(&n.Full)
	p.String(&n.Over)
	frame.Number(p, &n.CPU)
	frame.Number(p, &n.Peak)
}

// Pack reads or writes c through p.
func (c *Claim) Pack(p *frame.Packer) {
	p.Bool(&c.Go)
	p.Bool(&c.Lent)
	p.String(&c.Dir)
	c.Bounds.Pack(p)
}
