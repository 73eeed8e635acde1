package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/loop"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/model"
)

// Config says where a kernel lives. Only Dir is needed.
type Config struct {
	Dir      string                 // the data directory; one kernel at a time
	Getenv   func(string) string    // reads addresses and keys of providers; nil: os.Getenv
	Settings config.Settings        // of the host; see [ReadSettings]
	Models   map[string]model.Model // models of this program, by the name that agents use
	// RequireTools makes Open fail with a [MissingToolsError], and resume nothing,
	// when living processes may call Go tools that Agents do not supply.
	RequireTools bool
	Tools        map[string][]*tools.Tool // Go tools by the name of their agent, for processes of earlier runs
}

// running is the part of a kernel that the loop and the gateway need.
type running struct {
	*kernel.Kernel
	*kernel.Processes
}

// A Kernel runs agents over one data directory.
type Kernel struct {
	*kernel.Kernel    // acts on processes: Do, Signal, Decide, Change ...
	*kernel.Processes // shows processes: Info, View, Recent ...

	Files   *FileHistory     // the changes that processes made to their workspaces
	Feed    Feed             // the records of all processes and the live channel
	Gateway *gateway.Gateway // serves programs that were written for a provider

	reader
	opener
	remover   remover
	world     *syscalls.World
	turns     quota.Turns
	pool      program.Pool
	sandboxes sandboxes
	spaces    workspaces
	goTools   goTools

	cancel context.CancelFunc
	loops  sync.WaitGroup

	closing closing
}

// closing says whether a kernel is closed.
type closing struct {
	mu     sync.Mutex
	closed bool
}

// Conceal hides the memory and the environment of this process from other processes
// of the same user, because both hold the keys of providers. It also keeps
// debuggers out.
func Conceal() error { return program.Conceal() }

// Child runs the role that this process was started for, such as supervisor or jail,
// and then does not return. In any other process it returns at once. A program calls
// Child first in main, because Kern refuses command tools and jails without it.
func Child() {
	program.Main()
}

// Open opens the kernel of a data directory, and resumes the processes that live
// there.
func Open(cfg Config) (*Kernel, error) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	store, lease, err := sqlite.Open(cfg.Dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &Kernel{reader: reader{store, journal.NewLog(store, lease), ctx}, opener: opener{cfg.Settings.Models(cfg.Getenv), cfg.Models}, cancel: cancel,
		goTools: goTools{byPid: make(map[abi.Pid]map[string]*tools.Tool), byAgent: make(map[string]map[string]*tools.Tool)}}
	k.Feed = Feed{log: k.log, ctx: ctx, parent: func(pid abi.Pid) abi.Pid {
		i, _ := k.Processes.Info(pid)
		return i.Parent
	}}
	k.spaces = workspaces{store: filepath.Join(cfg.Dir, "workspaces"), journal: store, log: k.log, rules: cfg.Settings.Spaces}
	k.turns.Configs = cfg.Settings.Traffic
	for agent, list := range cfg.Tools {
		k.goTools.byAgent[agent] = byName(list)
	}
	k.world = k.joinWorld(cfg)
	k.spaces.forget = k.world.Workspaces.Forget
	ring := &gateway.Ring{Blob: store.Blob}
	k.Kernel, err = kernel.New(kernel.Config{
		Store: store, Log: k.log, Rows: syscalls.Table(k.world),
		Live:  &k.Feed.Live,
		Turn:  k.turn,
		Rank:  func(pid abi.Pid, priority int) { k.turns.SetPriority(int64(pid), priority) },
		Count: func(b []byte) int { return tokens.CountText(string(b)) },
		Start: k.start,
		Found: ring.Found,
	})
	if err == nil {
		k.Processes = k.Kernel.Processes()
		k.Files = &FileHistory{kernel: running{k.Kernel, k.Processes}, world: k.world, journal: &k.reader, workspaces: &k.spaces}
		k.Gateway = gateway.New(gateway.Config{Kernel: running{k.Kernel, k.Processes}, Ring: ring, Models: k.models, Live: &k.Feed.Live, Away: k.turns.Backoff, MinOutput: cfg.Settings.MinOutput, Bytes: cfg.Settings.Gateway.Bytes, Spawn: func(ctx context.Context, p abi.Agent, s gateway.Key) (abi.Pid, error) {
			return k.SpawnSpec(ctx, abi.Run{Program: p, Limits: s.Limits, Priority: s.Priority, Watchdog: s.Watchdog, Account: s.Account, Title: s.Title})
		}})
	}
	if err != nil {
		return nil, errors.Join(err, k.shut())
	}
	// Workspaces settle first, because a resumed process needs its files at once.
	k.spaces.recover()
	living, _ := k.Processes.Recent(0)
	k.turns.Restarted = len(living) > 0
	// A missing tool ends Open before any process runs.
	if missing := k.missingTools(living); cfg.RequireTools && len(missing) > 0 {
		return nil, errors.Join(missing, k.Kernel.Close(ctx), k.shut())
	}
	k.Resume()
	k.remover = remover{kernel.Remover{Kernel: k.Kernel}, k.Processes.Info, cfg.Dir, cfg.Settings.Journal}
	k.loops.Go(func() { k.remover.keepRules(k.ctx) })
	return k, nil
}

