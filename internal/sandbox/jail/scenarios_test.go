//go:build linux

package jail_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
	"github.com/kern-run/kern/internal/sandbox/sandboxtest"
	"golang.org/x/sys/unix"
)

// Mutants that were made by hand and die here: a named directory not watched;
// files deleted but open not counted, or what has no read permission; no bound
// for a single file; the run not ended when output is full; the private file
// system fifty times as large, or with a thousand times the inodes; one process
// more than allowed; processor time not watched; a slot handed out past the
// maximum; a warm box kept while a run waits for its slot; a broken interpreter
// used; the wait for a slot counted as the run's;
// no idmapped mount; the caller's context ignored; the rest of a run left alive
// while its files are counted.

// soon is when a run that is stopped has ended even on a machine that stands
// still now and then; how soon it is on one that does not, bench/jail tells. What
// the tests stop would go on for longer than this.
const soon = 15 * time.Second

// stubborn runs in the background what nothing but SIGKILL ends.
const stubborn = `for i in $(seq 55); do setsid sh -c 'trap "" TERM INT HUP QUIT USR1 USR2; while :; do sleep 100; done' & done; `

func TestScenario10And11Deadline(t *testing.T) {
	b := open(t, jail.Config{})
	for name, script := range map[string]string{
		"sleeps":  "sleep 60",
		"spins":   "while :; do :; done",
		"ignores": `trap "" TERM INT HUP; ` + stubborn + "wait",
		"leaves":  stubborn + "sleep 60",
	} {
		t.Run(name, func(t *testing.T) {
			const wall = 2 * time.Second // enough to say something first
			start := time.Now()
			out := run(t, b, sandbox.Spec{Argv: sh("echo said; " + script), Limits: sandbox.Limits{Wall: wall, Processes: 200}})
			over := time.Since(start) - wall
			want(t, out, sandbox.Timeout, "said\n")
			if over > soon || over < 0 {
				t.Errorf("want the end at %v, it was %v over", wall, over)
			}
			if err := leftovers(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestScenario12Kill(t *testing.T) {
	b := open(t, jail.Config{})
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	start := make(chan struct{})
	go func() { <-start; cancel() }()
	began := time.Now()
	out, err := b.Run(ctx, sandbox.Spec{
		Argv:   sh("echo ready; " + stubborn + "sleep 60; echo late > late"),
		Dir:    dir,
		Stdout: once(func() { close(start) }),
		Limits: sandbox.Limits{Processes: 200},
	})
	if err != nil || out.Cause != sandbox.Killed || time.Since(began) > soon {
		t.Errorf("want killed at once, got %s, %v after %v", out.Cause, err, time.Since(began))
	}
	if err := leftovers(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "late")); err == nil {
		t.Error("the killed run wrote later")
	}
	out, err = b.Run(ctx, sandbox.Spec{Argv: sh("echo ran > ran"), Dir: dir})
	if _, e := os.Stat(filepath.Join(dir, "ran")); e == nil || out.Cause != sandbox.Killed || err == nil {
		t.Errorf("want nothing run under an ended context, got %s, %v", out.Cause, err)
	}
}

func TestScenario26Streaming(t *testing.T) {
	t.Parallel()
	for _, cfg := range []jail.Config{{}, {Warm: 1}} {
		b := open(t, cfg)
		ready(t, b, cfg.Warm)
		for name, s := range map[string]sandbox.Spec{
			"sh":     {Argv: sh("for i in 1 2 3; do echo $i; read line; done; exit 3")},
			"python": {Code: "import sys\nfor i in 1, 2, 3:\n    print(i); sys.stdin.readline()\nsys.exit(3)"},
		} {
			talk := sandboxtest.NewTalk(3)
			s.Stdin, s.Stdout = talk, talk
			out := run(t, b, s)
			talk.End()
			want(t, out, sandbox.Failed, "1\n2\n3\n")
			if out.Exit != 3 {
				t.Errorf("%s: want exit 3, got %d", name, out.Exit)
			}
		}
		out := run(t, b, sandbox.Spec{Code: "import traceback\ntry:\n    1/0\nexcept Exception:\n    traceback.print_exc()\n"})
		want(t, out, sandbox.OK, "")
		if !strings.Contains(string(out.Stderr), "ZeroDivisionError") {
			t.Errorf("want the traceback kept, got %q", out.Stderr)
		}
	}
}

// bombs each end by their own limit.
var bombs = []struct {
	name   string
	spec   sandbox.Spec
	limits sandbox.Limits
	cause  sandbox.Cause
}{
	{"endless loop", sandbox.Spec{Code: "while True: pass"}, sandbox.Limits{Wall: 300 * time.Millisecond}, sandbox.Timeout},
	{"processor time", sandbox.Spec{Code: "while True: pass"}, sandbox.Limits{CPU: 300 * time.Millisecond}, sandbox.Timeout},
	{"processor time of many", sandbox.Spec{Argv: sh("for i in 1 2 3 4 5 6; do (while :; do :; done) & done; wait")}, sandbox.Limits{CPU: 300 * time.Millisecond}, sandbox.Timeout},
	{"processor time of the dead", sandbox.Spec{Argv: sh(`while :; do sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done'; done`)}, sandbox.Limits{CPU: 300 * time.Millisecond}, sandbox.Timeout},
	{"fork bomb", sandbox.Spec{Argv: sh("bomb() { bomb | bomb & }; bomb; sleep 0.3; (exit 0) || exit 1; for i in $(seq 200); do sleep 9 & done; wait; exit 1")}, sandbox.Limits{Wall: 5 * time.Second}, sandbox.Processes},
	{"thread bomb", sandbox.Spec{Code: "import threading, time\nfor i in range(1000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"}, sandbox.Limits{}, sandbox.Processes},
	{"2 GB allocation", sandbox.Spec{Code: "x = bytearray(b'x') * (2 << 30)"}, sandbox.Limits{}, sandbox.Memory},
	{"memory of many", sandbox.Spec{Code: "import os\nfor i in range(8):\n    if os.fork() == 0:\n        x = b'x' * (60 << 20)\n        import time; time.sleep(60)\nfor i in range(8):\n    if os.wait()[1]: os._exit(1)"}, sandbox.Limits{}, sandbox.Memory},
	{"1 GB of output", sandbox.Spec{Argv: sh("yes | head -c 1000000000")}, sandbox.Limits{}, sandbox.Output},
	{"flood on stderr", sandbox.Spec{Argv: sh("yes >&2")}, sandbox.Limits{}, sandbox.Output},
	{"disk fill", sandbox.Spec{Code: "open('f', 'wb').write(b'x' * (200 << 20))"}, sandbox.Limits{Memory: 1 << 30}, sandbox.Files},
	{"disk fill in /tmp", sandbox.Spec{Argv: sh("head -c 200000000 /dev/zero > /tmp/f")}, sandbox.Limits{Memory: 1 << 30}, sandbox.Files},
	{"disk fill in /dev/shm", sandbox.Spec{Argv: sh("head -c 200000000 /dev/zero > /dev/shm/f")}, sandbox.Limits{Memory: 1 << 30}, sandbox.Files},
	{"100,000 files", sandbox.Spec{Code: "for i in range(100_000): open(str(i), 'w').close()"}, sandbox.Limits{}, sandbox.Files},
	{"100,000 directories", sandbox.Spec{Code: "import os\nfor i in range(100_000): os.mkdir('/tmp/%d' % i)"}, sandbox.Limits{}, sandbox.Files},
	{"write to /etc", sandbox.Spec{Code: "open('/etc/passwd', 'w')"}, sandbox.Limits{}, sandbox.Failed},
	{"TCP connect", sandbox.Spec{Code: "import socket; socket.create_connection(('127.0.0.1', PORT), 2)"}, sandbox.Limits{}, sandbox.Failed},
}

func TestScenario27Bombs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	b := open(t, jail.Config{Warm: 1})
	for _, c := range bombs {
		t.Run(c.name, func(t *testing.T) {
			s := c.spec
			s.Limits = c.limits
			s.Code = strings.ReplaceAll(s.Code, "PORT", port)
			out := run(t, b, s)
			if out.Cause != c.cause {
				t.Errorf("want %s, got %s, exit %d, signal %q, %+v\n%s", c.cause, out.Cause, out.Exit, out.Signal, out.Usage, clip(out.Stderr))
			}
			limits := s.Limits.WithDefaults()
			if int64(len(out.Stdout)+len(out.Stderr)) > limits.Output {
				t.Errorf("kept %d bytes of output, more than %d", len(out.Stdout)+len(out.Stderr), limits.Output)
			}
			if out.Usage.Wall > limits.Wall/2 && c.cause == sandbox.Timeout && s.Limits.Wall == 0 {
				t.Errorf("want the processor time told before the wall, took %v", out.Usage.Wall)
			}
			if c.cause == sandbox.Output && !out.Truncated {
				t.Error("want the output told as cut")
			}
			if out.Usage.PeakBytes > limits.Memory {
				t.Errorf("used %d bytes of memory, more than %d", out.Usage.PeakBytes, limits.Memory)
			}
			next := run(t, b, sandbox.Spec{Code: "import os, sys\nprint(os.listdir('.'), os.listdir('/tmp'), os.listdir('/dev/shm'), [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()], 'x' in globals(), os.listdir('/proc/self/fd'))"})
			want(t, next, sandbox.OK, "[] [] [] [] False ['0', '1', '2', '3', '4']\n")
		})
	}
	if err := leftovers2(b); err != nil {
		t.Error(err)
	}
}

// leftovers2 is leftovers but for what is warm.
func leftovers2(b *jail.Backend) error {
	return until(soon, func() bool { return len(children(os.Getpid())) <= 2*b.Warm() })
}

// TestScenario27HandledLimit: a limit that refuses, as a full disk does, is
// the program's to handle; a run that does and ends well is well.
func TestScenario27HandledLimit(t *testing.T) {
	b := open(t, jail.Config{})
	out := run(t, b, sandbox.Spec{Code: `
import os
try:
    with open('f', 'wb') as f:
        f.write(b'x' * (2 << 20))
except OSError as e:
    print(e.errno)
os.remove('f')
open('g', 'w').write('fits')
`, Limits: sandbox.Limits{FileBytes: 1 << 20}})
	want(t, out, sandbox.OK, fmt.Sprintln(int(unix.ENOSPC)))
	out = run(t, b, sandbox.Spec{Argv: sh("head -c 1048576 /dev/zero > f && wc -c < f"), Limits: sandbox.Limits{FileBytes: 1 << 20}})
	want(t, out, sandbox.OK, "1048576\n")
	out = run(t, b, sandbox.Spec{Code: "for i in range(20): open(str(i), 'w').close()\nprint('all')", Limits: sandbox.Limits{Files: 20}})
	want(t, out, sandbox.OK, "all\n")
	out = run(t, b, sandbox.Spec{Argv: []string{"true"}, Limits: sandbox.Limits{Processes: 1}})
	want(t, out, sandbox.OK, "")
	out = run(t, b, sandbox.Spec{Code: "import os, time; time.sleep(0.2); os.fork()", Limits: sandbox.Limits{Processes: 1}})
	if out.Cause != sandbox.Processes {
		t.Errorf("want the second process refused, got %s", out.Cause)
	}
}

func TestScenario29Pool(t *testing.T) {
	b := open(t, jail.Config{Max: 3, Warm: 2})
	var most, now int
	var mu sync.Mutex
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			// Each box is one cgroup in the hierarchy of pids.
			now = 0
			for _, g := range groups(os.Getpid()) {
				if strings.Contains(g, "/pids/") {
					now++
				}
			}
			most = max(most, now)
			mu.Unlock()
		}
	}()
	var all sync.WaitGroup
	for i := range 5 {
		for range 3 {
			all.Go(func() {
				s := sandbox.Spec{Code: fmt.Sprintf("import time; time.sleep(0.05); print(%d)", i)}
				if i == 4 {
					s = sandbox.Spec{Argv: []string{"echo", "4"}}
				}
				want(t, run(t, b, s), sandbox.OK, fmt.Sprintln(i))
			})
		}
	}
	all.Wait()
	close(stop)
	<-watched
	if most > 3 || most < 2 {
		t.Errorf("want two or three boxes at the busiest moment, saw %d", most)
	}
}

// TestWaitIsNotRun: the time a run waits for a place is not its own.
func TestWaitIsNotRun(t *testing.T) {
	t.Parallel()
	b := open(t, jail.Config{Max: 1})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			want(t, run(t, b, sandbox.Spec{Argv: []string{"sleep", "3"}, Limits: sandbox.Limits{Wall: 8 * time.Second}}), sandbox.OK, "")
		})
	}
	all.Wait()
}

