package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/storetest"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) {
	// Calls race each other, so a file of what was drawn does not bring a
	// failure back; the seed and the state that is printed are of more use.
	set := map[string]string{"rapid.nofailfile": "true"}
	if soak {
		set["rapid.checks"] = "20000"
	}
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	leaktest.Main(m)
}

// soak says whether the long forms of tests run.
var soak = os.Getenv("KERN_SOAK") != ""

// deed is what the rows of the tests do: their arguments say it. What is not
// said is: an irreversible effect that is in the journal first, takes all it
// reserved, and gives its argument Give.
type deed struct {
	Give     string          `json:"give,omitempty"`
	Effect   abi.Effect      `json:"effect,omitempty"`
	Quiet    bool            `json:"quiet,omitempty"` // pure, without an intent
	Reserve  abi.Usage       `json:"reserve,omitzero"`
	Use      *abi.Usage      `json:"use,omitempty"`
	Elastic  *ledger.Elastic `json:"elastic,omitempty"`
	Used     int64           `json:"used,omitempty"` // of the elastic part; more than granted is as much as granted
	Fail     abi.Code        `json:"fail,omitempty"`
	Times    int             `json:"times,omitempty"` // how often it fails; 0: always
	Attempts int             `json:"attempts,omitempty"`
	Gate     string          `json:"gate,omitempty"` // runs until that gate is opened
	Deaf     bool            `json:"deaf,omitempty"` // does not hear that it should stop
	Turn     string          `json:"turn,omitempty"`
	Ask      string          `json:"ask,omitempty"`
	Tool     string          `json:"tool,omitempty"`
	Last     bool            `json:"last,omitempty"`
	Firm     bool            `json:"firm,omitempty"`
	Say      string          `json:"say,omitempty"`
	Panic    bool            `json:"panic,omitempty"`
	Context  int64           `json:"context,omitempty"`
	Nonce    int             `json:"nonce,omitempty"`
	Parts    int             `json:"parts,omitempty"`
	Publish  bool            `json:"publish,omitempty"` // changes a workspace, when it goes well
	Rolled   bool            `json:"rolled,omitempty"`  // what it changed is taken back, when it fails
	State    byte            `json:"state,omitempty"`   // of the workspace afterwards; 0: it has none

	Child *abi.Spawn `json:"child,omitempty"` // spawn
	Pid   abi.Pid    `json:"pid,omitempty"`   // wait, send
	For   string     `json:"for,omitempty"`   // sleep, recv, wait: a duration
	Code  abi.Code   `json:"code,omitempty"`  // exit
}

func (d deed) json() json.RawMessage {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return b
}

func read(c abi.Call) (d deed) {
	if len(c.Args) > 0 && json.Unmarshal(c.Args, &d) != nil {
		d.Give = string(c.Args)
	}
	return d
}

type callID struct {
	pid abi.Pid
	n   uint64
}

// rig is a kernel over a journal that outlives it, with rows that do what they
// are told and count what they did.
type rig struct {
	*Kernel
	*Processes
	t      testing.TB
	cfg    Config
	disk   func() (journal.Store, journal.Lease, error)
	wrap   func(journal.Store) journal.Store
	onOpen func(*tap)
	linger int // how many that ended are kept whole
	store  journal.Store
	tap    *tap // the outermost store
	log    *journal.Log
	calls  sync.WaitGroup // made by start
	onRun  func(*Job)     // before every effect

	mu    sync.Mutex
	dead  chan struct{} // closed when this kernel crashes
	gates map[string]chan struct{}
	ran   map[callID]int // effects, by call
	pubs  []*pub
}

// pub is what a call published in a workspace.
type pub struct {
	id     callID
	commit abi.Hash
	kept   string // what it was told of it: stands, undone
}

func newRig(t testing.TB, cfg Config) *rig {
	mem := storetest.NewMemory()
	return newRigOn(t, cfg, mem.Open)
}

func newRigOn(t testing.TB, cfg Config, disk func() (journal.Store, journal.Lease, error)) *rig {
	m := &rig{t: t, cfg: cfg, disk: disk, gates: map[string]chan struct{}{}, ran: map[callID]int{}}
	if m.cfg.Rows == nil {
		m.cfg.Rows = m.rows()
	}
	m.open()
	t.Cleanup(m.halt)
	return m
}

var everyRow = []string{"changes", "act", "model", "spawn", "wait", "send", "recv", "sleep", "exit"}