// yieldPolicy decides requests for higher limits without a person; nil asks one.
func yieldPolicy(name string) func(kernel.View, abi.Limits) (allow, decided bool) {
	if name != "deny" {
		return nil
	}
	return func(kernel.View, abi.Limits) (bool, bool) { return false, true }
}

// joinWorld joins everything that rows use: models, tools, workspaces, sandboxes and
// the journal.
func (k *Kernel) joinWorld(cfg Config) *syscalls.World {
	runner := tools.Runner{Pool: &k.pool, Secrets: cfg.Settings.Secrets(cfg.Getenv)}
	command := func(s abi.ToolSpec) (*tools.Tool, error) { return tools.Command(s, runner) }
	return &syscalls.World{
		Open:    k.openModel,
		Away:    k.turns.Backoff,
		Live:    &k.Feed.Live,
		Command: command,
		Hosted:  func(pid abi.Pid, name string) *tools.Tool { return k.goTools.find(k.View, pid, name) },
		Sandbox: k.sandboxes.get,

		Workspaces: &staging.Workspaces{Open: k.spaces.get, Settle: k.spaces.settle, Command: invariantCommand(command)},

		Journal: syscalls.Journal{
			Bytes:  func(d abi.Data) ([]byte, error) { return k.Kernel.Bytes(d) },
			Record: k.Record,
			Answer: func(pid abi.Pid, call uint64) (*abi.Record, error) {
				if err := k.log.Flush(k.ctx); err != nil { // some records may still be in memory
					return nil, err
				}
				return k.store.Answer(pid, call)
			},
			Records: func(pid abi.Pid, n uint64) iter.Seq2[*abi.Record, error] {
				if err := k.log.Flush(k.ctx); err != nil { // some records may still be in memory
					return func(yield func(*abi.Record, error) bool) { yield(nil, err) }
				}
				return k.store.Records(pid, n)
			},
		},
		Child: k.childModel,
		Yield: yieldPolicy(cfg.Settings.Yield),

		MinOutput: cfg.Settings.MinOutput,
	}
}

// invariantCommand returns the function that runs the command of an invariant as a
// tool.
func invariantCommand(command func(abi.ToolSpec) (*tools.Tool, error)) func(context.Context, []string, string, json.RawMessage) *abi.Error {
	return func(ctx context.Context, argv []string, dir string, args json.RawMessage) *abi.Error {
		t, err := command(abi.ToolSpec{Name: "invariant", Command: argv})
		if err != nil {
			return &abi.Error{Code: abi.InvariantFailed, Message: err.Error()}
		}
		return t.Run(ctx, tools.Input{Args: args, Dir: dir}).Err
	}
}

func (k *Kernel) shut() error {
	k.cancel()
	return errors.Join(k.sandboxes.close(), k.spaces.close(), k.pool.Close(), k.log.Close(), k.store.Close())
}

