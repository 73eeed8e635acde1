// Package sandboxtest tests a [sandbox.Backend]. It has one suite for the meaning of
// Spec and Outcome, programs that try to escape, and ordinary programs with known
// output.
package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// Capabilities say what a backend can do beyond running Python source.
type Capabilities struct {
	Functions bool // Spec.Functions
	Sessions  bool // it is a sandbox.Sessioner
	Programs  bool // Spec.Argv
	Processes bool // code can start processes and threads
	Peak      bool // Usage.PeakBytes is measured

	// Start is how much longer than its own time a run may take; zero: 15 s,
	// for a machine that stalls now and then. Tests stop only code that would
	// run longer than this.
	Start time.Duration
}

func (c Capabilities) start() time.Duration {
	if c.Start == 0 {
		return 15 * time.Second
	}
	return c.Start
}

// Run runs the whole suite.
func Run(t *testing.T, b sandbox.Backend, c Capabilities) {
	t.Run("Outcomes", func(t *testing.T) { outcomes(t, b) })
	t.Run("Limits", func(t *testing.T) { limits(t, b, c) })
	t.Run("Caught", func(t *testing.T) { caught(t, b) })
	t.Run("Refusals", func(t *testing.T) { refusals(t, b, c) })
	t.Run("Cancel", func(t *testing.T) { cancel(t, b, c) })
	t.Run("Stream", func(t *testing.T) { stream(t, b) })
	t.Run("Input", func(t *testing.T) { input(t, b) })
	t.Run("Isolation", func(t *testing.T) { isolation(t, b) })
	t.Run("Workspace", func(t *testing.T) { workspace(t, b) })
	t.Run("Usage", func(t *testing.T) { usage(t, b, c) })
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, b) })
	if c.Functions {
		t.Run("Functions", func(t *testing.T) { functions(t, b, c) })
	}
	if c.Sessions {
		t.Run("Sessions", func(t *testing.T) { sessions(t, b.(sandbox.Sessioner), c) })
	}
}

// run runs code with limits that are far away unless set.
func run(t testing.TB, b sandbox.Backend, s sandbox.Spec) sandbox.Outcome {
	t.Helper()
	if s.Limits.Wall == 0 {
		s.Limits.Wall = 20 * time.Second
	}
	out, err := b.Run(context.Background(), s)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return out
}

// want runs code that must end with the cause c, and returns its outcome.
func want(t testing.TB, b sandbox.Backend, c sandbox.Cause, s sandbox.Spec) sandbox.Outcome {
	t.Helper()
	out := run(t, b, s)
	if out.Cause != c {
		t.Fatalf("cause %s, want %s; exit %d %s\nstdout %.400s\nstderr %.1000s", out.Cause, c, out.Exit, out.Signal, out.Stdout, out.Stderr)
	}
	return out
}

// printed runs code that must end with OK, and returns its stdout.
func printed(t testing.TB, b sandbox.Backend, s sandbox.Spec) string {
	t.Helper()
	return string(want(t, b, sandbox.OK, s).Stdout)
}

