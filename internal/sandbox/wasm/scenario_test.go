package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// A counted writer tells how many lines came.
type counted struct{ n atomic.Int64 }

func (w *counted) Write(b []byte) (int, error) {
	w.n.Add(int64(bytes.Count(b, []byte("\n"))))
	return len(b), nil
}

func (w *counted) lines() int { return int(w.n.Load()) }

// soon is when a run that is stopped has ended even on a machine that stands
// still now and then; how soon it is on one that does not, bench/sandbox tells.
// What the tests stop would go on for longer than this.
const soon = 15 * time.Second

func TestScenario10ToolSlowerThanItsTimeout(t *testing.T) {
	from := time.Now()
	out := exec(t, common, "import time\ntime.sleep(60)", sandbox.Limits{Wall: 500 * time.Millisecond})
	expect(t, out, sandbox.Timeout, "")
	if d := time.Since(from); d > soon {
		t.Errorf("stopped after %v", d)
	}
}

func TestScenario11WallLimit(t *testing.T) {
	for _, code := range []string{"import time\ntime.sleep(60)", "while True: pass"} {
		from := time.Now()
		expect(t, exec(t, common, code, sandbox.Limits{Wall: time.Second}), sandbox.Timeout, "")
		if d := time.Since(from); d > time.Second+soon {
			t.Errorf("%q: stopped after %v of 1s", code, d)
		}
	}
}

// A kill ends a run at once, and the wait for an instance as well; what the
// code would have done later is not done.
func TestScenario12Kill(t *testing.T) {
	b := fresh(t, Config{MaxInstances: 1})
	dir := t.TempDir()
	begun := make(chan struct{})
	f := sandbox.Function{Namespace: "t", Name: "begun", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		close(begun)
		return nil, nil
	}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan sandbox.Outcome, 1)
	go func() {
		out, _ := b.Run(ctx, sandbox.Spec{
			Code: "from tools.t import begun\nbegun()\nimport time\ntime.sleep(60)\nopen('late', 'w').close()",
			Dir:  dir, Functions: []sandbox.Function{f},
		})
		ended <- out
	}()
	<-begun
	wait, give := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer give()
	out, err := b.Run(wait, sandbox.Spec{Code: "print('ran')"})
	if err == nil || out.Cause != sandbox.Killed || len(out.Stdout) > 0 {
		t.Errorf("waiting for an instance: %+v, %v; want killed", out, err)
	}
	from := time.Now()
	stop()
	if out := <-ended; out.Cause != sandbox.Killed || time.Since(from) > soon {
		t.Errorf("%s after %v, want killed at once", out.Cause, time.Since(from))
	}
	expect(t, exec(t, b, "print('next')", sandbox.Limits{}), sandbox.OK, "next\n")
	if l, err := os.ReadDir(dir); err != nil || len(l) != 0 {
		t.Errorf("left behind: %v, %v", l, err)
	}
}

func TestScenario26OutputComesAsItIsWritten(t *testing.T) {
	w := &counted{}
	said := 0
	come := sandbox.Function{Namespace: "t", Name: "come", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		said++
		for end := time.Now().Add(soon); w.lines() < said; runtime.Gosched() {
			if time.Now().After(end) {
				return nil, fmt.Errorf("line %d has not come, and the program waits", said)
			}
		}
		return nil, nil
	}}
	out, err := common.Run(context.Background(), sandbox.Spec{
		Code: "from tools.t import come\nfor i in range(3):\n  print(i)\n  come()", Stdout: w, Functions: []sandbox.Function{come},
		Limits: sandbox.Limits{Wall: 2 * soon},
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, out, sandbox.OK, "0\n1\n2\n")
	out = exec(t, common, "import sys\nprint('kept')\nsys.exit(3)", sandbox.Limits{})
	if expect(t, out, sandbox.Failed, "kept\n"); out.Exit != 3 {
		t.Errorf("exit %d, want 3", out.Exit)
	}
	out = exec(t, common, "import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()", sandbox.Limits{})
	if expect(t, out, sandbox.OK, ""); !strings.Contains(string(out.Stderr), "ZeroDivisionError") {
		t.Errorf("stderr %q", out.Stderr)
	}
}