func (m *rig) rows() Table {
	t := Table{
		"act":   {Name: "act", Watch: true, Plan: planDeed, Run: m.run},
		"model": {Name: "model", Plan: planDeed, Run: m.run},
		"changes": {Name: "changes", Watch: true, Plan: planDeed, Run: func(ctx context.Context, j *Job) Done {
			d := m.run(ctx, j)
			d.Digest = abi.Key{byte(j.Call.N)} // whatever it is called with, the workspace is another afterwards
			return d
		}},
		"exit": {Name: "exit", Instant: true, Run: func(_ context.Context, j *Job) Done {
			d := read(j.Call)
			info := abi.ExitInfo{Code: d.Code}
			if d.Fail != "" {
				info.Err = &abi.Error{Code: d.Fail, Message: "it failed"}
			}
			return Done{Value: []byte(`"bye"`), Err: j.Exit(info, []byte(d.Give))}
		}},
		"spawn": {Name: "spawn", Plan: func(_ View, c abi.Call) (Plan, *abi.Error) {
			return Plan{Effect: abi.Idempotent, Child: true, Reserve: abi.Usage{abi.Children: 1}}, nil
		}, Run: func(_ context.Context, j *Job) Done {
			s := Spawning{Task: []byte("task")}
			if c := read(j.Call).Child; c != nil {
				s.Spawn = *c
			}
			s.Rows = everyRow
			pid, e := j.Spawn(s)
			return Done{Value: fmt.Append(nil, pid), Err: e}
		}},
		"wait": {Name: "wait", Plan: again, Run: func(_ context.Context, j *Job) Done {
			d := read(j.Call)
			pid, e := j.Await(d.Pid, howLong(d.For))
			return Done{Value: fmt.Append(nil, pid), Err: e, Took: uint64(pid)}
		}},
		"send": {Name: "send", Plan: again, Instant: true, Run: func(_ context.Context, j *Job) Done {
			d := read(j.Call)
			return Done{Value: []byte(`true`), Err: j.Send(d.Pid, []byte(d.Give), d.Nonce)}
		}},
		"recv": {Name: "recv", Plan: again, Run: func(_ context.Context, j *Job) Done {
			from, body, n, e := j.Receive(howLong(read(j.Call).For))
			b, _ := json.Marshal([]string{from, string(body)})
			return Done{Value: b, Err: e, Took: n}
		}},
		"sleep": {Name: "sleep", Plan: func(View, abi.Call) (Plan, *abi.Error) { return Plan{Effect: abi.Idempotent, Intent: true}, nil },
			Run: func(ctx context.Context, j *Job) Done {
				return Done{Value: []byte(`true`), Err: j.Sleep(howLong(read(j.Call).For))}
			}},
	}
	return t
}

func again(View, abi.Call) (Plan, *abi.Error) { return Plan{Effect: abi.Idempotent}, nil }

func howLong(s string) time.Duration {
	d, _ := time.ParseDuration(s)
	return d
}

func planDeed(_ View, c abi.Call) (Plan, *abi.Error) {
	d := read(c)
	pl := Plan{Effect: cmp.Or(d.Effect, abi.Irreversible), Intent: true, Tool: d.Tool, Reserve: d.Reserve, Attempts: d.Attempts, Ask: d.Ask,
		Source: Source{Resource: d.Turn}, Last: d.Last, Firm: d.Firm, Say: []byte(d.Say), Context: d.Context, Parts: make([]abi.Hash, d.Parts)}
	if d.Quiet {
		pl.Effect, pl.Intent = abi.Pure, false
	}
	if d.Elastic != nil {
		pl.Elastic = *d.Elastic
	}
	return pl, nil
}