func equal(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func outcomes(t *testing.T, b sandbox.Backend) {
	for _, c := range []struct {
		name, code     string
		cause          sandbox.Cause
		exit           int
		stdout, stderr string // stderr: what it must contain
	}{
		{"print", "print('hello', 'world')", sandbox.OK, 0, "hello world\n", ""},
		{"nothing", "pass", sandbox.OK, 0, "", ""},
		{"unicode", "print('grüße 世界 🌍')", sandbox.OK, 0, "grüße 世界 🌍\n", ""},
		{"main", "if __name__ == '__main__': print('main')", sandbox.OK, 0, "main\n", ""},
		{"exit 3", "import sys\nprint('kept')\nsys.exit(3)", sandbox.Failed, 3, "kept\n", ""},
		{"exit 0", "import sys\nprint('kept')\nsys.exit(0)", sandbox.OK, 0, "kept\n", ""},
		{"exit none", "raise SystemExit", sandbox.OK, 0, "", ""},
		{"exit text", "import sys\nsys.exit('bad luck')", sandbox.Failed, 1, "", "bad luck\n"},
		{"exit builtin", "exit(4)", sandbox.Failed, 4, "", ""},
		{"_exit", "import os\nos._exit(5)", sandbox.Failed, 5, "", ""},
		{"exception", "print('a')\nraise ValueError('bad')", sandbox.Failed, 1, "a\n", "ValueError: bad"},
		{"syntax", "print('a')\nx = = 1", sandbox.Failed, 1, "", "SyntaxError"},
		{"unencodable", "raise KeyError('\\ud800')", sandbox.Failed, 1, "", "KeyError"},
		{"traceback, exit 0", "import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()", sandbox.OK, 0, "", "ZeroDivisionError"},
		{"no newline", "import sys\nsys.stdout.write('x')\nsys.stderr.write('y')", sandbox.OK, 0, "x", "y"},
		{"bytes", "import sys\nsys.stdout.buffer.write(bytes(range(256)))", sandbox.OK, 0, string(all256()), ""},
		{"atexit", "import atexit\natexit.register(print, 'last')\nprint('first')", sandbox.OK, 0, "first\nlast\n", ""},
		{"finalizer", "class C:\n  def __del__(self): print('gone')\nc = C()\nprint('here')", sandbox.OK, 0, "here\ngone\n", ""},
		{"recursion", "def f(): f()\ntry: f()\nexcept RecursionError: print('deep')", sandbox.OK, 0, "deep\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := want(t, b, c.cause, sandbox.Spec{Code: c.code})
			equal(t, string(out.Stdout), c.stdout)
			if out.Exit != c.exit || out.Truncated {
				t.Fatalf("exit %d, truncated %v; want %d, false", out.Exit, out.Truncated, c.exit)
			}
			// Tracebacks differ between versions of Python, so only a part of stderr is compared.
			if c.stderr == "" && len(out.Stderr) > 0 || !strings.Contains(string(out.Stderr), c.stderr) {
				t.Fatalf("stderr %q, want %q", out.Stderr, c.stderr)
			}
		})
	}
}

