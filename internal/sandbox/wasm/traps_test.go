package wasm

// What was broken on purpose, and the test that was seen to fail:
//
//	sleep does not look at the end            TestTrapSelectOutlivedItsLimit
//	tick does not look at the end             TestConformance/Limits/loop
//	tick does not count processor time        TestConformance/Limits
//	Stop leaves the descriptors open          TestTrapDescriptorsLeftOpen
//	a later end overwrites the cause          TestTrapKillAndEndRace
//	reset skips pages outside of hot          TestTrapInstanceIsTheImageAgain
//	reset skips the pages of hot              TestTrapInstanceIsTheImageAgain
//	the image is not sealed against writing   TestTrapImageIsSealed
//	the quota of bytes is not asked           TestTrapQuotaWhileWriting
//	a removed file that is open is not held   TestTrapQuotaWhileWriting
//	the workspace is opened at "/"            TestTrapDirMountIsNoJail
//	output is not cut                         TestConformance/Limits
//	memory grows past its limit               TestConformance/Limits
//	a function is waited for after the end    TestConformance/Functions
//	fill makes instances beside idle ones     TestScenario29StockingUp
//	copies are not counted                    TestTrapLargeCopies
//
// One survives, as another check stands behind it: an instance that was
// stopped is also not reset because its stack pointer is not where it began.

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// fresh makes a Backend of a test's own.
func fresh(t testing.TB, c Config) *Backend {
	t.Helper()
	c.CacheDir = cacheDir
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func exec(t testing.TB, b *Backend, code string, l sandbox.Limits) sandbox.Outcome {
	t.Helper()
	out, err := b.Run(context.Background(), sandbox.Spec{Code: code, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func expect(t testing.TB, out sandbox.Outcome, c sandbox.Cause, stdout string) {
	t.Helper()
	if out.Cause != c || string(out.Stdout) != stdout {
		t.Fatalf("%s with %q, want %s with %q; stderr %.800s", out.Cause, out.Stdout, c, stdout, out.Stderr)
	}
}

// An instance that loops must not hold the collector, nor anybody else.
func TestTrapCodeCannotBePreempted(t *testing.T) {
	begun := make(chan struct{}, 4)
	mark := sandbox.Function{Namespace: "t", Name: "begun", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		begun <- struct{}{}
		return nil, nil
	}}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, code := range []string{"while True: pass", "x = 10**(10**8)", "import re\nre.match(r'(a+)+b', 'a' * 60)", "sum(range(10**12))"} {
		wg.Go(func() {
			out, err := common.Run(ctx, sandbox.Spec{
				Code: "from tools.t import begun\nbegun()\n" + code, Functions: []sandbox.Function{mark},
				Limits: sandbox.Limits{Wall: 10 * time.Minute, CPU: 10 * time.Minute},
			})
			if err != nil || out.Cause != sandbox.Killed {
				t.Errorf("%.20q: %s, %v; want killed", code, out.Cause, err)
			}
		})
	}
	for range 4 {
		<-begun
	}
	for range 10 {
		from := time.Now()
		runtime.GC()
		if d := time.Since(from); d > soon {
			t.Errorf("a collection took %v while guests loop", d)
		}
	}
	from := time.Now()
	stop()
	wg.Wait()
	if d := time.Since(from); d > soon {
		t.Errorf("the guests ended %v after the kill", d)
	}
}

// One instruction may copy all of the memory: a loop of such is stopped, and
// lets the collector in, like any other.
func TestTrapLargeCopies(t *testing.T) {
	before := stopTheWorld()
	begun := &counted{}
	ended := make(chan sandbox.Outcome, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		out, _ := common.Run(ctx, sandbox.Spec{Code: "b = bytearray(60 << 20)\nprint(1)\nwhile True: b[:] = bytes(60 << 20)", Stdout: begun,
			Limits: sandbox.Limits{Wall: 10 * time.Minute, CPU: 10 * time.Minute}})
		ended <- out
	}()
	for end := time.Now().Add(20 * time.Second); begun.lines() == 0 && time.Now().Before(end); runtime.Gosched() {
	}
	for range 3 {
		runtime.GC()
	}
	if w := worstPause(before, stopTheWorld()); w > soon {
		t.Errorf("the collector stopped the world for %v", w)
	}
	from := time.Now()
	stop()
	if out := <-ended; out.Cause != sandbox.Killed || time.Since(from) > soon {
		t.Errorf("%s %v after the kill", out.Cause, time.Since(from))
	}
}

func TestTrapSelectOutlivedItsLimit(t *testing.T) {
	for _, code := range []string{
		"import select\nselect.select([], [], [], 60)",
		"import time\ntime.sleep(60)",
		"import asyncio\nasyncio.run(asyncio.sleep(60))",
		"import selectors, time\nwhile True: time.sleep(0.001)",
	} {
		out := exec(t, common, code, sandbox.Limits{Wall: 300 * time.Millisecond})
		expect(t, out, sandbox.Timeout, "")
		if out.Usage.Wall > soon {
			t.Errorf("%q ended after %v of 300ms", code, out.Usage.Wall)
		}
		if out.Usage.CPU > 200*time.Millisecond && !strings.Contains(code, "while") {
			t.Errorf("%q: %v of processor time for waiting", code, out.Usage.CPU)
		}
	}
}

func TestTrapRandomStateIsInTheImage(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		out := exec(t, common, "import random\nprint(random.random())", sandbox.Limits{})
		if out.Cause != sandbox.OK || seen[string(out.Stdout)] {
			t.Fatalf("%s: the number %s came twice", out.Cause, out.Stdout)
		}
		seen[string(out.Stdout)] = true
	}
	// The seed of string hashes is the image's too: it orders sets, the same
	// in every run, and says nothing of the host.
	order := "print(list({'a', 'b', 'c', 'd', 'e'}), hash('kern'))"
	a, b := exec(t, common, order, sandbox.Limits{}), exec(t, common, order, sandbox.Limits{})
	expect(t, a, sandbox.OK, string(b.Stdout))
}

func TestTrapBlockBufferedOutputIsLost(t *testing.T) {
	code := "import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')\nwhile True: pass"
	out := exec(t, common, code, sandbox.Limits{Wall: 2 * time.Second})
	expect(t, out, sandbox.Timeout, "one\nthree\n")
	if string(out.Stderr) != "two\n" {
		t.Errorf("stderr %q", out.Stderr)
	}
}

func TestTrapDescriptorsLeftOpen(t *testing.T) {
	b := fresh(t, Config{MaxInstances: 1, Warm: 1})
	before := descriptors(t)
	for range 5 {
		out := exec(t, b, "keep = [open(f'f{i}', 'w') for i in range(30)]\nimport os\nd = os.open('.', os.O_RDONLY)\nprint(keep[0].fileno(), d)", sandbox.Limits{})
		expect(t, out, sandbox.OK, "4 34\n")
		out = exec(t, b, "open('f', 'w').close()\nwhile True: open('f')", sandbox.Limits{Wall: 100 * time.Millisecond})
		expect(t, out, sandbox.Timeout, "")
	}
	expect(t, exec(t, b, "try:\n  k = [open('f%d' % i, 'w') for i in range(200)]\nexcept OSError as e: print(e.errno)", sandbox.Limits{}), sandbox.OK, "33\n")
	settle(t, b)
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here to count descriptors in")
	}
	return len(l)
}

// settle waits until the pool has done what it does behind the back of runs.
func settle(t testing.TB, b *Backend) {
	t.Helper()
	for end := time.Now().Add(soon); len(b.pool.slots) > 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the pool is busy")
		}
	}
}

