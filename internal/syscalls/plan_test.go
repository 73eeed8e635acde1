package syscalls

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/model"
)

// Mutants that die in this file: arguments that nobody looks at, a pure tool that
// costs and leaves no intent, a cost that is not reserved or not booked, a question
// that is not asked, processor time and output that are not booked; a child more
// urgent than its parent by each row that makes one, not counted or not a generation
// deeper, without its limits, its parent's watchdog or the wish to be held, with
// tools that it was not to have; a sleep without its beginning, higher limits that
// nobody was asked for or that were denied; last words with tools, a model without a
// price under a limit on money; code for as long as it likes.

// desk is a world with one program, which has two tools and may start others.
func desk(t *testing.T, yield func(kernel.View, abi.Limits) (bool, bool)) (kernel.Table, kernel.View) {
	t.Helper()
	parent := abi.Agent{Name: "parent", Model: "p:m", Rows: []string{"spawn", "wait"}, Hosted: true, Tools: []abi.ToolSpec{
		{Name: "free", Command: []string{"free"}, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}`), Effect: abi.Pure, Attempts: 3},
		{Name: "dear", Command: []string{"dear"}, Effect: abi.Pure, Cost: 5, Approval: true},
	}}
	b, err := json.Marshal(parent)
	if err != nil {
		t.Fatal(err)
	}
	w := &World{
		Open: func(*abi.Agent) (model.Model, error) {
			return stated{facts: model.Facts{Name: "p:m", Provider: "p"}, count: 10}, nil
		},
		Command: func(s abi.ToolSpec) (*tools.Tool, error) {
			return tools.Command(s, tools.Runner{Pool: &program.Pool{}})
		},
		Journal: Journal{Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil }},
		Away:    func(string) time.Duration { return 0 },
		Yield:   yield,
	}
	strict := abi.Watchdog{Profile: "strict"}
	return Table(w), kernel.View{Pid: 1, Spawn: &abi.Spawn{Program: abi.Data{Bytes: b}, Priority: 20, Watchdog: strict}, Pages: []process.Page{}}
}

// TestToolPlan is what a tool call reserves and asks for, and when it leaves an
// intent.
func TestToolPlan(t *testing.T) {
	table, v := desk(t, nil)
	plan := func(args string) (kernel.Plan, *abi.Error) {
		return table["tool"].Plan(v, abi.Call{Pid: 1, N: 1, Row: "tool", Args: json.RawMessage(args)})
	}
	pl, e := plan(`{"name":"free","args":{"n":1}}`)
	if e != nil || pl.Intent || pl.Ask != "" || pl.Attempts != 3 || pl.Effect != abi.Pure || pl.Reserve != (abi.Usage{abi.ToolCalls: 1}) ||
		pl.Elastic != (kernel.Elastic{Unit: abi.OutputBytes, Min: 1, Max: toolOutput}) {
		t.Errorf("%+v %v", pl, e)
	}
	pl, e = plan(`{"name":"dear"}`)
	if e != nil || !pl.Intent || !strings.Contains(pl.Ask, "may dear run") || pl.Reserve != (abi.Usage{abi.ToolCalls: 1, abi.Money: 5}) {
		t.Errorf("%+v %v", pl, e)
	}
	if used, want := pl.Work.(*toolWork).done(tools.Output{Bytes: 7, CPU: 9}).Usage, (abi.Usage{abi.ToolCalls: 1, abi.Money: 5, abi.OutputBytes: 7, abi.CPU: 9}); used != want {
		t.Errorf("booked %v, want %v", used, want)
	}
	for args, code := range map[string]abi.Code{
		`{"name":"free","args":{"n":"1"}}`: abi.InvalidArguments, `{"name":"free","args":{"m":1}}`: abi.InvalidArguments, `{}`: abi.InvalidArguments,
		`{"name":"none"}`: abi.UnknownTool, `{"relay":"c"}`: abi.ToolGone,
	} {
		if _, e := plan(args); e == nil || e.Code != code {
			t.Errorf("%s: %v, want %s", args, e, code)
		}
	}
}

// TestChildPlans: a child is one more, a generation deeper, has the limits that
// were asked for (the kernel narrows them), and is never more urgent than its
// parent, by whichever row it is made.
func TestChildPlans(t *testing.T) {
	table, v := desk(t, nil)
	key := strings.Repeat("0", 64)
	for row, args := range map[string]string{
		"spawn": `{"task":"t","tools":["dear","wait"],"limits":{"steps":3},"priority":P}`,
		"key":   `{"key":"` + key + `","held":true,"limits":{"steps":3},"priority":P}`,
		"run":   `{"task":"t","program":{"name":"n","model":"p:m"},"limits":{"steps":3},"watchdog":{"profile":"strict"},"priority":P}`,
	} {
		for asked, want := range map[string]int{"0": 20, "19": 20, "21": 21} {
			pl, e := table[row].Plan(v, abi.Call{Pid: 1, N: 1, Row: row, Args: json.RawMessage(strings.ReplaceAll(args, "P", asked))})
			if e != nil {
				t.Fatalf("%s: %v", row, e)
			}
			s := pl.Work.(*kernel.Spawning)
			steps, limited := s.Limits.Get(abi.Steps)
			if !pl.Child || pl.Reserve != (abi.Usage{abi.Children: 1}) || s.Priority != want || !limited || steps != 3 || s.Watchdog.Profile != "strict" {
				t.Errorf("%s with priority %s: %+v of %+v", row, asked, s.Spawn, pl)
			}
			var p abi.Agent
			if err := json.Unmarshal(s.Program, &p); err != nil {
				t.Fatal(err)
			}
			switch row {
			case "key":
				if !p.Held || !p.Hosted || p.Key != key {
					t.Errorf("a key: %+v", p)
				}
			case "spawn":
				if p.Hosted || len(p.Rows) != 1 || p.Rows[0] != "wait" || len(p.Tools) != 1 || p.Tools[0].Name != "dear" {
					t.Errorf("a spawn: %+v", p)
				}
			}
		}
	}
}

// TestOtherPlans: what must be on disk before it begins is, nobody gets more
// without a word for it, and no call runs longer than it may.
func TestOtherPlans(t *testing.T) {
	plan := func(row, args string, policy ...bool) (kernel.Plan, *abi.Error) {
		table, v := desk(t, func(kernel.View, abi.Limits) (bool, bool) {
			return len(policy) > 0 && policy[0], len(policy) > 0
		})
		v.Limited = row == "model" && len(policy) > 0
		return table[row].Plan(v, abi.Call{Pid: 1, N: 1, Row: row, Args: json.RawMessage(args)})
	}
	if pl, e := plan("sleep", `{"for":"1h"}`); e != nil || !pl.Intent || pl.Effect != abi.Idempotent {
		t.Errorf("a sleep: %+v %v", pl, e)
	}
	const more = `{"limits":{"steps":9},"why":"it is long"}`
	if pl, e := plan("yield", more); e != nil || pl.Ask != `may the limits be {"steps":9}? it is long` {
		t.Errorf("no policy: %q %v", pl.Ask, e)
	}
	if pl, e := plan("yield", more, true); e != nil || pl.Ask != "" {
		t.Errorf("a policy that allows: %q %v", pl.Ask, e)
	}
	if _, e := plan("yield", more, false); e == nil || e.Code != abi.NotApproved {
		t.Errorf("a policy that does not: %v", e)
	}
	for last, tools := range map[string]int{`{}`: 4, `{"last":true}`: 0} {
		pl, e := plan("model", last)
		if e != nil || len(pl.Work.(*modelWork).req.Tools) != tools || pl.Last != (tools == 0) {
			t.Errorf("%s: %+v %v", last, pl.Work, e)
		}
	}
	if _, e := plan("model", `{}`, true); e == nil || e.Code != abi.UnknownPrice {
		t.Errorf("without a price under a limit on money: %v", e)
	}
	for timeout, want := range map[string]abi.Code{"": "", "10m": "", "10m1s": abi.InvalidArguments, "-1s": abi.InvalidArguments} {
		pl, e := plan("code", `{"source":"1","timeout":"`+timeout+`"}`)
		if (e == nil) != (want == "") || e != nil && e.Code != want || !pl.Intent || pl.Reserve != (abi.Usage{abi.ToolCalls: 1}) {
			t.Errorf("code for %q: %+v %v", timeout, pl, e)
		}
	}
}

// TestNoCodeInCode: the tools of a process are functions in its code, and code is
// none of them.
//
// Mutant that dies here: code that starts code, which starts code.
func TestNoCodeInCode(t *testing.T) {
	l := &Loaded{Agent: abi.Agent{Rows: []string{"code", "spawn"}}, specs: []model.ToolSpec{{Name: "code"}, {Name: "spawn"}, {Name: "look"}}}
	var names []string
	for _, f := range (&World{}).functions(nil, &kernel.Job{}, l) {
		names = append(names, f.Namespace+"."+f.Name)
	}
	if got := strings.Join(names, " "); got != "kern.spawn agent.look" {
		t.Errorf("the functions are %s", got)
	}
}