func all256() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func limits(t *testing.T, b sandbox.Backend, c Capabilities) {
	wall := sandbox.Limits{Wall: 3 * time.Second} // enough to say something first
	for _, l := range []struct {
		name, code string
		limits     sandbox.Limits
		cause      sandbox.Cause
		most       time.Duration // until it ends
	}{
		{"loop", "print('kept', flush=True)\nwhile True: pass", wall, sandbox.Timeout, 3 * time.Second},
		{"loop that catches", "print('kept', flush=True)\nwhile True:\n  try:\n    while True: pass\n  except BaseException: pass", wall, sandbox.Timeout, 3 * time.Second},
		{"sleep", "print('kept', flush=True)\nimport time\ntime.sleep(60)", wall, sandbox.Timeout, 3 * time.Second},
		{"select", "print('kept', flush=True)\nimport select\nselect.select([], [], [], 60)", wall, sandbox.Timeout, 3 * time.Second},
		{"processor", "print('kept', flush=True)\nwhile True: pass", sandbox.Limits{CPU: time.Second / 2}, sandbox.Timeout, 10 * time.Second},
		{"memory", "print('kept', flush=True)\na = []\nwhile True: a.append(bytearray(1 << 20))", sandbox.Limits{Memory: 128 << 20}, sandbox.Memory, 10 * time.Second},
		{"2 GB", "print('kept', flush=True)\nb = bytearray(1 << 30), bytearray(1 << 30)", sandbox.Limits{}, sandbox.Memory, 10 * time.Second},
		{"output", "print('kept', flush=True)\nwhile True: print('x' * 9999)", sandbox.Limits{Output: 1 << 20}, sandbox.Output, 10 * time.Second},
		{"error output", "print('kept', flush=True)\nimport sys\nwhile True: print('x' * 9999, file=sys.stderr)", sandbox.Limits{Output: 1 << 20}, sandbox.Output, 10 * time.Second},
		{"file bytes", "print('kept', flush=True)\nwith open('f', 'wb') as f:\n  while True: f.write(bytes(1 << 16))", sandbox.Limits{FileBytes: 4 << 20}, sandbox.Files, 15 * time.Second},
		{"file bytes in /tmp", "print('kept', flush=True)\nwith open('/tmp/f', 'wb') as f:\n  while True: f.write(bytes(1 << 16))", sandbox.Limits{FileBytes: 4 << 20}, sandbox.Files, 15 * time.Second},
		{"files", "print('kept', flush=True)\nfor i in range(100_000): open(f'f{i}', 'w').close()", sandbox.Limits{Files: 200}, sandbox.Files, 15 * time.Second},
		{"directories", "print('kept', flush=True)\nimport os\nfor i in range(100_000): os.mkdir(f'd{i}')", sandbox.Limits{Files: 200}, sandbox.Files, 15 * time.Second},
	} {
		t.Run(l.name, func(t *testing.T) {
			from := time.Now()
			out := want(t, b, l.cause, sandbox.Spec{Code: l.code, Limits: l.limits})
			if d := time.Since(from); d > l.most+c.start() {
				t.Errorf("took %v, want at most %v", d, l.most+c.start())
			}
			if !strings.HasPrefix(string(out.Stdout), "kept\n") {
				t.Errorf("stdout %.20q, want what was written before the end", out.Stdout)
			}
			// A caller that only looks at the exit code must see the failure.
			if out.Exit == 0 && out.Signal == "" {
				t.Error("exit 0 for a run that did not end well")
			}
			if n := int64(len(out.Stdout) + len(out.Stderr)); l.cause == sandbox.Output && (n != l.limits.Output || !out.Truncated) {
				t.Errorf("%d bytes of output, truncated %v; want %d, true", n, out.Truncated, l.limits.Output)
			}
			// The backend must work after a run that it stopped, without its files.
			equal(t, printed(t, b, sandbox.Spec{Code: "import os\nprint(os.listdir('.'))"}), "[]\n")
		})
	}
}

// caught: if a limit refuses something, the code gets an error that it may handle.
func caught(t *testing.T, b sandbox.Backend) {
	for _, c := range []struct {
		name, code string
		limits     sandbox.Limits
	}{
		{"memory", "try: b = bytearray(1 << 29)\nexcept MemoryError: print('told')", sandbox.Limits{Memory: 128 << 20}},
		{"bytes", "try:\n  with open('f', 'wb', buffering=0) as f:\n    while True: f.write(bytes(1 << 16))\nexcept OSError as e: print('told')", sandbox.Limits{FileBytes: 1 << 20}},
		{"files", "try:\n  for i in range(1000): open(f'f{i}', 'w').close()\nexcept OSError: print('told')", sandbox.Limits{Files: 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			equal(t, printed(t, b, sandbox.Spec{Code: c.code, Limits: c.limits}), "told\n")
		})
	}
	t.Run("freed", func(t *testing.T) { // removed files no longer count
		code := "import os\nfor i in range(40):\n  with open('f', 'wb') as f: f.write(bytes(1 << 18))\n  os.remove('f')\nprint('done')"
		equal(t, printed(t, b, sandbox.Spec{Code: code, Limits: sandbox.Limits{FileBytes: 1 << 20, Files: 20}}), "done\n")
	})
}

