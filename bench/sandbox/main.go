// Command sandbox measures the wasm sandbox beside the aims it was given, with
// native Python in the same run:
//
//	go run ./bench/sandbox
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/wasm"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "kern-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s/%s, %d processors, %s\n\n%-52s %12s %12s %12s %10s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), "", "p50", "p99", "aim", "native/p50")
	for _, f := range []func(string) error{native, baselines, starts, single, hostCalls, throughput, blocked, overshoot, responsive, size} {
		if err := f(dir); err != nil {
			return err
		}
	}
	return nil
}

var nativePython time.Duration

// row prints one row of the table.
func row(name string, d []time.Duration, aim string) {
	slices.Sort(d)
	p50, p99 := d[len(d)/2], d[len(d)*99/100]
	ratio := ""
	if nativePython > 0 {
		ratio = fmt.Sprintf("%.1fx", float64(nativePython)/float64(p50))
	}
	fmt.Printf("%-52s %12v %12v %12s %10s\n", name, round(p50), round(p99), aim, ratio)
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Microsecond {
		return d
	}
	return d.Round(time.Microsecond)
}

func line(name, value, aim string) { fmt.Printf("%-52s %12s %12s %12s\n", name, value, "", aim) }

func timed(n int, f func() error) ([]time.Duration, error) {
	d := make([]time.Duration, 0, n)
	for range n {
		from := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		d = append(d, time.Since(from))
	}
	return d, nil
}

func native(string) error {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		line("native python3", "not here", "")
		return nil
	}
	d, err := timed(40, func() error { return exec.Command(python, "-I", "-c", "print(1)").Run() })
	if err != nil {
		return err
	}
	row("native: python3 -I -c 'print(1)'", d, "")
	nativePython = d[len(d)/2]
	return nil
}

// baselines measures peers that are installed.
func baselines(string) error {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		line("bubblewrap", "not here", "")
		return nil
	}
	d, err := timed(40, func() error {
		return exec.Command(bwrap, "--ro-bind", "/", "/", "--unshare-all", "/usr/bin/python3", "-I", "-c", "print(1)").Run()
	})
	if err != nil {
		line("bubblewrap", "fails here", "")
		return nil
	}
	row("bubblewrap: python3 -I -c 'print(1)'", d, "")
	return nil
}

func starts(dir string) error {
	for _, s := range []struct {
		name, aim string
		n         int
	}{{"engine, cold compile cache", "", 1}, {"engine, warm compile cache", "100ms", 7}} {
		d, err := timed(s.n, func() error {
			b, err := wasm.New(wasm.Config{CacheDir: dir, Warm: -1})
			if err != nil {
				return err
			}
			return b.Close()
		})
		if err != nil {
			return err
		}
		row(s.name, d, s.aim)
	}
	return nil
}

var printOne = sandbox.Spec{Code: "print(1)"}

func once(b sandbox.Backend, s sandbox.Spec) error {
	out, err := b.Run(context.Background(), s)
	if err == nil && out.Cause != sandbox.OK {
		err = fmt.Errorf("%s: %s", out.Cause, out.Stderr)
	}
	return err
}

func single(dir string) error {
	for _, s := range []struct {
		name, aim string
		warm      int
	}{{"new instance to finished print", "1ms / 2ms", -1}, {"from the warm pool", "250us", 2}} {
		b, err := wasm.New(wasm.Config{CacheDir: dir, Warm: s.warm})
		if err != nil {
			return err
		}
		var d []time.Duration
		for range 1000 {
			time.Sleep(500 * time.Microsecond) // the pool stocks up off the critical path
			one, e := timed(1, func() error { return once(b, printOne) })
			d, err = append(d, one...), errors.Join(err, e)
		}
		if err := errors.Join(err, b.Close()); err != nil {
			return err
		}
		row(s.name, d, s.aim)
	}
	return nil
}

func hostCalls(dir string) error {
	b, err := wasm.New(wasm.Config{CacheDir: dir})
	if err != nil {
		return err
	}
	defer b.Close()
	add := sandbox.Function{Namespace: "t", Name: "add", Params: []sandbox.Param{{Name: "a", Type: "int"}, {Name: "b", Type: "list"}},
		Call: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
			var in struct {
				A int
				B []string
			}
			if err := json.Unmarshal(args, &in); err != nil {
				return nil, err
			}
			return json.Marshal(map[string]any{"sum": in.A, "list": in.B})
		}}
	out, err := b.Run(context.Background(), sandbox.Spec{Code: hostCallCode, Functions: []sandbox.Function{add, {Namespace: "t", Name: "null",
		Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }}}, Limits: sandbox.Limits{Wall: time.Minute, CPU: time.Minute}})
	if err != nil || out.Cause != sandbox.OK {
		return fmt.Errorf("%v %s %s", err, out.Cause, out.Stderr)
	}
	var clock, raw, typed float64
	if _, err := fmt.Sscan(string(out.Stdout), &clock, &raw, &typed); err != nil {
		return err
	}
	line("clock read by the program", time.Duration(clock).String(), "")
	line("function of the host, raw", time.Duration(raw).String(), "2us")
	line("function of the host, JSON both ways", time.Duration(typed).String(), "40us")
	return nil
}

const hostCallCode = `
import time, _kern
from tools.t import add
def measure(f, n):
    runs = []
    for _ in range(9):
        a = time.perf_counter_ns()
        for _ in range(n): f()
        runs.append((time.perf_counter_ns() - a) / n)
    return sorted(runs)[4]
nothing = measure(lambda: None, 5000)
print(measure(time.time_ns, 5000), measure(lambda: _kern.call(1, "{}"), 5000) - nothing, measure(lambda: add(1, ["a", "b", "c"]), 2000) - nothing)
`