func TestScenario27EachStoppedByItsOwnLimit(t *testing.T) {
	for code, want := range map[string]sandbox.Cause{
		"while True: pass":                                                  sandbox.Timeout,
		"import os\nwhile True: os.fork()":                                  sandbox.Failed, // there are no processes
		"b = [bytearray(1 << 20) for i in range(2048)]":                     sandbox.Memory,
		"for i in range(1 << 20): print('x' * 1024)":                        sandbox.Output,
		"open('/etc/passwd', 'w')":                                          sandbox.Failed,
		"import socket\nsocket.create_connection(('127.0.0.1', 80))":        sandbox.Failed,
		"for i in range(100_000): open(f'f{i}', 'w').close()":               sandbox.Files,
		"import threading, json\njson.left = 1\nopen('left', 'w')\nx = 1/0": sandbox.Failed,
	} {
		l := sandbox.Limits{Wall: 30 * time.Second, Files: 500}
		if want == sandbox.Timeout {
			l.Wall = time.Second
		}
		out := exec(t, common, code, l)
		if out.Cause != want {
			t.Errorf("%q: %s, want %s: %.300s", code, out.Cause, want, out.Stderr)
		}
		clean := exec(t, common, "import os, json, sys\nprint(os.listdir('.'), hasattr(json, 'left'), 'x' in globals(), os.listdir('/tmp'))", sandbox.Limits{})
		expect(t, clean, sandbox.OK, "[] False False []\n")
	}
}

func TestScenario29PoolOfThree(t *testing.T) {
	b := fresh(t, Config{MaxInstances: 3, Warm: 3})
	var running, most atomic.Int32
	f := sandbox.Function{Namespace: "t", Name: "here", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		runtime.Gosched()
		return nil, nil
	}}
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			for k := range 20 {
				code := "from tools.t import here\nassert not hasattr(here, 'used')\nhere.used = 1\nhere()\nimport builtins\nassert not hasattr(builtins, 'dirty')\nbuiltins.dirty = 1\nprint('ok')"
				want := sandbox.OK
				switch (i + k) % 5 {
				case 1:
					code, want = code+"\nimport os\nos.abort()", sandbox.Failed
				case 2:
					code, want = code+"\nwhile True: pass", sandbox.Timeout
				}
				out, err := b.Run(context.Background(), sandbox.Spec{Code: code, Functions: []sandbox.Function{f}, Limits: sandbox.Limits{Wall: 100 * time.Millisecond}})
				if err != nil || out.Cause != want && out.Cause != sandbox.Timeout || want == sandbox.OK && out.Cause == sandbox.OK && string(out.Stdout) != "ok\n" {
					t.Errorf("%v %s, want %s: %s", err, out.Cause, want, out.Stderr)
				}
			}
		})
	}
	wg.Wait()
	settle(t, b)
	if n := b.engine.peak.Load(); n > 3 {
		t.Errorf("%d instances at one time, the maximum is 3", n)
	}
	if n := most.Load(); n > 3 || n < 2 {
		t.Errorf("%d runs at one time, want 2 or 3", n)
	}
}

