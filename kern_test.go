package kern_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern"
	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/model"
)

// dialed is a kernel behind the socket of a data directory, as a daemon serves it.
func dialed(t *testing.T) *kern.Kernel {
	t.Helper()
	dir := t.TempDir()
	h, err := host.Open(host.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l, err := api.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := h.API()
	server.About = api.About{Version: "7", Data: dir}
	ctx, cancel := context.WithCancel(context.Background())
	s := api.NewHTTPServer(ctx, server.Handler())
	served := make(chan struct{})
	go func() { _ = s.Serve(l); close(served) }()
	k, err := kern.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := k.Close(context.Background())
		cancel()
		if err := errors.Join(err, s.Close(), api.Unlisten(dir), h.Close()); err != nil {
			t.Error(err)
		}
		<-served
	})
	return k
}

func opened(t *testing.T) *kern.Kernel {
	t.Helper()
	k, err := kern.Open(t.Context(), kern.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return k
}

// writeScript is the reference of a model that says what a script says.
func writeScript(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "replies.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "script:" + file
}

// TestSameInterface does the same things to an embedded kernel and to one behind a
// socket, and expects the same of both.
func TestSameInterface(t *testing.T) {
	ref := writeScript(t, "price: {input: 3.00, output: 15.00}\nreplies:\n  - {text: hello, usage: {input: 100, output: 20}}\n")
	for name, open := range map[string]func(*testing.T) *kern.Kernel{"open": opened, "dial": dialed} {
		t.Run(name, func(t *testing.T) {
			ctx, k := t.Context(), open(t)
			limits := kern.Limits{Money: kern.Dollars(1), Steps: 20, ToolCalls: kern.None, Wall: time.Minute, Children: 7, Depth: 2}
			r, err := k.Run(ctx, kern.Agent{Name: "greeter", Model: ref, Limits: limits}, "hi")
			if err != nil || r.Exit != abi.ExitDone || r.Output != "hello" || r.Usage.Money.String() != "0.0006" || r.Usage.Steps != 1 || r.Limits != limits {
				t.Fatalf("%+v %v", r, err)
			}
			p, err := k.Process(ctx, r.Pid)
			if err != nil || p.Priority != kern.DefaultPriority || p.State != abi.Exited || p.Limits != limits {
				t.Errorf("%+v %v", p, err)
			}
			var kinds []string
			for r, err := range k.Follow(ctx, r.Pid, 0) {
				if err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, string(r.Kind))
			}
			if kinds[0] != string(abi.KindSpawned) || kinds[len(kinds)-1] != string(abi.KindExited) {
				t.Errorf("records %v", kinds)
			}
			for range k.Records(ctx, r.Pid, 0) {
				break // ends the reading
			}
			if n, err := k.Check(ctx, r.Pid); err != nil || n != len(kinds) {
				t.Errorf("%d records are sound: %v", n, err)
			}
			if re, err := k.Replay(ctx, r.Pid); err != nil || !re.Same {
				t.Errorf("%+v %v", re, err)
			}
			f, err := k.Fork(ctx, r.Pid, abi.ForkOptions{At: 1})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := k.Wait(ctx, f.Pid); err != nil || r.Output != "hello" {
				t.Errorf("%+v %v", r, err)
			}
			urgent, err := k.Spawn(ctx, kern.Agent{Model: ref, Priority: kern.Urgent, Calls: []string{"sleep"}}, "hi")
			if err != nil {
				t.Fatal(err)
			}
			if p, err := k.Process(ctx, urgent); err != nil || p.Priority != 0 {
				t.Errorf("%+v %v", p, err)
			}
			if _, err := k.Wait(ctx, urgent); err != nil {
				t.Error(err)
			}
			var e *abi.Error
			if err := k.Signal(ctx, 99, abi.Kill); !errors.As(err, &e) || e.Code != abi.UnknownProcess {
				t.Errorf("a signal to nobody: %v", err)
			}
			if _, err := k.Commits(ctx, r.Pid); !errors.As(err, &e) || e.Code != abi.InvalidCall {
				t.Errorf("commits without a workspace: %v", err)
			}
			var names []string
			for p, err := range k.Processes(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, p.Name)
			}
			if !slices.Equal(names, []string{"greeter", "greeter", ""}) {
				t.Errorf("processes %q", names)
			}
		})
	}
}

