package process

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
)

// Refusal says why a process that is ending or has exited takes no calls.
func (s *State) Refusal() *abi.Error {
	if s.Exit != nil {
		return ExitOf(s.Exit).Exited(s.Pid)
	}
	return ExitOf(s.Ending).Leaving(s.Pid)
}

// Summary returns what the kernel keeps of the process when it has exited.
func (s *State) Summary() Summary {
	a := s.Account
	sum := Summary{Name: s.Spawn.Name, Account: s.Spawn.Account, Depth: s.Spawn.Depth, Priority: s.Priority, Born: s.Born, Last: s.Last, Records: s.N,
		Steps: s.Calls.Steps, Beyond: Beyond{s.Calls.Drift, s.Calls.Claims}, Used: a.Settled, Reserved: a.Reserved, Doubt: a.Doubt, Limits: a.Limits, Exit: ExitOf(s.Exit)}
	sum.Reserved.Add(&a.Held)
	return sum
}

// Unfinished returns the pending calls in the order of their numbers, and the
// arguments of each. Calls within other calls are left out, because the caller
// that made them is gone.
func (s *State) Unfinished() (calls []abi.Call, args []abi.Data) {
	for n, q := range s.Calls.Pending {
		if n < NestedFrom {
			calls = append(calls, abi.Call{Pid: s.Pid, N: n, Row: q.Intent.Row, Within: q.Intent.Within, For: q.Intent.For})
		}
	}
	slices.SortFunc(calls, func(a, b abi.Call) int { return int(a.N) - int(b.N) })
	for _, c := range calls {
		args = append(args, s.Calls.Pending[c.N].Intent.Args)
	}
	return calls, args
}

// Registers returns R0 to R7: a view of the state.
func (s *State) Registers() (regs abi.Registers) {
	last := &s.Regs
	regs.Counter = abi.CounterRegister{Call: last.Call, Row: last.Row, Step: s.Calls.Steps}
	regs.Context.Tokens = s.Memory.Tokens()
	if n, set := s.Account.Limits.Get(abi.Context); set {
		remaining := max(0, n-regs.Context.Tokens)
		regs.Context.Remaining = &remaining
	}
	if n := len(s.Watchdog.Ring); n > 0 {
		regs.Watchdog.Repeats = s.Watchdog.Ring[n-1].Run
		for _, c := range s.Watchdog.Ring {
			regs.Watchdog.Window = append(regs.Watchdog.Window, fmt.Sprintf("%x-%x", c.Key[:4], c.Result[:4]))
		}
	}
	if n, set := s.Account.Limits.Get(abi.Wall); set {
		deadline := s.Born + n
		regs.Watchdog.Deadline = &deadline
	}
	regs.Watchdog.Warned = s.Watchdog.Warned
	regs.Workspace = last.Digest
	regs.Err = last.Err
	if e := s.Calls.Stop.Err; e != nil && s.Exit != nil && s.Exit.Code == e.Code { // last words came after it
		regs.Err = e
	}
	regs.Schema = abi.SchemaRegister{Tool: last.Tool, Args: last.Args}
	regs.Transaction = abi.TransactionRegister{Open: s.Calls.openRecords(), Record: s.N, Commit: last.Commit}
	regs.Metadata = abi.MetadataRegister{Task: s.Spawn.Task, Depth: s.Spawn.Depth, Usage: s.Account.Settled}
	return regs
}

// openRecords returns the numbers of the records of open intents.
func (c *Calls) openRecords() []uint64 {
	all := make([]uint64, 0, len(c.Open))
	for _, o := range c.Open {
		all = append(all, o.N)
	}
	slices.Sort(all)
	return all
}

// CheckLimits reports a limit that the account broke with the record r. Usage
// beyond a reservation is drift and breaks no limit.
func (s *State) CheckLimits(r *abi.Record) (err error) {
	if r.Kind != abi.KindBegan {
		return nil
	}
	a := s.Account
	a.Limits.Each(func(u abi.Unit, limit int64) {
		if u < abi.Units && r.Intent.Reserve[u] > 0 && a.Settled[u]+a.Reserved[u] > limit {
			err = fmt.Errorf("record %d: call %d began past the limit on %s", r.N, r.Call, u)
		}
	})
	return err
}

// Dump writes the state and the sums of its account. The same records give the
// same bytes.
func (s *State) Dump() ([]byte, error) {
	return json.Marshal(struct {
		*State
		Limits   abi.Limits `json:"limits"`
		Settled  abi.Usage  `json:"settled"`
		Reserved abi.Usage  `json:"reserved"`
		Doubt    abi.Usage  `json:"stuck"`
	}{s, s.Account.Limits, s.Account.Settled, s.Account.Reserved, s.Account.Doubt})
}
