package kern

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/host"
)

// killTime is how long Run waits for a process that it killed.
const killTime = 5 * time.Second

var errNoGoTools = &abi.Error{Code: abi.InvalidCall, Message: "a daemon cannot call the Go tools of this program",
	Hint: "use kern.Open, or declare the tools as commands in an agent file"}

// Spawn starts a process and returns its pid when it is in the journal.
func (k *Kernel) Spawn(ctx context.Context, a Agent, task string) (abi.Pid, error) {
	s, err := a.request(task)
	if err != nil {
		return 0, err
	}
	if k.embedded == nil {
		if len(a.Tools) > 0 {
			return 0, errNoGoTools
		}
		return k.client.Spawn(ctx, s)
	}
	list, err := a.goTools()
	if err != nil {
		return 0, err
	}
	return k.embedded.SpawnSpec(ctx, s, list...)
}

// Run runs an agent on a task until its process exits. If ctx ends first, Run kills
// the process and returns its result with the cause of ctx.
func (k *Kernel) Run(ctx context.Context, a Agent, task string) (Result, error) {
	pid, err := k.Spawn(ctx, a, task)
	if err != nil {
		return Result{}, err
	}
	return k.waitOrKill(ctx, pid)
}

func (k *Kernel) waitOrKill(ctx context.Context, pid abi.Pid) (Result, error) {
	r, err := k.Wait(ctx, pid)
	if err == nil || ctx.Err() == nil {
		return r, err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := k.client.Signal(after, pid, api.Signal{Signal: abi.Kill, By: "context"}); err != nil && !errors.Is(err, &abi.Error{Code: abi.ProcessExited}) {
		return r, err
	}
	if r, err = k.Wait(after, pid); err != nil {
		return r, err
	}
	return r, context.Cause(ctx)
}

// Wait waits until a process exits.
func (k *Kernel) Wait(ctx context.Context, pid abi.Pid) (Result, error) {
	return readResult(ctx, k.client, pid, true)
}

// Result reports how a process ended, or how it stands: then Exit is empty.
func (k *Kernel) Result(ctx context.Context, pid abi.Pid) (Result, error) {
	return readResult(ctx, k.client, pid, false)
}

func readResult(ctx context.Context, c *api.Client, pid abi.Pid, wait bool) (Result, error) {
	var r host.Result
	if err := c.Result(ctx, pid, wait, &r); err != nil {
		return Result{}, err
	}
	p, err := c.Show(ctx, pid)
	if err != nil {
		return Result{}, err
	}
	return resultOf(&r, &p)
}

// Signal sends a signal. It overtakes every call of the process.
func (k *Kernel) Signal(ctx context.Context, pid abi.Pid, s abi.Signal) error {
	return k.client.Signal(ctx, pid, api.Signal{Signal: s})
}

// A Decision answers a call that waits for a person.
type Decision struct {
	Call    uint64 // the call; 0: the only one that waits
	Approve bool
	By      string // the person
	Comment string // text for the model
}

// Decide answers a call that waits for approval, or a question of an agent.
func (k *Kernel) Decide(ctx context.Context, pid abi.Pid, d Decision) error {
	return k.client.Decide(ctx, pid, api.Decision{Call: d.Call, Yes: d.Approve, By: d.By, Words: d.Comment})
}

// SetLimits changes the limits that l sets, and removes those named in remove. It
// leaves all others alone.
func (k *Kernel) SetLimits(ctx context.Context, pid abi.Pid, l Limits, remove ...abi.Unit) error {
	c, err := changeOf(l, remove)
	if err == nil {
		_, err = k.client.Change(ctx, pid, c)
	}
	return err
}

// SetAccount changes the limits of a named account as SetLimits does, and makes the
// account if it does not exist.
func (k *Kernel) SetAccount(ctx context.Context, name string, l Limits, remove ...abi.Unit) error {
	c, err := changeOf(l, remove)
	if err == nil {
		_, err = k.client.Accounts.Set(ctx, name, c)
	}
	return err
}

func changeOf(l Limits, remove []abi.Unit) (c api.Change, err error) {
	c.Limits, err = l.abi()
	for _, u := range remove {
		c.Unset = append(c.Unset, u.String())
	}
	return c, err
}

// Process describes a process.
func (k *Kernel) Process(ctx context.Context, pid abi.Pid) (Process, error) {
	p, err := k.client.Show(ctx, pid)
	if err != nil {
		return Process{}, err
	}
	return processOf(&p)
}

// Processes yields every process, by pid: those that live and those that exited.
func (k *Kernel) Processes(ctx context.Context) iter.Seq2[Process, error] {
	return func(yield func(Process, error) bool) {
		list, err := k.client.List(ctx)
		if err != nil {
			yield(Process{}, err)
			return
		}
		for i := range list {
			if p, err := processOf(&list[i]); !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// errStop ends a reading whose consumer has enough.
var errStop = errors.New("stop")

// Records yields the records of a process after record n.
func (k *Kernel) Records(ctx context.Context, pid abi.Pid, n uint64) iter.Seq2[*abi.Record, error] {
	return readRecords(ctx, k.client, pid, n, false)
}

// Follow yields the records of a process after record n, and those to come, until
// the process has exited. A slow reader delays nobody.
func (k *Kernel) Follow(ctx context.Context, pid abi.Pid, n uint64) iter.Seq2[*abi.Record, error] {
	return readRecords(ctx, k.client, pid, n, true)
}

func readRecords(ctx context.Context, c *api.Client, pid abi.Pid, n uint64, follow bool) iter.Seq2[*abi.Record, error] {
	return func(yield func(*abi.Record, error) bool) {
		err := c.Records(ctx, pid, n, follow, func(r *abi.Record, _ []byte) error {
			if !yield(r, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}
}

// Fork starts a process that continues from an earlier record of another.
func (k *Kernel) Fork(ctx context.Context, pid abi.Pid, o abi.ForkOptions) (abi.ForkResult, error) {
	return k.client.Forks.Fork(ctx, pid, o)
}

// Continue starts a process that goes on where another one stopped: with its
// conversation, its workspace, and what it had left of its limits. A call that had begun
// is not made again. If the agent has Go tools, they are given again.
func (k *Kernel) Continue(ctx context.Context, pid abi.Pid, o abi.ContinueOptions, goTools ...Tool) (abi.Pid, error) {
	if k.embedded == nil && len(goTools) == 0 {
		return k.client.Forks.Continue(ctx, pid, o)
	}
	if k.embedded == nil {
		return 0, errNoGoTools
	}
	a := Agent{Tools: goTools}
	list, err := a.goTools()
	if err != nil {
		return 0, err
	}
	return k.embedded.Continue(ctx, pid, o, list...)
}

// Replay folds the journal of a process again, without asking a model or running a
// tool. It fails if the state differs from the live one. The result says whether
// the built-in loop would make the recorded calls again.
func (k *Kernel) Replay(ctx context.Context, pid abi.Pid) (abi.ReplayResult, error) {
	return k.client.Replay(ctx, pid, api.Replay{})
}

// Check reads every record of a process and every payload that they name, and
// returns how many records are as they were written.
func (k *Kernel) Check(ctx context.Context, pid abi.Pid) (records int, err error) {
	v, err := k.client.Verify(ctx, pid)
	return v.Records, err
}

// Commits lists what a process and its descendants changed in their workspace, the
// oldest commit first.
func (k *Kernel) Commits(ctx context.Context, pid abi.Pid) ([]abi.Commit, error) {
	return k.client.Workspaces.Commits(ctx, pid)
}

// Diff shows, as patches, what a process and its descendants changed: in all, or in
// the commit of its record seq.
func (k *Kernel) Diff(ctx context.Context, pid abi.Pid, seq uint64) ([]abi.FileDiff, error) {
	return k.client.Workspaces.Diff(ctx, pid, seq)
}

// Undo restores the files that a process and its descendants changed.
func (k *Kernel) Undo(ctx context.Context, pid abi.Pid, o abi.UndoOptions) (abi.UndoResult, error) {
	return k.client.Workspaces.Undo(ctx, pid, o)
}

// CheckWorkspace reads everything that is kept of a workspace.
func (k *Kernel) CheckWorkspace(ctx context.Context, dir string) (abi.WorkspaceCheck, error) {
	return k.client.Workspaces.Verify(ctx, dir)
}
