// Package kernel decides, runs and remembers the calls of agent processes.
//
// Everything an agent does goes through [Kernel.Do] (do.go), which asks [admit]
// (admit.go) whether it may. Everything the kernel knows is a fold of the
// journal (state.go for a process, machine.go for all, with the sums in ledger.go):
// to restart is to fold again (recover.go). Signals and exits are in signal.go.
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
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/schema"
)

// A Row is one entry of the system call table.
type Row struct {
	Name    string
	Doc     string
	Schema  *schema.Schema // of the arguments; nil when Plan reads them itself
	Watch   bool           // the watchdog counts it
	Instant bool           // answers at once: neither waits nor does I/O, so nothing needs to stop it

	// Plan says, without doing anything, what the call will do and take at
	// most. Nil: a pure call that takes nothing.
	Plan func(View, abi.Call) (Plan, *abi.Error)
	Run  func(context.Context, *Job) Done
}

// Table is every row there is, by name.
type Table map[string]*Row

// Rows that the kernel knows by name.
const (
	lastRow = "model" // of last words
	waitRow = "wait"  // reports a child that has exited
	exitRow = "exit"  // ends the process that calls it
)

// A Plan is what a call will do and take at most.
type Plan struct {
	Effect  abi.Effect // empty: pure
	Intent  bool       // it changes something outside the kernel: its intent goes to disk first
	Tool    string     // the tool behind the row, if there is one
	Subject []byte     // what is called, when the arguments of the call do not say it all
	Reserve abi.Usage
	Elastic ledger.Elastic
	Price   abi.Price
	Context int64 // tokens of a request to a model
	Window  int64 // of that model; 0: not known
	Source
	Attempts int        // 0: one
	Ask      string     // the question that a person must answer first
	Say      []byte     // a page that goes before the call
	Parts    []abi.Hash // blobs that the arguments stand for,
	Blobs    []abi.Blob // and those of them that may not be in the journal yet
	Held     bool       // the conversation is held outside: the answer is the only page
	Firm     bool       // it is refused in place of waiting for room
	Last     bool       // last words
	Child    bool       // it starts a process a generation deeper
	Work     any        // for Run
}

// A Source is the resource that a call waits for its turn at.
type Source struct {
	Resource string // empty: none
	Other    bool   // there is another: the call is planned again in place of waiting for one that is away
}

// Elastic is the part of a reservation that may shrink to what is left.
type Elastic = ledger.Elastic

// A Job is one attempt at an admitted call.
type Job struct {
	Call    abi.Call
	View    View
	Plan    Plan
	Attempt int    // from 1
	Granted int64  // of the elastic part
	Since   int64  // when the call first began, also before a restart
	Answer  string // what a person said, where one was asked
	Kernel  *Kernel

	op   *op
	away int // attempts before this one that were turned away
}

// Done is what an attempt came to. Usage is what it took, also when it failed.
type Done struct {
	Value json.RawMessage
	Err   *abi.Error
	Usage abi.Usage
	After time.Duration // a provider's word on when to try again
	Away  bool          // it was turned away and took nothing: it waits for another turn, and that was no attempt
	Fresh bool          // the next attempt is made at a resource that was not asked before: it need not wait
	Heard any           // what was heard of the resource, for whoever gives turns
	First time.Duration // to the first token
	Took  uint64        // recv: the record of the message; wait: the child

	Commit abi.Hash // of the workspace, published and in doubt until Kept
	Digest abi.Key  // of the workspace, after the attempt
	Rolled bool     // what the attempt changed in the workspace was taken back
	// Kept is told once whether the journal says that the commit stands. It is
	// not told when nobody knows: then the next run finds out.
	Kept func(stands bool)
}

