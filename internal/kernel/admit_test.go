package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// What admit is asked about. A condition changes it.
type asked struct {
	p      *process.State
	parent *ledger.Account
	c      abi.Call
	row    *Row
	plan   Plan
	bad    *abi.Error
	claims []ledger.Claim
	now    int64
}

func plainly() *asked {
	parent := &ledger.Account{Parent: &ledger.Account{}}
	a := &asked{parent: parent, row: &Row{Name: "act"}, c: abi.Call{Pid: 1, N: 7, Row: "act"}, now: 1000e9}
	a.p = &process.State{Pid: 1, Phase: abi.Ready, Spawn: &abi.Spawn{Rows: []string{"act", "exit"}}, Account: &ledger.Account{Parent: parent}}
	a.plan = Plan{Reserve: abi.Usage{abi.Money: 5, abi.Tokens: 5}}
	return a
}

func (a *asked) admit() verdict {
	return admit(&admission{a.p, &a.c, a.row, &a.plan, a.bad, a.claims, a.now})
}

func (v verdict) String() string {
	switch {
	case v.refused != nil:
		return string(v.refused.Code)
	case v.wait != "":
		return "wait " + v.wait
	}
	return "go"
}

// order is everything admit looks at, in the order in which it must: of two
// reasons the first one counts.
var order = []struct {
	name string
	set  func(*asked)
	want string
	not  string // cannot be together with these
}{
	{"ending", func(a *asked) { a.p.Ending = &abi.ExitInfo{Exit: abi.ExitKilled} }, "PROCESS_KILLED", ""},
	{"term", func(a *asked) { a.p.Term = true }, "PROCESS_ENDING", "last words were spoken"},
	{"last words were spoken", func(a *asked) { a.p.Term, a.plan.Last, a.p.Calls.Lasted = true, true, true }, "PROCESS_ENDING", "a person said no"},
	{"stopped", func(a *asked) { a.p.Phase = abi.Paused }, "wait cont", ""},
	{"unknown row", func(a *asked) { a.row, a.c.Row = nil, "nothing" }, "UNKNOWN_ROW", ""},
	{"not granted", func(a *asked) { a.p.Spawn.Rows = []string{"exit"} }, "NOT_GRANTED", ""},
	{"bad arguments", func(a *asked) { a.bad = &abi.Error{Code: abi.InvalidArguments} }, "INVALID_ARGUMENTS", ""},
	{"the tool rests", func(a *asked) {
		a.plan.Tool, a.p.Failures = "x", process.ToolFailures{"x": {Fails: 3, Since: a.now - 29e9}}
	}, "TOOL_BLOCKED", ""},
	{"context", func(a *asked) { a.p.Account.Limits.Set(abi.Context, 9); a.plan.Context = 10 }, "LIMIT_CONTEXT", ""},
	{"depth", func(a *asked) { a.p.Account.Limits.Set(abi.Depth, 0); a.plan.Child = true }, "LIMIT_DEPTH", ""},
	{"used up", func(a *asked) { a.parent.Limits.Set(abi.Money, 10); a.parent.Settled[abi.Money] = 6 }, "LIMIT_MONEY", ""},
	{"a question", func(a *asked) { a.plan.Ask = "may it?" }, "wait approval", "a person said no"},
	{"a person said no", func(a *asked) {
		a.plan.Ask = "may it?"
		a.p.Calls.Pending = map[uint64]*process.PendingCall{7: {Ask: &process.Question{Decided: true}}}
	}, "NOT_APPROVED", ""},
	{"in the way", func(a *asked) { a.parent.Limits.Set(abi.Tokens, 10); a.parent.Reserved[abi.Tokens] = 6 }, "wait room", ""},
	{"nothing", func(*asked) {}, "go", ""},
}

func TestAdmitOrder(t *testing.T) {
	for i, first := range order {
		for _, second := range order[i:] {
			if first.not != "" && first.not == second.name {
				continue
			}
			a := plainly()
			second.set(a)
			first.set(a)
			before := fmt.Sprintf("%+v %+v %+v", *a.p, *a.p.Account, *a.parent)
			if v := a.admit(); v.String() != first.want {
				t.Errorf("%s and %s: %s, want %s", first.name, second.name, v, first.want)
			}
			if after := fmt.Sprintf("%+v %+v %+v", *a.p, *a.p.Account, *a.parent); before != after {
				t.Errorf("%s: admit changed something", first.name)
			}
		}
	}
}

