//go:build linux

package jail_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/kern-run/kern/internal/program"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
)

// Mutants that were made by hand and die here: the seccomp program not loaded;
// the bootstrap's frames left in a traceback.

func TestMain(m *testing.M) {
	program.Main()
	if f := roles[os.Getenv("KERN_JAIL_ROLE")]; f != nil {
		os.Exit(f())
	}
	code := leaktest.Wrap(m).Run()
	if err := leftovers(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		code = 1
	}
	os.Exit(code)
}

// roles are what this program does when a test starts it to be somebody else.
var roles = map[string]func() int{
	"supervisor": supervise,
	"plainuser":  beNobody,
	"barred":     beBarred,
}

// leftovers are processes and cgroups of this process that are still there.
func leftovers() error {
	var left []string
	if err := until(soon, func() bool {
		left = nil
		for _, p := range children(os.Getpid()) {
			left = append(left, fmt.Sprintf("process %d", p))
		}
		left = append(left, groups(os.Getpid())...)
		return len(left) == 0
	}); err != nil {
		return fmt.Errorf("left behind: %s", strings.Join(left, ", "))
	}
	return nil
}

// children are the processes below pid.
func children(pid int) (all []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent := map[int]int{}
	for _, s := range stats {
		b, err := os.ReadFile(s)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		p, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
		parent[p], _ = strconv.Atoi(f[1])
	}
	for p := range parent {
		for a := parent[p]; a > 1; a = parent[a] {
			if a == pid {
				all = append(all, p)
				break
			}
		}
	}
	return all
}

// groups are the cgroups that pid made.
func groups(pid int) []string {
	mark := fmt.Sprintf("kern-jail-%d-", pid)
	var found []string
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), mark) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

func until(limit time.Duration, ok func() bool) error {
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("it did not happen in " + limit.String())
		}
	}
	return nil
}