// TestRunCanceled: when its context ends, Run kills the process and says so.
func TestRunCanceled(t *testing.T) {
	ref := writeScript(t, "latency: 1h\nreplies:\n  - {text: late}\n")
	for name, open := range map[string]func(*testing.T) *kern.Kernel{"open": opened, "dial": dialed} {
		t.Run(name, func(t *testing.T) {
			k := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for item := range k.Feed(t.Context(), abi.FeedOptions{After: new(uint64)}) {
					if item.Record != nil && item.Record.Kind == abi.KindBegan {
						cancel()
						return
					}
				}
			}()
			r, err := k.Run(ctx, kern.Agent{Model: ref}, "hi")
			if !errors.Is(err, context.Canceled) || r.Exit != abi.ExitKilled {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// TestDialRefusals: what only an embedded kernel can do is refused, and so is a
// directory that no daemon serves.
func TestDialRefusals(t *testing.T) {
	var e *abi.Error
	if _, err := kern.Dial(t.Context(), t.TempDir()); !errors.As(err, &e) || e.Code != abi.DaemonGone || e.Hint == "" {
		t.Errorf("no daemon: %v", err)
	}
	k := dialed(t)
	tool := kern.NewTool("t", "T.", func(context.Context, struct{}) (int, error) { return 1, nil })
	if _, err := k.Spawn(t.Context(), kern.Agent{Model: "m", Tools: []kern.Tool{tool}}, "hi"); !errors.As(err, &e) || e.Code != abi.InvalidCall {
		t.Errorf("a Go tool over a connection: %v", err)
	}
}

// TestLimitMistakes: what cannot be meant is refused, with what was expected.
func TestLimitMistakes(t *testing.T) {
	k := opened(t)
	for want, l := range map[string]kern.Limits{
		"limit money: expected":   {Money: kern.Dollars(-1)},
		"limit steps is -2":       {Steps: -2},
		"limit wall is 10ns":      {Wall: 10},
		"limit cpu is -1s":        {CPU: -time.Second},
		"limit tool_calls is -20": {ToolCalls: -20},
	} {
		if _, err := k.Spawn(t.Context(), kern.Agent{Model: "m", Limits: l}, "hi"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestZeroAndUnset: an unset limit does not bind, and zero allows nothing. Depth and
// children have a limit unless Unlimited lifts it.
func TestZeroAndUnset(t *testing.T) {
	k, err := kern.Open(t.Context(), kern.Config{Dir: t.TempDir(), Models: map[string]model.Model{"m": &model.Script{Replies: []model.Reply{{Text: "hi"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(context.Background())
	for _, c := range []struct {
		limits kern.Limits
		exit   abi.Exit
	}{
		{kern.Limits{}, abi.ExitDone},
		{kern.Limits{Steps: 1}, abi.ExitDone},
		{kern.Limits{Steps: kern.None}, abi.ExitLimit},
		{kern.Limits{Wall: kern.None}, abi.ExitLimit},
		{kern.Limits{InputTokens: kern.None}, abi.ExitLimit},
	} {
		r, err := k.Run(t.Context(), kern.Agent{Model: "m", Limits: c.limits}, "hi")
		want := c.limits
		want.Children, want.Depth = 100, 5
		if err != nil || r.Exit != c.exit || r.Limits != want {
			t.Errorf("%+v: %+v %v", c.limits, r, err)
		}
		c.limits.Children, c.limits.Depth = kern.Unlimited, 3
		want.Children, want.Depth = 0, 3
		if r, err := k.Run(t.Context(), kern.Agent{Model: "m", Limits: c.limits}, "hi"); err != nil || r.Limits != want {
			t.Errorf("%+v: %+v %v", c.limits, r, err)
		}
	}
}