// View is what a row may see of a process. It does not change.
type View struct {
	Pid     abi.Pid
	Spawn   *abi.Spawn
	Pages   []process.Page
	Index   int
	Term    bool          // it was asked to finish
	Exit    *abi.ExitInfo // nil: it lives
	Limited bool          // a money limit is on the path
	Counted bool          // a limit on tokens is
	Before  any           // Work of the previous attempt's plan; nil on the first attempt
	Via     any           // what [Kernel.DoVia] was given; nil when nothing outside carries the call out
}

// Config is what a kernel is handed. Store, Log and Rows are needed.
type Config struct {
	Store journal.Store
	Log   *journal.Log
	Rows  Table
	Now   func() time.Time // nil: time.Now

	// Turn waits for the turn of a call at a resource. It is given back with
	// what came of it; nil: the call did not run. Nil: there is no waiting.
	Turn func(ctx context.Context, t Turn) (release func(*Done), err error)
	// Rank is told of a new priority of a process. It may not ask the kernel
	// anything. Nil: nobody is told.
	Rank func(pid abi.Pid, priority int)
	// Count counts the tokens of a page. Nil: a third of its bytes.
	Count func([]byte) int
	// Start is told of every process that has become able to run: spawned by a
	// call, or found at recovery. It must not block. Nil: nobody is told.
	Start func(abi.Pid)
	// Found is told of every process that recovery finds, also of one that has
	// ended. Its error is that of New. Nil: nobody is told.
	Found func(abi.Pid, *abi.Spawn) error
	// Grace is how long a call may take to stop when its process ends, and Last
	// how long a process has for its last words. Zero: two and ten seconds.
	Grace, Last time.Duration
}

// Turn is a request for a turn.
type Turn struct {
	Resource string
	Owner    string // the named account it is booked on, else the process at the top
	Pid      abi.Pid
	Priority int
	Now      func() int // Priority as it is by now; it asks the kernel nothing; nil: it stays
	In, Out  int64      // tokens it may take, as its account reserves them
	Other    bool       // it can be made at another resource
}

// ErrElsewhere, from Turn: there is another resource, and the call is planned again.
var ErrElsewhere = errors.New("this resource is away for now")

// A Kernel runs the calls of many processes over one journal.
type Kernel struct {
	cfg Config

	book
	window

	mu sync.Mutex
	machine
	closed bool
	lately []end // of those that exited and were not let go, the oldest first
	linger int   // how many of them are kept
}

// proc is one process: what the journal says of it, and what only this run of
// the kernel knows.
type proc struct {
	fold
	k    *Kernel            // nil in a machine that only reads
	made map[uint64]abi.Pid // children, by the calls that made them
	kids map[abi.Pid]*proc  // children that live

	ops     map[uint64]*op // calls in the kernel, by number
	inner   int            // calls that are part of another one
	claims  map[uint64]*op // messages that a call is about to take
	tell    chan struct{}  // closed when mail or an order comes, or a child exits; made when asked for
	wall    *time.Timer
	last    *time.Timer
	started bool         // its loop was started
	rank    atomic.Int32 // Priority, for who gives turns
}

// op is a call in the kernel.
type op struct {
	p       *proc
	call    abi.Call
	row     *Row
	ctx     context.Context
	cancel  context.CancelCauseFunc // nil for an instant row
	waits   string                  // for what; empty while it runs
	waiter  *ledger.Waiter          // how it waits and is woken; made when it first waits
	held    abi.Usage               // on its path, and not in the journal
	begun   bool                    // its intent is in the journal, its end is not
	done    chan struct{}           // closed when answered; made when somebody asks again
	via     any                     // carries the call out, outside; nil: its row does
	first   chan<- struct{}         // told of the first verdict; nil when it was, or when nobody asked
	within  atomic.Uint64           // calls made within it
	job     Job
	paper   paper // what the journal says of it
	dropped bool  // the process ended without waiting for it
	kept    func(stands bool)
}