// Close stops the loops and the gateway, and releases the data directory. Every
// process stays as the journal has it, and resumes at the next Open.
func (k *Kernel) Close() error {
	k.closing.mu.Lock()
	was := k.closing.closed
	k.closing.closed = true
	k.closing.mu.Unlock()
	if was {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := k.Kernel.Close(ctx)
	k.cancel()
	if err != nil { // the journal is stuck, so closing it ends every wait for it
		err = errors.Join(err, k.log.Close())
	}
	k.loops.Wait()
	k.Gateway.Close()
	return errors.Join(err, k.shut())
}

// start runs the built-in loop of a process. The kernel calls it under its lock.
func (k *Kernel) start(pid abi.Pid) {
	k.closing.mu.Lock()
	defer k.closing.mu.Unlock()
	if !k.closing.closed {
		k.loops.Go(func() { k.loop(pid) })
	}
}

func (k *Kernel) loop(pid abi.Pid) {
	defer func() {
		if r := recover(); r != nil {
			k.Crash(pid, fmt.Sprintf("the loop of the process broke: %v", r))
		}
	}()
	v, err := k.View(pid)
	if err != nil {
		return
	}
	if l, err := k.world.Load(v.Spawn.Program); err == nil && l.Agent.Hosted {
		return // its loop runs elsewhere
	}
	if err := loop.Run(k.ctx, running{k.Kernel, k.Processes}, k.world, pid); err != nil && k.ctx.Err() == nil {
		k.Crash(pid, err.Error())
	}
	if k.ctx.Err() == nil && k.log.Err() == nil { // nobody else would ever end it
		k.Crash(pid, "the loop of the process ended, and the process did not exit")
	}
	// After its exit nobody needs its tools, because its descendants have exited too.
	if i, err := k.Processes.Info(pid); err == nil && i.Exit != nil {
		k.goTools.put(pid, nil)
	}
}

// SpawnSpec starts a process with its Go tools, and returns when its first record is
// on disk.
func (k *Kernel) SpawnSpec(ctx context.Context, s abi.Run, goTools ...*tools.Tool) (abi.Pid, error) {
	b, err := k.define(&s)
	if err != nil {
		return 0, err
	}
	if err := checkPrograms(&s.Program); err != nil {
		return 0, err
	}
	if !s.Program.Hosted { // a key has its own bound on children
		s.Limits.SetUsual()
	}
	if s.Parent != 0 {
		return k.Gateway.Below(ctx, s.Parent, "run", syscalls.RunArgs{Program: b, Task: s.Task, Priority: s.Priority, Watchdog: s.Watchdog, Limits: s.Limits})
	}
	p := &s.Program
	r := kernel.Spawning{Program: b, Task: []byte(s.Task)}
	r.Name, r.Account, r.Priority, r.Limits, r.Watchdog, r.Rows, r.Title = p.Name, s.Account, s.Priority, s.Limits, s.Watchdog, p.Grants(), s.Title
	pid, err := k.Kernel.Spawn(ctx, r)
	if err != nil {
		return 0, err
	}
	k.goTools.put(pid, goTools)
	k.Resume(pid)
	return pid, nil
}

// checkPrograms refuses an agent with a command whose program is not there, because
// its first call would fail after the model was paid. A relative path in a workspace
// is not looked for: an earlier call may make the file. Where names the entry of the
// agent file.
func checkPrograms(p *abi.Agent) error {
	dir := p.Dir
	if p.Workspace != "" {
		dir = ""
	}
	check := func(where, what string, command []string) error {
		if len(command) == 0 {
			return nil
		}
		if err := tools.CheckProgram(command, dir); err != nil {
			return &abi.Error{Code: abi.InvalidCall, Message: what + ": command: " + err.Error(), Where: where}
		}
		return nil
	}
	for i, t := range p.Tools {
		if err := check(fmt.Sprintf("/tools/%d", i), fmt.Sprintf("tool %q", t.Name), t.Command); err != nil {
			return err
		}
	}
	for i, v := range p.Invariants {
		if err := check(fmt.Sprintf("/invariants/%d", i), "an invariant", v.Command); err != nil {
			return err
		}
	}
	return nil
}

// define returns the agent of a request as it is recorded, and refuses one that
// cannot run.
func (k *Kernel) define(s *abi.Run) ([]byte, error) {
	p := &s.Program
	for i := range p.Tools {
		p.Tools[i].SetDefaults()
		if err := tools.Validate(&p.Tools[i]); err != nil {
			return nil, err
		}
	}
	if err := k.spaces.check(p); err != nil {
		return nil, err
	}
	if p.Model != "" {
		if err := k.know(p); err != nil {
			return nil, &abi.Error{Code: abi.UnknownModel, Message: err.Error()}
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if slices.Contains(p.Rows, "code") { // a sandbox that this host cannot build is refused now
		if _, err := k.sandboxes.get(p.Sandbox); err != nil {
			return nil, &abi.Error{Code: abi.CodeRefused, Message: err.Error()}
		}
	}
	_, err = k.world.Load(abi.Data{Bytes: b})
	return b, err
}

// Wait waits until a process exits.
func (k *Kernel) Wait(ctx context.Context, pid abi.Pid) (Result, error) {
	if _, err := k.Processes.Wait(ctx, pid); err != nil {
		return Result{}, err
	}
	return k.Result(pid)
}

// Result describes how a process ended. Exit is empty if the process still lives.
func (k *Kernel) Result(pid abi.Pid) (Result, error) {
	i, err := k.Info(pid)
	if err != nil {
		return Result{}, err
	}
	regs, err := k.world.Registers(k.Processes, pid)
	if err != nil {
		return Result{}, err
	}
	e, err := k.world.Ended(k.Processes, pid)
	if err != nil {
		return Result{}, err
	}
	// A living process uses time until now, an exited one until its last record.
	until := time.Now()
	if i.Exit != nil {
		until = time.Unix(0, i.Last)
	}
	r := Result{Pid: pid, Exit: e.Exit, Reason: e.Reason, Code: e.Code, Output: e.Output, Err: e.Err, Steps: i.Steps, Limits: i.Limits, Registers: regs,
		Usage: Usage{
			Money: abi.FormatMoney(i.Used[abi.Money]), InputTokens: i.Used[abi.InputTokens], OutputTokens: i.Used[abi.OutputTokens],
			ModelCalls: i.Used[abi.ModelCalls], ToolCalls: i.Used[abi.ToolCalls], WallMS: until.Sub(time.Unix(0, i.Born)).Milliseconds(),
		}}
	if n := i.Doubt[abi.Money]; n > 0 {
		r.Usage.InDoubt = abi.FormatMoney(n)
	}
	r.Usage.Claims = i.Beyond.Claims
	if i.Beyond.Drift > 0 {
		r.Usage.Drift = abi.FormatMoney(i.Beyond.Drift)
	}
	return r, nil
}

// Replay folds the journal of a process again, without asking a model or running a
// tool. The fold must equal the live state to the byte, no effect may have begun
// past a limit, and the loop must make the recorded calls again. With another agent
// or task it finds the first record at which that makes a difference.
func (k *Kernel) Replay(ctx context.Context, pid abi.Pid, other *abi.Run) (abi.ReplayResult, error) {
	r, err := k.Recording(ctx, pid)
	if err != nil {
		return abi.ReplayResult{}, err
	}
	out := abi.ReplayResult{Pid: pid, Records: len(r.Records)}
	for _, rec := range slices.Backward(r.Records) { // a settlement may follow the exit
		if rec.Kind == abi.KindExited {
			out.Exit = rec.Exit.Exit
			break
		}
	}
	if err := k.Check(r); err != nil {
		return out, err
	}
	keyless := opener{k.models.WithoutKeys(), k.given}
	w := &syscalls.World{Open: keyless.openModel, Command: k.world.Command, Hosted: k.world.Hosted, Child: k.world.Child,
		Journal: syscalls.Journal{Bytes: k.world.Journal.Bytes, Record: k.Record}}
	l, err := w.Load(r.Records[0].Spawn.Program)
	if err != nil {
		return out, err
	}
	if l.Agent.Hosted {
		out.Same = true // its loop runs elsewhere, so only the fold is compared
		return out, nil
	}
	if other != nil {
		if w, err = k.exchange(r, other); err != nil {
			return out, err
		}
	}
	out.Calls, err = loop.Replay(ctx, r, w)
	if d := (*abi.Divergence)(nil); errors.As(err, &d) {
		out.Divergence = d
		return out, nil
	}
	out.Same = err == nil
	return out, err
}

// exchange replaces the agent in a recording, and the task if other has one. It
// returns a world whose journal has the new first record.
func (k *Kernel) exchange(r *kernel.Recording, other *abi.Run) (*syscalls.World, error) {
	b, err := k.define(other)
	if err != nil {
		return nil, err
	}
	first := *r.Records[0]
	spawn := *first.Spawn
	spawn.Program = abi.Data{Bytes: b, Size: int64(len(b))}
	if other.Task != "" {
		spawn.Task = abi.Data{Bytes: []byte(other.Task), Size: int64(len(other.Task))}
	}
	first.Spawn = &spawn
	r.Records[0] = &first
	w := &syscalls.World{Open: k.world.Open, Command: k.world.Command, Hosted: k.world.Hosted, Child: k.world.Child, Journal: syscalls.Journal{Bytes: k.world.Journal.Bytes}}
	w.Journal.Record = func(pid abi.Pid, n uint64) (*abi.Record, error) {
		if pid == first.Pid && n == first.N {
			return &first, nil
		}
		return k.Record(pid, n)
	}
	return w, nil
}
