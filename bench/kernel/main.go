// Command kernel measures the path of a call, and prints each figure beside a
// baseline of the same run.
//
//	go run ./bench/kernel
//
// The reservation alone is inside the package: go test -run - -bench ReserveSettle ./internal/kernel
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/schema"
)

func main() {
	dir, err := os.MkdirTemp("", "kern-bench-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%-58s %12s %12s %7s  %s\n", "what", "measured", "baseline", "ratio", "aim")
	noop()
	durable(dir, "pure: one record", false)
	durable(dir, "effect: intent and answer", true)
	parked()
	recovery(dir)
}

func row(what, measured, baseline, ratio, aim string) {
	fmt.Printf("%-58s %12s %12s %7s  %s\n", what, measured, baseline, ratio, aim)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func median[T time.Duration | float64](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

// use is what one call of the measured row takes.
var use = abi.Usage{abi.Money: 1, abi.ToolCalls: 1}

// table holds one row that does nothing, with a schema, a watchdog and a
// reservation.
func table(intent bool) kernel.Table {
	s := must(schema.Compile([]byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)))
	var n atomic.Int64
	values := make([]json.RawMessage, 64)
	for i := range values {
		values[i] = json.RawMessage(fmt.Sprint(i))
	}
	return kernel.Table{
		"act": &kernel.Row{Name: "act", Schema: s, Watch: true, Instant: true,
			Plan: func(kernel.View, abi.Call) (kernel.Plan, *abi.Error) {
				return kernel.Plan{Effect: abi.Irreversible, Intent: intent, Reserve: use}, nil
			},
			Run: func(context.Context, *kernel.Job) kernel.Done {
				return kernel.Done{Value: values[n.Add(1)%64], Usage: use}
			}},
		"spawn": &kernel.Row{Name: "spawn",
			Run: func(_ context.Context, j *kernel.Job) kernel.Done {
				pid, e := j.Spawn(kernel.Spawning{Spawn: abi.Spawn{Rows: []string{"act", "spawn"}, Limits: limited()}})
				return kernel.Done{Value: json.RawMessage(fmt.Sprint(pid)), Err: e}
			}},
	}
}

func limited() (l abi.Limits) {
	l.Set(abi.Money, 1<<50)
	l.Set(abi.ToolCalls, 1<<50)
	return l
}

func open(s journal.Store, l journal.Lease, t kernel.Table) (*kernel.Kernel, *journal.Log) {
	lg := journal.NewLog(s, l)
	return must(kernel.New(kernel.Config{Store: s, Log: lg, Rows: t})), lg
}

// args are different arguments in turn, as an agent that goes nowhere would be
// ejected.
var args = func() (list [64]json.RawMessage) {
	for i := range list {
		list[i] = json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
	}
	return list
}()

func spawn(k *kernel.Kernel, account string) abi.Pid {
	return must(k.Spawn(context.Background(), kernel.Spawning{Spawn: abi.Spawn{Account: account, Rows: []string{"act", "spawn"}, Limits: limited()}}))
}

// noop times calls on a path of four limited accounts: a named one, a process,
// its child and grandchild.
func noop() {
	ctx := context.Background()
	k, _ := open(journal.Nowhere, journal.Lease{}, table(false))
	if err := k.SetAccount(ctx, "bench", "bench", limited()); err != nil {
		log.Fatal(err)
	}
	pid := spawn(k, "bench")
	for range 2 {
		r := k.Do(ctx, abi.Call{Pid: pid, N: 1, Row: "spawn", Args: json.RawMessage(`{}`)})
		if r.Err != nil {
			log.Fatal(r.Err)
		}
		if err := json.Unmarshal(r.Value, &pid); err != nil {
			log.Fatal(err)
		}
	}
	const calls = 200_000
	took := make([]time.Duration, calls)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range took {
		c := abi.Call{Pid: pid, N: uint64(i + 1), Row: "act", Args: args[i%64]}
		start := time.Now()
		r := k.Do(ctx, c)
		took[i] = time.Since(start)
		if r.Err != nil {
			log.Fatal(r.Err)
		}
	}
	runtime.ReadMemStats(&after)
	clock := make([]time.Duration, calls)
	for i := range clock {
		start := time.Now()
		clock[i] = time.Since(start)
	}
	row("Do of a no-op row in memory, p50", median(took).String(), median(clock).String(), "", "<= 2µs (baseline: reading the clock)")
	row("Do of a no-op row in memory, p99", took[calls*99/100].String(), "", "", "")
	row("  allocations", fmt.Sprintf("%.1f", float64(after.Mallocs-before.Mallocs)/calls), "", "", "0 to 2")
}

// durable times calls on SQLite against the disk's own rate of syncs.
func durable(dir, what string, intent bool) {
	dir = must(os.MkdirTemp(dir, ""))
	s, l, err := journal.OpenSQLite(filepath.Join(dir, "data"))
	if err != nil {
		log.Fatal(err)
	}
	k, lg := open(s, l, table(intent))
	file := must(os.Create(filepath.Join(dir, "plain")))
	defer file.Close()
	const rounds = 300
	var calls, syncs []time.Duration
	pid := spawn(k, "")
	block := make([]byte, 4096)
	for i := range rounds {
		start := time.Now()
		if r := k.Do(context.Background(), abi.Call{Pid: pid, N: uint64(i + 1), Row: "act", Args: args[i%64]}); r.Err != nil {
			log.Fatal(r.Err)
		}
		calls = append(calls, time.Since(start))
		start = time.Now()
		must(file.WriteAt(block, int64(i)*4096))
		if err := file.Sync(); err != nil {
			log.Fatal(err)
		}
		syncs = append(syncs, time.Since(start))
	}
	c, f := median(calls), median(syncs)
	row("durable Do, one caller, p50 ("+what+")", c.Round(time.Microsecond).String(), f.Round(time.Microsecond).String(),
		fmt.Sprintf("%.1f", float64(c)/float64(f)), "baseline: write and fsync of 4 KiB")
	var rates []float64
	for range 5 {
		rates = append(rates, crowd(k))
	}
	perSecond := float64(time.Second) / float64(f)
	row("durable Do, 64 callers, calls a second ("+what+")", fmt.Sprintf("%.0f", median(rates)), fmt.Sprintf("%.0f", perSecond),
		fmt.Sprintf("%.1f", median(rates)/perSecond), ">= 30000 (baseline: fsyncs a second)")
	if err := lg.Close(); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}
}

