// Command traffic measures the load of many agents on a provider, in real time and
// over HTTP, with the mock provider on this machine:
//
//   - the cost of a turn, alone and with many waiting calls;
//   - fifty agents at a provider that bans a client after too many 429s, once without
//     and once under Kern;
//   - 512 processes of eight owners at 9,000 requests and 1.5 M tokens a minute, with
//     an urgent one among them. They start one by one over half a minute. 512 copies
//     of one script that start together stay in step: they want only requests in one
//     moment and only tokens in the next, and leave a part of both unused.
//
// A run takes three minutes. The provider counts; journal, admission and accounts are
// the real ones. -scale reduces processes and quota for a busy machine.
//
//	go run ./bench/traffic [-warm 60s] [-measure 60s] [-scale 1] [-only turn,fifty,many]
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/mockprovider/load"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/model"
)

func main() {
	warm := flag.Duration("warm", time.Minute, "before it is measured: the first minute fills the window")
	measure := flag.Duration("measure", time.Minute, "how long the quota is measured")
	scale := flag.Int("scale", 1, "by what processes and quota of scenario 35 are divided")
	flag.DurationVar(&watch, "watch", 0, "show how the quota of the 512 stands, so often")
	only := flag.String("only", "turn,fifty,many", "what to run")
	flag.Parse()
	for _, step := range []struct {
		name string
		run  func() error
	}{{"turn", measureTurns}, {"fifty", measureFifty}, {"many", func() error { return measureMany(*warm, *measure, *scale) }}} {
		if !slices.Contains(strings.Split(*only, ","), step.name) {
			continue
		}
		if err := step.run(); err != nil {
			fmt.Fprintln(os.Stderr, "traffic:", err)
			os.Exit(1)
		}
	}
}

var watch time.Duration

// printQuota prints the state of the quota until ctx ends.
func printQuota(ctx context.Context, k *host.Kernel, m *mockprovider.Mock) {
	tick := time.NewTicker(watch)
	defer tick.Stop()
	last := m.Stats()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := m.Stats()
		say("  %4.0f requests and %6.0f tokens a second", float64(s.OK-last.OK)/watch.Seconds(), float64(s.Input+s.Output-last.Input-last.Output)/watch.Seconds())
		for _, v := range k.Traffic() {
			say("    %s: %d run, %d wait: %s; %s requests, %s tokens", v.Name, v.Running, v.Waiting, v.Next(), v.Of("requests"), v.Of("tokens"))
		}
		last = s
	}
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

var began = time.Now()

// median runs f five times and returns the median.
func median(f func() time.Duration) time.Duration {
	var all []time.Duration
	for range 5 {
		all = append(all, f())
	}
	slices.Sort(all)
	return all[2]
}

// measureTurns measures the cost of a turn, alone and with many waiting calls.
func measureTurns() error {
	ctx := context.Background()
	const n = 100_000
	alone := median(func() time.Duration {
		t := quota.Turns{Configs: map[string]quota.Config{"p": {Limits: quota.Limits{Requests: 1e12, Tokens: 1e12, Concurrency: 64}}}}
		start := spent()
		for range n {
			turn, err := t.Acquire(ctx, quota.Demand{Resource: "p/m", Owner: "a", Pid: 1, Priority: 10, In: 100, Out: 100})
			if err == nil {
				turn.Release(quota.Feedback{In: 100, Out: 50})
			}
		}
		return (spent() - start) / n
	})
	say("a turn, asked for and given back       %8s of the processor   aim: 2µs", alone)
	for _, waiting := range []int{100, 10_000} {
		say("a turn handed over while %6d wait    %8s of the processor   (with waking the waiter)", waiting, median(func() time.Duration { return handOver(waiting) }))
	}
	return nil
}

// handOver makes a number of calls wait for one place, and returns the time for each.
func handOver(waiting int) time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t := quota.Turns{Configs: map[string]quota.Config{"p": {Limits: quota.Limits{Concurrency: 1}}}}
	hold, err := t.Acquire(ctx, quota.Demand{Resource: "p/m"})
	if err != nil {
		return 0
	}
	var all sync.WaitGroup
	for i := range waiting {
		all.Go(func() {
			if turn, err := t.Acquire(ctx, quota.Demand{Resource: "p/m", Owner: fmt.Sprint(i % 50), Pid: int64(i), Priority: 10, In: 100}); err == nil {
				turn.Release(quota.Feedback{In: 100})
			}
		})
	}
	for { // until all wait
		if v := t.Snapshots(); v[len(v)-1].Waiting == waiting || v[0].Waiting == waiting {
			break
		}
		time.Sleep(time.Millisecond)
	}
	start := spent()
	hold.Release(quota.Feedback{})
	all.Wait()
	return (spent() - start) / time.Duration(waiting)
}