// run is an effect on the world.
func (m *rig) run(ctx context.Context, j *Job) Done {
	d := read(j.Call)
	if m.onRun != nil {
		m.onRun(j)
	}
	m.mu.Lock()
	m.ran[callID{j.Call.Pid, j.Call.N}]++
	gate, dead := m.gate(d.Gate), m.dead
	m.mu.Unlock()
	if d.Panic {
		panic("the row broke")
	}
	use := j.Plan.Reserve
	if d.Use != nil {
		use = *d.Use
		use[abi.Steps] = min(use[abi.Steps], j.Plan.Reserve[abi.Steps]) // another attempt is no step
	}
	if e := j.Plan.Elastic; e.Max > 0 {
		n := min(d.Used, j.Granted)
		use = e.Need(use, n)
	}
	if d.Gate != "" {
		stop := ctx.Done()
		if d.Deaf {
			stop = nil
		}
		select {
		case <-gate:
		case <-dead:
			return Done{Err: &abi.Error{Code: abi.Interrupted, Message: "the machine stopped"}}
		case <-stop:
			return Done{Err: &abi.Error{Code: abi.Interrupted, Message: "stopped"}, Usage: use}
		}
	}
	if d.Fail != "" && (d.Times == 0 || j.Attempt <= d.Times) {
		return Done{Err: &abi.Error{Code: d.Fail, Message: "it failed"}, Usage: use, Rolled: d.Rolled, Digest: abi.Key{d.State}}
	}
	b, _ := json.Marshal(d.Give)
	out := Done{Value: b, Usage: use, Digest: abi.Key{d.State}}
	if d.Publish {
		m.publish(j, &out)
	}
	return out
}

// publish leaves a commit in doubt, as a workspace does.
func (m *rig) publish(j *Job, d *Done) {
	p := &pub{id: callID{j.Call.Pid, j.Call.N}, commit: abi.HashOf(fmt.Append(nil, j.Call.Pid, j.Call.N, j.Attempt))}
	store := m.store
	d.Commit = p.commit
	d.Kept = func(stands bool) {
		r, err := store.Answer(p.id.pid, p.id.n)
		m.mu.Lock()
		defer m.mu.Unlock()
		if on := err == nil && r != nil && r.Answer.Commit == p.commit; on != stands || p.kept != "" {
			p.kept = "wrong"
			return
		}
		p.kept = map[bool]string{true: "stands", false: "undone"}[stands]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pubs = append(m.pubs, p)
}

// disagreed looks for a commit of which the journal says other than it was told.
func (m *rig) disagreed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pubs {
		r, err := m.store.Answer(p.id.pid, p.id.n)
		stands := err == nil && r != nil && r.Answer.Outcome == abi.OK && r.Answer.Commit == p.commit
		if p.kept == "wrong" || p.kept == "stands" && !stands || p.kept == "undone" && stands {
			return fmt.Errorf("the commit of call %v is %q, and the journal has %+v", p.id, p.kept, r)
		}
	}
	return nil
}

// gate returns the gate of a name. m.mu is held.
func (m *rig) gate(name string) chan struct{} {
	g := m.gates[name]
	if g == nil {
		g = make(chan struct{})
		m.gates[name] = g
	}
	return g
}

// let opens a gate, for ever.
func (m *rig) let(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.gate(name)
	select {
	case <-g:
	default:
		close(g)
	}
}

func (m *rig) effects(pid abi.Pid, n uint64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ran[callID{pid, n}]
}

// open opens a kernel on the journal as it is.
func (m *rig) open() {
	m.t.Helper()
	if err := m.tryOpen(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *rig) tryOpen() error {
	store, lease, err := m.disk()
	if err != nil {
		return err
	}
	if m.wrap != nil {
		store = m.wrap(store)
	}
	m.tap = &tap{Store: store}
	if m.onOpen != nil {
		m.onOpen(m.tap)
	}
	m.store = m.tap
	m.mu.Lock()
	m.dead = make(chan struct{})
	m.mu.Unlock()
	m.log = journal.NewLog(m.store, lease)
	m.cfg.Store, m.cfg.Log = m.store, m.log
	k, err := New(m.cfg)
	if err != nil {
		return errors.Join(err, m.log.Close(), m.store.Close())
	}
	m.Kernel, m.Processes = k, k.Processes()
	m.keep(m.linger)
	return nil
}

// keep says how many that ended are kept whole, now and after restarts.
func (m *rig) keep(n int) {
	m.linger = n
	m.Kernel.procs.mu.Lock()
	m.Kernel.exits.keep = n
	m.Kernel.procs.mu.Unlock()
}

// List describes every process, by pid.
func (m *rig) List() (all []Info) {
	m.t.Helper()
	for _, pid := range m.After(0, math.MaxInt) {
		i, err := m.Info(pid)
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, i)
	}
	return all
}

// bury lets go of all that has ended and is on disk.
func (m *rig) bury() {
	m.Kernel.procs.mu.Lock()
	defer m.Kernel.procs.mu.Unlock()
	m.exits.bury(m.procs)
}

