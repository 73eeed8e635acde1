// Package kernel decides, runs and records the calls of agent processes.
//
// Everything an agent does goes through [Kernel.Do]. Its files in the order of a
// call:
//
//   - do.go: the path of a call, and the answer to a call that was made before;
//   - plan.go: what a row says of a call, and the intent that the journal gets;
//   - admit.go: whether the call may run, a pure decision;
//   - wait.go: waiting for room, for a person, for a turn;
//   - run.go: the intent, the attempt, and the end in the journal.
//
// The rest is about processes: spawn.go, signal.go, exit.go, mail.go, change.go
// and recover.go act on them, query.go and recording.go show them. The state of a
// process is the fold of its records, in package process. Accounts and their
// queues are in package ledger.
//
// One lock guards all of it. It is held to decide and to settle, for about a
// microsecond, and never while a call waits, runs or reaches the disk. Records
// are queued for the journal under the lock, so their order is the order of
// decisions.
package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/live"
	"github.com/kern-run/kern/internal/schema"
)

// A Row is one entry of the system call table.
type Row struct {
	Name    string
	Doc     string
	Schema  *schema.Schema // of the arguments; nil when Plan checks them itself
	Watch   bool           // the watchdog counts the calls
	Instant bool           // answers at once, without waiting or I/O, so it need not be stoppable

	// Plan says what the call will do and use at most. It changes nothing. A row
	// without Plan is pure and uses nothing.
	Plan func(View, abi.Call) (Plan, *abi.Error)
	Run  func(context.Context, *Job) Done
}

// Table is every row, by name.
type Table map[string]*Row

// A Plan says what a call will do and use at most.
type Plan struct {
	Effect   abi.Effect // empty: pure
	Intent   bool       // the call changes something outside the kernel, so its intent is recorded first
	Tool     string     // the tool behind the row, if there is one
	Subject  []byte     // what the watchdog compares in place of the arguments; nil: the arguments
	Reserve  abi.Usage
	Elastic  Elastic
	Price    abi.Price
	Context  int64 // tokens of the request to a model
	Window   int64 // of that model; 0: unknown
	Source   Source
	Attempts int        // 0: one
	Ask      string     // the question that a person must answer first
	Say      []byte     // a page that goes before the call
	Parts    []abi.Hash // blobs that the arguments name,
	Blobs    []abi.Blob // and those of them that may be missing in the journal
	Held     bool       // the conversation is kept outside the kernel: the answer is the only page
	Firm     bool       // refuse the call when it would have to wait for room
	Last     bool       // last words
	Child    bool       // the call spawns a process
	Work     any        // passed from Plan to Run; the kernel does not look inside
}

// A Source is the resource at which a call needs a turn.
type Source struct {
	Model    string // for the person that pays; empty: the call asks none
	Resource string // empty: none
	Other    bool   // there is another resource: plan the call again when this one is away
}

// Elastic is the part of a reservation that may shrink to what is left.
type Elastic = ledger.Elastic

func (pl *Plan) effect() abi.Effect { return cmp.Or(pl.Effect, abi.Pure) }

// least returns what the call needs at least.
func (pl *Plan) least() abi.Usage { return pl.Elastic.Need(pl.Reserve, pl.Elastic.Least()) }

// A Job is one attempt at an admitted call.
type Job struct {
	Call    abi.Call
	View    View
	Plan    Plan
	Attempt int          // from 1
	Granted int64        // amount of the elastic unit
	Lowered *abi.Ceiling // a limit lowered Granted; nil: Granted is all that the plan asks for
	Since   int64        // when the call first began, in this run of the kernel or an earlier one
	Answer  string       // what the person said, if Plan.Ask asked one
	Kernel  *Kernel

	op   *op
	away int // earlier attempts that the provider turned away
}

// Done is the result of an attempt. Usage is what it used, also when it failed.
type Done struct {
	Value    json.RawMessage
	Err      *abi.Error
	Usage    abi.Usage
	Status   int           // the HTTP status of the provider's error; 0: it has none
	After    time.Duration // how long the provider asked to wait before the next attempt
	Away     bool          // the provider turned the attempt away; it used nothing, and does not count as one
	Fresh    bool          // the next attempt goes to a resource that was not asked before, so it need not wait
	Feedback any           // about the resource, for Config.Turn; the kernel does not look inside
	First    time.Duration // to the first token
	Took     uint64        // recv: the record of the message; wait: the child
	Cut      bool          // the answer of a model ended at the output maximum
	Claim    *abi.Claim    // the reported usage, if nobody can believe it
	Whole    []byte        // tool: all of an output of which Value or Err holds only a part
	Said     []byte        // model: what the watchdog compares of a text answer: the new part of the request, and the text

	Commit abi.Hash // of the workspace: published, and in doubt until Kept
	Digest abi.Key  // of the workspace, after the attempt
	Rolled bool     // the changes of the attempt to the workspace were rolled back
	// Kept is called once with what the journal says: whether the commit stands. It
	// is not called when that is unknown; the next start finds out.
	Kept func(stands bool)
}

// View is what a row may see of a process. It does not change.
type View struct {
	Pid     abi.Pid
	Spawn   *abi.Spawn
	Pages   []process.Page
	Index   int             // model calls made
	Term    bool            // signal term came
	Exit    *abi.ExitInfo   // nil: the process lives
	Chosen  *process.Chosen // the last tool call, if the model chose it
	Limited bool            // a money limit is on the path
	Counted bool            // a token limit is on the path
	Bounded bool            // a limit on output is on the path
	Context int64           // the limit on the tokens of one request to a model; 0: none
	Before  any             // Work of the previous attempt's plan; nil on the first attempt
	Via     any             // what [Kernel.DoVia] was given; nil: the row carries the call out
}

