//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
