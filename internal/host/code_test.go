package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
)

// TestScenario30NestedCalls runs code that calls tools in a loop with branches.
// Each nested call is admitted, booked and journalled by itself; the denied one
// is an exception that the code catches.
func TestScenario30NestedCalls(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls:
      - tool: code
        args:
          source: |
            from tools.agent import square, boom
            from tools import ToolError
            total = 0
            for i in range(5):
                try:
                    total += square(n=i) if i % 2 == 0 else square(i)
                except ToolError as e:
                    print("refused", e.code)
            try:
                boom()
            except ToolError as e:
                print("caught", e.code)
            print("total", total)
  - text: finished
`)
	k := w.open()
	var ran []int
	type in struct {
		N int `json:"n"`
	}
	square := host.Tool("square", "Square a number.", func(_ context.Context, v in) (int, error) {
		ran = append(ran, v.N)
		return v.N * v.N, nil
	})
	boom := host.Tool("boom", "Fail.", func(context.Context, struct{}) (int, error) { return 0, errors.New("no") })
	a := host.Agent{Model: "script:" + w.script, Tools: []host.Callable{square, boom}, Calls: []string{"code"},
		Limits: host.Limits{abi.ToolCalls: 5}} // the code, and four more
	r, err := k.Run(t.Context(), a, "go")
	if err != nil || r.Output != "finished" {
		t.Fatalf("%+v %v", r, err)
	}
	if !slices.Equal(ran, []int{0, 1, 2, 3}) {
		t.Errorf("square ran for %v, want the first four", ran)
	}
	if r.Usage.ToolCalls != 5 {
		t.Errorf("%d tool calls booked, want 5", r.Usage.ToolCalls)
	}
	nested := map[string]int{}
	out := ""
	err = k.Records(t.Context(), r.Pid, 0, false, func(rec *abi.Record) error {
		if rec.Answer != nil && rec.Intent != nil && rec.Intent.Within != 0 || rec.Kind == abi.KindBegan && rec.Intent.Within != 0 {
			nested[rec.Kind.String()]++
		}
		if rec.Kind == abi.KindEnded && rec.Answer.Page != nil && rec.Answer.Page.Role == "tool" {
			b, err := k.Bytes(rec.Answer.Value)
			out = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if nested["began"] != 4 || nested["refused"] != 2 {
		t.Errorf("nested records %v, want 4 begun and 2 refused", nested)
	}
	for _, want := range []string{"refused LIMIT_TOOL_CALLS", "caught LIMIT_TOOL_CALLS", fmt.Sprint("total ", 0+1+4+9)} {
		if !strings.Contains(out, want) {
			t.Errorf("the output %q lacks %q", out, want)
		}
	}
	if re, err := k.Replay(t.Context(), r.Pid, nil); err != nil || !re.Same {
		t.Errorf("replay %+v %v", re, err)
	}
}

// TestCodeKilled kills a process while its code spins.
func TestCodeKilled(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls: [{tool: code, args: {source: "from tools.agent import tick\ntick()\nwhile True: pass"}}]
`)
	k := w.open()
	started := make(chan struct{})
	tick := host.Tool("tick", "Say that the code runs.", func(context.Context, struct{}) (bool, error) { close(started); return true, nil })
	pid, err := k.Spawn(t.Context(), host.Agent{Model: "script:" + w.script, Tools: []host.Callable{tick}, Calls: []string{"code"}}, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-started
	if err := k.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
		t.Fatal(err)
	}
	r, err := k.Wait(t.Context(), pid)
	if err != nil || r.Exit != abi.ExitKilled {
		t.Errorf("%+v %v", r, err)
	}
}