// halt ends a kernel as a machine that stops does: nothing more reaches the
// disk than is there.
func (m *rig) halt() {
	k := m.Kernel
	if k == nil {
		return
	}
	k.procs.mu.Lock()
	k.closed = true
	for _, p := range k.procs.byPid {
		p.timers.stop()
		for _, o := range p.ops {
			o.stop(errClosing)
		}
	}
	k.procs.mu.Unlock()
	m.mu.Lock()
	select {
	case <-m.dead:
	default:
		close(m.dead)
	}
	m.mu.Unlock()
	m.calls.Wait()
	m.log.Close()
	m.store.Close()
	m.Kernel = nil
}

// crash stops the machine, so that all that is not on disk is lost, and starts
// it again.
func (m *rig) crash() {
	m.t.Helper()
	m.tap.breakNow()
	m.halt()
	m.open()
}

func (m *rig) spawn(s Spawning) abi.Pid {
	m.t.Helper()
	if s.Rows == nil {
		s.Rows = everyRow
	}
	pid, err := m.Spawn(context.Background(), s)
	if err != nil {
		m.t.Fatal(err)
	}
	return pid
}

func under(l abi.Limits) Spawning { return Spawning{Spawn: abi.Spawn{Limits: l}} }

func (m *rig) do(pid abi.Pid, n uint64, row string, d deed) abi.Result {
	return m.Do(context.Background(), abi.Call{Pid: pid, N: n, Row: row, Args: d.json()})
}

// start makes a call that is not waited for.
func (m *rig) start(pid abi.Pid, n uint64, row string, d deed) <-chan abi.Result {
	return m.startCall(abi.Call{Pid: pid, N: n, Row: row, Args: d.json()})
}

func (m *rig) startCall(c abi.Call) <-chan abi.Result {
	k := m.Kernel
	out := make(chan abi.Result, 1)
	m.calls.Go(func() { out <- k.Do(context.Background(), c) })
	return out
}

// records are those of a process, as they are on disk.
func (m *rig) records(pid abi.Pid) (all []*abi.Record) {
	m.t.Helper()
	if err := m.log.Flush(context.Background()); err != nil {
		m.t.Fatal(err)
	}
	for r, err := range m.store.Records(pid, 0) {
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// kinds is the journal of a process in short.
func (m *rig) kinds(pid abi.Pid) string {
	var b strings.Builder
	for _, r := range m.records(pid) {
		fmt.Fprintf(&b, "%s", r.Kind)
		if r.Call > 0 {
			fmt.Fprintf(&b, "(%d)", r.Call)
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func (m *rig) dump(pid abi.Pid) string {
	m.t.Helper()
	b, err := m.Dump(pid)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func limits(pairs ...any) (l abi.Limits) {
	for i := 0; i < len(pairs); i += 2 {
		n, ok := pairs[i+1].(int)
		if !ok {
			n = int(pairs[i+1].(time.Duration))
		}
		l.Set(pairs[i].(abi.Unit), int64(n))
	}
	return l
}

func code(r abi.Result) abi.Code {
	if r.Err == nil {
		return ""
	}
	return r.Err.Code
}

// tap is a store that can be broken from outside, and keeps the order in which
// records of all processes came.
type tap struct {
	journal.Store

	mu     sync.Mutex
	order  []abi.Record
	left   int // appends until it breaks; 0: it does not
	after  bool
	broken bool
	full   bool
	refuse abi.Pid // whose records it does not take; 0: nobody's
	tick   func()
}

func (s *tap) Append(l journal.Lease, batch []abi.Record) error {
	if s.tick != nil {
		defer s.tick()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return journal.ErrFull
	}
	for i := range batch {
		if r := &batch[i]; r.Pid == s.refuse && s.refuse != 0 {
			return &journal.BadRecord{Pid: r.Pid, N: r.N, Why: "the test does not take it"}
		}
	}
	if s.left > 0 {
		if s.left--; s.left == 0 {
			s.broken = true
			if !s.after {
				return storetest.ErrBroken
			}
			if s.Store.Append(l, batch) == nil {
				s.order = append(s.order, slices.Clone(batch)...)
			}
			return storetest.ErrBroken
		}
	}
	if s.broken {
		return storetest.ErrBroken
	}
	err := s.Store.Append(l, batch)
	if err == nil {
		s.order = append(s.order, slices.Clone(batch)...)
	}
	return err
}

// fill makes the disk full, or gives it room again.
func (s *tap) fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// breakNow makes every later append fail.
func (s *tap) breakNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
}