// New folds the journal and returns a kernel that goes on with it. Processes
// are started by [Kernel.Resume].
func New(cfg Config) (*Kernel, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Count == nil {
		cfg.Count = func(b []byte) int { return (len(b) + 2) / 3 }
	}
	cfg.Grace, cfg.Last = cmp.Or(cfg.Grace, 2*time.Second), cmp.Or(cfg.Last, 10*time.Second)
	k := &Kernel{cfg: cfg, book: book{cfg.Store, cfg.Log}, machine: newMachine(), linger: lingering}
	k.gone = make(map[abi.Pid]gone)
	k.window = window{k}
	if err := k.recover(); err != nil {
		return nil, err
	}
	return k, nil
}

// record writes r into the state and queues it for the journal. k.mu is held.
func (p *proc) record(r *abi.Record) journal.Ticket {
	p.k.note(p, r)
	return p.k.cfg.Log.Put(r)
}

// note writes r into the state of p. It is queued before k.mu is free.
func (k *Kernel) note(p *proc, r *abi.Record) {
	r.Pid, r.N = p.Pid, p.N+1
	if r.Time == 0 {
		r.Time = k.cfg.Now().UnixNano()
	}
	p.apply(r)
}

// data turns b into a payload of r.
func data(r *abi.Record, b []byte) abi.Data {
	d, blob := abi.NewData(b)
	if blob != nil {
		r.Blobs = append(r.Blobs, *blob)
	}
	return d
}

// Spawning is a request for a process.
type Spawning struct {
	abi.Spawn        // Task, Program, Depth and Fork are filled in here
	Program   []byte // its definition
	Task      []byte
}

// Spawn makes a process and waits until it is on disk, though not for room. It
// does not start it.
func (k *Kernel) Spawn(ctx context.Context, s Spawning) (abi.Pid, error) {
	s.Parent, s.ParentCall, s.Depth, s.TaskTokens = 0, 0, 0, k.cfg.Count(s.Task)
	k.mu.Lock()
	p, t, err := k.spawn(&s, nil)
	k.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err := k.cfg.Log.Keep(ctx, t); err != nil {
		var e *abi.Error
		if ctx.Err() == nil && !(errors.As(err, &e) && e.Code == abi.StorageFull) {
			return 0, k.broken()
		}
		k.mu.Lock() // nobody will ever know its pid
		p.finish(abi.ExitInfo{Exit: abi.ExitKilled, Reason: "caller", Code: abi.ProcessKilled})
		k.mu.Unlock()
		return 0, err
	}
	return p.Pid, nil
}

// Spawn makes a child for the call of j, and starts it. The same call asked again after
// a crash gets the child it made.
func (j *Job) Spawn(s Spawning) (abi.Pid, *abi.Error) {
	parent := j.op.p
	k := parent.k
	s.TaskTokens = k.cfg.Count(s.Task) // without the lock: a long task takes longer than deciding
	k.mu.Lock()
	defer k.mu.Unlock()
	if pid := parent.made[j.Call.N]; pid != 0 {
		return pid, nil
	}
	if parent.Ending != nil {
		return 0, ended(&parent.fold)
	}
	s.Parent, s.ParentCall = parent.Pid, j.Call.N
	p, _, err := k.spawn(&s, parent)
	if err != nil {
		var e *abi.Error
		if !errors.As(err, &e) {
			e = &abi.Error{Code: abi.InvalidCall, Message: err.Error()}
		}
		return 0, e
	}
	// What the call held for the child is booked by the child's own record.
	children := abi.Usage{abi.Children: j.op.held[abi.Children]}
	parent.acct.Release(&children)
	j.op.held.Sub(&children)
	p.start()
	return p.Pid, nil
}