// TestScenario29Crowded: where there is room for warm interpreters alone, a run
// that needs another place gets it, whenever it comes.
func TestScenario29Crowded(t *testing.T) {
	b := open(t, jail.Config{Max: 1, Warm: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for i := range 20 {
		// A different moment in the making of the next interpreter each time.
		<-time.After(time.Duration(i) * 4 * time.Millisecond)
		var all sync.WaitGroup
		for _, s := range []sandbox.Spec{{Argv: []string{"echo", "x"}}, {Code: "print('x')"}} {
			all.Go(func() {
				out, err := b.Run(ctx, s)
				if err != nil {
					t.Error(err)
				}
				want(t, out, sandbox.OK, "x\n")
			})
		}
		all.Wait()
	}
}

// TestScenario29Broken: a warm interpreter that died is not used.
func TestScenario29Broken(t *testing.T) {
	b := open(t, jail.Config{Warm: 2})
	for round := range 3 {
		ready(t, b, 2)
		for _, p := range children(os.Getpid()) {
			unix.Kill(p, unix.SIGKILL)
		}
		want(t, run(t, b, sandbox.Spec{Code: fmt.Sprintf("print(%d)", round)}), sandbox.OK, fmt.Sprintln(round))
	}
}

func TestScenario32Workspace(t *testing.T) {
	t.Parallel()
	for _, cfg := range []jail.Config{{}, {Warm: 1}} {
		b := open(t, cfg)
		one, two := t.TempDir(), t.TempDir()
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("hidden"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, filepath.Join(one, "out")); err != nil {
			t.Fatal(err)
		}
		step := func(dir, code string, c sandbox.Cause, stdout string) {
			t.Helper()
			ready(t, b, cfg.Warm)
			want(t, run(t, b, sandbox.Spec{Code: code, Dir: dir}), c, stdout)
		}
		step(one, "import os; print(os.getcwd()); open('f', 'w').write('kept'); os.mkdir('d')", sandbox.OK, "/workspace\n")
		step(one, "import os; print(open('/workspace/f').read(), os.stat('f').st_uid, os.getuid())", sandbox.OK, "kept 1000 1000\n")
		step(two, "import os; print(os.listdir('.'))", sandbox.OK, "[]\n")
		step("", "import os; print(os.listdir('.'))", sandbox.OK, "[]\n")
		step(one, "open('out').read()", sandbox.Failed, "")
		step(one, "open('../../"+secret+"').read()", sandbox.Failed, "")
		step(one, "open('"+secret+"').read()", sandbox.Failed, "")
		step(one, "import os; os.rename('f', 'd/g'); os.link('d/g', 'h'); print(os.stat('h').st_nlink)", sandbox.OK, "2\n")
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(one, "d/g"), &st); err != nil || int(st.Uid) != os.Geteuid() {
			t.Errorf("want the file to belong to the directory's owner on the host, got %d, %v", st.Uid, err)
		}
	}
}

// TestWorkspaceOwners: whoever owns the directory, the program owns it inside.
func TestWorkspaceOwners(t *testing.T) {
	b := open(t, jail.Config{})
	dir := t.TempDir()
	for _, id := range []int{0, 1234, 1000} {
		if err := os.Chown(dir, id, id+1); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("f", id)
		want(t, run(t, b, sandbox.Spec{Argv: sh("umask 077; echo x > " + name + " && stat -c %u:%g . " + name), Dir: dir}), sandbox.OK, "1000:1000\n1000:1000\n")
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || int(st.Uid) != id || int(st.Gid) != id+1 {
			t.Errorf("want a file of %d:%d on the host, got %d:%d, %v", id, id+1, st.Uid, st.Gid, err)
		}
	}
}

// TestNothingWritesAfterTheEnd: when Run returns, what the program left in the
// background has written its last byte.
func TestNothingWritesAfterTheEnd(t *testing.T) {
	b, dir := open(t, jail.Config{}), t.TempDir()
	file := filepath.Join(dir, "f")
	size := func() int64 {
		fi, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	for range 20 {
		run(t, b, sandbox.Spec{Argv: sh("for i in 1 2 3; do (while :; do echo x >> f; done) > /dev/null 2>&1 & done; while [ ! -s f ]; do :; done"), Dir: dir})
		then := size()
		for deadline := time.Now().Add(10 * time.Millisecond); time.Now().Before(deadline); {
			if now := size(); now != then {
				t.Fatalf("the file grew from %d to %d bytes after the end", then, now)
			}
		}
	}
}

// TestNamedFileSize: no single file of a named directory grows past the limit,
// however fast it is written; nobody has to notice it.
func TestNamedFileSize(t *testing.T) {
	b, dir := open(t, jail.Config{}), t.TempDir()
	const most = 8 << 20
	out := run(t, b, sandbox.Spec{Code: "open('f', 'wb', buffering=0).write(b'x' * (100 << 20))\nimport os; os.truncate('f', 1 << 30)", Dir: dir, Limits: sandbox.Limits{FileBytes: most}})
	fi, err := os.Stat(filepath.Join(dir, "f"))
	if err != nil || fi.Size() > most || out.Cause != sandbox.Files {
		t.Errorf("want files and at most %d bytes, got %s and %v, %v", most, out.Cause, fi.Size(), err)
	}
}

// TestNamedLimits: a named directory on a disk is bounded too.
func TestNamedLimits(t *testing.T) {
	t.Parallel()
	for _, cfg := range []jail.Config{{}, {Warm: 1}} {
		b := open(t, cfg)
		for _, c := range []struct {
			name, code string
			limits     sandbox.Limits
			cause      sandbox.Cause
		}{
			{"one file", "f = open('f', 'wb')\nwhile True: f.write(b'x' * 65536)", sandbox.Limits{FileBytes: 8 << 20}, sandbox.Files},
			{"one file, told", "open('new', 'wb').write(b'x' * (64 << 20))", sandbox.Limits{FileBytes: 32 << 20}, sandbox.Files},
			{"many files", "i = 0\nwhile True:\n    open(f'f{i}', 'wb').write(b'x' * 100_000); i += 1", sandbox.Limits{FileBytes: 8 << 20}, sandbox.Files},
			{"number", "i = 0\nwhile True:\n    open(f'f{i}', 'wb').close(); i += 1", sandbox.Limits{Files: 500}, sandbox.Files},
			{"deleted but open", "keep = []\nimport os\nwhile True:\n    keep.append(open('f', 'wb')); keep[-1].write(b'x' * 1_000_000); keep[-1].flush(); os.remove('f')", sandbox.Limits{FileBytes: 64 << 20}, sandbox.Files},
			{"together with /tmp", "open('a', 'wb').write(b'x' * (6 << 20)); open('/tmp/b', 'wb').write(b'x' * (6 << 20))\nimport time; time.sleep(5)", sandbox.Limits{FileBytes: 8 << 20}, sandbox.Files},
			{"within", "open('a', 'wb').write(b'x' * (7 << 20))", sandbox.Limits{FileBytes: 8 << 20}, sandbox.OK},
			{"not what was there", "open('old', 'ab').write(b'x' * (1 << 20))", sandbox.Limits{FileBytes: 8 << 20}, sandbox.OK},
			{"hidden", "import os\nos.mkdir('d')\ni = 0\nos.chdir('d'); os.chmod('.', 0o300)\nwhile True:\n    open(f'f{i}', 'wb').write(b'x' * 100_000); i += 1", sandbox.Limits{FileBytes: 8 << 20}, sandbox.Files},
		} {
			t.Run(c.name, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "old"), make([]byte, 20<<20), 0o644); err != nil {
					t.Fatal(err)
				}
				ready(t, b, cfg.Warm)
				out := run(t, b, sandbox.Spec{Code: c.code, Dir: dir, Limits: c.limits})
				if out.Cause != c.cause {
					t.Errorf("want %s, got %s, exit %d %q: %s", c.cause, out.Cause, out.Exit, out.Signal, clip(out.Stderr))
				}
				var held int64
				filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
					if fi, err := os.Lstat(p); err == nil {
						held += fi.Sys().(*syscall.Stat_t).Blocks * 512
					}
					return nil
				})
				if over := held - 20<<20 - c.limits.WithDefaults().FileBytes; over > 64<<20 {
					t.Errorf("the directory holds %d bytes more than allowed", over)
				}
			})
		}
	}
}