// The timer and the program's own end may meet: there is one cause, and an
// instance that was told to stop is never used again.
func TestTrapKillAndEndRace(t *testing.T) {
	for i := range 150 {
		wall := time.Duration(2+i%6) * time.Millisecond
		out := exec(t, common, "import time\ntime.sleep(0.003)\nprint('end')", sandbox.Limits{Wall: wall})
		switch {
		case out.Cause == sandbox.OK && string(out.Stdout) == "end\n":
		case out.Cause == sandbox.Timeout && (len(out.Stdout) == 0 || string(out.Stdout) == "end\n"):
		default:
			t.Fatalf("%s with %q %q", out.Cause, out.Stdout, out.Stderr)
		}
	}
	l := newLife()
	var wg sync.WaitGroup
	for _, c := range []sandbox.Cause{sandbox.Timeout, sandbox.Killed, sandbox.Output} {
		wg.Go(func() { l.end(c) })
	}
	wg.Wait()
	first := l.settle(sandbox.OK)
	if first == sandbox.OK || l.settle(sandbox.Failed) != first {
		t.Errorf("the cause %s did not stand", first)
	}
}

// After a run an instance is the image to the byte, whatever was written where.
func TestTrapInstanceIsTheImageAgain(t *testing.T) {
	in, err := common.pool.take(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer common.pool.give(in)
	image := snapshotOf(in)
	for _, code := range []string{"print(1)", "x = [bytes([i % 256]) * 50_000 for i in range(60)]", "import http.server, pydoc, json\njson.x = 1", "1/0"} {
		s := sandbox.Spec{Code: code, Limits: sandbox.DefaultLimits}
		if _, err := in.once(context.Background(), &s); err != nil {
			t.Fatal(err)
		}
		if string(snapshotOf(in)) == string(image) {
			t.Fatalf("%q left no trace: this test sees nothing", code)
		}
		if !in.reset() {
			t.Fatalf("%q: not put back", code)
		}
		if string(snapshotOf(in)) != string(image) {
			t.Fatalf("%q: the memory is not the image", code)
		}
	}
}

func snapshotOf(in *instance) []byte {
	b, _ := in.mod.Memory().Read(0, in.mod.Memory().Size())
	return append([]byte(nil), b...)
}

func TestTrapQuotaWhileWriting(t *testing.T) {
	dir := t.TempDir()
	code := "f = open('f', 'wb', buffering=0)\ntry:\n  while True: f.write(bytes(1000))\nexcept OSError as e: print(e.errno, f.tell())\n" +
		"import os\nos.remove('f')\ntry:\n  g = open('g', 'wb', buffering=0)\n  g.write(bytes(5000))\nexcept OSError as e: print('held by the open file')\nf.close(); print(open('h', 'wb').write(bytes(9999)))"
	out, err := common.Run(context.Background(), sandbox.Spec{Code: code, Dir: dir, Limits: sandbox.Limits{FileBytes: 10_000}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, out, sandbox.OK, "51 10000\nheld by the open file\n9999\n")
}

// What ends every run in its time or as an error of its own.
func TestTrapTableOfEnds(t *testing.T) {
	for name, c := range map[string]struct {
		code   string
		causes string
	}{
		"_exit":            {"import os\nos._exit(3)", "failed"},
		"abort":            {"import os\nos.abort()", "failed"},
		"C recursion":      {"x = []\nfor i in range(100_000): x = [x]\nrepr(x)", "failed"},
		"deep recursion":   {"import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1)\nf(0)", "timeout memory failed"},
		"parser":           {"eval('(' * 5000 + ')' * 5000)", "failed"},
		"unary":            {"eval('-' * 200_000 + '1')", "failed"},
		"json":             {"import json\njson.loads('[' * 200_000)", "failed"},
		"regex":            {"import re\nre.match(r'(a+)+b', 'a' * 60)", "timeout"},
		"big power":        {"x = 10**(10**8)", "timeout"},
		"big text":         {"import sys\nsys.set_int_max_str_digits(0)\nlen(str(7**3000000))", "timeout"},
		"repeat":           {"import collections, itertools\ncollections.deque(itertools.repeat(1), maxlen=0)", "timeout"},
		"sum":              {"sum(range(10**12))", "timeout"},
		"sort":             {"import random\nx = [random.random() for i in range(10**6)]\nwhile True: x.sort(); x.reverse(); x.append(1)", "timeout memory"},
		"lock":             {"import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", "timeout failed"},
		"queue":            {"import queue\nqueue.Queue().get()", "timeout failed"},
		"event":            {"import threading\nthreading.Event().wait()", "timeout failed"},
		"join":             {"import threading\nthreading.Thread(target=print).start()", "failed"},
		"memory in parts":  {"a = []\nwhile True: a.append('x' * 10**6)", "memory"},
		"zip bomb":         {"import zlib\nb = zlib.compress(bytes(1 << 27))\nwhile True: b = b + zlib.decompress(b[:0] + zlib.compress(bytes(1 << 27)))", "timeout memory"},
		"finally":          {"while True:\n  try:\n    while True: pass\n  finally: continue", "timeout failed"},
		"signal":           {"import signal\nsignal.pause()", "failed"},
		"many files":       {"while True: open('f', 'w').close()", "timeout"},
		"many lists":       {"import os\nwhile True: os.listdir('/usr/lib/python3.13')", "timeout"},
		"random":           {"import os\nwhile True: os.urandom(1 << 24)", "timeout"},
		"printing nothing": {"import sys\nwhile True: sys.stdout.write('')", "timeout"},
		"flushing":         {"import sys\nwhile True: sys.stdout.flush()", "timeout"},
		"clock":            {"import time\nwhile True: time.time()", "timeout"},
		"gc":               {"import gc\nwhile True: gc.collect()", "timeout"},
		"import loop":      {"import importlib, json\nwhile True: importlib.reload(json)", "timeout"},
		"compile":          {"while True: compile('x = 1\\n' * 20000, 'a', 'exec')", "timeout memory"},
		"describe":         {"import _kern\nwhile True: _kern.call(-1, '')", "timeout"},
		"hash of a tuple":  {"t = ()\nfor i in range(60): t = (t, t)\nhash(t)", "timeout"},
		"compare of lists": {"a, b = [], []\nfor i in range(60): a, b = [a, a], [b, b]\na == b", "timeout"},
		"copy of a tangle": {"import copy\na = []\nfor i in range(60): a = [a, a]\nrepr(a)", "timeout memory"},
		"long text search": {"('a' * 10**7).find('a' * (5 * 10**6) + 'b')\nwhile True: ('ab' * 10**6).count('ba' * 1000)", "timeout"},
		"memory moved":     {"b = bytearray(60 << 20)\nwhile True: b[:] = bytes(60 << 20)", "timeout memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := sandbox.Limits{Wall: 30 * time.Second}
			if strings.HasPrefix(c.causes, "timeout") {
				l.Wall = 600 * time.Millisecond
			}
			out := exec(t, common, c.code, l)
			if !strings.Contains(c.causes, string(out.Cause)) {
				t.Errorf("%s, want %s: %.300s %.500s", out.Cause, c.causes, out.Stdout, out.Stderr)
			}
			if out.Usage.Wall > l.Wall+soon {
				t.Errorf("it ended after %v of %v", out.Usage.Wall, l.Wall)
			}
		})
	}
}

// While 100 instances spin, the process goes on living.
func TestResponsiveWhileInstancesSpin(t *testing.T) {
	b := fresh(t, Config{MaxInstances: 100, Warm: 1})
	ctx, stop := context.WithCancel(context.Background())
	var wg, ready sync.WaitGroup
	ready.Add(100)
	mark := sandbox.Function{Namespace: "t", Name: "begun", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		ready.Done()
		return nil, nil
	}}
	for range 100 {
		wg.Go(func() {
			out, err := b.Run(ctx, sandbox.Spec{Code: "from tools.t import begun\nbegun()\nwhile True: pass",
				Functions: []sandbox.Function{mark}, Limits: sandbox.Limits{Wall: 10 * time.Minute, CPU: 10 * time.Minute}})
			if err != nil || out.Cause != sandbox.Killed {
				t.Errorf("%s, %v; want killed", out.Cause, err)
			}
		})
	}
	ready.Wait()
	before := stopTheWorld()
	for range 5 {
		runtime.GC()
	}
	worst := worstPause(before, stopTheWorld())
	t.Logf("worst pause of the collector while 100 instances spin: %v", worst)
	if worst > soon {
		t.Errorf("the collector stopped the world for %v", worst)
	}
	from := time.Now()
	stop()
	wg.Wait()
	if d := time.Since(from); d > soon {
		t.Errorf("100 instances ended %v after the kill", d)
	}
}

func stopTheWorld() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

// worstPause is the upper edge of the last bucket that grew.
func worstPause(before, after *metrics.Float64Histogram) time.Duration {
	for i := len(after.Counts) - 1; i >= 0; i-- {
		if after.Counts[i] > before.Counts[i] {
			return time.Duration(after.Buckets[i] * float64(time.Second))
		}
	}
	return 0
}