// spawn makes a process. k.mu is held.
func (k *Kernel) spawn(s *Spawning, parent *proc) (*proc, journal.Ticket, error) {
	if e := k.cfg.Log.Err(); e != nil {
		return nil, journal.Ticket{}, e
	}
	if k.closed {
		return nil, journal.Ticket{}, &abi.Error{Code: abi.DaemonGone, Message: "the kernel is closing"}
	}
	if parent != nil {
		s.Depth = parent.Spawn.Depth + 1
		parent.narrow(&s.Spawn)
	} else if s.Account != "" && k.accounts[s.Account] == nil {
		return nil, journal.Ticket{}, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("no account %q", s.Account),
			Hint: "make it with: kern account set " + s.Account + " --money 5"}
	}
	r := &abi.Record{Kind: abi.KindSpawned, Spawn: &s.Spawn}
	s.Spawn.Program = data(r, s.Program)
	s.Spawn.Task = data(r, s.Task)
	if f := s.Spawn.Fork; f != nil {
		state := f.State.Bytes
		f.State = data(r, state)
		f.State.Bytes = state // the fold reads it now; the journal keeps the blob
	}
	p := k.link(k.next, &s.Spawn)
	p.k = k
	k.next++
	t := p.record(r)
	p.watchWall()
	return p, t, nil
}

// narrow gives a child at most what is left on its parent's path.
func (parent *proc) narrow(s *abi.Spawn) {
	left := parent.acct.Left()
	left.Each(func(u abi.Unit, n int64) {
		if asked, set := s.Limits.Get(u); set && asked > n {
			s.Limits.Set(u, n)
		}
	})
	// What does not add up binds each process by itself.
	for u, gone := range map[abi.Unit]int64{abi.Wall: parent.k.cfg.Now().UnixNano() - parent.Born, abi.Context: 0, abi.Depth: 1} {
		n, set := parent.acct.Limits.Get(u)
		if asked, own := s.Limits.Get(u); set && (!own || asked > n-gone) {
			s.Limits.Set(u, max(0, n-gone))
		}
	}
}

// SetAccount edits the limits of a named account as they stand, and makes it if
// it is not there.
func (k *Kernel) SetAccount(ctx context.Context, name string, e abi.Edit) error {
	k.mu.Lock()
	t, bad := k.editAccount(name, &e)
	k.mu.Unlock()
	if bad != nil {
		return bad
	}
	return t.Wait(ctx)
}

func (k *Kernel) editAccount(name string, e *abi.Edit) (t journal.Ticket, bad *abi.Error) {
	var odd []string
	e.Limits.Each(func(u abi.Unit, _ int64) {
		if u >= abi.Units {
			odd = append(odd, u.String())
		}
	})
	if name == "" || odd != nil {
		return t, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("account %q: an account adds up what its processes take, so it cannot limit %v", name, odd),
			Hint: "name the account, and limit that for each process"}
	}
	if bad = k.cfg.Log.Err(); bad != nil {
		return t, bad
	}
	var l abi.Limits
	if a := k.accounts[name]; a != nil {
		l = a.Limits
	}
	if l, bad = e.Over(l); bad != nil {
		return t, bad
	}
	k.settings++
	r := &abi.Record{N: k.settings, Time: k.cfg.Now().UnixNano(), Kind: abi.KindAccount, Change: &abi.Change{Account: name, Limits: &l, By: e.By}}
	k.setAccount(r)
	k.accounts[name].WakeWaiters()
	return k.cfg.Log.Put(r), nil
}

// Close ends the waiting of every call and flushes the journal. Processes are
// not ended: they go on when a kernel is opened on the journal again.
func (k *Kernel) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	var open []chan struct{}
	for _, p := range k.procs {
		p.stopTimers()
		for _, o := range p.ops {
			if o.done == nil {
				o.done = make(chan struct{})
			}
			open = append(open, o.done)
			o.stop(errClosing)
		}
	}
	k.mu.Unlock()
	for _, c := range open {
		select {
		case <-c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return k.cfg.Log.Flush(ctx)
}

func (p *proc) stopTimers() {
	for _, t := range []**time.Timer{&p.wall, &p.last} {
		if *t != nil {
			(*t).Stop()
			*t = nil // it holds p, and what it would do
		}
	}
}
