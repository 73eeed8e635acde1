package confine

import (
	"time"

	"github.com/kern-run/kern/internal/program/frame"
)

// An Order tells init what to build. Descriptors travel beside it: stdin, stdout and
// stderr of the program, then the tasks files, then the workspace.
type Order struct {
	Argv     []string
	Env      []string
	Shown    []string // host directories, read-only
	Filter   string   // seccomp program
	Landlock int      // ABI to use; 0: none
	Root     bool     // the box maps a root and a user, not one user alone
	Lent     bool     // the workspace comes as a mount descriptor
	Dir      string   // the workspace's path, where init may open it itself
	Links    int      // sockets to the supervisor the program gets, from descriptor 3 on
	Warm     bool     // the program waits for a claim; Landlock is left to it
	Tasks    int      // cgroup files through which a thread moves itself
	Gate     bool     // ask before starting the program: the supervisor moves init
	Group    string   // name of the cgroup the program must be born in
	Groups   int      // in how many hierarchies
	Probe    bool     // show this program in the box, and a writable place Landlock has no rule for
	Bounds   Bounds
}

// Bounds are the limits that init enforces.
type Bounds struct {
	FileBytes int64
	Files     int
	Data      int64         // of one process, which sees a failed allocation instead of a kill
	Memory    int64         // only without a cgroup
	Processes int           // only without a cgroup
	CPU       time.Duration // only without a cgroup
}

// The kinds of notes.
const (
	Poised  = "poised"  // about to start the program; waits for an answer
	Started = "started" // the program runs; its socket comes along
	Claimed = "claimed" // a warm box now has the bounds and workspace of its run
	Failed  = "failed"  // nothing ran
	Done    = "done"    // the program ended
)

// A Note comes from init.
type Note struct {
	Kind   string
	Err    string
	Barred bool // failed: the kernel gave init no rights in its namespaces
	Exit   int
	Signal string
	Full   bool          // the private files or bytes were all used
	Over   string        // the limit init ended the run for
	CPU    time.Duration // measured by init; exact only with a cgroup
	Peak   int64
}

// A Claim gives a warm box to one run; a workspace may come along.
type Claim struct {
	Go     bool // answer to poised; the rest is empty
	Lent   bool
	Dir    string
	Bounds Bounds
}

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

func (b *Bounds) Pack(p *frame.Packer) {
	frame.Number(p, &b.FileBytes)
	frame.Number(p, &b.Files)
	frame.Number(p, &b.Data)
	frame.Number(p, &b.Memory)
	frame.Number(p, &b.Processes)
	frame.Number(p, &b.CPU)
}

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

func (c *Claim) Pack(p *frame.Packer) {
	p.Bool(&c.Go)
	p.Bool(&c.Lent)
	p.String(&c.Dir)
	c.Bounds.Pack(p)
}
