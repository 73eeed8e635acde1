// Command kernel measures the kernel beside its lower bounds, in the same run and in
// turn: a sync of this disk, a bare SQLite transaction, and the unique bytes of a
// conversation.
//
//	go run ./bench/kernel [-dir DIR] [-n ROUNDS]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/schema"
)

func main() {
	dir := flag.String("dir", "", "directory on the disk to measure (default: a new one for temporary files)")
	rounds := flag.Int("n", 5, "rounds; the medians of them are printed")
	flag.Parse()
	if err := run(*dir, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
		os.Exit(1)
	}
}

func run(dir string, rounds int) error {
	dir, err := os.MkdirTemp(dir, "kern-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	printRow("what", "measured", "baseline", "ratio", "aim")
	for _, step := range []func(string, int) error{measureNoop, measureLedger, measureDurable, measureParked, measureRecovery, measureConversation} {
		sub, err := os.MkdirTemp(dir, "")
		if err != nil {
			return err
		}
		if err := step(sub, rounds); err != nil {
			return err
		}
	}
	return nil
}

func printRow(what, measured, baseline, ratio, aim string) {
	fmt.Printf("%-44s | %18s | %28s | %7s | %s\n", what, measured, baseline, ratio, aim)
}

func median[T int | int64 | float64 | time.Duration](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

// hop is a store that takes no time, behind the goroutine of the committer.
// [journal.Nowhere] has no such goroutine.
type hop struct{ journal.Store }

var use = abi.Usage{abi.ToolCalls: 1}

func rows() (kernel.Table, error) {
	s, err := schema.Compile([]byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`))
	if err != nil {
		return nil, err
	}
	value := json.RawMessage(`{"done":true}`)
	done := func(context.Context, *kernel.Job) kernel.Done { return kernel.Done{Value: value, Usage: use} }
	return kernel.Table{
		"noop": {Name: "noop", Schema: s, Watch: true, Instant: true, Run: done,
			Plan: func(kernel.View, abi.Call) (kernel.Plan, *abi.Error) { return kernel.Plan{Reserve: use}, nil }},
		"effect": {Name: "effect", Schema: s, Run: done,
			Plan: func(kernel.View, abi.Call) (kernel.Plan, *abi.Error) {
				return kernel.Plan{Effect: abi.Irreversible, Intent: true, Reserve: use}, nil
			}},
		"step": {Name: "step", Schema: s, Run: done,
			Plan: func(kernel.View, abi.Call) (kernel.Plan, *abi.Error) {
				return kernel.Plan{Effect: abi.Irreversible, Intent: true, Reserve: abi.Usage{abi.ToolCalls: 1, abi.Steps: 1, abi.ModelCalls: 1}}, nil
			}},
		"spawn": {Name: "spawn", Plan: func(kernel.View, abi.Call) (kernel.Plan, *abi.Error) {
			return kernel.Plan{Effect: abi.Idempotent, Child: true, Reserve: abi.Usage{abi.Children: 1}}, nil
		}, Run: func(_ context.Context, j *kernel.Job) kernel.Done {
			s := kernel.Spawning{}
			s.Limits, s.Rows = limits(), granted
			pid, e := j.Spawn(s)
			return kernel.Done{Value: fmt.Append(nil, pid), Err: e}
		}},
		"model": {Name: "model", Plan: func(_ kernel.View, c abi.Call) (kernel.Plan, *abi.Error) {
			return kernel.Plan{Effect: abi.Irreversible, Intent: true, Reserve: abi.Usage{abi.Money: 1000, abi.ModelCalls: 1, abi.Steps: 1, abi.Tokens: 1000}}, nil
		}, Run: func(_ context.Context, j *kernel.Job) kernel.Done {
			return kernel.Done{Value: uniqueText(j.Call.N), Usage: j.Plan.Reserve}
		}},
		"tool": {Name: "tool", Watch: true, Plan: func(_ kernel.View, c abi.Call) (kernel.Plan, *abi.Error) {
			return kernel.Plan{Effect: abi.Irreversible, Intent: true, Tool: "read", Subject: fmt.Append(nil, c.N), Reserve: use}, nil
		}, Run: func(_ context.Context, j *kernel.Job) kernel.Done {
			return kernel.Done{Value: uniqueText(j.Call.N), Usage: use}
		}},
	}, nil
}

var granted = []string{"noop", "effect", "step", "spawn", "model", "tool"}

func limits() (l abi.Limits) {
	l.Set(abi.ToolCalls, 1<<40)
	l.Set(abi.Money, 1<<60)
	return l
}

// bench is a kernel on a store.
type bench struct {
	*kernel.Kernel
	log   *journal.Log
	store journal.Store
}

func open(s journal.Store, l journal.Lease) (*bench, error) {
	t, err := rows()
	if err != nil {
		return nil, err
	}
	m := &bench{log: journal.NewLog(s, l), store: s}
	m.Kernel, err = kernel.New(kernel.Config{Store: s, Log: m.log, Rows: t})
	return m, err
}

func (m *bench) close() error {
	if err := m.log.Close(); err != nil {
		return err
	}
	return m.store.Close()
}

// spawnDeep starts a process whose usage is booked on four accounts: its own, its
// parent's, its team's and the root.
func (m *bench) spawnDeep() (abi.Pid, error) {
	ctx := context.Background()
	if err := m.SetAccount(ctx, "team", abi.Edit{Limits: limits(), By: "bench"}); err != nil {
		return 0, err
	}
	s := kernel.Spawning{}
	s.Account, s.Limits, s.Rows = "team", limits(), granted
	pid, err := m.Spawn(ctx, s)
	if err != nil {
		return 0, err
	}
	if r := m.Do(ctx, abi.Call{Pid: pid, N: 1, Row: "spawn"}); r.Err != nil {
		return 0, r.Err
	}
	return pid + 1, nil
}

func (m *bench) call(pid abi.Pid, n uint64, row string) error {
	if r := m.Do(context.Background(), abi.Call{Pid: pid, N: n, Row: row, Args: fmt.Appendf(nil, `{"n":%d}`, n)}); r.Err != nil {
		return r.Err
	}
	return nil
}

// measureNoop measures the whole path of a call that does nothing: grants, schema,
// watchdog, limits on four accounts, and a record. Without a store it measures the
// kernel alone. A store that takes no time adds the way to the committer and back.
func measureNoop(_ string, rounds int) error {
	const calls = 50_000
	args := make([]json.RawMessage, calls*rounds+1)
	for i := range args {
		args[i] = fmt.Appendf(nil, `{"n":%d}`, i)
	}
	for _, store := range []journal.Store{journal.Nowhere, hop{journal.Nowhere}} {
		m, err := open(store, journal.Lease{})
		if err != nil {
			return err
		}
		pid, err := m.spawnDeep()
		if err != nil {
			return err
		}
		var p50, put []time.Duration
		var allocs, bytes []float64
		each := make([]time.Duration, calls)
		for round := range rounds {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range each {
				n := round*calls + i + 1
				start := time.Now()
				r := m.Do(context.Background(), abi.Call{Pid: pid, N: uint64(n), Row: "noop", Args: args[n]})
				each[i] = time.Since(start)
				if r.Err != nil {
					return r.Err
				}
			}
			runtime.ReadMemStats(&after)
			p50 = append(p50, median(each))
			allocs = append(allocs, float64(after.Mallocs-before.Mallocs)/calls)
			bytes = append(bytes, float64(after.TotalAlloc-before.TotalAlloc)/calls)
			log := journal.NewLog(store, journal.Lease{})
			rec := storetest.Began(1, 1, 1)
			for i := range each {
				start := time.Now()
				if err := log.Put(&rec).Wait(context.Background()); err != nil {
					return err
				}
				each[i] = time.Since(start)
			}
			put = append(put, median(each))
			if err := log.Close(); err != nil {
				return err
			}
		}
		what, aim := "Do of a no-op row, 4 accounts, p50", "<= 2us"
		if store != journal.Nowhere {
			what, aim = "the same, and to the committer and back", ""
		}
		a, b := median(p50), median(put)
		printRow(what, a.String(), "Put and Wait alone "+b.String(), ratio(float64(a), float64(b)), aim)
		if aim != "" {
			printRow("allocations of it", fmt.Sprintf("%.1f", median(allocs)), fmt.Sprintf("%.0f bytes", median(bytes)), "", "0-2")
		}
		if err := m.close(); err != nil {
			return err
		}
	}
	return nil
}

func ratio(a, b float64) string { return fmt.Sprintf("%.2fx", a/b) }

// measureLedger runs the benchmark of the ledger.
func measureLedger(string, int) error {
	out, err := exec.Command("go", "test", "-run", "^$", "-bench", "ReserveSettle", "-count", "5", "github.com/kern-run/kern/internal/kernel").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	var all []float64
	for _, f := range regexp.MustCompile(`BenchmarkReserveSettle\S*\s+\d+\s+([0-9.]+) ns/op`).FindAllSubmatch(out, -1) {
		ns, err := strconv.ParseFloat(string(f[1]), 64)
		if err != nil {
			return err
		}
		all = append(all, ns)
	}
	if len(all) == 0 {
		return fmt.Errorf("no numbers in\n%s", out)
	}
	printRow("check, hold, reserve and settle, 4 accounts", fmt.Sprintf("%.0f ns", median(all)), "", "", "<= 100ns")
	return nil
}

// measureParked measures the memory of a waiting process: a record and its fold, and
// no goroutine.
func measureParked(_ string, rounds int) error {
	const count = 100_000
	var bytes, each []float64
	for range min(rounds, 3) {
		m, err := open(journal.Nowhere, journal.Lease{})
		if err != nil {
			return err
		}
		program := []byte(strings.Repeat(`{"name":"agent"}`, 8))
		goroutines := runtime.NumGoroutine()
		before := heap()
		start := time.Now()
		for range count {
			s := kernel.Spawning{Program: program, Task: []byte("wait for what comes")}
			s.Limits, s.Rows = limits(), granted
			if _, err := m.Spawn(context.Background(), s); err != nil {
				return err
			}
		}
		each = append(each, time.Since(start).Seconds()/count)
		bytes = append(bytes, float64(heap()-before)/count)
		if n := runtime.NumGoroutine(); n > goroutines {
			return fmt.Errorf("%d goroutines for parked processes", n-goroutines)
		}
		runtime.KeepAlive(m)
		if err := m.close(); err != nil {
			return err
		}
	}
	printRow("a parked process, at 100,000", fmt.Sprintf("%.0f bytes", median(bytes)), time.Duration(median(each)*1e9).String()+" to spawn", "", "<= 1536 bytes")
	return nil
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// measureRecovery opens a kernel on the journal of one process of 10,000 steps. Each
// step is a model call and a call with an effect, of two records each.
func measureRecovery(dir string, rounds int) error {
	const steps = 10_000
	s, l, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	m, err := open(s, l)
	if err != nil {
		return err
	}
	pid, err := m.spawnDeep()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make(chan error, 64)
	for c := range uint64(64) {
		all.Go(func() {
			for n := c + 1; n <= 2*steps; n += 64 {
				row := "effect"
				if n%2 == 0 {
					row = "step"
				}
				if err := m.call(pid, n, row); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	if err := m.close(); err != nil {
		return err
	}
	if len(errs) > 0 {
		return <-errs
	}
	var scan, fold []time.Duration
	for range rounds {
		if s, l, err = sqlite.Open(dir); err != nil {
			return err
		}
		start := time.Now()
		if m, err = open(s, l); err != nil {
			return err
		}
		fold = append(fold, time.Since(start))
		start = time.Now()
		if err := s.Scan(func(*abi.Record) error { return nil }); err != nil {
			return err
		}
		scan = append(scan, time.Since(start))
		if i, err := m.Processes().Info(pid); err != nil || i.Steps != steps {
			return fmt.Errorf("it came back with %v %v", i.Used, err)
		}
		if err := m.close(); err != nil {
			return err
		}
	}
	a, b := median(fold), median(scan)
	printRow("recovery of 10,000 steps (40,001 records)", a.String(), "reading them alone "+b.String(), ratio(float64(a), float64(b)), "<= 100ms")
	return nil
}

// uniqueText returns a text of about a hundred tokens that occurs once, so that it can
// be neither shared nor compressed by the texts before it.
func uniqueText(n uint64) json.RawMessage {
	r := rand.New(rand.NewPCG(n, 7))
	words := make([]string, 80)
	for i := range words {
		words[i] = vocabulary[r.IntN(len(vocabulary))]
	}
	b, err := json.Marshal(strings.Join(words, " "))
	if err != nil {
		panic(err)
	}
	return b
}

var vocabulary = strings.Fields(`the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one
	you were her all she there would their we him been has when who will more no if out so said what up its about into than them can only other
	new some could time these two may then do first any my now such like our over man me even most made after also did many before must through
	record journal kernel process account limit reserve settle commit answer effect signal memory page tool model child parent`)

// measureConversation is scenario 36 through the kernel: a thousand rounds of a model
// call and a tool call, 209,000 tokens, compared with their unique bytes.
func measureConversation(dir string, _ int) error {
	s, l, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	m, err := open(s, l)
	if err != nil {
		return err
	}
	sp := kernel.Spawning{Task: []byte("converse")}
	sp.Limits, sp.Rows = limits(), granted
	pid, err := m.Spawn(context.Background(), sp)
	if err != nil {
		return err
	}
	unique := 0
	for n := uint64(1); n <= 2000; n++ {
		c := abi.Call{Pid: pid, N: n, Row: "model"}
		if n%2 == 0 {
			c.Row, c.For = "tool", fmt.Sprintf("call_%d_0", n/2)
		}
		r := m.Do(context.Background(), c)
		if r.Err != nil {
			return r.Err
		}
		unique += len(r.Value)
	}
	if err := m.close(); err != nil {
		return err
	}
	size := int64(0)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			return err
		}
		size += st.Size()
	}
	printRow("journal of scenario 36, prose", fmt.Sprintf("%d KiB", size>>10), fmt.Sprintf("unique %d KiB", unique>>10), ratio(float64(size), float64(unique)), "< 1.2x")
	return nil
}