func throughput(dir string) error {
	all := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(all)
	var one float64
	for _, procs := range []int{1, 2} {
		if procs > all {
			break
		}
		runtime.GOMAXPROCS(procs)
		b, err := wasm.New(wasm.Config{CacheDir: dir, Warm: 2 * procs})
		if err != nil {
			return err
		}
		const runs = 2000
		var wg sync.WaitGroup
		errs := make([]error, 2*procs)
		from := time.Now()
		for w := range errs {
			wg.Go(func() {
				for range runs / len(errs) {
					errs[w] = errors.Join(errs[w], once(b, printOne))
				}
			})
		}
		wg.Wait()
		rate := runs / time.Since(from).Seconds()
		if err := errors.Join(append(errs, b.Close())...); err != nil {
			return err
		}
		if procs == 1 {
			one = rate
			line("throughput, one core", fmt.Sprintf("%.0f/s", rate), "")
		} else {
			line("throughput, two cores", fmt.Sprintf("%.0f/s %.2fx", rate, rate/one), "1.8x")
		}
	}
	return nil
}

func blocked(dir string) error {
	const n = 1000
	b, err := wasm.New(wasm.Config{CacheDir: dir, MaxInstances: n, Warm: 1})
	if err != nil {
		return err
	}
	runtime.GC()
	before := anonymous()
	release := make(chan struct{})
	var there, wg sync.WaitGroup
	there.Add(n)
	wait := sandbox.Function{Namespace: "t", Name: "wait", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		there.Done()
		<-release
		return nil, nil
	}}
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			errs[i] = once(b, sandbox.Spec{Code: "from tools.t import wait\nwait()", Functions: []sandbox.Function{wait}, Limits: sandbox.Limits{Wall: time.Minute}})
		})
	}
	there.Wait()
	runtime.GC()
	after := anonymous()
	threads := lines("/proc/self/task")
	close(release)
	wg.Wait()
	line("memory of a blocked instance, at 1,000", fmt.Sprintf("%d KiB", (after-before)/n), "1024 KiB")
	line("threads of the process meanwhile", fmt.Sprint(threads), "")
	return errors.Join(append(errs, b.Close())...)
}

// anonymous returns the memory of this process without files, in KiB.
func anonymous() int {
	b, _ := os.ReadFile("/proc/self/status")
	for l := range strings.Lines(string(b)) {
		var n int
		if k, _ := fmt.Sscanf(l, "RssAnon: %d kB", &n); k == 1 {
			return n
		}
	}
	return 0
}

func lines(dir string) int {
	l, _ := os.ReadDir(dir)
	return len(l)
}

func overshoot(dir string) error {
	b, err := wasm.New(wasm.Config{CacheDir: dir})
	if err != nil {
		return err
	}
	var d []time.Duration
	for _, code := range []string{"while True: pass", "import time\ntime.sleep(9)", "x = 10**(10**8)", "b = bytearray(60 << 20)\nwhile True: b[:] = bytes(60 << 20)", "import re\nre.match(r'(a+)+b', 'a' * 60)"} {
		for range 2 {
			from := time.Now()
			out, e := b.Run(context.Background(), sandbox.Spec{Code: code, Limits: sandbox.Limits{Wall: time.Second}})
			if err = errors.Join(err, e); out.Cause != sandbox.Timeout {
				err = errors.Join(err, fmt.Errorf("%q: %s", code, out.Cause))
			}
			d = append(d, time.Since(from)-time.Second)
		}
	}
	row("overshoot of a limit of 1s (p99: the worst of 10)", d, "20ms")
	return errors.Join(err, b.Close())
}

// responsive measures an unrelated goroutine while 100 instances spin.
func responsive(dir string) error {
	b, err := wasm.New(wasm.Config{CacheDir: dir, MaxInstances: 100})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var there, wg sync.WaitGroup
	there.Add(100)
	mark := sandbox.Function{Namespace: "t", Name: "here", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		there.Done()
		return nil, nil
	}}
	for range 100 {
		wg.Go(func() {
			b.Run(ctx, sandbox.Spec{Code: "from tools.t import here\nhere()\nwhile True: pass", Functions: []sandbox.Function{mark}, Limits: sandbox.Limits{Wall: time.Minute, CPU: time.Minute}})
		})
	}
	there.Wait()
	before := pauses()
	var d []time.Duration
	ping, pong := make(chan struct{}), make(chan struct{})
	go func() {
		for range ping {
			pong <- struct{}{}
		}
	}()
	for i := range 2000 {
		if i%200 == 0 {
			runtime.GC()
		}
		from := time.Now()
		ping <- struct{}{}
		<-pong
		d = append(d, time.Since(from))
		time.Sleep(time.Millisecond)
	}
	close(ping)
	after := pauses()
	stop()
	wg.Wait()
	row("an unrelated call while 100 instances spin", d, "20ms")
	line("worst pause of the collector meanwhile", worst(before, after).String(), "20ms")
	return b.Close()
}

func pauses() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

func worst(before, after *metrics.Float64Histogram) time.Duration {
	for i := len(after.Counts) - 1; i >= 0; i-- {
		if after.Counts[i] > before.Counts[i] {
			return time.Duration(after.Buckets[i] * float64(time.Second))
		}
	}
	return 0
}

func size(dir string) error {
	var n [2]int64
	for i, name := range []string{"without", "with"} {
		bin := filepath.Join(dir, name)
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "github.com/kern-run/kern/bench/sandbox/size/"+name)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return err
		}
		st, err := os.Stat(bin)
		if err != nil {
			return err
		}
		n[i] = st.Size()
	}
	line("growth of a binary", fmt.Sprintf("%.2f MB", float64(n[1]-n[0])/1e6), "12 MB")
	return nil
}
