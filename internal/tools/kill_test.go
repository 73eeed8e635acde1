//go:build linux

package tools

import (
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
	"github.com/kern-run/kern/internal/program/reap"
)

var none = json.RawMessage(`{}`)

// A call that has returned left nothing, at once: there is no waiting here.
func TestNothingIsLeft(t *testing.T) {
	need(t, "setsid")
	const first = `[ "$1" ] || { sh "$0" again & exec sleep 100; }` + "\n" // the first one stays
	scripts := map[string]string{
		"plain":  first + `sh "$0" again & sh "$0" again & wait`,
		"chain":  first + `while :; do sh "$0" again & sh "$0" again; done`,
		"setsid": first + `while :; do setsid sh "$0" again & setsid sh "$0" again & done`,
	}
	for _, c := range []struct {
		name, script string
		code         abi.Code
	}{
		{name: "daemon"},
		{name: "twofold"},
		{name: "hang", code: abi.ToolTimeout},
		{name: "closed", code: abi.ToolTimeout},
		{name: "bomb", script: "plain", code: abi.ToolTimeout},
		{name: "bomb", script: "chain", code: abi.ToolTimeout},
		{name: "bomb", script: "setsid", code: abi.ToolTimeout},
		{name: "spoil"},
	} {
		for _, pooled := range []bool{true, false} {
			name := c.name + c.script
			if !pooled {
				if c.name == "bomb" {
					continue
				}
				name += " without pool"
			}
			t.Run(name, func(t *testing.T) {
				r := supervised(t)
				if !pooled {
					r = unpooled()
				}
				dir := nest(t)
				if err := os.WriteFile(filepath.Join(dir, c.script+".sh"), []byte(scripts[c.script]), 0o644); err != nil {
					t.Fatal(err)
				}
				timeout := 700 * time.Millisecond
				if c.code == "" {
					timeout = 20 * time.Second // it is to end by itself, also on a slow machine
				}
				tl := command1(t, abi.ToolSpec{Command: nastyProgram(t, c.name, dir, c.script+".sh"), Timeout: timeout}, r)
				for range 2 { // the second by the same supervisor
					out := tl.Run(context.Background(), Input{Args: none})
					if left := marked(dir); len(left) > 0 {
						t.Fatalf("left behind: %s", left)
					}
					switch {
					case c.code == "" && out.Err != nil:
						t.Fatalf("failed: %+v", out.Err)
					case c.code != "" && (out.Err == nil || out.Err.Code != c.code):
						t.Fatalf("got %s, %+v; want %s", out.Value, out.Err, c.code)
					}
					for _, f := range mustGlob(filepath.Join(dir, "pid-*")) {
						if err := os.Remove(f); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		}
	}
}

func landlocked() bool {
	v, _, e := syscall.Syscall(444, 0, 0, 1)
	return e == 0 && v >= reap.ScopedSince
}

// Where the system lets us, a program cannot signal its supervisor.
func TestSupervisorCannotBeKilled(t *testing.T) {
	if !landlocked() {
		t.Log("this system cannot keep signals in; TestSupervisorKilled is what holds here")
		return
	}
	for name, want := range map[string]string{"patricide": `"kill: operation not permitted"`, "lullaby": `"stop: operation not permitted"`} {
		dir := nest(t)
		tl := command1(t, abi.ToolSpec{Command: nastyProgram(t, name, dir)}, supervised(t))
		for range 3 {
			out := tl.Run(context.Background(), Input{Args: none})
			if out.Err != nil || string(out.Value) != want {
				t.Errorf("%s: got %s, %+v", name, out.Value, out.Err)
			}
			if left := marked(dir); len(left) > 0 {
				t.Errorf("%s left %s", name, left)
			}
		}
	}
}

// Where it can, the keeper cleans up, and one that is told to pause goes on.
func TestSupervisorKilled(t *testing.T) {
	r := supervised(t, oldSystem)
	dir := nest(t)
	tl := command1(t, abi.ToolSpec{Command: nastyProgram(t, "patricide", dir), Timeout: 20 * time.Second}, r)
	out := tl.Run(context.Background(), Input{Args: none})
	if out.Err == nil || out.Err.Code != abi.ToolFailed || !strings.Contains(out.Err.Message, "all it had started was killed") {
		t.Errorf("got %s, %+v", out.Value, out.Err)
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	for _, name := range []string{"lullaby", "lullaby-both"} {
		dir := nest(t)
		tl := command1(t, abi.ToolSpec{Command: nastyProgram(t, name, dir), Timeout: 500 * time.Millisecond}, r)
		out := tl.Run(context.Background(), Input{Args: none})
		if out.Err == nil || out.Err.Code != abi.ToolTimeout {
			t.Errorf("%s: got %s, %+v", name, out.Value, out.Err)
		}
		if left := marked(dir); len(left) > 0 {
			t.Errorf("%s: left behind: %s", name, left)
		}
	}
}

// The kernel dies by SIGKILL: nothing of what it ran, and no supervisor, idle
// or busy, outlives it.
func TestKernelKilled(t *testing.T) {
	for _, c := range []struct {
		system, tool  string
		linger, least int
	}{
		{"", "hang", 3, 8},
		{oldSystem, "hang", 3, 8},
		{oldSystem, "lullaby", 1, 6}, // the supervisor was told to pause
	} {
		dir := nest(t)
		cmd := exec.Command("/proc/self/exe", "nasty", "kernel", dir, c.tool)
		cmd.Env = append(os.Environ(), "SYSTEM="+c.system)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(dir, c.linger)
		for began := time.Now(); len(marked(dir)) < c.least; pause() {
			if time.Since(began) > 30*time.Second {
				t.Fatalf("%+v: %d processes before the kill; the test shows nothing", c, len(marked(dir)))
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		began := time.Now()
		for left := marked(dir); len(left) > 0; left = marked(dir) {
			if time.Since(began) > 30*time.Second {
				t.Fatalf("%+v: left behind: %s", c, left)
			}
			pause()
		}
	}
}

func TestScenario10ToolTimeout(t *testing.T) {
	dir := nest(t)
	tl := command1(t, abi.ToolSpec{Command: nastyProgram(t, "hang", dir), Timeout: 500 * time.Millisecond}, supervised(t))
	out := tl.Run(context.Background(), Input{Args: none})
	if out.Err == nil || out.Err.Code != abi.ToolTimeout || !strings.Contains(out.Err.Message, "500ms") {
		t.Errorf("got %+v", out.Err)
	}
	if out.Wall < 500*time.Millisecond {
		t.Errorf("stopped after %s, and it had 500ms", out.Wall)
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
}

func TestScenario11WallLimit(t *testing.T) {
	for name, cause := range map[string]error{"wall": &abi.Error{Code: abi.LimitWall, Message: "the time is up"}, "plain": nil} {
		dir := nest(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		tl := command1(t, abi.ToolSpec{Command: nastyProgram(t, "hang", dir)}, supervised(t))
		go func() {
			await(dir, 3)
			cancel(cause)
		}()
		out := tl.Run(ctx, Input{Args: none})
		want := abi.Interrupted
		if cause != nil {
			want = abi.LimitWall
		}
		if out.Err == nil || out.Err.Code != want {
			t.Errorf("%s: got %+v, want %s", name, out.Err, want)
		}
		if left := marked(dir); len(left) > 0 {
			t.Errorf("%s: left behind: %s", name, left)
		}
		if out := tl.Run(ctx, Input{Args: none}); out.Err == nil || out.Err.Code != want || len(mustGlob(dir+"/pid-*")) > 3 {
			t.Errorf("%s: a call after the end: %+v", name, out.Err)
		}
	}
}

// A pool that is closed while a call runs keeps no supervisor: that of the call
// ends with it, and the call is none the worse.
func TestPoolClosedDuringACall(t *testing.T) {
	dir := nest(t)
	r := supervised(t, dir)
	if err := r.Pool.Warm(); err != nil {
		t.Fatal(err)
	}
	goOn := filepath.Join(dir, "go-on")
	tl := command1(t, abi.ToolSpec{Command: sh(`echo >` + dir + `/pid-here; while ! [ -f ` + goOn + ` ]; do sleep 0.02; done; echo '"done"'`)}, r)
	ended := make(chan Output)
	go func() { ended <- tl.Run(context.Background(), Input{Args: none}) }()
	await(dir, 1)
	if err := r.Pool.Close(); err != nil {
		t.Error(err)
	}
	mustWrite(goOn)
	if out := <-ended; out.Err != nil || string(out.Value) != `"done"` {
		t.Errorf("%s %+v", out.Value, out.Err)
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
}
