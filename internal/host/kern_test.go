package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/host"
)

// world is a data directory and a script.
type world struct {
	t      testing.TB
	dir    string
	script string
}

func newWorld(t testing.TB, script string) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "data"), script: filepath.Join(t.TempDir(), "replies.yaml")}
	if err := os.WriteFile(w.script, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) open() *host.Kernel {
	w.t.Helper()
	k, err := host.Open(host.Config{Dir: w.dir, Getenv: func(string) string { return "" }})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := k.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return k
}

// TestScenario21Replay records a run, goes through it again without any
// effect, and again with another task, which must be told with the record at
// which it would have made a difference.
func TestScenario21Replay(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls: [{tool: count, args: {n: 1}}, {tool: count, args: {n: 2}}]
  - calls: [{tool: nothere, args: {}}, {tool: count, args: "not json"}]
  - text: done
`)
	k := w.open()
	ran := 0
	type in struct {
		N int `json:"n"`
	}
	count := host.Tool("count", "Count.", func(context.Context, in) (int, error) { ran++; return ran, nil })
	a := host.Agent{Model: "script:" + w.script, Tools: []host.Callable{count}, Parallel: 1}
	r, err := k.Run(t.Context(), a, "go")
	if err != nil || r.Exit != abi.ExitDone || r.Output != "done" {
		t.Fatalf("%+v %v", r, err)
	}
	before := ran
	re, err := k.Replay(t.Context(), r.Pid, nil)
	if err != nil || !re.Same || re.Divergence != nil || re.Exit != abi.ExitDone {
		t.Errorf("%+v %v", re, err)
	}
	if re.Calls != 8 { // three model calls, four tool calls, exit
		t.Errorf("%d calls gone through, want 8", re.Calls)
	}
	if ran != before {
		t.Errorf("the replay ran %d tools", ran-before)
	}
	s, err := a.Spec("go elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	re, err = k.Replay(t.Context(), r.Pid, &s)
	if err != nil || re.Same || re.Divergence == nil || re.Divergence.Record != 2 || !strings.Contains(re.Divergence.Why, "call 1") {
		t.Errorf("%+v %+v %v", re, re.Divergence, err)
	}
	a.Tools = nil
	if s, err = a.Spec(""); err != nil {
		t.Fatal(err)
	}
	if re, err = k.Replay(t.Context(), r.Pid, &s); err != nil || re.Divergence == nil || re.Divergence.Record != 2 {
		t.Errorf("%+v %+v %v", re, re.Divergence, err)
	}
}

// TestScenario04NoMoney asks a model that costs nothing under a limit of
// nothing: zero allows no call at all, and unset allows all.
func TestScenario04NoMoney(t *testing.T) {
	w := newWorld(t, "replies: [{text: hello}]")
	k := w.open()
	for _, c := range []struct {
		limits host.Limits
		exit   abi.Exit
		calls  int64
	}{
		{host.Limits{abi.Money: 0}, abi.ExitLimit, 0},
		{host.Limits{abi.Money: 1}, abi.ExitDone, 1},
		{nil, abi.ExitDone, 1},
	} {
		r, err := k.Run(t.Context(), host.Agent{Model: "script:" + w.script, Limits: c.limits}, "hi")
		if err != nil || r.Exit != c.exit || r.Usage.ModelCalls != c.calls {
			t.Errorf("%v: %+v %v", c.limits, r, err)
		}
	}
}

// TestReadmeSettings reads the kern.yaml of the README as a user would save it.
func TestReadmeSettings(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the README shows no kern.yaml")
	}
	file := filepath.Join(t.TempDir(), "kern.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := config.ReadSettings(file)
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Providers["local"]; p.Format != "openai" || p.BaseURL == "" || len(p.Models) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestManyThatEnded: all are listed, the recent ones are the last, and the tools of
// those that ended are not kept.
func TestManyThatEnded(t *testing.T) {
	const many = 50
	w := newWorld(t, "replies:\n  - text: done\n")
	k := w.open()
	tool := host.Tool("count", "Count.", func(context.Context, struct{}) (int, error) { return 1, nil })
	for range many {
		if r, err := k.Run(t.Context(), host.Agent{Name: "brief", Model: "script:" + w.script, Tools: []host.Callable{tool}}, "go"); err != nil || r.Output != "done" {
			t.Fatalf("%+v %v", r, err)
		}
	}
	look := func() {
		t.Helper()
		all := k.List()
		if len(all) != many {
			t.Fatalf("%d are listed", len(all))
		}
		for n, i := range all {
			if i.Pid != abi.Pid(n+1) || i.Name != "brief" || i.Exit == nil || i.Exit.Exit != abi.ExitDone || i.Steps != 1 {
				t.Errorf("%d: %+v", n, i)
			}
		}
		if list, more := k.Recent(3); len(list) != 3 || more != many-3 || list[0].Pid != many-2 || list[2].Pid != many {
			t.Errorf("%d more than %+v", more, list)
		}
		if page := k.After(10, 5); len(page) != 5 || page[0].Pid != 11 {
			t.Errorf("after 10: %+v", page)
		}
		if r, err := k.Result(1); err != nil || r.Output != "done" || r.Exit != abi.ExitDone {
			t.Errorf("the first: %+v %v", r, err)
		}
		if re, err := k.Replay(t.Context(), 1, nil); err != nil || !re.Same {
			t.Errorf("the first again: %+v %v", re, err)
		}
	}
	look()
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if n := k.Hosted(); n != 0 { // every loop has ended
		t.Errorf("tools of %d processes are kept", n)
	}
	k = w.open()
	look()
}