// crowd is how many calls a second 64 processes make for a second.
func crowd(k *kernel.Kernel) float64 {
	var pids []abi.Pid
	for range 64 {
		pids = append(pids, spawn(k, ""))
	}
	var total atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for _, pid := range pids {
		wg.Go(func() {
			for i := 0; time.Since(start) < time.Second; i++ {
				if r := k.Do(context.Background(), abi.Call{Pid: pid, N: uint64(i + 1), Row: "act", Args: args[i%64]}); r.Err != nil {
					log.Fatal(r.Err)
				}
				total.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(total.Load()) / time.Since(start).Seconds()
}

// parked spawns processes that wait for nothing but to be started.
func parked() {
	const many = 100_000
	k, _ := open(journal.Nowhere, journal.Lease{}, table(false))
	goroutines := runtime.NumGoroutine()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range many {
		must(k.Spawn(context.Background(), kernel.Spawning{Spawn: abi.Spawn{Name: "parked", Limits: limited(), Rows: rows},
			Program: program, Task: []byte("wait until you are wanted")}))
	}
	each := time.Since(start) / many
	runtime.GC()
	runtime.ReadMemStats(&after)
	row(fmt.Sprintf("parked processes at %d, bytes each", many), fmt.Sprintf("%d", (after.HeapAlloc-before.HeapAlloc)/many), "", "", "<= 1500")
	row("  time to spawn one", each.String(), "", "", "")
	row("  goroutines for all of them", fmt.Sprint(runtime.NumGoroutine()-goroutines), "", "", "0")
	runtime.KeepAlive(k)
}

var (
	rows    = []string{"act", "spawn"}
	program = make([]byte, 2000)
)

// recovery folds the journal of a process of 10,000 steps, each a model call
// and a tool call with an intent and an answer.
func recovery(dir string) {
	const steps = 10_000
	dir = filepath.Join(must(os.MkdirTemp(dir, "")), "data")
	s, l, err := journal.OpenSQLite(dir)
	if err != nil {
		log.Fatal(err)
	}
	t := table(true)
	ask := *t["act"]
	ask.Name, ask.Watch = "model", false
	ask.Plan = func(kernel.View, abi.Call) (kernel.Plan, *abi.Error) {
		return kernel.Plan{Intent: true, Reserve: abi.Usage{abi.Money: 1, abi.Steps: 1, abi.ModelCalls: 1}}, nil
	}
	t["model"] = &ask
	k, lg := open(s, l, t)
	pid := must(k.Spawn(context.Background(), kernel.Spawning{Spawn: abi.Spawn{Rows: []string{"act", "model"}}}))
	for n := uint64(1); n <= 2*steps; n += 64 { // 64 at a time, to get there sooner
		var wg sync.WaitGroup
		for i := n; i < min(n+64, 2*steps+1); i++ {
			wg.Go(func() {
				c := abi.Call{Pid: pid, N: i, Row: "model", Args: args[i%64]}
				if i%2 == 0 {
					c.Row = "act"
				}
				if r := k.Do(context.Background(), c); r.Err != nil {
					log.Fatal(r.Err)
				}
			})
		}
		wg.Wait()
	}
	if err := lg.Close(); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}
	var folds, reads []time.Duration
	for range 7 {
		start := time.Now()
		s, l, err := journal.OpenSQLite(dir)
		if err != nil {
			log.Fatal(err)
		}
		k, lg := open(s, l, t)
		if w := must(k.Where(pid)); w.Next != 2*steps+1 {
			log.Fatalf("the next call is %d", w.Next)
		}
		folds = append(folds, time.Since(start))
		start = time.Now()
		if err := s.Scan(func(*abi.Record) error { return nil }); err != nil {
			log.Fatal(err)
		}
		reads = append(reads, time.Since(start))
		if err := lg.Close(); err != nil {
			log.Fatal(err)
		}
		if err := s.Close(); err != nil {
			log.Fatal(err)
		}
	}
	f, r := median(folds), median(reads)
	row("recovery of a process of 10,000 steps (40,001 records)", f.Round(time.Millisecond).String(), r.Round(time.Millisecond).String(),
		fmt.Sprintf("%.2f", float64(f)/float64(r)), "<= 100ms (baseline: reading and verifying the same records)")
}