// serveMock serves a mock on this machine.
func serveMock(c mockprovider.Config) (*mockprovider.Mock, *httptest.Server) {
	m := mockprovider.New(c)
	s := httptest.NewUnstartedServer(m)
	s.Config.ErrorLog = nil
	s.Start()
	return m, s
}

// openKernel opens a kernel in a new directory, with its provider at an address.
func openKernel(base string, l quota.Limits) (*host.Kernel, func(), error) {
	dir, err := os.MkdirTemp("", "kern-bench-")
	if err != nil {
		return nil, nil, err
	}
	k, err := host.Open(host.Config{Dir: dir, Getenv: func(string) string { return "" }, Settings: config.Settings{
		Providers: map[string]provider.Provider{"openai": {BaseURL: base + "/v1", Key: transport.NewKey("bench"), Models: map[string]provider.Listed{
			"m": {Priced: true, Price: model.Price{Input: 3e9, Output: 15e9}, Window: 200_000, MaxOutput: 200}}}},
		Traffic: map[string]config.Traffic{"openai": {Limits: l}},
	}})
	if err != nil {
		return nil, nil, err
	}
	return k, func() {
		if err := k.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.RemoveAll(dir)
	}, nil
}

type page struct {
	Page int `json:"page"`
}

// spawn starts an agent that looks things up until the model has enough.
func spawn(ctx context.Context, k *host.Kernel, s abi.Run) (abi.Pid, error) {
	search, err := tools.Func("search", "Look something up.", func(context.Context, page) (string, error) { return "a page", nil })
	if err != nil {
		return 0, err
	}
	search.Effect = abi.Pure
	s.Program.Model, s.Program.Tools, s.Watchdog.Profile = "openai:m", []abi.ToolSpec{search.ToolSpec}, "off"
	return k.SpawnSpec(ctx, s, search)
}

func run(ctx context.Context, k *host.Kernel, s abi.Run) (host.Result, error) {
	pid, err := spawn(ctx, k, s)
	if err != nil {
		return host.Result{}, err
	}
	return k.Wait(ctx, pid)
}

// researcher names an agent, its account and its task.
func researcher(name, account string, priority int, task string) abi.Run {
	s := abi.Run{Account: account, Priority: priority, Task: task}
	s.Program.Name = name
	return s
}

// measureFifty: fifty agents need 300 calls. The provider takes 300 a minute and ten
// at a time, and bans a key after ten refusals within a minute.
func measureFifty() error {
	spread, err := mockprovider.ParseSpread("300ms±200ms")
	if err != nil {
		return err
	}
	c := mockprovider.Config{Script: load.Script(5), Limits: mockprovider.Limits{Requests: 300, Tokens: 200_000, Concurrency: 10, Ban: 10}, Latency: spread, Seed: 50}
	m, s := serveMock(c)
	raw := load.Agents{Base: s.URL + "/v1", Number: 50}.Run(context.Background())
	s.Close()
	say("fifty agents, each for itself:    %2d finished, %2d died, in %s; the provider refused %d requests; the first died of: %s",
		raw.Finished, raw.Died, raw.Took.Round(10*time.Millisecond), m.Stats().Refused, raw.Why)

	m, s = serveMock(c)
	defer s.Close()
	k, closed, err := openKernel(s.URL, quota.Limits{Requests: 300, Tokens: 200_000, Concurrency: 10})
	if err != nil {
		return err
	}
	defer closed()
	start := time.Now()
	finished, why := 0, ""
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			r, err := run(context.Background(), k, researcher(fmt.Sprint("researcher ", i+1), "", abi.DefaultPriority, "research and report"))
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.Exit == abi.ExitDone {
				finished++
			} else {
				why = fmt.Sprintf("; one ended with %s: %v %v", r.Exit, r.Err, err)
			}
		})
	}
	all.Wait()
	say("fifty agents, under Kern:         %2d finished, %2d died, in %s; the provider refused %d requests of %d%s",
		finished, 50-finished, time.Since(start).Round(10*time.Millisecond), m.Stats().Refused, m.Stats().Requests, why)
	return nil
}

// arrive is the time over which all processes start.
const arrive = 30 * time.Second

