//go:build unix

package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

var slowRun = map[string]string{
	"agent.yaml": "model: script:replies.yaml\ntools: [{name: linger, command: [linger, $WORK/ran, 30]}]\n",
	"replies.yaml": `
replies:
  - calls: [{tool: linger, args: {}}]
  - text: last words
`}

// TestOneDaemon has many commands find no daemon at the same moment. One is
// started, and serves all.
func TestOneDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if out, errs, code := w.kern("ps", "--json"); code != 0 || out != "[]\n" {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
		})
	}
	all.Wait()
	about, err := w.client().About(t.Context())
	if err != nil || about.Pid != daemonOf(w.data()) {
		t.Errorf("%+v, %v; the lock is held by %d", about, err, daemonOf(w.data()))
	}
	if i, err := os.Stat(api.SocketOf(w.data())); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", i, err)
	}
	if i, err := os.Stat(w.data()); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("the data directory: %v, %v", i, err)
	}
}

// TestDaemonLetsGo looks whether the daemon keeps anything of who started it:
// its output, which a pipe would wait for, its directory, its session.
func TestDaemonLetsGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c := w.command("ps")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString(0); err == nil { // to its end: nobody else holds it
		t.Error("no end of the output")
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	pid := daemonOf(w.data())
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != w.data() {
		t.Errorf("it works in %s, %v", dir, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if f := strings.Fields(string(stat)); err != nil || f[5] != fmt.Sprint(pid) {
		t.Errorf("its session is %s, and it is %d, %v", f[5], pid, err)
	}
}

// TestLongName puts the data directory where no socket can be.
func TestLongName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	data := filepath.Join(w.dir, strings.Repeat("long-", 30), "data")
	w.ok("ps", "--data", data)
	socket := api.SocketOf(data)
	if len(socket) > 107 || socket == filepath.Join(data, "kern.sock") {
		t.Errorf("the socket is %s", socket)
	}
	w.ok("ps", "--data", data)
	pid := daemonOf(data)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEnd(data)
	w.ok("ps", "--data", data)
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the dead daemon's socket is still there: %v", err)
	}
	socket = api.SocketOf(data)
	w.ok("stop-daemon", "--data", data)
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", filepath.Dir(socket), err)
	}
}

