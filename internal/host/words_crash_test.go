package host_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/journal/sqlite"
)

// taped is a run with all its records and blobs.
type taped struct {
	records []*abi.Record
	blobs   map[abi.Hash][]byte
}

// tapeOf reads the journal of a directory that no kernel has open.
func tapeOf(t *testing.T, dir string) *taped {
	t.Helper()
	store, _, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := &taped{blobs: map[abi.Hash][]byte{}}
	feed := store.Feed(0)
	for {
		entries, err := feed.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return p
		}
		for _, e := range entries {
			p.records = append(p.records, e.Record)
			for d := range e.Record.Payloads() {
				if d.Hash.IsZero() {
					continue
				}
				if p.blobs[d.Hash], err = store.Blob(d.Hash); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// cut writes the first n records into a new data directory. That is what a crash after
// record n leaves.
func (p *taped) cut(t *testing.T, n int, dir string) {
	t.Helper()
	store, lease, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, r := range p.records[:n] {
		if r.Kind == abi.KindSpawned {
			if _, err := store.NewPid(); err != nil {
				t.Fatal(err)
			}
		}
		c := *r
		for d := range c.Payloads() {
			if !d.Hash.IsZero() {
				c.Blobs = append(c.Blobs, abi.Blob{Hash: d.Hash, Bytes: p.blobs[d.Hash]})
			}
		}
		if err := store.Append(lease, []abi.Record{c}); err != nil {
			t.Fatal(err)
		}
	}
}

// endOf is what a client sees of the end of a process.
func endOf(r host.Result) string { return fmt.Sprintf("%s %s %s", r.Exit, r.Reason, r.Code) }

// a crashCase is a run that ends for a reason that the loop learns from the kernel.
type crashCase struct {
	script string
	agent  host.Agent
	from   func(*abi.Record) bool // the first record of interest; nil: the first of all
	want   string
	signal bool                             // term comes while the tool runs
	tools  func(*testing.T) []host.Callable // nil: one tool named t
}

const chatty = `
price: {input: 1.00, output: 1.00}
window: 100000
repeat: true
replies:
  - calls: [{tool: t, args: {n: 1}}, {tool: t, args: {n: 2}}, {tool: t, args: {n: 3}}]
    usage: {input: 1000, output: 20}
  - calls: [{tool: t, args: {n: 4}}, {tool: t, args: {n: 5}}]
    usage: {input: 1000, output: 20}
  - text: the end is near
    usage: {input: 1000, output: 20}
  - calls: [{tool: t, args: {n: 6}}, {tool: t, args: {n: 7}}]
    usage: {input: 1000, output: 20}
`

// endless never gives a text without a tool call, except for last words.
const endless = `
price: {input: 1.00, output: 1.00}
repeat: true
replies:
  - calls: [{tool: t, args: {n: 1}}, {tool: t, args: {n: 2}}]
    usage: {input: 1000, output: 20}
`

func crashCases() map[string]crashCase {
	limited := func(l host.Limits) host.Agent { return host.Agent{Name: "a", Limits: l} }
	return map[string]crashCase{
		"tool calls":          {script: chatty, agent: limited(host.Limits{abi.ToolCalls: 2}), want: "limit tool_calls LIMIT_TOOL_CALLS"},
		"tool calls, later":   {script: endless, agent: limited(host.Limits{abi.ToolCalls: 5}), want: "limit tool_calls LIMIT_TOOL_CALLS"},
		"tool calls, serial":  {script: chatty, agent: host.Agent{Name: "a", Parallel: 1, Limits: host.Limits{abi.ToolCalls: 2}}, want: "limit tool_calls LIMIT_TOOL_CALLS"},
		"money":               {script: endless, agent: limited(host.Limits{abi.Money: 3_100_000}), want: "limit money LIMIT_MONEY"},
		"tokens":              {script: endless, agent: limited(host.Limits{abi.Tokens: 3_100}), want: "limit tokens LIMIT_TOKENS"},
		"input tokens":        {script: endless, agent: limited(host.Limits{abi.InputTokens: 2_100}), want: "limit input_tokens LIMIT_INPUT_TOKENS"},
		"output tokens":       {script: endless, agent: limited(host.Limits{abi.OutputTokens: 30}), want: "limit output_tokens LIMIT_OUTPUT_TOKENS"},
		"steps":               {script: endless, agent: limited(host.Limits{abi.Steps: 2}), want: "limit steps LIMIT_STEPS"},
		"model calls":         {script: endless, agent: limited(host.Limits{abi.ModelCalls: 2}), want: "limit model_calls LIMIT_MODEL_CALLS"},
		"context":             {script: endless, agent: limited(host.Limits{abi.Context: 60}), want: "limit context LIMIT_CONTEXT"},
		"context, warned":     {script: endless, agent: limited(host.Limits{abi.Context: 900}), tools: saying(50), want: "limit context LIMIT_CONTEXT"},
		"context, at once":    {script: endless, agent: limited(host.Limits{abi.Context: 900}), tools: saying(700), want: "limit context LIMIT_CONTEXT"},
		"account":             {script: endless, agent: host.Agent{Name: "a", Account: "team"}, want: "limit money LIMIT_MONEY"},
		"account, last words": {script: endless, agent: host.Agent{Name: "a", Account: "calls"}, want: "limit tool_calls LIMIT_TOOL_CALLS"},
		"compensated": {script: trip, agent: host.Agent{Name: "a", Parallel: 1, Limits: host.Limits{abi.ToolCalls: 3}}, tools: func(t *testing.T) []host.Callable {
			return travel(filepath.Join(t.TempDir(), "log"), abi.Irreversible, "")
		}, want: "limit tool_calls LIMIT_TOOL_CALLS"},
		"a failed model": {script: "replies:\n  - calls: [{tool: t, args: {n: 1}}]\n  - error: auth\n  - text: it went on\n", agent: limited(nil), want: "failed  MODEL_AUTH"},
		"empty answers":  {script: "replies:\n  - text: \"\"\n  - text: \"\"\n  - text: it went on\n", agent: limited(nil), want: "failed  EMPTY_ANSWER"},
		"a child": {script: "repeat: true\nreplies:\n  - calls: [{tool: spawn, args: {task: help, limits: {tool_calls: 1}}}]\n  - calls: [{tool: wait, args: {}}]\n  - text: half of it\n",
			agent: host.Agent{Name: "a", Calls: []string{"spawn", "wait"}, Limits: host.Limits{abi.Depth: 1, abi.Steps: 20}}, want: "done  "},
		"children": {script: "replies:\n  - calls: [{tool: spawn, args: {task: help}}]\n  - text: alone\n",
			agent: host.Agent{Name: "a", Calls: []string{"spawn"}, Limits: host.Limits{abi.Children: 0}}, want: "done  "},
		"wall": {script: endless, agent: limited(host.Limits{abi.Wall: int64(50 * time.Millisecond), abi.ToolCalls: 1000}), want: "limit wall LIMIT_WALL"},
		"term": {script: endless, agent: limited(nil), want: "killed term PROCESS_KILLED", signal: true,
			from: func(r *abi.Record) bool { return r.Kind == abi.KindSignaled }},
	}
}

// saying returns a tool that gives so many words.
func saying(words int) func(*testing.T) []host.Callable {
	return func(*testing.T) []host.Callable {
		return []host.Callable{host.Tool("t", "Act.", func(context.Context, number) (string, error) { return strings.Repeat("fine ", words), nil })}
	}
}

// TestCrashAtEveryRecord lets a run end at a limit, at a signal or at an error. Then it
// cuts the journal after each record, opens a kernel on what is left, and compares the
// end with that of the run without a crash. The replay must say the same.
func TestCrashAtEveryRecord(t *testing.T) {
	for name, c := range crashCases() {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

func (c *crashCase) run(t *testing.T) {
	w := newWorld(t, c.script)
	reached := make(chan struct{}, 100)
	a := c.agent
	a.Model = "script:" + w.script
	a.Watchdog.Profile = "off"
	switch {
	case c.tools != nil:
		a.Tools = c.tools(t)
	case a.Calls == nil:
		a.Tools = []host.Callable{host.Tool("t", "Act.", func(ctx context.Context, in number) (string, error) {
			if c.signal && in.N == 2 {
				reached <- struct{}{}
				<-ctx.Done()
			}
			return strings.Repeat("fine ", 3), nil
		})}
	}
	open := func(dir string) *host.Kernel {
		k, err := host.Open(host.Config{Dir: dir, Getenv: func(string) string { return "" }, Tools: host.ToolsOf(a)})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := open(w.dir)
	for account, l := range map[string]host.Limits{"team": {abi.Money: 3_100_000}, "calls": {abi.ToolCalls: 3}} {
		e := abi.Edit{}
		for u, n := range l {
			e.Limits.Set(u, n)
		}
		if err := k.SetAccount(t.Context(), account, e); err != nil {
			t.Fatal(err)
		}
	}
	pid, err := k.Spawn(t.Context(), a, "go")
	if err != nil {
		t.Fatal(err)
	}
	if c.signal {
		<-reached
		if err := k.Signal(t.Context(), pid, abi.Term, "test"); err != nil {
			t.Fatal(err)
		}
	}
	c.check(t, k, pid, "without a crash")
	tape := tapeOf(t, w.dir)
	born := false
	for n := 1; n <= len(tape.records); n++ {
		r := tape.records[n-1]
		if born = born || r.Pid == pid && (c.from == nil || c.from(r)); !born {
			continue
		}
		dir := filepath.Join(t.TempDir(), fmt.Sprint(n))
		tape.cut(t, n, dir)
		k := open(dir)
		c.check(t, k, pid, fmt.Sprintf("after record %d.%d %s", r.Pid, r.N, r.Kind))
	}
}

// check waits for the end of the process and closes the kernel.
func (c *crashCase) check(t *testing.T, k *host.Kernel, pid abi.Pid, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := k.Wait(ctx, pid)
	if err != nil || endOf(r) != c.want {
		t.Errorf("%s: %q %v, want %q", when, endOf(r), err, c.want)
	}
	again, err := k.Replay(ctx, pid, nil)
	if err != nil || !again.Same {
		t.Errorf("%s: the replay says %+v %v", when, again.Divergence, err)
	}
	if err := errors.Join(k.Close(), ctx.Err()); err != nil {
		t.Fatal(when, err)
	}
}

// TestLoopWithoutExit: a loop that cannot make its exit leaves no process behind that
// nobody ends. Another caller took the number of its next call.
func TestLoopWithoutExit(t *testing.T) {
	w := newWorld(t, "latency: 300ms\nreplies:\n  - text: fine\n")
	k := w.open()
	pid := w.spawn(k, host.Agent{Name: "a"})
	until(t, func() bool { i, err := k.Info(pid); return err == nil && i.Reserved[abi.ModelCalls] == 1 })
	k.Do(t.Context(), abi.Call{Pid: pid, N: 2, Row: "tool", Args: []byte(`{"tool":"other"}`)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := k.Wait(ctx, pid)
	if err != nil || r.Exit != abi.ExitCrashed || r.Code != abi.Internal {
		t.Errorf("%+v %v", r, err)
	}
}