func refusals(t *testing.T, b sandbox.Backend, c Capabilities) {
	f := sandbox.Function{Namespace: "a", Name: "f", Call: echo}
	with := func(change func(*sandbox.Function)) []sandbox.Function {
		g := f
		change(&g)
		return []sandbox.Function{g}
	}
	for name, s := range map[string]sandbox.Spec{
		"nothing to run":     {},
		"both":               {Code: "pass", Argv: []string{"true"}},
		"negative wall":      {Code: "pass", Limits: sandbox.Limits{Wall: -1}},
		"negative files":     {Code: "pass", Limits: sandbox.Limits{Files: -1}},
		"relative directory": {Code: "pass", Dir: "here"},
		"no directory":       {Code: "pass", Dir: "/there/is/none"},
		"not text":           {Code: "x = '\xff'"},
		"NUL":                {Code: "x = 1\x00"},
		"environment":        {Code: "pass", Env: map[string]string{"A=B": "C"}},
		"injected name":      {Code: "pass", Functions: with(func(g *sandbox.Function) { g.Name = "f(): pass\nimport os\ndef g" })},
		"injected space":     {Code: "pass", Functions: with(func(g *sandbox.Function) { g.Namespace = "a.b" })},
		"keyword":            {Code: "pass", Functions: with(func(g *sandbox.Function) { g.Name = "class" })},
		"injected type": {Code: "pass", Functions: with(func(g *sandbox.Function) {
			g.Params = []sandbox.Param{{Name: "x", Type: "__import__('os')"}}
		})},
		"optional first": {Code: "pass", Functions: with(func(g *sandbox.Function) {
			g.Params = []sandbox.Param{{Name: "x", Optional: true}, {Name: "y"}}
		})},
		"twice":   {Code: "pass", Functions: []sandbox.Function{f, f}},
		"no call": {Code: "pass", Functions: with(func(g *sandbox.Function) { g.Call = nil })},
	} {
		// Names and types become Python source, so text in them must not become code.
		t.Run(name, func(t *testing.T) { refused(t, b, s) })
	}
	if !c.Programs {
		t.Run("program", func(t *testing.T) { refused(t, b, sandbox.Spec{Argv: []string{"/bin/true"}}) })
	}
	if !c.Functions {
		t.Run("function", func(t *testing.T) { refused(t, b, sandbox.Spec{Code: "pass", Functions: []sandbox.Function{f}}) })
	}
}

func refused(t *testing.T, b sandbox.Backend, s sandbox.Spec) {
	t.Helper()
	out, err := b.Run(context.Background(), s)
	var r *sandbox.Refusal
	if !errors.As(err, &r) || r.Reason == "" || r.Backend == "" || out.Cause != sandbox.Refused {
		t.Fatalf("outcome %+v, error %v; want a refusal with its reason", out, err)
	}
}

func cancel(t *testing.T, b sandbox.Backend, c Capabilities) {
	t.Run("before", func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		out, err := b.Run(ctx, sandbox.Spec{Code: "print('ran')"})
		if out.Cause != sandbox.Killed || len(out.Stdout) > 0 {
			t.Fatalf("outcome %+v, %v; want killed, and nothing that ran", out, err)
		}
	})
	for name, code := range map[string]string{
		"loop":  "while True: pass",
		"sleep": "import time\ntime.sleep(60)",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			// The kill must hit running code, so it waits for the first output.
			begun := &signalWriter{c: make(chan struct{})}
			stopped := make(chan time.Time, 1)
			go func() {
				<-begun.c
				stopped <- time.Now()
				stop()
			}()
			out, err := b.Run(ctx, sandbox.Spec{
				Code: "print('begun', flush=True)\n" + code, Stdout: begun,
				Limits: sandbox.Limits{Wall: 30 * time.Second, CPU: 30 * time.Second},
			})
			if err != nil || out.Cause != sandbox.Killed {
				t.Fatalf("outcome %s, %v; want killed", out.Cause, err)
			}
			equal(t, string(out.Stdout), "begun\n")
			if d := time.Since(<-stopped); d > c.start() {
				t.Errorf("ended %v after the kill", d)
			}
		})
	}
}

// A signalWriter closes c at its first write.
type signalWriter struct {
	once sync.Once
	c    chan struct{}
}

func (w *signalWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.c) })
	return len(b), nil
}

