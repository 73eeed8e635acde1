package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/quota"
)

func TestMain(m *testing.M) {
	host.Child()
	if job := os.Getenv(crashEnv); job != "" {
		crashChild(job)
		return
	}
	leaktest.Main(m)
}

// The scenarios that every kernel of this kind must stand, through the Go API:
// a script in place of a model, Go functions for tools, everything else real.

type number struct {
	N int `json:"n,omitempty"`
}

// counting is a tool that counts its calls.
func counting(name string, ran *atomic.Int64) host.Callable {
	return host.Tool(name, "Count.", func(_ context.Context, in number) (string, error) {
		return fmt.Sprintf("%s %d: %d", name, in.N, ran.Add(1)), nil
	})
}

func (w *world) run(k *host.Kernel, a host.Agent) host.Result {
	w.t.Helper()
	a.Model = "script:" + w.script
	r, err := k.Run(w.t.Context(), a, "go")
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) spawn(k *host.Kernel, a host.Agent) abi.Pid {
	w.t.Helper()
	a.Model = "script:" + w.script
	pid, err := k.Spawn(w.t.Context(), a, "go")
	if err != nil {
		w.t.Fatal(err)
	}
	return pid
}

// virtual opens the kernel on a clock that goes on only while everybody waits
// for it, so that a slow machine changes nothing of what is measured.
func (w *world) virtual(t *testing.T, fn func(t *testing.T, k *host.Kernel)) {
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		fn(t, w.open())
	})
}