// TestOutdated: a daemon that runs with what kern.yaml and the environment were
// when it started says so, and the next one does not.
func TestOutdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"replies.yaml": "replies: [{text: done}]\n"})
	const said = "changed since the daemon started; kern stop-daemon"
	runs := func(what string, want bool, text string, args ...string) {
		t.Helper()
		if _, errs, _ := w.kern(args...); strings.Contains(errs, text) != want {
			t.Errorf("%s: %s", what, errs)
		}
	}
	run := []string{"run", "--model", "script:replies.yaml", "go"}
	runs("at first", false, said, run...)
	for _, text := range []string{"yield: deny\n", "prices: p.yaml\n"} {
		for name, text := range map[string]string{"p.yaml": "- {model: \"openai:x\", input: 1, output: 1}\n", "kern.yaml": text} {
			if err := os.WriteFile(filepath.Join(w.data(), name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		runs("run with "+text, true, said, run...)
		if strings.HasPrefix(text, "yield") {
			runs("exec", true, said, "exec", "--", "true")
			runs("key new", true, said, "key", "new")
			if out, _, _ := w.kern("doctor"); !strings.Contains(out, said) {
				t.Errorf("doctor does not know: %s", out)
			}
		}
		w.ok("stop-daemon")
		runs("anew", false, said, run...)
	}
	if err := os.WriteFile(filepath.Join(w.data(), "p.yaml"), []byte("- {model: \"openai:x\", input: 2, output: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	runs("with another price", true, said, run...)
	nowhere := "providers: {openai: {base_url: \"http://127.0.0.1:9/v1\", key_env: OPENAI_API_KEY}}\n"
	if err := os.WriteFile(filepath.Join(w.data(), "kern.yaml"), []byte(nowhere), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("stop-daemon")
	w.ok("ps")
	w.env = append(w.env, "OPENAI_API_KEY=sk-of-nobody")
	runs("a key that nobody needs", false, "was not set where the daemon started", run...)
	runs("a key", true, "the variable OPENAI_API_KEY is set here, but was not set where the daemon started", "run", "--detach", "--model", "openai:gpt-5", "go")
}

// TestTwoWorlds keeps two data directories apart.
func TestTwoWorlds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"replies.yaml": "replies: [{text: done}]\n"})
	other := filepath.Join(w.dir, "other")
	w.ok("run", "--model", "script:replies.yaml", "go")
	if out := w.ok("ps", "--json", "--data", other); out != "[]\n" {
		t.Errorf("the other one has %s", out)
	}
	w.ok("stop-daemon", "--data", other)
	if out := w.ok("ps", "--json"); !strings.Contains(out, `"pid":1`) {
		t.Errorf("the first one has %s", out)
	}
	if out, errs, code := w.kern("stop-daemon", "--data", other); code != 0 || !strings.Contains(errs, "no daemon serves") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestServe runs the daemon in the foreground.
func TestServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c := w.command("serve")
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(errs).ReadString('\n')
	if err != nil || !strings.Contains(line, "serving "+w.data()) {
		t.Errorf("%q, %v", line, err)
	}
	w.ok("ps")
	if out, errs, code := w.kern("serve"); code != 1 || !strings.Contains(errs, "already serves "+w.data()) {
		t.Errorf("a second one: exit %d: %s%s", code, out, errs)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("its end: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(w.data(), "kern.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestOtherVersion meets a daemon of another version.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if err := os.MkdirAll(w.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(w.data(), "kern.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.VersionHeader, "0.0.9")
		fmt.Fprintln(w, "[]")
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	if out, errs, code := w.kern("ps"); code != 1 || !strings.Contains(errs, "version 0.0.9, and this program has version "+version) || !strings.Contains(errs, "stop-daemon") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

// TestCtrlC interrupts kern run: once for last words, twice for the end.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		times  int
		reason string
		output string
	}{{1, "term", "last words\n"}, {2, "", ""}} {
		w := newWorld(t, slowRun)
		w.ok("ps")
		run := w.command("run", "-f", "agent.yaml", "go")
		var out, errs strings.Builder
		run.Stdout, run.Stderr = &out, &errs
		if c.times == 2 { // and no last words soon
			if err := os.WriteFile(w.file("replies.yaml"), []byte("latency: 30s\nreplies: [{text: never}]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		began := func() bool { return w.lines("ran")["began"] == 1 }
		if c.times == 2 {
			began = func() bool { out, _, _ := w.kern("ps"); return strings.Contains(out, "running") }
		}
		w.until("its beginning", began)
		for range c.times {
			if err := run.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			w.until("the signal", func() bool { return w.signals(1) == c.times || c.times == 2 && w.signals(1) == 1 || w.gone(run) })
		}
		code := codeOf(run.Wait())
		if code != exitKilled || out.String() != c.output || !strings.Contains(errs.String(), "to finish") {
			t.Errorf("%d times: exit %d, %q: %s", c.times, code, out.String(), errs.String())
		}
	}
}

// TestInterrupted interrupts commands that wait: for a daemon that does not
// answer, for a process, for its records.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slowRun)
	deaf := filepath.Join(w.dir, "deaf")
	if err := os.MkdirAll(deaf, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(deaf, "kern.sock"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			asked <- struct{}{} // and no answer comes
			defer c.Close()
		}
	}()
	defer l.Close()
	w.ok("run", "--detach", "-f", "agent.yaml", "go")
	w.until("the tool", func() bool { return w.lines("ran")["began"] == 1 })
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"ps", "--data", deaf}, exitUnknown, "interrupted"},
		{[]string{"wait", "1", "--data", deaf}, exitUnknown, "process 1 has not exited"},
		{[]string{"log", "-f", "1"}, 0, ""},
	} {
		var errs strings.Builder
		cmd := w.command(c.args...)
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		switch c.args[0] { // it has begun
		case "log":
			_, err = bufio.NewReader(out).ReadString('\n')
		default:
			<-asked
		}
		if err != nil {
			t.Error(err)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		code := codeOf(cmd.Wait())
		if code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%v: exit %d: %s", c.args, code, errs.String())
		}
	}
	w.ok("kill", "1")
}

func (w *world) signals(pid abi.Pid) (n int) {
	for _, r := range w.records(pid) {
		if r.Kind == abi.KindSignaled {
			n++
		}
	}
	return n
}

// gone reports whether a command has ended and waits to be waited for.
func (w *world) gone(c *exec.Cmd) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// TestRunOutlivesItsDaemon kills the daemon under a run in the foreground. The
// run starts it again and goes on.
func TestRunOutlivesItsDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"agent.yaml":   "model: script:replies.yaml\ntools: [{name: nap, command: [sh, -c, 'echo x >> $WORK/ran; sleep 1'], effect: idempotent}]\n",
		"replies.yaml": "replies:\n  - calls: [{tool: nap, args: {}}]\n  - text: done\n",
	})
	run := w.command("run", "-f", "agent.yaml", "--events", "go")
	var out, errs strings.Builder
	run.Stdout, run.Stderr = &out, &errs
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("the tool", func() bool { return w.lines("ran")["x"] == 1 })
	w.crash()
	if code := codeOf(run.Wait()); code != exitDone || !strings.Contains(errs.String(), "starting it again") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	var n uint64
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, l := range lines[:len(lines)-1] {
		var r abi.Record
		if err := json.Unmarshal([]byte(l), &r); err != nil || r.N != n+1 {
			t.Errorf("after record %d comes %s, %v", n, l, err)
		}
		n = r.N
	}
	var r result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil || r.Exit != abi.ExitDone {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestStopDaemonUnderARun ends the daemon under a run, which says so; later
// the process goes on.
func TestStopDaemonUnderARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slowRun)
	run := w.command("run", "-f", "agent.yaml", "go")
	var errs strings.Builder
	run.Stderr = &errs
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("the tool", func() bool { return w.lines("ran")["began"] == 1 })
	w.ok("stop-daemon")
	if code := codeOf(run.Wait()); code != exitUnknown || !strings.Contains(errs.String(), "kern wait 1") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if r := w.wait("1"); r.Exit != abi.ExitDone || r.Output != "last words" {
		t.Errorf("%+v", r)
	}
	if n := w.lines("ran"); n["began"] != 1 || n["ended"] != 0 {
		t.Errorf("the tool ran %v", n)
	}
}

// TestDamage changes a byte of the journal: it is refused with the place, and
// nothing is made of it.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"replies.yaml": "replies: [{text: done}]\n"})
	w.ok("run", "--model", "script:replies.yaml", "go")
	w.ok("stop-daemon")
	files, err := filepath.Glob(filepath.Join(w.data(), "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	db, err := sql.Open("sqlite", files[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE records SET time = time + 1 WHERE id & 0xffffffff = 3"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out, errs, code := w.kern("ps"); code != 1 || !strings.Contains(errs, "damaged at record 3 of process 1") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
	}
	if out, errs, code := w.kern("run", "--model", "script:replies.yaml", "go"); code != exitUnknown || !strings.Contains(errs, "record 3 of process 1") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestNoDaemon starts it where it cannot be, and where it cannot stay.
func TestNoDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"file": "x", "data.txt": "x"})
	if out, errs, code := w.kern("ps", "--data", w.file("file")); code == 0 || !strings.Contains(errs, "data directory") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if err := os.Mkdir(w.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.data(), "journal.db"), []byte(strings.Repeat("no journal ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if out, errs, code := w.kern("ps"); code != 1 || !strings.Contains(errs, "journal.db") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if time.Since(begun) > patience {
		t.Errorf("it took %s to say so", time.Since(begun))
	}
}
