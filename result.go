package kern

import (
	"fmt"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/host"
)

// A Result is how a process ended.
//
// Err is why the process did not end well: a limit, a loop, a failed model. It is
// apart from the error that Run and Wait return, which says that the kernel could
// not run or find the process. A process that hits a limit has an Err, and the
// error is nil.
type Result struct {
	Pid    abi.Pid
	Exit   abi.Exit // empty: the process has not exited
	Reason string   // of the exit limit: its unit; of killed: the signal
	Code   abi.Code // the frozen code of the exit
	Output string   // the last answer, also of a process that a limit stopped
	Err    *abi.Error
	Usage  Usage
	Limits Limits // as they were at last
}

// String describes the result in one line.
func (r Result) String() string {
	exit := string(r.Exit)
	if exit == "" {
		exit = "running"
	}
	if r.Reason != "" {
		exit += "(" + r.Reason + ")"
	}
	text := fmt.Sprintf("process %d: %s after %d steps for $%s", r.Pid, exit, r.Usage.Steps, r.Usage.Money)
	switch {
	case r.Err != nil:
		text += ": " + r.Err.Error()
	case r.Output != "":
		text += ": " + r.Output
	}
	return text
}

// A Process is what can be seen of a process.
type Process struct {
	Pid      abi.Pid
	Parent   abi.Pid // 0: none
	Children []abi.Pid
	Name     string
	Account  string
	State    abi.State
	Waits    []string   // what it waits for
	Asks     []Question // questions that wait for a person
	Exit     abi.Exit
	Reason   string
	Code     abi.Code
	Priority int // 0 is the most urgent, as it is recorded
	Depth    int
	Born     time.Time
	Usage    Usage
	Reserved Usage // set aside for calls that run
	Limits   Limits
	Records  uint64 // the number of its last record
}

// A Question waits for a person; [Kernel.Decide] answers it.
type Question struct {
	Call uint64
	Text string
}

func resultOf(r *host.Result, p *api.Process) (Result, error) {
	u, err := usageOf(&p.Usage)
	if err != nil {
		return Result{}, err
	}
	u.Wall = time.Duration(r.Usage.WallMS) * time.Millisecond
	for text, to := range map[string]*Money{r.Usage.InDoubt: &u.InDoubt, r.Usage.Drift: &u.Drift} {
		if *to, err = moneyOf(text); err != nil {
			return Result{}, err
		}
	}
	return Result{Pid: r.Pid, Exit: r.Exit, Reason: r.Reason, Code: r.Code, Output: r.Output, Err: r.Err, Usage: u, Limits: limitsOf(r.Limits)}, nil
}

func processOf(p *api.Process) (Process, error) {
	used, err := usageOf(&p.Usage)
	if err != nil {
		return Process{}, err
	}
	reserved, err := usageOf(&p.Reserved)
	if err != nil {
		return Process{}, err
	}
	used.Wall = time.Duration(p.AgeMS) * time.Millisecond
	v := Process{Pid: p.Pid, Parent: p.Parent, Children: p.Children, Name: p.Name, Account: p.Account, State: p.State, Waits: p.Waits,
		Exit: p.End.Exit, Reason: p.End.Reason, Code: p.End.Code, Priority: p.Priority, Depth: p.Depth, Born: p.Born, Usage: used, Reserved: reserved,
		Limits: limitsOf(p.Limits), Records: p.Records}
	for _, a := range p.Asks {
		v.Asks = append(v.Asks, Question{a.Call, a.Question})
	}
	return v, nil
}

func usageOf(u *api.Usage) (Usage, error) {
	money, err := moneyOf(u.Money)
	if err != nil {
		return Usage{}, err
	}
	cpu := time.Duration(0)
	if u.CPU != "" {
		if cpu, err = time.ParseDuration(u.CPU); err != nil {
			return Usage{}, err
		}
	}
	return Usage{Money: money, Tokens: u.Tokens, InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, Steps: u.Steps, ModelCalls: u.ModelCalls,
		ToolCalls: u.ToolCalls, Children: u.Children, OutputBytes: u.OutputBytes, CPU: cpu}, nil
}

// moneyOf reads dollars; an empty text is unset.
func moneyOf(text string) (Money, error) {
	if text == "" {
		return Money{}, nil
	}
	nano, err := abi.ParseMoney(text)
	return Money{nano, true}, err
}
