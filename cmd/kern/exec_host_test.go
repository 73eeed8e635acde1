//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestExecUnheard takes the reader of what is said away: the exit code and the
// file that tell how it ended are there all the same.
func TestExecUnheard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from.Close()
	defer to.Close()
	cmd := w.command("exec", "--json-summary", "summary.json", "--", "sh", "-c", "exit 3")
	cmd.Stderr = to
	code := codeOf(cmd.Run())
	b, err := os.ReadFile(w.file("summary.json"))
	if code != 3 || err != nil || !json.Valid(b) {
		t.Errorf("exit %d, %v: %q", code, err, b)
	}
}

// TestExecSameDaemon names the data directory on the command line: a kern that
// the program starts asks the daemon of that one, and is its child.
func TestExecSameDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	other := filepath.Join(w.dir, "other")
	w.ok("--data", other, "exec", "-q", "--steps", "1", "--", "sh", "-c", "cd / && kern exec --name inner -- true")
	if out := w.ok("--data", other, "show", "2"); !strings.Contains(out, "inner") || !strings.Contains(out, "parent") {
		t.Errorf("the second process is %s", out)
	}
	if _, err := os.Stat(w.data()); err == nil {
		t.Error("a second daemon was started")
	}
}

// TestExecNoTemp runs a program where there is no place for temporary files, as in
// a small container.
func TestExecNoTemp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.env = append(w.env, "TMPDIR="+w.file("none"))
	out, errs, code := w.kern("exec", "--", "sh", "-c", "echo ran")
	if code != 0 || out != "ran\n" {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	w.crash()
	w.ok("ps")
	w.ok("stop-daemon")
	if left, err := filepath.Glob(filepath.Join(w.data(), "kern-*")); err != nil || len(left) > 0 {
		t.Errorf("of the temporary files %q is left, %v", left, err)
	}
}

// TestExecAsleep orders the end of programs whose kern exec is stopped, as Ctrl-Z
// does it, or would stop with its program, which stops when it is to end. Nothing
// is left of them.
func TestExecAsleep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		sleep bool
		then  []string
	}{
		"killed":    {[]string{"--", "sh", "-c", stubborn}, true, []string{"kill", "1"}},
		"asked":     {[]string{"--grace", "100ms", "--", "sh", "-c", stubborn}, true, []string{"term", "1"}},
		"a limit":   {[]string{"--grace", "100ms", "--", "sh", "-c", stubborn}, true, []string{"limit", "1", "--wall", "1ms"}},
		"by itself": {[]string{"--grace", "100ms", "--steps", "0", "--", "sh", "-c", `echo $$ >pids; trap 'kill -STOP $$' TERM; echo 1 >ready; agent 1; while :; do sleep 0.01; done`}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			newUpstream(t, w, "", true)
			cmd := w.start(c.args...)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			if c.sleep {
				if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				w.ok(c.then...)
			}
			select {
			case err := <-ended:
				if code := codeOf(err); code != exitStopped {
					t.Errorf("exit %d", code)
				}
				w.swept(0)
			case <-time.After(patience):
				t.Error("it sleeps on")
				_ = cmd.Process.Signal(syscall.SIGCONT)
				_ = cmd.Process.Kill()
				<-ended
			}
		})
	}
}