// A Talk is the stdin and stdout of a program that waits for an answer to each line.
// It answers each line with an empty one, up to a number of lines. If a backend holds
// lines back, the program waits for ever.
type Talk struct {
	unanswered chan struct{} // a token for each line without an answer
	ended      chan struct{}
	left       int // answers
}

// NewTalk returns a Talk with n answers.
func NewTalk(n int) *Talk {
	return &Talk{make(chan struct{}, n), make(chan struct{}), n}
}

// Write counts the lines of the program.
func (k *Talk) Write(b []byte) (int, error) {
	for range bytes.Count(b, []byte("\n")) {
		k.unanswered <- struct{}{}
	}
	return len(b), nil
}

// Read waits for a line of the program, then answers it.
func (k *Talk) Read(b []byte) (int, error) {
	if k.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-k.unanswered:
		k.left--
		return copy(b, "\n"), nil
	case <-k.ended:
		return 0, io.EOF
	}
}

// End ends the input of the program.
func (k *Talk) End() { close(k.ended) }

func stream(t *testing.T, b sandbox.Backend) {
	var stderr bytes.Buffer
	// The program waits for an answer to each line, so output that comes only at the end would stop it for ever.
	k := NewTalk(3)
	defer k.End()
	code := "import sys\nfor i in range(3):\n  print('line', i)\n  sys.stdin.readline()\nprint('err', file=sys.stderr)"
	out := want(t, b, sandbox.OK, sandbox.Spec{Code: code, Stdin: k, Stdout: k, Stderr: &stderr})
	equal(t, string(out.Stdout), "line 0\nline 1\nline 2\n")
	equal(t, stderr.String(), "err\n")
	t.Run("a writer that never returns", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		from := time.Now()
		out := run(t, b, sandbox.Spec{Code: "print('x')", Stdout: stuckWriter{release}, Limits: sandbox.Limits{Wall: time.Second}})
		equal(t, string(out.Stdout), "x\n")
		if d := time.Since(from); d > 15*time.Second {
			t.Errorf("the run waited %v for its writer", d)
		}
	})
}

type stuckWriter struct{ release chan struct{} }

func (w stuckWriter) Write(b []byte) (int, error) {
	<-w.release
	return len(b), nil
}

// neverReader is a Stdin without input and without an end.
type neverReader struct{ release chan struct{} }

func (r neverReader) Read([]byte) (int, error) {
	<-r.release
	return 0, errors.New("released")
}

func input(t *testing.T, b sandbox.Backend) {
	equal(t, printed(t, b, sandbox.Spec{Code: "import sys\nprint(repr(input()), repr(sys.stdin.read()))", Stdin: strings.NewReader("one\ntwo\nthree")}), "'one' 'two\\nthree'\n")
	equal(t, printed(t, b, sandbox.Spec{Code: "import sys\nprint(repr(sys.stdin.read()))"}), "''\n")
	equal(t, printed(t, b, sandbox.Spec{Code: "try: input()\nexcept EOFError: print('end')"}), "end\n")
	t.Run("a reader on which nothing comes", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		want(t, b, sandbox.Timeout, sandbox.Spec{Code: "input()", Stdin: neverReader{release}, Limits: sandbox.Limits{Wall: time.Second / 2}})
	})
	// The environment is exactly what the Spec names.
	env := printed(t, b, sandbox.Spec{Code: "import os\nprint(os.environ.get('A'), os.getenv('HOME_OF_NOBODY'), 'KERN_CANARY' in os.environ)", Env: map[string]string{"A": "b=c ü"}})
	equal(t, env, "b=c ü None False\n")
}