// TestEndedIsOver holds that who ends a process that ends already, however, can
// see from the code that there was no need.
func TestEndedIsOver(t *testing.T) {
	codes := map[abi.Exit][]abi.Code{abi.ExitDone: {""}, abi.ExitFailed: {abi.ToolFailed}, abi.ExitKilled: {abi.ProcessKilled}, abi.ExitCrashed: {abi.Internal}, abi.ExitLoop: {abi.WatchdogLoop}}
	for u := range abi.Units {
		codes[abi.ExitLimit] = append(codes[abi.ExitLimit], abi.LimitCode(u))
	}
	for exit, list := range codes {
		for _, code := range list {
			p := &process.State{Pid: 7, Ending: &abi.ExitInfo{Exit: exit, Code: code}}
			if e := p.Refusal(); !e.Code.Ended() {
				t.Errorf("ending as %s: %s", exit, e)
			}
			p.Exit = p.Ending
			if e := p.Refusal(); !e.Code.Ended() {
				t.Errorf("%s: %s", exit, e)
			}
		}
	}
	for _, code := range []abi.Code{abi.StorageFull, abi.DaemonGone, abi.InvalidArguments, abi.UnknownProcess} {
		if code.Ended() {
			t.Errorf("%s says nothing of an end", code)
		}
	}
}