// measureMany is scenario 35.
func measureMany(warm, measure time.Duration, scale int) error {
	spread, err := mockprovider.ParseSpread("500ms±300ms")
	if err != nil {
		return err
	}
	size := func(n int) *int { return &n }
	script := &model.Script{Name: "endless", Repeat: true, Replies: []model.Reply{}}
	for i, n := range [][2]int{{40, 10}, {90, 30}, {110, 50}, {260, 74}, {300, 100}, {20, 5}, {150, 60}, {50, 27}} {
		script.Replies = append(script.Replies, model.Reply{Calls: []model.ScriptCall{{Tool: "search", Args: fmt.Sprintf(`{"page":%d}`, i)}}, Input: size(n[0]), Output: size(n[1])})
	}
	l := mockprovider.Limits{Requests: 9000 / int64(scale), Tokens: 1_500_000 / int64(scale), Burst: 0.05}
	processes := 512 / scale
	m, s := serveMock(mockprovider.Config{Script: script, Limits: l, Latency: spread, Seed: 35})
	defer s.Close()
	k, closed, err := openKernel(s.URL, quota.Limits{Requests: l.Requests, Tokens: l.Tokens})
	if err != nil {
		return err
	}
	defer closed()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	idle, err := runUrgent(ctx, k, 15, 0)
	if err != nil {
		return err
	}
	for o := range 8 {
		if err := k.SetAccount(ctx, fmt.Sprint("owner", o), abi.Edit{By: "bench"}); err != nil {
			return err
		}
	}
	if watch > 0 {
		go printQuota(ctx, k, m)
	}
	pids, err := startProcesses(ctx, k, processes)
	if err != nil {
		return err
	}
	time.Sleep(warm)
	before, used, began := m.Stats(), tokensOf(k, pids), time.Now()
	busy, err := runUrgent(ctx, k, 1000, measure)
	if err != nil {
		return err
	}
	after, usedAfter := m.Stats(), tokensOf(k, pids)
	minutes := time.Since(began).Minutes()
	dead := 0
	for _, list := range pids {
		for _, pid := range list {
			if i, err := k.Info(pid); err != nil || i.Exit != nil {
				dead++
			}
		}
	}
	var owners []float64
	worst := 1.0
	for _, list := range pids {
		sum := 0.0
		var each []float64
		for _, pid := range list {
			n := float64(usedAfter[pid] - used[pid])
			each, sum = append(each, n), sum+n
		}
		owners = append(owners, sum)
		worst = min(worst, jain(each))
	}
	say("%d processes, %.1f minutes after the first: %d died                                    aim: 0", processes, minutes, dead)
	say("  requests answered with 429            %6d of %d (%.3f %%)                      aim: < 0.1 %%", after.Refused, after.Requests, 100*float64(after.Refused)/float64(after.Requests))
	say("  quota used                            %.1f %% of requests, %.1f %% of tokens        aim: > 95 %% of one",
		100*float64(after.OK-before.OK)/minutes/float64(l.Requests), 100*float64(after.Input+after.Output-before.Input-before.Output)/minutes/float64(l.Tokens))
	say("  fairness (Jain), by tokens            owners %.4f, processes of one owner at least %.4f", jain(owners), worst)
	say("  an urgent run of one call, p50 / p95  %s / %s, idle %s / %s           aim: at most twice", at(busy, 50), at(busy, 95), at(idle, 50), at(idle, 95))
	return nil
}

// startProcesses starts processes of eight owners, one by one.
func startProcesses(ctx context.Context, k *host.Kernel, processes int) (map[string][]abi.Pid, error) {
	pids := make(map[string][]abi.Pid)
	for i := range processes {
		owner := fmt.Sprint("owner", i%8)
		if i < processes/8 {
			owner = "owner7" // which has twice as many as others
		}
		pid, err := spawn(ctx, k, researcher(fmt.Sprint("agent", i), owner, abi.DefaultPriority, "research without end"))
		if err != nil {
			return nil, err
		}
		pids[owner] = append(pids[owner], pid)
		time.Sleep(arrive / time.Duration(processes))
	}
	return pids, nil
}

// runUrgent runs an urgent agent of one call again and again, and returns the time of
// each from start to exit.
func runUrgent(ctx context.Context, k *host.Kernel, most int, d time.Duration) (took []time.Duration, err error) {
	start := time.Now()
	for n := 0; n < most && (d == 0 || time.Since(start) < d); n++ {
		s := researcher("urgent", "", 0, "one thing, quickly")
		s.Limits.Set(abi.ModelCalls, 1)
		began := time.Now()
		r, err := run(ctx, k, s)
		if err != nil {
			return nil, err
		}
		if r.Usage.ModelCalls != 1 {
			return nil, fmt.Errorf("an urgent run ended with %s after %d calls: %v", r.Exit, r.Usage.ModelCalls, r.Err)
		}
		took = append(took, time.Since(began))
		time.Sleep(200 * time.Millisecond)
	}
	slices.Sort(took)
	return took, nil
}

func at(d []time.Duration, percent int) time.Duration {
	return d[len(d)*percent/100].Round(time.Millisecond)
}

// tokensOf returns the tokens that each process has used.
func tokensOf(k *host.Kernel, pids map[string][]abi.Pid) map[abi.Pid]int64 {
	used := make(map[abi.Pid]int64)
	for _, list := range pids {
		for _, pid := range list {
			if i, err := k.Info(pid); err == nil {
				used[pid] = i.Used[abi.Tokens]
			}
		}
	}
	return used
}

// jain returns Jain's index: 1 when all shares are equal, 1/n when one has everything.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum, squares = sum+s, squares+s*s
	}
	return sum * sum / (float64(len(shares)) * squares)
}