// Nor does the pool make one when it stocks up beside idle ones.
func TestScenario29StockingUp(t *testing.T) {
	b := fresh(t, Config{MaxInstances: 3, Warm: 3})
	settle(t, b)
	for range 20 {
		one, err := b.pool.take(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		two, err := b.pool.take(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		b.pool.fill()
		b.pool.give(one)
		b.pool.give(two)
		settle(t, b)
	}
	if n := b.engine.peak.Load(); n > 3 {
		t.Errorf("%d instances at one time, the maximum is 3", n)
	}
}

// Every nested call is one call of a Function, in order; a denied one is an
// exception that the program can catch.
func TestScenario30NestedCalls(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	tool := func(name string) sandbox.Function {
		return sandbox.Function{Namespace: "shop", Name: name, Params: []sandbox.Param{{Name: "n", Type: "int"}},
			Call: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, name+string(args))
				if name == "buy" && strings.Contains(string(args), "2") {
					return nil, &sandbox.CallError{Code: "limit_money", Message: "no money left", Fields: map[string]any{"limit": "money"}}
				}
				return json.RawMessage(`{"left": 1}`), nil
			}}
	}
	code := `
from tools.shop import look, buy, pack
from tools import ToolError
done = []
for n in range(4):
    if look(n)["left"] and n % 2 == 0:
        try:
            buy(n)
            pack(n=n)
        except ToolError as e:
            print("denied", n, e.code, e.fields["limit"])
            continue
        done.append(n)
print(done)
`
	out, err := common.Run(context.Background(), sandbox.Spec{Code: code, Functions: []sandbox.Function{tool("look"), tool("buy"), tool("pack")}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, out, sandbox.OK, "denied 2 limit_money money\n[0]\n")
	if got, want := strings.Join(calls, " "), `look{"n":0} buy{"n":0} pack{"n":0} look{"n":1} look{"n":2} buy{"n":2} look{"n":3}`; got != want {
		t.Errorf("calls %s\nwant  %s", got, want)
	}
}

func TestScenario32Workspaces(t *testing.T) {
	one, two, outside := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "s"), []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(two, "out")); err != nil {
		t.Fatal(err)
	}
	at := func(dir, code string) sandbox.Outcome {
		out, err := common.Run(context.Background(), sandbox.Spec{Dir: dir, Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	expect(t, at(one, "open('f', 'w').write('one')"), sandbox.OK, "")
	expect(t, at(one, "print(open('f').read())"), sandbox.OK, "one\n")
	expect(t, at(two, "import os\nprint(os.path.exists('f'), os.path.exists('../f'))"), sandbox.OK, "False False\n")
	for _, path := range []string{"../s", "../../" + outside + "/s", outside + "/s", "out/s", "./out/../out/s"} {
		expect(t, at(two, fmt.Sprintf("try: print(open(%q).read())\nexcept OSError: print('refused')", path)), sandbox.OK, "refused\n")
	}
}

func TestProbe(t *testing.T) {
	found, err := common.Probe(context.Background())
	if err != nil || len(found) > 0 {
		t.Errorf("weaknesses %v, %v; want none", found, err)
	}
	for _, lie := range trials { // one limit at a time that does not hold is found and named
		found, err := probe(context.Background(), func(_ context.Context, s sandbox.Spec) (sandbox.Outcome, error) {
			for _, t := range trials {
				if t.code == s.Code && t.name != lie.name && t.limits.CPU == s.Limits.CPU {
					return sandbox.Outcome{Cause: t.want}, nil
				}
			}
			return sandbox.Outcome{Cause: sandbox.OK}, nil
		})
		if err != nil || len(found) != 1 || found[0].Name != lie.name || found[0].Why == "" || found[0].Fix == "" {
			t.Errorf("%s does not hold: found %v, %v", lie.name, found, err)
		}
	}
}

// TestSoak mixes runs that end in every way on a small pool: no wrong answer,
// and no memory that stays. KERN_SOAK=1 makes it 10,000 runs.
func TestSoak(t *testing.T) {
	runs := 400
	if os.Getenv("KERN_SOAK") == "1" {
		runs = 10_000
	}
	b := fresh(t, Config{MaxInstances: 4, Warm: 2})
	soak(t, b, 100)
	settle(t, b)
	debug.FreeOSMemory()
	before, fds, routines := resident(t), descriptors(t), runtime.NumGoroutine()
	soak(t, b, runs)
	settle(t, b)
	debug.FreeOSMemory()
	after := resident(t)
	t.Logf("%d runs: resident %d KiB before, %d KiB after; %d instances at most", runs, before>>10, after>>10, b.engine.peak.Load())
	if after > before+64<<20 {
		t.Errorf("resident memory grew from %d to %d KiB", before>>10, after>>10)
	}
	if n := descriptors(t); n > fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	if n := runtime.NumGoroutine(); n > routines+2 {
		t.Errorf("%d goroutines, %d before", n, routines)
	}
	if n := b.engine.peak.Load(); n > 4 {
		t.Errorf("%d instances, the maximum is 4", n)
	}
}

func soak(t *testing.T, b *Backend, runs int) {
	type mixed struct {
		code string
		want sandbox.Cause
		out  string
	}
	mix := []mixed{
		{"while True: pass", sandbox.Timeout, ""},
		{"import time\ntime.sleep(9)", sandbox.Timeout, ""},
		{"a = []\nwhile True: a.append(bytearray(1 << 22))", sandbox.Memory, ""},
		{"while True: print('x' * 4096)", sandbox.Output, "-"},
		{"while True: open('f', 'ab').write(bytes(1 << 16))", sandbox.Files, ""},
		{"import os\nos.abort()", sandbox.Failed, ""},
		{"import os\nos._exit(0)", sandbox.OK, ""},
		{"1/0", sandbox.Failed, ""},
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 29))
			for next.Add(1) <= int64(runs) && !t.Failed() {
				n := rnd.IntN(1 << 20)
				m := mixed{fmt.Sprintf("import os, json\nassert 'n' not in globals() and not os.listdir('.')\nn = %d\nopen('f', 'w').write(str(n))\nprint(json.dumps({'n': n * 2, 's': sum(range(n %% 1000))}))", n),
					sandbox.OK, fmt.Sprintf("{\"n\": %d, \"s\": %d}\n", n*2, (n%1000)*(n%1000-1)/2)}
				wall := 20 * time.Second
				if rnd.IntN(5) == 0 {
					m = mix[rnd.IntN(len(mix))]
				}
				if m.want == sandbox.Timeout {
					wall = 30 * time.Millisecond
				}
				out, err := b.Run(context.Background(), sandbox.Spec{Code: m.code, Limits: sandbox.Limits{Wall: wall, Memory: 96 << 20, Output: 64 << 10, FileBytes: 1 << 20}})
				if err != nil || out.Cause != m.want || m.out != "-" && string(out.Stdout) != m.out {
					t.Errorf("%v, %s with %q, want %s with %q: %s", err, out.Cause, out.Stdout, m.want, m.out, out.Stderr)
				}
			}
		})
	}
	wg.Wait()
}

// resident is the memory of this process.
func resident(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc here to measure memory in")
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
