package syscalls

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// SpawnArgs are the arguments of spawn. Fields without a value are as in the parent.
// A child has only tools of its parent.
type SpawnArgs struct {
	Task     string     `json:"task"`
	Name     string     `json:"name,omitempty"`
	System   *string    `json:"system,omitempty"`
	Model    string     `json:"model,omitempty"`
	Tools    []string   `json:"tools,omitempty"` // names of the parent's tools and rows; absent: all
	Priority *int       `json:"priority,omitempty"`
	Limits   abi.Limits `json:"limits,omitzero"`
}

func (w *World) planSpawn(v kernel.View, c abi.Call) (pl kernel.Plan, e *abi.Error) {
	pl = kernel.Plan{Effect: abi.Idempotent, Child: true, Reserve: abi.Usage{abi.Children: 1}}
	a, e := decode[SpawnArgs](c)
	if e != nil {
		return pl, e
	}
	l, err := w.Load(v.Spawn.Program)
	if err != nil {
		return pl, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	p, e := w.child(l, &a)
	if e != nil {
		return pl, e
	}
	b, err := json.Marshal(p)
	if err != nil {
		return pl, &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	s := &kernel.Spawning{Program: b, Task: []byte(a.Task)}
	s.Name, s.Limits, s.Rows, s.Watchdog, s.Priority = a.Name, a.Limits, p.Grants(), v.Spawn.Watchdog, v.Spawn.Priority
	if a.Priority != nil {
		s.Priority = max(*a.Priority, v.Spawn.Priority) // a child is never more urgent than its parent
	}
	pl.Work = s
	return pl, nil
}

// child returns the agent of a child.
func (w *World) child(l *Loaded, a *SpawnArgs) (abi.Agent, *abi.Error) {
	p := l.Agent
	p.Hosted = false
	if a.System != nil {
		p.System = *a.System
	}
	if a.Model != "" {
		q, err := w.Child(&p, a.Model)
		if err != nil {
			return p, &abi.Error{Code: abi.UnknownModel, Message: err.Error(), Where: "/model"}
		}
		p.Model, p.Script, p.Facts, p.Fallback = q.Model, q.Script, q.Facts, q.Fallback
	}
	if a.Tools == nil {
		return p, nil
	}
	has := func(name string) bool { return slices.Contains(a.Tools, name) }
	for i, name := range a.Tools {
		if !slices.ContainsFunc(p.Tools, func(s abi.ToolSpec) bool { return s.Name == name }) && !slices.Contains(p.Rows, name) && l.files[name] == nil {
			return p, &abi.Error{Code: abi.UnknownTool, Message: fmt.Sprintf("this process has no tool %q to hand on", name), Where: fmt.Sprintf("/tools/%d", i)}
		}
	}
	p.Tools = slices.DeleteFunc(slices.Clone(p.Tools), func(s abi.ToolSpec) bool { return !has(s.Name) })
	p.Rows = slices.DeleteFunc(slices.Clone(p.Rows), func(r string) bool { return !has(r) })
	p.Builtin = []string{}
	for _, name := range FileTools() {
		if l.files[name] != nil && has(name) {
			p.Builtin = append(p.Builtin, name)
		}
	}
	return p, nil
}

func (w *World) runSpawn(_ context.Context, j *kernel.Job) kernel.Done {
	pid, e := j.Spawn(*j.Plan.Work.(*kernel.Spawning))
	if e != nil {
		return failed(e)
	}
	return done(map[string]abi.Pid{"pid": pid}) // the child's own record books its limits, so the two cannot disagree
}

// WaitArgs are the arguments of wait.
type WaitArgs struct {
	Pid     abi.Pid `json:"pid,omitempty"` // 0: the first child that exits
	Timeout string  `json:"timeout,omitempty"`
}

// Ended is how a process ended, for its parent and the command line.
type Ended struct {
	Pid    abi.Pid    `json:"pid"`
	Exit   abi.Exit   `json:"exit"`
	Reason string     `json:"reason"`
	Code   abi.Code   `json:"code"`
	Output string     `json:"output"`
	Err    *abi.Error `json:"error"`
	Usage  abi.Usage  `json:"usage"`
}

func (w *World) runWait(_ context.Context, j *kernel.Job) kernel.Done {
	a, e := decode[WaitArgs](j.Call)
	if e != nil {
		return failed(e)
	}
	d, e := parseDuration("wait", "/timeout", a.Timeout)
	if e != nil {
		return failed(e)
	}
	pid, e := j.Await(a.Pid, d)
	if e != nil {
		return failed(e)
	}
	if pid == 0 {
		return done(map[string]any{"timeout": true})
	}
	r, err := w.Ended(j.Kernel.Processes(), pid)
	if err != nil {
		return failed(&abi.Error{Code: abi.StorageBroken, Message: err.Error()})
	}
	out := done(r)
	out.Took = uint64(pid)
	return out
}

// Registers returns R0 to R7 of a process. If the model chose the last tool call, its
// arguments come from the reply, because the intent of such a call has none.
func (w *World) Registers(ps *kernel.Processes, pid abi.Pid) (regs abi.Registers, err error) {
	v, err := ps.View(pid)
	if err != nil {
		return regs, err
	}
	if regs, err = ps.Registers(pid); err != nil || v.Chosen == nil {
		return regs, err
	}
	reply, err := w.Journal.Message(v.Chosen.Reply)
	for _, c := range reply.Calls {
		// A process that lives may have called another tool meanwhile.
		if c.ID == v.Chosen.For && c.Name == regs.Schema.Tool {
			regs.Schema.Args = abi.Data{Bytes: []byte(c.Args), Size: int64(len(c.Args))}
		}
	}
	return regs, err
}

// Ended returns how a process ended. If the process gave no output, the output is
// the last text of the model, or else the last result of a tool.
func (w *World) Ended(ps *kernel.Processes, pid abi.Pid) (r Ended, err error) {
	v, err := ps.View(pid)
	if err != nil || v.Exit == nil {
		return r, err
	}
	i, err := ps.Info(pid)
	if err != nil {
		return r, err
	}
	x := v.Exit
	r = Ended{Pid: pid, Exit: x.Exit, Reason: x.Reason, Code: x.Code, Err: x.Err, Usage: i.Used}
	out, err := w.Journal.Bytes(x.Output)
	if r.Output = string(out); err != nil || r.Output != "" {
		return r, err
	}
	r.Output, err = w.Journal.lastWords(v.Pages)
	if x.Code == abi.LimitContext && err == nil {
		r.Output = stoppedText(&v, r.Output)
	}
	return r, err
}

// stoppedText is the output of a process that its context limit stopped without last
// words. A result of a tool alone would look like an answer.
func stoppedText(v *kernel.View, last string) string {
	text := "stopped at the window of its model"
	if v.Context > 0 {
		text = fmt.Sprintf("stopped at its context limit of %d tokens", v.Context)
	}
	if last == "" {
		return text
	}
	return text + "; the last text before that: " + last
}