func open(t testing.TB, cfg jail.Config) *jail.Backend {
	t.Helper()
	b, err := jail.New(cfg)
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

func run(t testing.TB, b *jail.Backend, s sandbox.Spec) sandbox.Outcome {
	t.Helper()
	out, err := b.Run(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// want fails unless out ended so.
func want(t testing.TB, out sandbox.Outcome, c sandbox.Cause, stdout string) {
	t.Helper()
	if out.Cause != c || string(out.Stdout) != stdout {
		t.Errorf("want %s with %q, got %s, exit %d, signal %q, %q\n%s", c, stdout, out.Cause, out.Exit, out.Signal, clip(out.Stdout), clip(out.Stderr))
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 2000)] }

func sh(script string) []string { return []string{"sh", "-c", script} }

// TestOutcome is what a run tells about its end.
func TestOutcome(t *testing.T) {
	b := open(t, jail.Config{})
	for _, c := range []struct {
		name   string
		spec   sandbox.Spec
		cause  sandbox.Cause
		exit   int
		signal string
		stdout string
	}{
		{"true", sandbox.Spec{Argv: []string{"true"}}, sandbox.OK, 0, "", ""},
		{"exit", sandbox.Spec{Argv: sh("echo out; echo err >&2; exit 3")}, sandbox.Failed, 3, "", "out\n"},
		{"signal", sandbox.Spec{Argv: sh("kill -TERM $$")}, sandbox.Failed, -1, "SIGTERM", ""},
		{"own kill", sandbox.Spec{Argv: sh("kill -KILL $$")}, sandbox.Failed, -1, "SIGKILL", ""},
		{"abort", sandbox.Spec{Code: "import os; os.abort()"}, sandbox.Failed, -1, "SIGABRT", ""},
		{"stdin", sandbox.Spec{Argv: []string{"cat"}, Stdin: strings.NewReader("given")}, sandbox.OK, 0, "", "given"},
		{"no stdin", sandbox.Spec{Argv: []string{"cat"}}, sandbox.OK, 0, "", ""},
		{"environment", sandbox.Spec{Argv: []string{"/usr/bin/env"}, Env: map[string]string{"A": "b c"}}, sandbox.OK, 0, "", "A=b c\n"},
		{"directory", sandbox.Spec{Argv: []string{"pwd"}}, sandbox.OK, 0, "", "/workspace\n"},
		{"code", sandbox.Spec{Code: "print(__name__, 6*7)"}, sandbox.OK, 0, "", "__main__ 42\n"},
		{"code's environment", sandbox.Spec{Code: "import os; print(dict(os.environ))", Env: map[string]string{"A": "ü"}}, sandbox.OK, 0, "", "{'A': 'ü'}\n"},
		{"code's stdin", sandbox.Spec{Code: "print(input())", Stdin: strings.NewReader("ü\n")}, sandbox.OK, 0, "", "ü\n"},
		{"code exits", sandbox.Spec{Code: "import sys; sys.exit(4)"}, sandbox.Failed, 4, "", ""},
		{"code raises", sandbox.Spec{Code: "print('a')\n1/0"}, sandbox.Failed, 1, "", "a\n"},
		{"code is no code", sandbox.Spec{Code: "x ="}, sandbox.Failed, 1, "", ""},
		{"large code", sandbox.Spec{Code: "x = '" + strings.Repeat("y", 3<<20) + "'\nprint(len(x))"}, sandbox.OK, 0, "", "3145728\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := run(t, b, c.spec)
			want(t, out, c.cause, c.stdout)
			if out.Exit != c.exit || out.Signal != c.signal {
				t.Errorf("want exit %d, signal %q, got %d, %q", c.exit, c.signal, out.Exit, out.Signal)
			}
			if out.Usage.Wall <= 0 || out.Usage.CPU <= 0 || out.Usage.PeakBytes <= 0 || out.Usage.OutputBytes != int64(len(out.Stdout)+len(out.Stderr)) {
				t.Errorf("want what the run took, got %+v", out.Usage)
			}
		})
	}
}

// TestEnd: what a program leaves to its end happens, in order, and a module
// pickled by name is found.
func TestEnd(t *testing.T) {
	for _, cfg := range []jail.Config{{}, {Warm: 1}} {
		b := open(t, cfg)
		ready(t, b, cfg.Warm)
		out := run(t, b, sandbox.Spec{Code: `
import atexit, pickle, sys
class C:
    def __del__(self): print('finalized')
c = C()
atexit.register(print, 'at exit')
class D: pass
print(type(pickle.loads(pickle.dumps(D()))) is D, sys.modules['__main__'].c is c, __name__)
`})
		want(t, out, sandbox.OK, "True True __main__\nat exit\nfinalized\n")
	}
}

// TestTraceback says where in the caller's text an error is, and nothing of
// how the text came into the interpreter.
func TestTraceback(t *testing.T) {
	for _, cfg := range []jail.Config{{}, {Warm: 1}} {
		b := open(t, cfg)
		ready(t, b, cfg.Warm)
		out := run(t, b, sandbox.Spec{Code: "def f():\n    raise ValueError('no')\nf()\n"})
		want(t, out, sandbox.Failed, "")
		for _, s := range []string{`File "<main>", line 3, in <module>`, `File "<main>", line 2, in f`, "ValueError: no"} {
			if !strings.Contains(string(out.Stderr), s) {
				t.Errorf("want %q in\n%s", s, out.Stderr)
			}
		}
		if strings.Contains(string(out.Stderr), "_boot") || strings.Contains(string(out.Stderr), "<string>") {
			t.Errorf("want nothing of the bootstrap in\n%s", out.Stderr)
		}
	}
}

// TestRefusals is what cannot run, and that the refusal says why.
func TestRefusals(t *testing.T) {
	b := open(t, jail.Config{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		spec sandbox.Spec
		says string
	}{
		{"nothing", sandbox.Spec{}, "exactly one of Code and Argv"},
		{"both", sandbox.Spec{Code: "1", Argv: []string{"true"}}, "exactly one"},
		{"no such program", sandbox.Spec{Argv: []string{"no-such-program"}}, "no such file"},
		{"host's root", sandbox.Spec{Argv: []string{"true"}, Dir: "/"}, "directory of files"},
		{"host's proc", sandbox.Spec{Argv: []string{"true"}, Dir: "/proc"}, "directory of files"},
		{"through a link", sandbox.Spec{Argv: []string{"true"}, Dir: "/proc/self/root"}, "directory of files"},
		{"a file", sandbox.Spec{Argv: []string{"true"}, Dir: file}, "to be a directory"},
		{"no directory", sandbox.Spec{Argv: []string{"true"}, Dir: file + "x"}, "no such file"},
		{"negative", sandbox.Spec{Argv: []string{"true"}, Limits: sandbox.Limits{Memory: -1}}, "Limits.Memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := b.Run(context.Background(), c.spec)
			var r *sandbox.Refusal
			if !errors.As(err, &r) || out.Cause != sandbox.Refused || !strings.Contains(r.Reason, c.says) || r.Backend != "jail" {
				t.Errorf("want a refusal with %q, got %s, %v", c.says, out.Cause, err)
			}
		})
	}
	for _, cfg := range []jail.Config{{Max: -1}, {Max: 1, Warm: 2}, {ReadOnly: []string{"/"}}, {ReadOnly: []string{"/etc"}}, {ReadOnly: []string{"opt"}}, {ReadOnly: []string{file}}} {
		if b, err := jail.New(cfg); err == nil {
			t.Errorf("want %+v refused", cfg)
			b.Close()
		}
	}
}

// TestClosed: nothing runs after Close, and Close ends what runs.
func TestClosed(t *testing.T) {
	b, err := jail.New(jail.Config{Warm: 1})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	ended := make(chan sandbox.Outcome, 1)
	go func() {
		out, _ := b.Run(context.Background(), sandbox.Spec{Argv: sh("echo; sleep 60"), Stdout: once(func() { close(started) })})
		ended <- out
	}()
	select {
	case <-started:
	case out := <-ended:
		t.Fatalf("want a run to close on, it ended %s: %s", out.Cause, out.Stderr)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if out := <-ended; out.Cause != sandbox.Killed {
		t.Errorf("want killed, got %s", out.Cause)
	}
	if _, err := b.Run(context.Background(), sandbox.Spec{Argv: []string{"true"}}); err == nil {
		t.Error("want no run after Close")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// once is a Writer that calls f at the first write.
func once(f func()) *writer { return &writer{f: f} }

type writer struct {
	f   func()
	got bytes.Buffer
}

func (w *writer) Write(b []byte) (int, error) {
	if w.f != nil {
		w.f()
		w.f = nil
	}
	return w.got.Write(b)
}

// ready waits until n interpreters are warm.
func ready(t testing.TB, b *jail.Backend, n int) {
	t.Helper()
	if err := until(2*soon, func() bool { return b.Warm() >= n }); err != nil {
		t.Fatalf("%d warm interpreters: %v", n, err)
	}
}

// TestBlockedWriter: a Writer that never returns holds neither the limits nor,
// for long, the run.
func TestBlockedWriter(t *testing.T) {
	t.Parallel()
	b := open(t, jail.Config{})
	release := make(chan struct{})
	start := time.Now()
	out := run(t, b, sandbox.Spec{
		Argv:   []string{"yes"},
		Stdout: once(func() { <-release }),
		Limits: sandbox.Limits{Wall: 300 * time.Millisecond},
	})
	took := time.Since(start)
	close(release)
	if out.Cause != sandbox.Timeout || took > soon {
		t.Errorf("want a timeout in 0.3 s and the grace, got %s in %v", out.Cause, took)
	}
}