// isolation: nothing of one run is left in the next.
func isolation(t *testing.T, b sandbox.Backend) {
	leave := `
import os, sys, builtins, json, random, decimal, logging, tempfile, warnings
open('left', 'w').write('x'); os.mkdir('dir'); open('/tmp/left', 'w').write('x')
os.environ['LEFT'] = '1'
os.chdir('dir')
builtins.left = json.left = 1
json.loads = None
sys.modules['left'] = sys
sys.path.append('/left')
random.seed(1)
decimal.getcontext().prec = 3
logging.getLogger().setLevel(1)
sys.setrecursionlimit(123)
files = [open('f%d' % i, 'w') for i in range(20)]
print(random.random())
`
	look := `
import os, sys, builtins, json, random, decimal, logging
print(os.listdir('.'), os.path.exists('/tmp/left'), os.environ.get('LEFT'), os.path.basename(os.getcwd()))
print(hasattr(builtins, 'left'), hasattr(json, 'left'), json.loads('[1]'), 'left' in sys.modules, '/left' in sys.path)
print(decimal.getcontext().prec, logging.getLogger().level, sys.getrecursionlimit() == 1000, 'files' in globals())
`
	// Each change is one that a used interpreter could carry over: files, modules, settings, the random state.
	clean := "[] False None workspace\nFalse False [1] False False\n28 30 True False\n"
	seeded := ""
	for range 6 {
		out := printed(t, b, sandbox.Spec{Code: leave})
		if seeded != "" {
			equal(t, out, seeded) // a seed is a seed
		}
		seeded = out
		equal(t, printed(t, b, sandbox.Spec{Code: look}), clean)
	}
	seen := map[string]bool{}
	// Instances start from one image, so without care each would draw the same random numbers.
	for range 12 {
		n := printed(t, b, sandbox.Spec{Code: "import random, uuid, secrets, tempfile, os\nprint(random.random(), uuid.uuid4(), secrets.token_hex(8), os.urandom(8).hex(), random.SystemRandom().random())"})
		for i, v := range strings.Fields(n) {
			if seen[string(rune('a'+i))+v] {
				t.Fatalf("the number %s came twice", v)
			}
			seen[string(rune('a'+i))+v] = true
		}
	}
}

func usage(t *testing.T, b sandbox.Backend, c Capabilities) {
	out := want(t, b, sandbox.OK, sandbox.Spec{Code: "import time\nprint('four', end='')\ntime.sleep(0.3)"})
	if u := out.Usage; u.Wall < 300*time.Millisecond || u.Wall > 300*time.Millisecond+c.start() || u.CPU > 250*time.Millisecond || u.OutputBytes != 4 {
		t.Errorf("usage of a sleeper: %+v", u)
	}
	slept := out.Usage.CPU
	out = want(t, b, sandbox.OK, sandbox.Spec{Code: "import time\nend = time.monotonic() + 0.4\nwhile time.monotonic() < end:\n  for i in range(20_000): pass"})
	if u := out.Usage; u.CPU < slept+20*time.Millisecond || u.CPU > u.Wall+50*time.Millisecond { // others may have most of the processor
		t.Errorf("usage of a worker: %+v", u)
	}
	if !c.Peak {
		return
	}
	out = want(t, b, sandbox.OK, sandbox.Spec{Code: "b = bytearray(50 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"})
	if p := out.Usage.PeakBytes; p < 50<<20 || p > sandbox.DefaultLimits.Memory {
		t.Errorf("peak of a program that takes 50 MiB: %d", p)
	}
}

func concurrent(t *testing.T, b sandbox.Backend) {
	var wg sync.WaitGroup
	// Each run reads its own file back, so a shared workspace or environment would show.
	for i := range 24 {
		wg.Go(func() {
			n := strings.Repeat("x", i+1)
			out, err := b.Run(context.Background(), sandbox.Spec{
				Code: "import os\nopen('mine', 'a').write(os.environ['N'])\nprint(open('mine').read())",
				Env:  map[string]string{"N": n},
			})
			if err != nil || out.Cause != sandbox.OK || string(out.Stdout) != n+"\n" {
				t.Errorf("run %d: %v %+v %s", i, err, out, out.Stderr)
			}
		})
	}
	wg.Wait()
}
