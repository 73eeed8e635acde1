//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/leaktest"
)

// A world is a data directory with its daemon, for tests that scripts cannot
// tell.
type world struct {
	t   *testing.T
	dir string // of files; the data directory is data in it
	env []string
}

// newWorld makes a world with files, in which $WORK is its directory.
func newWorld(t *testing.T, files map[string]string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	tools, err := filepath.Abs("testdata/tools")
	if err != nil {
		t.Fatal(err)
	}
	w.env = []string{"PATH=" + tools + ":" + os.Getenv("PATH"), "HOME=" + w.dir, "USER=ann", "KERN_DATA=" + w.data(), "TMPDIR=" + w.file("tmp"), leaktest.Env()}
	if err := os.Mkdir(w.file("tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(w.file(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.file(name), []byte(strings.ReplaceAll(text, "$WORK", w.dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, log := range endDaemons(w.dir) {
			t.Error(log)
		}
		if left, err := os.ReadDir(w.file("tmp")); err != nil || len(left) > 0 {
			t.Errorf("temporary files are left: %v, %v", left, err)
		}
	})
	return w
}

func (w *world) data() string            { return filepath.Join(w.dir, "data") }
func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// commands is a command that is not started yet.
func (w *world) command(args ...string) *exec.Cmd {
	c := exec.Command("kern", args...)
	c.Dir, c.Env = w.dir, w.env
	return c
}

// kern runs a command to its end.
func (w *world) kern(args ...string) (stdout, stderr string, code int) {
	c := w.command(args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	code = codeOf(c.Run())
	return out.String(), errs.String(), code
}

// ok runs a command that must succeed, and returns what it prints.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	out, errs, code := w.kern(args...)
	if code != 0 {
		w.t.Fatalf("kern %s exits with %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// result is the frozen object of run and wait, as far as tests look at it.
type result struct {
	Pid    abi.Pid
	Exit   abi.Exit
	Reason string
	Code   abi.Code
	Output string
	Error  *abi.Error
	Steps  int64
	Usage  struct {
		Money   string
		InDoubt string `json:"in_doubt"`
		Model   int64  `json:"model_calls"`
		Tool    int64  `json:"tool_calls"`
	}
}

// wait waits for a process.
func (w *world) wait(pid string) (r result) {
	w.t.Helper()
	out, errs, _ := w.kern("wait", pid, "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		w.t.Fatalf("kern wait %s: %v: %s%s", pid, err, out, errs)
	}
	return r
}

// client talks to the daemon, which must run.
func (w *world) client() *api.Client {
	w.t.Helper()
	c, err := api.Dial(w.t.Context(), api.SocketOf(w.data()), version)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// records reads the whole journal of a process.
func (w *world) records(pid abi.Pid) (all []*abi.Record) {
	w.t.Helper()
	err := w.client().Records(w.t.Context(), pid, 0, false, func(r *abi.Record, _ []byte) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// crash kills the daemon with SIGKILL and waits until it is gone.
func (w *world) crash() {
	w.t.Helper()
	pid := daemonOf(w.data())
	if pid == 0 {
		w.t.Fatal("there is no daemon to kill")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	awaitEnd(w.data())
}

// lines is how often each line stands in a file.
func (w *world) lines(name string) map[string]int {
	w.t.Helper()
	b, err := os.ReadFile(w.file(name))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	counts := make(map[string]int)
	for _, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if l != "" {
			counts[l]++
		}
	}
	return counts
}

// until polls a condition for which there is no event.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	for begun := time.Now(); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			w.t.Fatalf("%s does not come", what)
		}
	}
}

// waitsFor reports what a process waits for.
func (w *world) waitsFor(pid abi.Pid) string {
	p, err := w.client().Show(context.Background(), pid)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(p.Waits, ",")
}