// TestAdmitEdges is what lies beside the conditions.
func TestAdmitEdges(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*asked)
		want string
	}{
		{"ending by a limit", func(a *asked) { a.p.Ending = &abi.ExitInfo{Exit: abi.ExitLimit, Code: abi.LimitWall} }, "LIMIT_WALL"},
		{"ending by a loop", func(a *asked) { a.p.Ending = &abi.ExitInfo{Exit: abi.ExitLoop, Code: abi.WatchdogLoop} }, "WATCHDOG_LOOP"},
		{"ending as done", func(a *asked) { a.p.Ending = &abi.ExitInfo{Exit: abi.ExitDone} }, "PROCESS_ENDING"},
		{"exited", func(a *asked) { a.p.Ending = &abi.ExitInfo{Exit: abi.ExitDone}; a.p.Exit = a.p.Ending }, "PROCESS_EXITED"},
		{"exit under term", func(a *asked) { a.p.Term, a.c.Row, a.row = true, "exit", &Row{Name: "exit"} }, "go"},
		{"last words under term", func(a *asked) { a.p.Term, a.plan.Last = true, true }, "go"},
		{"last words again", func(a *asked) {
			a.p.Term, a.plan.Last, a.p.Calls.Lasted = true, true, true
			a.p.Calls.Pending = map[uint64]*process.PendingCall{7: {Attempt: 1}}
		}, "go"},
		{"last words under a limit that is there", func(a *asked) { a.plan.Last = true }, "go"},
		{"a tool that failed twice", func(a *asked) { a.plan.Tool, a.p.Failures = "x", process.ToolFailures{"x": {Fails: 2, Since: a.now}} }, "go"},
		{"a tool that has rested", func(a *asked) {
			a.plan.Tool, a.p.Failures = "x", process.ToolFailures{"x": {Fails: 3, Since: a.now - 30e9}}
		}, "go"},
		{"another tool", func(a *asked) { a.plan.Tool, a.p.Failures = "y", process.ToolFailures{"x": {Fails: 3, Since: a.now}} }, "go"},
		{"context at the limit", func(a *asked) { a.p.Account.Limits.Set(abi.Context, 10); a.plan.Context = 10 }, "go"},
		{"over the window", func(a *asked) {
			a.plan.Context, a.plan.Window, a.plan.Elastic = 10, 12, ledger.Elastic{Unit: abi.OutputTokens, Min: 3, Max: 9}
		}, "LIMIT_CONTEXT"},
		{"depth 1", func(a *asked) { a.p.Account.Limits.Set(abi.Depth, 1); a.plan.Child = true }, "go"},
		{"no depth but no child", func(a *asked) { a.p.Account.Limits.Set(abi.Depth, 0) }, "go"},
		{"a question answered with yes", func(a *asked) {
			a.plan.Ask, a.p.Calls.Pending = "may it?", map[uint64]*process.PendingCall{7: {Ask: &process.Question{Decided: true, Yes: true}}}
		}, "go"},
		{"bad arguments are not asked about", func(a *asked) { a.plan.Ask, a.bad = "may it?", &abi.Error{Code: abi.UnknownTool} }, "UNKNOWN_TOOL"},
		{"exactly as much as is left", func(a *asked) { a.parent.Limits.Set(abi.Money, 10); a.parent.Settled[abi.Money] = 5 }, "go"},
		{"a limit of nothing", func(a *asked) { a.p.Account.Limits.Set(abi.Money, 0) }, "LIMIT_MONEY"},
		{"a limit on what it does not take", func(a *asked) { a.p.Account.Limits.Set(abi.CPU, 0) }, "go"},
		{"in doubt counts as used", func(a *asked) {
			a.parent.Limits.Set(abi.Money, 10)
			a.parent.Reserved[abi.Money], a.parent.Doubt[abi.Money] = 6, 6
		}, "LIMIT_MONEY"},
		{"held is in the way", func(a *asked) { a.parent.Limits.Set(abi.Money, 10); a.parent.Held[abi.Money] = 6 }, "wait room"},
		{"held by what waits for it", func(a *asked) {
			a.parent.Limits.Set(abi.Money, 10)
			a.parent.Held[abi.Money] = 6
			a.claims = []ledger.Claim{{At: a.p.Account, Use: abi.Usage{abi.Money: 6}}}
		}, "LIMIT_MONEY"},
		{"held above by what waits for it", func(a *asked) {
			a.p.Account.Limits.Set(abi.Money, 10)
			a.claims = []ledger.Claim{{At: a.parent, Use: abi.Usage{abi.Money: 6}}}
		}, "go"},
		{"elastic: less", func(a *asked) {
			a.parent.Limits.Set(abi.OutputTokens, 4)
			a.plan.Elastic = ledger.Elastic{Unit: abi.OutputTokens, Min: 2, Max: 9}
		}, "go"},
		{"elastic: less beside what is in doubt", func(a *asked) {
			a.parent.Limits.Set(abi.OutputTokens, 9)
			a.parent.Reserved[abi.OutputTokens], a.parent.Doubt[abi.OutputTokens] = 5, 5
			a.plan.Elastic = ledger.Elastic{Unit: abi.OutputTokens, Min: 2, Max: 9}
		}, "go"},
		{"elastic: too little", func(a *asked) {
			a.parent.Limits.Set(abi.OutputTokens, 1)
			a.plan.Elastic = ledger.Elastic{Unit: abi.OutputTokens, Min: 2, Max: 9}
		}, "LIMIT_OUTPUT_TOKENS"},
		{"elastic: paid by what money is left", func(a *asked) {
			a.parent.Limits.Set(abi.Money, 8)
			a.plan.Elastic = ledger.Elastic{Unit: abi.OutputTokens, Min: 2, Max: 9, Price: 1_000_000}
		}, "go"},
		{"elastic: not paid", func(a *asked) {
			a.parent.Limits.Set(abi.Money, 6)
			a.plan.Elastic = ledger.Elastic{Unit: abi.OutputTokens, Min: 2, Max: 9, Price: 1_000_000}
		}, "LIMIT_MONEY"},
		{"elastic: tokens too", func(a *asked) {
			a.parent.Limits.Set(abi.Tokens, 6)
			a.plan.Elastic = ledger.Elastic{Unit: abi.OutputTokens, Min: 2, Max: 9, Tokens: true}
		}, "LIMIT_TOKENS"},
		{"elastic: waits for all of it", func(a *asked) {
			a.parent.Limits.Set(abi.OutputTokens, 9)
			a.parent.Reserved[abi.OutputTokens] = 5
			a.plan.Elastic = ledger.Elastic{Unit: abi.OutputTokens, Min: 2, Max: 9}
		}, "wait room"},
	} {
		a := plainly()
		c.set(a)
		v := a.admit()
		if v.String() != c.want {
			t.Errorf("%s: %s, want %s", c.name, v, c.want)
		}
		if v.String() == "go" && strings.HasPrefix(c.name, "elastic") {
			if e := a.plan.Elastic; v.fit.Granted < e.Min || v.fit.Granted > e.Max || v.fit.Need[abi.OutputTokens] != v.fit.Granted {
				t.Errorf("%s: granted %d, need %v", c.name, v.fit.Granted, v.fit.Need)
			}
		}
	}
}

// TestRefusalNamesTheLimit: every unit that adds up is refused with its own
// code, wherever on the path the limit is, and the message says where.
func TestRefusalNamesTheLimit(t *testing.T) {
	for u := range abi.Units {
		for level := range 4 {
			a := plainly()
			a.plan.Reserve = of(u, 3)
			at := a.p.Account
			for range level {
				if at.Parent == nil {
					at.Parent = &ledger.Account{}
				}
				at = at.Parent
			}
			at.Limits.Set(u, 2)
			v := a.admit()
			if v.refused == nil || v.refused.Code != abi.LimitCode(u) || strings.Contains(v.refused.Message, "above") != (level > 0) {
				t.Errorf("%s at level %d: %v %v", u, level, v, v.refused)
			}
		}
	}
}

func of(u abi.Unit, n int64) (x abi.Usage) {
	x[u] = n
	return x
}