// Config is what a kernel is made from. Store, Log and Rows are required.
type Config struct {
	Store journal.Store
	Log   *journal.Log
	Rows  Table
	Trees []abi.Pid        // the trees that are recovered, see [Kernel.Adopt]; nil: all
	Now   func() time.Time // nil: time.Now
	Live  *live.Channel    // gets the begin and end of waits; may be nil

	// Turn waits for the turn of a call at a resource. Release returns the turn with
	// the result of the attempt, or with nil when the call did not run. A nil Turn
	// never waits.
	Turn func(ctx context.Context, t Turn) (release func(*Done), err error)
	// Rank is called with the new priority of a process, under the kernel's lock: it
	// must not call the kernel. May be nil.
	Rank func(pid abi.Pid, priority int)
	// Count counts the tokens of a page. Nil: a third of its bytes.
	Count func([]byte) int
	// Start is called with every process that can run: spawned by a call, continued, or
	// found at recovery. It must not block. May be nil.
	Start func(abi.Pid)
	// Found is called with every process that recovery finds, exited ones included.
	// Its error is returned by New. May be nil.
	Found func(abi.Pid, *abi.Spawn) error
	// Grace is how long a call may take to stop when its process ends. Last is how
	// long a process has for its last words. Zero: two and ten seconds.
	Grace, Last time.Duration
}

// Turn is a request for a turn.
type Turn struct {
	Resource string
	Owner    string // see [process.Machine.Owner]
	Pid      abi.Pid
	Priority int
	Now      func() int // the current priority; it takes no lock; nil: Priority stays
	In, Out  int64      // tokens that the call may use, as reserved
	Other    bool       // the call can be made at another resource
}

// ErrElsewhere is returned by Turn when the resource is away and another one is
// there. The kernel plans the call again.
var ErrElsewhere = errors.New("this resource is away for now")

// A Kernel runs the calls of many processes over one journal.
type Kernel struct {
	cfg     Config
	procs   *Processes
	answers answers
	closed  bool // guarded by procs.mu
	exits   exitQueue

	accounts settings
}

// proc is a process in a running kernel: its state, and what only this run knows.
type proc struct {
	state *process.State
	k     *Kernel // nil for a state that was folded to be shown

	ops      map[uint64]*op // calls in the kernel, by number
	inner    int            // calls that are part of another one
	claims   claims
	news     bell // rings when mail or a signal comes, and when a child exits
	timers   timers
	started  bool         // its loop was started
	priority atomic.Int32 // state.Priority, readable without the lock
}

// New folds the journal and returns a kernel that continues it. [Kernel.Resume]
// starts the processes.
func New(cfg Config) (*Kernel, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Count == nil {
		cfg.Count = func(b []byte) int { return (len(b) + 2) / 3 }
	}
	cfg.Grace, cfg.Last = cmp.Or(cfg.Grace, 2*time.Second), cmp.Or(cfg.Last, 10*time.Second)
	from := answers{cfg.Store, cfg.Log}
	k := &Kernel{cfg: cfg, answers: from, procs: newProcesses(from), exits: exitQueue{keep: keepWhole}}
	k.accounts = settings{k.procs.machine, &k.cfg}
	if err := k.recover(); err != nil {
		return nil, err
	}
	return k, nil
}

// Processes shows the processes of the kernel.
func (k *Kernel) Processes() *Processes { return k.procs }

// Bytes returns a payload, from the record or from the blob it names.
func (k *Kernel) Bytes(d abi.Data) ([]byte, error) { return k.answers.bytes(d) }

// Close ends the waiting of every call and flushes the journal. Processes do not
// exit: they continue when a kernel is opened on the journal again.
func (k *Kernel) Close(ctx context.Context) error {
	k.procs.mu.Lock()
	k.closed = true
	var open []chan struct{}
	for _, p := range k.procs.byPid {
		p.timers.stop()
		for _, o := range p.ops {
			open = append(open, o.doneChan())
			o.stop(errClosing)
		}
	}
	k.procs.mu.Unlock()
	for _, done := range open {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return k.cfg.Log.Flush(ctx)
}

// record applies r to the state of p and queues it for the journal. The lock is held.
func (p *proc) record(r *abi.Record) journal.Pending {
	p.apply(r)
	return p.k.cfg.Log.Put(r)
}

// apply applies r to the state of p. The caller queues r before it unlocks.
func (p *proc) apply(r *abi.Record) {
	r.Pid, r.N = p.state.Pid, p.state.N+1
	if r.Time == 0 {
		r.Time = p.k.cfg.Now().UnixNano()
	}
	p.state.Apply(r)
}

// payload turns b into a payload of r.
func payload(r *abi.Record, b []byte) abi.Data {
	d, blob := abi.NewData(b)
	if blob != nil {
		r.Blobs = append(r.Blobs, *blob)
	}
	return d
}

// bell wakes everybody that waits for news of a process. It is guarded by the
// kernel's lock.
type bell struct{ waiting chan struct{} }

// next returns a channel that is closed when the bell rings next.
func (b *bell) next() <-chan struct{} {
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

func (b *bell) ring() {
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}

// timers are the deadlines of a process, guarded by the kernel's lock.
type timers struct {
	wall *time.Timer // limit on wall time
	last *time.Timer // end of the last words, or of the grace of an exit
}

// stop stops both timers and drops them, because a timer keeps its process in memory.
func (t *timers) stop() {
	stopTimer(&t.wall)
	stopTimer(&t.last)
}

func stopTimer(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}