// answers are the results of tool calls as the journal has them, in order.
func answers(t testing.TB, k *host.Kernel, pid abi.Pid) (all []*abi.Record) {
	t.Helper()
	if err := k.Records(t.Context(), pid, 0, false, func(r *abi.Record) error {
		if r.Answer != nil && r.Answer.Page != nil && r.Answer.Page.Role == "tool" {
			all = append(all, r)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func codes(records []*abi.Record) (all []string) {
	for _, r := range records {
		c := "ok"
		if r.Answer.Err != nil {
			c = string(r.Answer.Err.Code)
		}
		all = append(all, c)
	}
	return all
}

const forever = `
price: {input: 3.00, output: 15.00}
repeat: true
replies:
  - calls: [{tool: t, args: {n: 1}}]
    usage: {input: 100, output: 20}
`

// once is what one call of the script above costs.
const once = 100*3000 + 20*15000

func TestScenario01And02Steps(t *testing.T) {
	for _, steps := range []int64{3, 1, 0} {
		w := newWorld(t, forever)
		k := w.open()
		var ran atomic.Int64
		r := w.run(k, host.Agent{Tools: []host.Callable{counting("t", &ran)}, Limits: host.Limits{abi.Steps: steps}})
		if r.Exit != abi.ExitLimit || r.Reason != "steps" || r.Code != abi.LimitSteps || r.Usage.ModelCalls != steps || r.Steps != steps || ran.Load() > steps {
			t.Errorf("steps %d: %+v, ran %d", steps, r, ran.Load())
		}
	}
}

func TestScenario03ToolCalls(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls: [{tool: t, args: {n: 1}}, {tool: t, args: {n: 2}}, {tool: t, args: {n: 3}}]
`)
	k := w.open()
	var ran atomic.Int64
	r := w.run(k, host.Agent{Tools: []host.Callable{counting("t", &ran)}, Limits: host.Limits{abi.ToolCalls: 1}})
	if r.Exit != abi.ExitLimit || r.Code != abi.LimitToolCalls || ran.Load() != 1 || !strings.Contains(r.Output, "t 1: 1") {
		t.Errorf("%+v, ran %d", r, ran.Load())
	}
	if c := codes(answers(t, k, r.Pid)); !slices.Equal(c, []string{"ok", "LIMIT_TOOL_CALLS", "LIMIT_TOOL_CALLS"}) {
		t.Error(c)
	}
}

func TestScenario04And05Money(t *testing.T) {
	for _, c := range []struct {
		unit  abi.Unit
		limit int64
		calls int64
	}{
		{abi.Money, 0, 0}, {abi.Money, once, 1}, {abi.Money, 4 * once, 4}, {abi.Money, 5*once - 1, 4},
		{abi.Tokens, 120, 1}, {abi.Tokens, 359, 2}, {abi.OutputTokens, 60, 3}, {abi.InputTokens, 299, 2}, {abi.ModelCalls, 2, 2},
	} {
		w := newWorld(t, forever)
		k := w.open()
		var ran atomic.Int64
		r := w.run(k, host.Agent{Tools: []host.Callable{counting("t", &ran)}, Limits: host.Limits{c.unit: c.limit}})
		i, err := k.Info(r.Pid)
		if err != nil || r.Exit != abi.ExitLimit || r.Code != abi.LimitCode(c.unit) || i.Used[c.unit] > c.limit || i.Reserved != (abi.Usage{}) {
			t.Errorf("%s %d: %+v used %v %v", c.unit, c.limit, r, i.Used, err)
		}
		// What is left after the last whole call may still buy short last words.
		if n := r.Usage.ModelCalls; n != c.calls && n != c.calls+1 || ran.Load() > c.calls {
			t.Errorf("%s %d: %d model calls, %d tool calls, want %d", c.unit, c.limit, n, ran.Load(), c.calls)
		}
		if r.Usage.Drift != "" {
			t.Errorf("%s %d: drift %s", c.unit, c.limit, r.Usage.Drift)
		}
	}
}

func TestScenario06TwoUnderOneAccount(t *testing.T) {
	w := newWorld(t, `
price: {input: 3.00, output: 15.00}
replies: [{text: hello, usage: {input: 100, output: 20}}]
`)
	k := w.open()
	for i := range 100 {
		name := fmt.Sprint("team", i)
		var l abi.Limits
		l.Set(abi.Money, once)
		if err := k.SetAccount(t.Context(), name, abi.Edit{Limits: l, By: "test"}); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		var calls, done atomic.Int64
		for range 2 {
			both.Go(func() {
				r, err := k.Run(t.Context(), host.Agent{Model: "script:" + w.script, Account: name}, "go")
				if err != nil {
					t.Error(err)
				}
				calls.Add(r.Usage.ModelCalls)
				if r.Exit == abi.ExitDone {
					done.Add(1)
				} else if r.Code != abi.LimitMoney {
					t.Errorf("%+v", r)
				}
			})
		}
		both.Wait()
		if calls.Load() != 1 || done.Load() != 1 {
			t.Fatalf("repetition %d: %d calls, %d done", i, calls.Load(), done.Load())
		}
		for _, a := range k.Accounts() {
			if a.Name == name && (a.Used[abi.Money] != once || a.Reserved != (abi.Usage{})) {
				t.Fatalf("repetition %d: %+v", i, a)
			}
		}
	}
}

func TestScenario07And08And09Failures(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls: [{tool: shaky, args: {n: 1}}]
  - calls: [{tool: broken, args: {n: 1}}]
  - calls: [{tool: broken, args: {n: 2}}]
  - calls: [{tool: broken, args: {n: 3}}]
  - text: done
`)
	k := w.open()
	var broken atomic.Int64
	bad := host.Tool("broken", "Fail.", func(context.Context, number) (string, error) { broken.Add(1); return "", errors.New("no") })
	r := w.run(k, host.Agent{Tools: []host.Callable{bad}, Limits: host.Limits{abi.ToolCalls: 2}})
	all := answers(t, k, r.Pid)
	// What is not there was refused and burned nothing; what fails once is not
	// tried again; what failed counts.
	if c := codes(all); !slices.Equal(c, []string{"UNKNOWN_TOOL", "TOOL_FAILED", "TOOL_FAILED", "LIMIT_TOOL_CALLS"}) || broken.Load() != 2 {
		t.Errorf("%v, ran %d", c, broken.Load())
	}
	if r.Exit != abi.ExitLimit || r.Usage.ToolCalls != 2 {
		t.Errorf("%+v", r)
	}
	for _, a := range all {
		if a.Answer.Attempt > 1 {
			t.Errorf("%d attempts", a.Answer.Attempt)
		}
	}
}

func TestScenario11Wall(t *testing.T) {
	w := newWorld(t, `replies: [{text: working, calls: [{tool: slow}]}]`)
	w.virtual(t, func(t *testing.T, k *host.Kernel) {
		var left atomic.Bool
		slow := host.Tool("slow", "Sleep.", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			left.Store(true)
			return "", ctx.Err()
		})
		start := time.Now()
		r := w.run(k, host.Agent{Tools: []host.Callable{slow}, Limits: host.Limits{abi.Wall: int64(time.Second)}})
		took := time.Since(start)
		if r.Exit != abi.ExitLimit || r.Code != abi.LimitWall || r.Output != "working" || took < time.Second || took > 2*time.Second {
			t.Errorf("%+v after %s", r, took)
		}
		synctest.Wait()
		if !left.Load() {
			t.Error("the tool was not told")
		}
	})
}

func TestScenario12Kill(t *testing.T) {
	for _, during := range []string{"tool", "back-off", "turn", "pause"} {
		t.Run(during, func(t *testing.T) {
			w := newWorld(t, map[string]string{
				"tool":     `replies: [{calls: [{tool: slow}]}]`,
				"back-off": `{repeat: true, replies: [{error: rate_limit}]}`,
				"pause":    `{repeat: true, replies: [{error: rate_limit}]}`,
				"turn":     `{latency: 1h, replies: [{text: never}]}`,
			}[during])
			synctest.Test(t, func(t *testing.T) { killed(t, w, during) })
		})
	}
}

// killed kills a process during a wait of this kind, and sees it end at once.
func killed(t *testing.T, w *world, during string) {
	w.t = t
	k, err := host.Open(host.Config{Dir: w.dir, Settings: config.Settings{Traffic: map[string]config.Traffic{"script": {Limits: config.TrafficLimits{Concurrency: 1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var began atomic.Int64
	slow := host.Tool("slow", "Sleep.", func(ctx context.Context, _ struct{}) (string, error) {
		began.Add(1)
		<-ctx.Done()
		return "", ctx.Err()
	})
	if during == "turn" {
		w.spawn(k, host.Agent{})
		until(t, func() bool {
			return slices.ContainsFunc(k.Traffic(), func(v quota.Snapshot) bool { return v.Running == 1 })
		})
	}
	pid := w.spawn(k, host.Agent{Tools: []host.Callable{slow}})
	until(t, func() bool {
		i, _ := k.Info(pid)
		if during == "pause" { // of the provider: the call has backed off, and waits for its turn
			return len(i.Waits) == 1 && strings.HasPrefix(i.Waits[0], "turn script/") && strings.Contains(i.Waits[0], "asked to slow down, ")
		}
		return began.Load() == 1 || len(i.Waits) == 1 && strings.HasPrefix(i.Waits[0], during)
	})
	start := time.Now()
	if err := k.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
		t.Fatal(err)
	}
	r, err := k.Wait(t.Context(), pid)
	if err != nil || r.Exit != abi.ExitKilled || r.Code != abi.ProcessKilled || time.Since(start) > time.Second {
		t.Errorf("%+v %v after %s", r, err, time.Since(start))
	}
	if during == "turn" && r.Usage.ModelCalls != 0 {
		t.Errorf("%+v", r.Usage)
	}
}

func TestScenario13Loops(t *testing.T) {
	const head = "repeat: true\nreplies:\n"
	same := "  - calls: [{tool: a, args: {n: 1}}]\n"
	other := "  - calls: [{tool: b, args: {n: 1}}]\n"
	end := "  - text: done\n"
	for _, c := range []struct {
		name, script string
		dog          abi.Watchdog
		effect       abi.Effect
		exit         abi.Exit
		ran          int64
	}{
		{"over and over", head + same, abi.Watchdog{}, abi.Pure, abi.ExitLoop, 5},
		{"strict", head + same, abi.Watchdog{Profile: "strict"}, abi.Pure, abi.ExitLoop, 3},
		{"twice", "replies:\n" + same + same + end, abi.Watchdog{}, abi.Pure, abi.ExitDone, 2},
		{"a-b-a-b", head + same + other, abi.Watchdog{Profile: "strict"}, abi.Pure, abi.ExitLoop, 4},
		{"polling", "replies:\n" + strings.Repeat(same, 30) + end, abi.Watchdog{}, abi.Polling, abi.ExitDone, 30},
		{"polling for ever", head + same, abi.Watchdog{Profile: "strict"}, abi.Polling, abi.ExitLoop, 120},
		{"three reads", "replies:\n" + same + "  - calls: [{tool: a, args: {n: 2}}]\n  - calls: [{tool: a, args: {n: 3}}]\n" + end, abi.Watchdog{}, abi.Pure, abi.ExitDone, 3},
		{"off", "replies:\n" + strings.Repeat(same, 20) + end, abi.Watchdog{Profile: "off"}, abi.Pure, abi.ExitDone, 20},
	} {
		w := newWorld(t, c.script)
		k := w.open()
		var ran atomic.Int64
		read := func(name string) host.Callable {
			return host.Tool(name, "Read.", func(_ context.Context, in number) (string, error) { ran.Add(1); return "the same", nil }).As(c.effect)
		}
		r := w.run(k, host.Agent{Tools: []host.Callable{read("a"), read("b")}, Watchdog: c.dog})
		if r.Exit != c.exit || ran.Load() != c.ran {
			t.Errorf("%s: %s %s, ran %d, want %s after %d", c.name, r.Exit, r.Code, ran.Load(), c.exit, c.ran)
		}
		if r.Exit == abi.ExitLoop && (r.Code != abi.WatchdogLoop || r.Err == nil || !strings.Contains(r.Err.Message, "call")) {
			t.Errorf("%s: no evidence: %+v", c.name, r.Err)
		}
	}
}

func TestScenario14Empty(t *testing.T) {
	w := newWorld(t, `replies: []`)
	k := w.open()
	r := w.run(k, host.Agent{})
	if r.Exit != abi.ExitFailed || r.Code != abi.EmptyAnswer || r.Usage.ModelCalls != 2 {
		t.Errorf("%+v", r)
	}
	w = newWorld(t, `replies: [{text: ""}, {text: better}]`)
	k = w.open()
	if r = w.run(k, host.Agent{}); r.Exit != abi.ExitDone || r.Output != "better" {
		t.Errorf("%+v", r)
	}
}

func TestScenario15Parallel(t *testing.T) {
	var calls []string
	for n := range 20 {
		calls = append(calls, fmt.Sprintf("{tool: t, args: {n: %d}}", n))
	}
	script := "replies: [{calls: [" + strings.Join(calls, ", ") + "]}, {text: done}]"
	for _, most := range []int{0, 4, 1} {
		w := newWorld(t, script)
		k := w.open()
		var now, peak, ran atomic.Int64
		all := make(chan struct{})
		tool := host.Tool("t", "Meet.", func(ctx context.Context, in number) (int, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
			if ran.Add(1) == 20 {
				close(all)
			}
			if most == 0 { // nobody leaves before all are there
				select {
				case <-all:
				case <-ctx.Done():
				}
			}
			return in.N, nil
		})
		r := w.run(k, host.Agent{Tools: []host.Callable{tool}, Parallel: most})
		if r.Exit != abi.ExitDone || ran.Load() != 20 {
			t.Errorf("parallel %d: %+v, ran %d", most, r, ran.Load())
		}
		if want := max(int64(most), 1); most > 0 && peak.Load() > want || most == 0 && peak.Load() != 20 {
			t.Errorf("parallel %d: %d at once", most, peak.Load())
		}
		all2 := answers(t, k, r.Pid)
		slices.SortFunc(all2, func(a, b *abi.Record) int { return int(a.Call) - int(b.Call) })
		for n, a := range all2 { // the numbers are in the order asked
			if string(a.Answer.Value.Bytes) != fmt.Sprint(n) {
				t.Errorf("result %d is %s", n, a.Answer.Value.Bytes)
			}
		}
	}
}

func TestScenario16BadCalls(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls:
      - {tool: nothere, args: {}}
      - {tool: t, args: "not json"}
      - {tool: t, args: {n: "text"}}
      - {tool: t, args: {n: 1, more: 2}}
      - {tool: t, args: {n: [[1], [2, [3]]]}}
      - {tool: t, args: {n: 7}}
  - text: done
`)
	k := w.open()
	var ran atomic.Int64
	r := w.run(k, host.Agent{Tools: []host.Callable{counting("t", &ran)}})
	if r.Exit != abi.ExitDone || ran.Load() != 1 {
		t.Errorf("%+v, ran %d", r, ran.Load())
	}
	all := answers(t, k, r.Pid)
	slices.SortFunc(all, func(a, b *abi.Record) int { return int(a.Call) - int(b.Call) })
	if c := codes(all); !slices.Equal(c, []string{"UNKNOWN_TOOL", "INVALID_ARGUMENTS", "INVALID_ARGUMENTS", "INVALID_ARGUMENTS", "INVALID_ARGUMENTS", "ok"}) {
		t.Fatal(c)
	}
	for i, where := range []string{"", "", "/n", "/more", "/n"} {
		e := all[i].Answer.Err
		if e.Where != where || e.Hint == "" || i > 1 && len(e.Expected) == 0 {
			t.Errorf("call %d: %+v", i, e)
		}
	}
}

func TestScenario19FiftyAtOnce(t *testing.T) {
	w := newWorld(t, `replies: [{calls: [{tool: t, args: {n: 1}}]}, {text: done}]`)
	k := w.open()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			own := host.Tool("t", "Say who.", func(context.Context, number) (int, error) { return n, nil })
			r, err := k.Run(t.Context(), host.Agent{Model: "script:" + w.script, Tools: []host.Callable{own}}, "go")
			if err != nil || r.Exit != abi.ExitDone {
				t.Errorf("%+v %v", r, err)
				return
			}
			if got := answers(t, k, r.Pid); len(got) != 1 || string(got[0].Answer.Value.Bytes) != fmt.Sprint(n) || got[0].Pid != r.Pid {
				t.Errorf("process %d: %+v", r.Pid, got)
			}
		})
	}
	all.Wait()
}

func TestScenario20FreshAccounts(t *testing.T) {
	w := newWorld(t, `
price: {input: 3.00, output: 15.00}
replies: [{text: hello, usage: {input: 100, output: 20}}]
`)
	k := w.open()
	var l abi.Limits
	l.Set(abi.Money, once)
	if err := k.SetAccount(t.Context(), "team", abi.Edit{Limits: l, By: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		account string
		exits   [2]abi.Exit
	}{{"", [2]abi.Exit{abi.ExitDone, abi.ExitDone}}, {"team", [2]abi.Exit{abi.ExitDone, abi.ExitLimit}}} {
		for i, want := range c.exits {
			r := w.run(k, host.Agent{Account: c.account, Limits: host.Limits{abi.Money: once}})
			if r.Exit != want {
				t.Errorf("account %q, run %d: %+v", c.account, i, r)
			}
		}
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = w.open()
	if r := w.run(k, host.Agent{Account: "team"}); r.Exit != abi.ExitLimit {
		t.Errorf("a restart gave the account new money: %+v", r)
	}
	if _, err := k.Spawn(t.Context(), host.Agent{Model: "script:" + w.script, Account: "nobody"}, "go"); err == nil {
		t.Error("an account that is not there")
	}
}

// family is a script by which every process starts one child down to the last
// generation, which works until it is stopped, and then waits for it.
const family = `
repeat: true
replies:
  - calls: [{tool: spawn, args: {task: "help"}}]
  - calls: [{tool: wait, args: {}}]
  - text: "my child has ended"
`

func TestScenario24Grandchild(t *testing.T) {
	w := newWorld(t, family)
	w.virtual(t, func(t *testing.T, k *host.Kernel) {
		r := w.run(k, host.Agent{Calls: []string{"spawn", "wait"}, Limits: host.Limits{abi.Depth: 2, abi.Steps: 30}})
		if r.Exit != abi.ExitDone || r.Output != "my child has ended" {
			t.Errorf("%+v", r)
		}
		var ends []int64
		for pid := abi.Pid(1); pid <= 3; pid++ {
			i, err := k.Info(pid)
			if err != nil || i.Exit == nil {
				t.Fatalf("process %d: %+v %v", pid, i.Exit, err)
			}
			ends = append(ends, i.Last)
			if pid > 1 && i.Parent != pid-1 {
				t.Errorf("process %d is a child of %d", pid, i.Parent)
			}
		}
		if c := codes(answers(t, k, 3)); !slices.Contains(c, "LIMIT_DEPTH") {
			t.Errorf("the last generation: %v", c)
		}
		for i := range 2 {
			if d := time.Duration(ends[i] - ends[i+1]); d < 0 || d > time.Second {
				t.Errorf("process %d ended %s after its child", i+1, d)
			}
		}
	})
}

// TestScenario24LastWords: a grandchild runs into a limit of its own, says its
// last words, and they reach the top.
func TestScenario24LastWords(t *testing.T) {
	w := newWorld(t, `
repeat: true
replies:
  - calls: [{tool: spawn, args: {task: "help", limits: {tool_calls: 1}}}]
  - calls: [{tool: wait, args: {}}]
  - text: "I found half of it"
`)
	k := w.open()
	var ran atomic.Int64
	r := w.run(k, host.Agent{Calls: []string{"spawn", "wait"}, Tools: []host.Callable{counting("t", &ran)}, Limits: host.Limits{abi.Depth: 1, abi.Steps: 20}})
	got := answers(t, k, r.Pid)
	if len(got) < 2 || r.Exit != abi.ExitDone {
		t.Fatalf("%+v %v", r, codes(got))
	}
	v, err := k.Bytes(got[1].Answer.Value)
	if err != nil || !strings.Contains(string(v), "I found half of it") || !strings.Contains(string(v), `"exit"`) {
		t.Errorf("the parent heard %s %v", v, err)
	}
}

func TestScenario25ChildrenOfOneParent(t *testing.T) {
	var spawns []string
	for range 10 {
		spawns = append(spawns, `{tool: spawn, args: {task: help, tools: [], limits: {money: "100"}}}`)
	}
	w := newWorld(t, `
price: {input: 3.00, output: 15.00}
replies:
  - calls: [`+strings.Join(spawns, ", ")+`]
    usage: {input: 100, output: 20}
  - text: "waiting"
    usage: {input: 100, output: 20}
`)
	k := w.open()
	limit := int64(7 * once)
	pid := w.spawn(k, host.Agent{Calls: []string{"spawn"}, Limits: host.Limits{abi.Money: limit}})
	if _, err := k.Wait(t.Context(), pid); err != nil {
		t.Fatal(err)
	}
	i, _ := k.Info(pid)
	if i.Used[abi.Money] > limit || i.Reserved != i.Doubt {
		t.Errorf("used %d of %d, reserved %v", i.Used[abi.Money], limit, i.Reserved)
	}
	if len(i.Children) == 0 {
		t.Error("no children")
	}
	for _, kid := range i.Children {
		c, _ := k.Info(kid)
		if most, set := c.Limits.Get(abi.Money); !set || most > limit-once {
			t.Errorf("child %d may take %d, its parent had %d left", kid, most, limit-once)
		}
	}
}

func TestScenario31Background(t *testing.T) {
	w := newWorld(t, `replies: [{calls: [{tool: slow}]}, {text: done}]`)
	k := w.open()
	goOn := make(chan struct{})
	slow := host.Tool("slow", "Wait.", func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-goOn:
			return "slept", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	a := host.Agent{Tools: []host.Callable{slow}}
	pid := w.spawn(k, a)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := k.Wait(short, pid); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if i, err := k.Info(pid); err != nil || i.Exit != nil {
		t.Errorf("waiting with a timeout ended it: %+v", i.Exit)
	}
	close(goOn)
	r, err := k.Wait(t.Context(), pid)
	if err != nil || r.Exit != abi.ExitDone || r.Output != "done" {
		t.Errorf("%+v %v", r, err)
	}
	for range 3 { // for ever
		for _, s := range []abi.Signal{abi.Kill, abi.Term, abi.Stop} {
			if err := k.Signal(t.Context(), pid, s, "test"); err == nil {
				t.Errorf("%s to a process that has exited", s)
			}
		}
		if again, err := k.Wait(t.Context(), pid); err != nil || again.Exit != r.Exit || again.Output != r.Output {
			t.Errorf("%+v %v", again, err)
		}
	}
	goOn = make(chan struct{})
	a.Limits = host.Limits{abi.Wall: int64(50 * time.Millisecond)}
	if r := w.run(k, a); r.Exit != abi.ExitLimit || r.Code != abi.LimitWall {
		t.Errorf("a deadline: %+v", r)
	}
}

// until waits for a condition that nothing announces.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("it did not come to that")
		}
		time.Sleep(time.Millisecond)
	}
}
