package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// standing is a kernel whose process stands in the middle of a reply.
type standing struct {
	where kernel.Where
	asked []abi.Call
}

func (s *standing) Where(abi.Pid) (kernel.Where, error) { return s.where, nil }
func (s *standing) Do(_ context.Context, c abi.Call) abi.Result {
	s.asked = append(s.asked, c)
	return abi.Result{Outcome: abi.Refused, Err: &abi.Error{Code: abi.DaemonGone, Message: "that is all"}}
}
func (s *standing) Batch(ctx context.Context, calls []abi.Call, _ int) (all []abi.Result) {
	s.asked = append(s.asked, calls...)
	return make([]abi.Result, len(calls))
}

// TestNumbersAfterCrash: a call of a reply that has no answer is asked again
// under the number it had before the crash, so that what it did, which bears
// that number, is found and not done twice. Here the second of three was lost.
func TestNumbersAfterCrash(t *testing.T) {
	for _, c := range []struct {
		pid  abi.Pid // whose record the reply is: after a fork another's
		want []uint64
	}{{1, []uint64{11, 13}}, {9, []uint64{14, 16}}} {
		reply, err := json.Marshal(syscalls.Reply{Calls: []model.ToolCall{{ID: "a", Name: "t", Args: "{}"}, {ID: "b", Name: "spawn", Args: `{"task":"x"}`}, {ID: "c", Name: "t", Args: "{}"}}})
		if err != nil {
			t.Fatal(err)
		}
		program, err := json.Marshal(abi.Agent{Rows: []string{"spawn"}})
		if err != nil {
			t.Fatal(err)
		}
		records := map[uint64]*abi.Record{
			1: {Spawn: &abi.Spawn{}},
			3: {Call: 9, Answer: &abi.Answer{Value: abi.Data{Bytes: reply}}},
			4: {Call: 10, Answer: &abi.Answer{Value: abi.Data{Bytes: []byte(`1`)}}},
			5: {Call: 12, Answer: &abi.Answer{Value: abi.Data{Bytes: []byte(`3`)}}},
		}
		w := &syscalls.World{Journal: syscalls.Journal{Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil },
			Record: func(_ abi.Pid, n uint64) (*abi.Record, error) { return records[n], nil }}}
		k := &standing{where: kernel.Where{Next: 13, View: kernel.View{Pid: 1, Spawn: &abi.Spawn{Program: abi.Data{Bytes: program}}, Pages: []process.Page{
			{Pid: c.pid, N: 1, Role: process.RoleTask}, {Pid: c.pid, N: 3, Role: process.RoleAssistant},
			{Pid: c.pid, N: 4, Role: process.RoleTool, ID: "a"}, {Pid: c.pid, N: 5, Role: process.RoleTool, ID: "c"}}}}}
		if err := Run(t.Context(), k, w, 1); err != nil {
			t.Fatal(err)
		}
		if len(k.asked) != 2 || k.asked[0].N != c.want[0] || k.asked[0].For != "b" || k.asked[0].Row != "spawn" || k.asked[1].Row != "model" || k.asked[1].N != c.want[1] {
			t.Errorf("pid %d asked %+v, want the numbers %v", c.pid, k.asked, c.want)
		}
	}
}

// A prompter is a kernel that gives these answers, one after the other.
type prompter struct {
	standing
	answers []abi.Result
	again   int // how often calls that had no end were made again
}

func (p *prompter) Do(_ context.Context, c abi.Call) abi.Result {
	p.asked = append(p.asked, c)
	if len(p.answers) == 0 {
		return abi.Result{}
	}
	r := p.answers[0]
	p.answers = p.answers[1:]
	return r
}

func (p *prompter) Batch(_ context.Context, calls []abi.Call, _ int) []abi.Result {
	p.again, p.where.Unfinished = p.again+len(calls), nil
	return make([]abi.Result, len(calls))
}

// TestGoesOn is what a loop does when a call does not go well that is not its end:
// it makes what a restart left without an end, waits for room on the disk and asks
// the same again, asks anew what was cut off, and at a limit has last words.
//
// Mutants that die here: a full disk that ends it, one that is asked under another
// number, a call that was cut off or is in doubt that ends it, no last words, none
// of the calls made that a restart left.
func TestGoesOn(t *testing.T) {
	words := abi.Result{Value: json.RawMessage(`{"text":"in a word"}`)}
	refused := func(c abi.Code) abi.Result {
		return abi.Result{Outcome: abi.Refused, Err: &abi.Error{Code: c, Message: "why"}}
	}
	for _, c := range []struct {
		name    string
		answers []abi.Result
		want    string // the calls, each with its number
		exit    string
	}{
		{"all is well", []abi.Result{words}, "model 5 exit 6", `{"output":"in a word"}`},
		{"the disk is full", []abi.Result{refused(abi.StorageFull), refused(abi.StorageFull), words}, "model 5 model 5 model 5 exit 6", `{"output":"in a word"}`},
		{"it was cut off", []abi.Result{refused(abi.Interrupted), words}, "model 5 model 6 exit 7", `{"output":"in a word"}`},
		{"it is in doubt", []abi.Result{{Outcome: abi.Unknown, Err: &abi.Error{Code: abi.OutcomeUnknown}}, words}, "model 5 model 6 exit 7", `{"output":"in a word"}`},
		{"a limit", []abi.Result{refused(abi.LimitToolCalls), words}, "model 5 model 6 exit 7", `{"output":"in a word","code":"LIMIT_TOOL_CALLS"}`},
		{"it failed", []abi.Result{refused(abi.ModelAuth)}, "model 5 exit 6", `{"error":"why","code":"MODEL_AUTH"}`},
		{"it was killed", []abi.Result{refused(abi.ProcessKilled)}, "model 5", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &syscalls.World{Journal: syscalls.Journal{Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil }}}
			k := &prompter{answers: c.answers}
			k.where = kernel.Where{Next: 5, Unfinished: []abi.Call{{Pid: 1, N: 4}}, View: kernel.View{Pid: 1, Spawn: &abi.Spawn{Program: abi.Data{Bytes: []byte(`{}`)}}}}
			if err := Run(t.Context(), k, w, 1); err != nil {
				t.Fatal(err)
			}
			var calls []string
			exit := ""
			for _, a := range k.asked {
				if calls = append(calls, fmt.Sprint(a.Row, " ", a.N)); a.Row == "exit" {
					exit = string(a.Args)
				}
			}
			if got := strings.Join(calls, " "); got != c.want || exit != c.exit || k.again != 1 {
				t.Errorf("%s: made %s with %s, want %s with %s; %d of 1 made again", c.name, got, exit, c.want, c.exit, k.again)
			}
		})
	}
}
