//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/reap"
	"github.com/kern-run/kern/model"
)

// upstreamKey is the provider's, which no program may see.
const upstreamKey = "sk-upstream-of-the-provider"

// newUpstream starts a provider, and names it in the configuration of w: a
// token in costs one dollar for a million, one out two.
func newUpstream(t *testing.T, w *world, script string, keyed bool) *mockprovider.Mock {
	t.Helper()
	c := mockprovider.Config{Reply: "a word of the model", Price: model.Price{Input: 1e9, Output: 2e9}, Keys: []string{upstreamKey}}
	if script != "" {
		s, err := model.ParseScript("replies", []byte(script))
		if err != nil {
			t.Fatal(err)
		}
		c.Script = s
	}
	m := mockprovider.New(c)
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	key := ""
	if keyed {
		key = "key_env: UP_KEY, "
		w.env = append(w.env, "UP_KEY="+upstreamKey)
	}
	text := fmt.Sprintf("providers:\n  openai: {base_url: %q, %smodels: {m: {input: 1, output: 2, max_output: 50}}}\n", s.URL+"/v1", key)
	if err := os.MkdirAll(w.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.data(), "kern.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// ended is the object of --json-summary.
type ended struct {
	Program struct {
		Exit, Signal int
		Stopped      bool
	}
	Process result
}

// exec runs a program as a process to its end.
func (w *world) exec(args ...string) (out, errs string, code int, e ended) {
	w.t.Helper()
	file := w.file("summary.json")
	_ = os.Remove(file)
	out, errs, code = w.kern(append([]string{"exec", "--json-summary", file}, args...)...)
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil && code != 125 && code != 126 && code != 127 {
		w.t.Fatalf("kern exec %q: exit %d, %v: %s%s", args, code, err, out, errs)
	}
	return out, errs, code, e
}

// TestExecCodes looks at what comes out of a program, and at how its process
// ends.
func TestExecCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"plain": "text", "script": "#!/no/such/interpreter\n"})
	if err := os.Chmod(w.file("script"), 0o700); err != nil {
		t.Fatal(err)
	}
	newUpstream(t, w, "", true)
	for _, c := range []struct {
		args []string
		code int
		exit abi.Exit
		says string
	}{
		{[]string{"--", "sh", "-c", "echo out; exit 0"}, 0, abi.ExitDone, "process 1 done · no model call went through Kern · "},
		{[]string{"sh", "-c", "exit 3"}, 3, abi.ExitFailed, "PROGRAM_FAILED"},
		{[]string{"--", "sh", "-c", "kill -15 $$"}, 143, abi.ExitFailed, "SIGTERM"},
		{[]string{"--", "no-such-program"}, 127, "", "hint: check the name and PATH"},
		{[]string{"--", "A=1", "true"}, 127, "", "hint: set a variable before kern exec, or with env: -- env A=1 PROGRAM"},
		{[]string{"--", "./plain"}, 126, "", "hint: make the file executable with chmod +x"},
		{[]string{"--", "/"}, 126, "", "hint: name a program in that directory"},
		{[]string{"--", "./script"}, 127, "", "hint: the file exists, but the interpreter"},
		{[]string{"--output-bytes", "5", "--", "true"}, 125, "", "cannot be enforced"},
		{[]string{"--processes", "0", "--", "true"}, 125, "", "expected a whole number from 1 to 4194304"},
		{[]string{"--processes", "9999999", "--", "true"}, 125, "", "expected a whole number from 1 to 4194304"},
		{[]string{"--processes", "", "--", "true"}, 125, "", "--processes is empty"},
		{[]string{"--memory", "", "--", "true"}, 125, "", "--memory is empty"},
		{[]string{"--sandbox", "", "--", "true"}, 125, "", "--sandbox is empty"},
		{[]string{"--account", "", "--", "true"}, 125, "", "--account is empty"},
		{[]string{"--wall", "0", "--", "true"}, 125, "", "the program could not run at all"},
		{[]string{"--grace", "10", "--", "true"}, 125, "", `--grace is "10", expected a duration such as 30s or 10m`},
		{[]string{"--grace", "-1s", "--", "true"}, 125, "", "expected 0 or more"},
		{[]string{"--priority", "x", "--", "true"}, 125, "", `--priority is "x", expected a whole number`},
		{[]string{"--memory", "5", "--", "true"}, 125, "", "expected a size such as 512MiB"},
		{[]string{"--money", "much", "--", "true"}, 125, "", "hint: kern exec --help explains the command"},
		{[]string{"--monkey", "1", "--", "true"}, 125, "", "unknown flag: --monkey"},
		{[]string{"--account", "nobody's", "--", "true"}, 125, "", "account"},
		{nil, 125, "", "hint: for example: kern exec --money 1 -- python agent.py"},
	} {
		out, errs, code, e := w.exec(c.args...)
		if code != c.code || e.Process.Exit != c.exit || !strings.Contains(errs, c.says) {
			t.Errorf("%q: exit %d, %+v: %s%s", c.args, code, e, out, errs)
		}
	}
	if out, errs, code := w.kern("exec", "--quiet", "--", "sh", "-c", "echo out; echo errs >&2"); code != 0 || out != "out\n" || errs != "errs\n" {
		t.Errorf("exit %d: %q, %q", code, out, errs)
	}
	if out := w.ok("ps", "-a"); !strings.Contains(out, "sh ") {
		t.Errorf("its name is missing: %s", out)
	}
	for _, file := range []string{w.file("none/summary"), w.dir} {
		_, errs, code := w.kern("exec", "--json-summary", file, "--", "sh", "-c", "echo 1 >ran")
		if _, err := os.Stat(w.file("ran")); code != exitNoStart || err == nil || !strings.Contains(errs, "--json-summary: open") {
			t.Errorf("a summary that cannot be written: exit %d, %v: %s", code, err, errs)
		}
	}
	for script, want := range map[string]int{"exit 0": exitNoStart, "exit 3": 3} {
		if _, errs, code := w.kern("exec", "--json-summary", "/dev/full", "--", "sh", "-c", script); code != want || !strings.Contains(errs, "no space left") {
			t.Errorf("%s, and its summary is lost: exit %d: %s", script, code, errs)
		}
	}
}

// TestExecNotStarted: a program that is there and does not start leaves a process
// that has ended, and says why.
func TestExecNotStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"script": "#!/no/such/interpreter\n"})
	newUpstream(t, w, "", true)
	if err := os.Chmod(w.file("script"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, errs, code := w.kern("exec", "--", w.file("script"))
	if r := w.wait("1"); code != 127 || r.Exit != abi.ExitFailed || r.Code != abi.ProgramFailed {
		t.Errorf("exit %d, %+v: %s", code, r, errs)
	}
}

// TestExecLimits has limits stop a program, each exactly.
func TestExecLimits(t *testing.T) {
	t.Parallel()
	const tools = "replies:\n  - {calls: [{tool: look, args: {n: 1}}]}\n  - {calls: [{tool: look, args: {n: 2}}]}\n  - {calls: [{tool: look, args: {n: 3}}]}\n  - {text: done}\n"
	const same = "repeat: true\nreplies:\n  - {calls: [{tool: look, args: {}}]}\n"
	for _, c := range []struct {
		name, script string
		args         []string
		requests     int64
		exit         abi.Exit
		code         abi.Code
	}{
		{"scenario 1", same, []string{"--watchdog", "off", "--steps", "3", "--", "agent", "0"}, 3, abi.ExitLimit, abi.LimitSteps},
		{"scenario 2", same, []string{"--steps", "0", "--", "agent", "0"}, 0, abi.ExitLimit, abi.LimitSteps},
		{"scenario 3", tools, []string{"--tool-calls", "1", "--", "agent", "0"}, 2, abi.ExitLimit, abi.LimitToolCalls},
		{"scenario 5", "", []string{"--model-calls", "4", "--", "agent", "100"}, 4, abi.ExitLimit, abi.LimitModelCalls},
		{"scenario 5, tokens", "", []string{"--tokens", "200", "--", "agent", "100"}, -1, abi.ExitLimit, abi.LimitTokens},
		{"scenario 5, money", "", []string{"--money", "0.001", "--", "agent", "100"}, -1, abi.ExitLimit, abi.LimitMoney},
		{"scenario 13", same, []string{"--", "agent", "0"}, -1, abi.ExitLoop, abi.WatchdogLoop},
		{"no limit", tools, []string{"--", "agent", "0"}, 4, abi.ExitDone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			m := newUpstream(t, w, c.script, true)
			out, errs, code, e := w.exec(c.args...)
			want := exitStopped
			if c.exit == abi.ExitDone {
				want = 0
			}
			if code != want || e.Process.Exit != c.exit || e.Process.Code != c.code || e.Program.Stopped != (want != 0) {
				t.Fatalf("exit %d, %+v: %s%s", code, e, out, errs)
			}
			s := m.Stats()
			if c.requests >= 0 && s.Requests != c.requests || s.Requests > 30 {
				t.Errorf("%d requests, want %d: %s", s.Requests, c.requests, out)
			}
			if e.Process.Usage.Model != s.Requests {
				t.Errorf("%d calls are booked, and the provider counts %d", e.Process.Usage.Model, s.Requests)
			}
			if c.code == abi.LimitMoney {
				spent, err := abi.ParseMoney(e.Process.Usage.Money)
				if err != nil || spent > 1_000_000 || c.script == "" && spent != s.Nano {
					t.Errorf("spent %s of 0.001, and %d were billed, %v", e.Process.Usage.Money, s.Nano, err)
				}
			}
			if c.code != "" && !strings.Contains(out, string(c.code)) && c.code != abi.WatchdogLoop && c.name != "scenario 2" {
				t.Logf("the program was ended before it could print the error: %s", out)
			}
		})
	}
}

// TestExecBounds bounds a program on this machine, or is told why that cannot be.
func TestExecBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	able := program.Bounded(cgroup.Bounds{Memory: 32 << 20, Processes: 10})
	for flag, c := range map[string]struct{ value, script, says string }{
		"--memory":    {"32MiB", "echo 1 >ran; exec tail /dev/zero >/dev/null", "SIGKILL; it used all of --memory 32MiB"},
		"--processes": {"5", "echo 1 >ran; for i in 1 2 3 4 5 6; do sleep 1000 & done", "it reached --processes 5"},
	} {
		_ = os.Remove(w.file("ran"))
		_, errs, code, _ := w.exec(flag, c.value, "--", "sh", "-c", c.script)
		_, ran := os.Stat(w.file("ran"))
		if able != nil && (code != exitNoStart || ran == nil || !strings.Contains(errs, "cannot be bounded")) {
			t.Errorf("%s: exit %d, %v where %v: %s", flag, code, ran, able, errs)
		}
		if able == nil && (code == 0 || ran != nil || !strings.Contains(errs, c.says)) {
			t.Errorf("%s: exit %d, %v: %s", flag, code, ran, errs)
		}
	}
}

// TestExecUnbounded asks for bounds as a user to whom no cgroup belongs: the
// program is not started, and the user told where it could be.
func TestExecUnbounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	root := os.Getuid() == 0
	if !root && program.Bounded(cgroup.Bounds{Processes: 10}) == nil {
		t.Log("nothing to try: this user has cgroups")
		return
	}
	for _, flags := range [][]string{{"--memory", "64MiB"}, {"--processes", "9"}} {
		c := w.command(append(append([]string{"exec"}, flags...), "--", "sh", "-c", "echo ran")...)
		c.Path, c.Dir = "/proc/self/exe", "/"
		if root {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := c.CombinedOutput()
		if codeOf(err) != exitNoStart || !strings.Contains(string(out), "systemd-run --user --scope") || strings.Contains(string(out), "ran\n") {
			t.Errorf("%q: %v: %s", flags, err, out)
		}
	}
}

// stubborn is a program that heeds nothing, with a child in a session of its
// own; both write who they are, and wait without starting others.
const stubborn = `mkfifo f; trap "" TERM INT HUP; (setsid sh -c 'trap "" TERM INT HUP; echo $$ >>pids; exec 3<>f; read x <&3' &)
echo $$ >>pids; while [ $(wc -l <pids) -lt 2 ]; do sleep 0.01; done; echo 1 >ready; exec 3<>f; read x <&3`

// swept waits until none of the programs is alive, and fails if that takes long.
func (w *world) swept(within time.Duration) {
	w.t.Helper()
	b, err := os.ReadFile(w.file("pids"))
	if err != nil {
		w.t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		left := ""
		for _, s := range strings.Fields(string(b)) {
			if stat, err := os.ReadFile("/proc/" + s + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
				left += " " + s
			}
		}
		if left == "" {
			return
		}
		if time.Since(begun) > within {
			w.t.Fatalf("alive:%s", left)
		}
	}
}

// start starts a program as a process in the background, and waits for its file ready.
func (w *world) start(args ...string) *exec.Cmd {
	w.t.Helper()
	c := w.command(append([]string{"exec", "--json-summary", w.file("summary.json")}, args...)...)
	c.Stdout, c.Stderr = nil, os.Stderr
	c.Stderr = nil
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.until("the program", func() bool { _, err := os.Stat(w.file("ready")); return err == nil })
	return c
}

// TestExecScenario11 has a time limit end a program that heeds nothing.
func TestExecScenario11(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	w.ok("ps")
	_, errs, code, e := w.exec("--wall", "3s", "--grace", "200ms", "--", "sh", "-c", stubborn)
	if code != exitStopped || e.Process.Exit != abi.ExitLimit || e.Process.Reason != "wall" || e.Program.Signal != 9 {
		t.Errorf("exit %d, %+v: %s", code, e, errs)
	}
	w.swept(0)
}

// TestExecScenario12 has signals to a process act on its program.
func TestExecScenario12(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb   string
		script string
		reason string
		signal int
	}{
		{"kill", stubborn, "kill", 9},
		{"term", stubborn, "term", 9},
		{"term", `trap 'echo 1 >heard; exit 5' TERM; echo $$ >pids; echo 1 >ready; while :; do :; done`, "term", 0},
	} {
		w := newWorld(t, nil)
		newUpstream(t, w, "", true)
		grace := "300ms"
		if c.verb == "kill" {
			grace = "1h" // it has none
		}
		cmd := w.start("--grace", grace, "--", "sh", "-c", c.script)
		w.ok("stop", "1")
		b, err := os.ReadFile(w.file("pids"))
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(b)) {
			w.until("its stop", func() bool {
				stat, _ := os.ReadFile("/proc/" + pid + "/stat")
				return strings.Contains(string(stat), ") T ")
			})
		}
		w.ok("cont", "1")
		for _, pid := range strings.Fields(string(b)) {
			w.until("its going on", func() bool {
				stat, _ := os.ReadFile("/proc/" + pid + "/stat")
				return !strings.Contains(string(stat), ") T ")
			})
		}
		w.ok(c.verb, "1")
		if code := codeOf(cmd.Wait()); code != exitStopped {
			t.Errorf("%s: exit %d", c.verb, code)
		}
		w.swept(0)
		r := w.wait("1")
		if r.Exit != abi.ExitKilled || r.Reason != c.reason {
			t.Errorf("%s: %+v", c.verb, r)
		}
		if _, err := os.Stat(w.file("heard")); (err == nil) != (c.signal == 0) {
			t.Errorf("%s: it heard SIGTERM: %v", c.verb, err)
		}
	}
}

// TestExecScenario23 kills the daemon between two calls of a program, or tells it
// to end. The command starts it again, and the same process goes on.
func TestExecScenario23(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(w *world){"killed": (*world).crash, "told": func(w *world) { w.ok("stop-daemon") }} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			outlives(t, end)
		})
	}
}

// outlives has a program outlive its daemon.
func outlives(t *testing.T, end func(w *world)) {
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", true)
	cmd := w.command("exec", "--steps", "5", "--", "agent", "3", w.file("go"))
	out, err := os.Create(w.file("out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := func() int {
		b, _ := os.ReadFile(w.file("out"))
		return strings.Count(string(b), "a word of the model")
	}
	w.until("the first answer", func() bool { return answers() == 1 })
	end(w)
	if err := os.WriteFile(w.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(cmd.Wait()); code != 0 || answers() != 3 {
		t.Errorf("exit %d, %d answers: %s", code, answers(), &errs)
	}
	if r := w.wait("1"); r.Exit != abi.ExitDone || m.Stats().Requests > 4 || r.Steps < 3 || r.Steps > 4 {
		t.Errorf("%+v, and the provider counts %d", r, m.Stats().Requests)
	}
}

// TestExecKilled kills the command itself. Nothing of the program is left, and
// its process ends.
func TestExecKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	cmd := w.start("--", "sh", "-c", stubborn)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	w.swept(patience)
	if r := w.wait("1"); r.Exit != abi.ExitFailed || r.Code != abi.ProgramGone {
		t.Errorf("%+v", r)
	}
}

// TestExecGuardKilled kills the supervisor of a program. Nobody saw how the
// program ended, and that is what is said.
func TestExecGuardKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	w.ok("ps") // the daemon is somebody else's child
	cmd := w.start("--", "sh", "-c", stubborn)
	at := cmd.Process.Pid
	for range 2 { // the keeper, and below it
		below := reap.Children(at)
		if len(below) != 1 {
			t.Fatalf("below %d are %v", at, below)
		}
		at = below[0]
	}
	w.until("the word of the program", func() bool { return len(reap.Children(at)) > 0 })
	if err := syscall.Kill(at, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(cmd.Wait()); code != 137 {
		t.Errorf("exit %d", code)
	}
	w.swept(0)
	if r := w.wait("1"); r.Exit != abi.ExitFailed || r.Code != abi.ProgramGone {
		t.Errorf("%+v", r)
	}
}

// TestExecLost takes the daemon away for good. A program that nobody counts any
// more is stopped.
func TestExecLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	cmd := w.command("exec", "--", "sh", "-c", stubborn)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("the program", func() bool { _, err := os.Stat(w.file("ready")); return err == nil })
	settings := filepath.Join(w.data(), "kern.yaml")
	if err := os.Rename(settings, settings+".good"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(settings, []byte("providers: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.crash()
	if code := codeOf(cmd.Wait()); code != exitNoStart || !strings.Contains(errs.String(), "the program was stopped") {
		t.Errorf("exit %d: %s", code, &errs)
	}
	w.swept(0)
	if err := os.Rename(settings+".good", settings); err != nil {
		t.Fatal(err)
	}
	w.ok("ps") // and one that lives tidies up
}

// TestExecSignals passes signals on.
func TestExecSignals(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		w := newWorld(t, nil)
		newUpstream(t, w, "", true)
		cmd := w.start("--", "sh", "-c", `trap "exit 42" INT TERM HUP; echo $$ >pids; echo 1 >ready; while :; do sleep 0.01; done`)
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if code := codeOf(cmd.Wait()); code != 42 {
			t.Errorf("%s: exit %d", s, code)
		}
		w.swept(0)
	}
}

// TestExecScenario24 trips the limit of a child. It is told at once, and its
// parent goes on.
func TestExecScenario24(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", true)
	out, errs, code, e := w.exec("--", "agent", "child", "2")
	if code != 0 || !strings.Contains(out, "child: 4") || !strings.Contains(out, string(abi.LimitSteps)) || !strings.Contains(out, "the parent goes on") || m.Stats().Requests != 3 {
		t.Errorf("exit %d, %+v, %d requests: %s%s", code, e, m.Stats().Requests, out, errs)
	}
	out, errs, code, e = w.exec("--children", "0", "--", "agent", "child", "2") // to have no child is not the end
	if code != 0 || strings.Count(out, string(abi.LimitChildren)) != 2 || !strings.Contains(out, "the parent goes on") || e.Program.Stopped {
		t.Errorf("exit %d, %+v: %s%s", code, e, out, errs)
	}
}

// TestExecWithin has a program start others with higher limits: they get what
// is left of its own, and end with it.
func TestExecWithin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", true)
	out, errs, code, e := w.exec("--steps", "5", "--", "sh", "-c", "kern exec --steps 2 -- agent 9; kern exec --steps 1000 -- agent 9; echo last $?")
	if code != 0 || !strings.Contains(out, "last 124") || e.Process.Usage.Model != 5 || m.Stats().Requests != 5 {
		t.Errorf("exit %d, %+v, %d requests: %s%s", code, e, m.Stats().Requests, out, errs)
	}
	for _, pid := range []string{"2", "3"} {
		if r := w.wait(pid); r.Exit != abi.ExitLimit || r.Code != abi.LimitSteps {
			t.Errorf("process %s: %+v", pid, r)
		}
	}
	if out := w.ok("show", "3"); !strings.Contains(out, "parent") {
		t.Errorf("it is nobody's child: %s", out)
	}
}

// TestExecWithinRuns has a program start processes by every other command that
// does: they are its children, or are not started.
func TestExecWithinRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", true)
	w.ok("account", "set", "crew", "--money", "5")
	const script = `kern run --model openai:m -d "one" >runs; kern wait $(cat runs) >/dev/null
kern run --model openai:m --steps 9 --priority 0 "two" >>runs
kern key new --json --steps 9 >key
OPENAI_API_KEY=$(sed 's/.*"key":"\([^"]*\)".*/\1/' key) agent 1
kern run --model openai:m "five"; echo "run $?"
kern run --model openai:m --account crew "six"; echo "account $?"
kern fork 2; echo "fork $?"`
	out, errs, code, e := w.exec("--steps", "3", "--priority", "20", "--", "sh", "-c", script)
	if s := m.Stats(); code != 0 || e.Process.Usage.Model != 3 || s.Requests != 3 || !strings.HasSuffix(out, "1 a word of the model\nrun 3\naccount 2\nfork 2\n") ||
		!strings.Contains(errs, "LIMIT_STEPS") || !strings.Contains(errs, "a child is charged to its parent") || !strings.Contains(errs, "hint: run kern fork outside of that program") {
		t.Errorf("exit %d, %+v, %d requests: %s%s", code, e, s.Requests, out, errs)
	}
	var kids []abi.Pid
	for _, r := range w.records(1) {
		if r.Intent != nil && (r.Intent.Row == "run" || r.Intent.Row == "key") {
			kids = append(kids, abi.Pid(len(kids)+2))
		}
	}
	if len(kids) != 4 {
		t.Errorf("it started %d: %s", len(kids), out)
	}
	for _, pid := range kids {
		if p, err := w.client().Show(t.Context(), pid); err != nil || p.Parent != 1 || p.State != abi.Exited || p.Priority != 20 {
			t.Errorf("%+v, %v", p, err)
		}
	}
}

// TestExecReports has a program report the refusal of its call in two parts: Kern lets it
// come to the end of the report, and of itself.
func TestExecReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"agent.py": `
import json, os, sys, time, urllib.error, urllib.request
head = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
for i in range(10):
    body = {"model": "m", "messages": [{"role": "user", "content": "question %d" % i}]}
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), head), timeout=60).read()
    except urllib.error.HTTPError as e:
        print("first half of", e.code, file=sys.stderr, flush=True)
        time.sleep(0.1)
        print("second half", file=sys.stderr, flush=True)
        sys.exit(7)
`})
	newUpstream(t, w, "", true)
	_, errs, code, e := w.exec("--steps", "2", "--", "python3", "agent.py")
	if code != exitStopped || e.Program.Exit != 7 || e.Program.Signal != 0 || !e.Program.Stopped || !strings.HasPrefix(errs, "first half of 402\nsecond half\nkern: process 1 stopped by its limit") {
		t.Errorf("exit %d, %+v: %s", code, e, errs)
	}
}

// TestExecScenario58 starts programs whose calls go past Kern. With a limit that counts
// calls they are not started, unless the user accepts that. What they spend is never
// said to be nothing.
func TestExecScenario58(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"bin/gemini": "#!/bin/sh\necho asked elsewhere\n", ".codex/config.toml": "model_provider = \"elsewhere\"\n"})
	if err := os.Chmod(w.file("bin/gemini"), 0o700); err != nil {
		t.Fatal(err)
	}
	newUpstream(t, w, "", true)
	w.ok("account", "set", "crew", "--money", "5")
	plain := append(slices.Clone(w.env), "HOME="+os.Getenv("HOME")) // a jail may not write in it
	with := append(slices.Clone(plain), "GEMINI_API_KEY=x", "PATH="+w.file("bin")+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		env  []string
		args string
		code int
		says []string
		not  string
	}{
		{with, "--money 0.5 -- gemini -p hi", exitNoStart, []string{"the limit cannot hold", "what gemini asks its vendor", "GEMINI_API_KEY", "--ungoverned"}, "asked"},
		{with, "--steps 5 -- sh -c true", exitNoStart, []string{"the limit cannot hold", "GEMINI_API_KEY"}, ""},
		{with, "--account crew -- true", exitNoStart, []string{"the limit cannot hold"}, ""},
		{with, "--money 0.5 --ungoverned -- gemini -p hi", 0, []string{"asked elsewhere", "is NOT limited by Kern\n  hint:", "\n  NOT limited by Kern: what gemini asks its vendor, and what the program asks with GEMINI_API_KEY"}, "$"},
		{with, "--wall 1h -- gemini -p hi", 0, []string{"is NOT limited by Kern\n  hint:", "\n  NOT limited by Kern: what gemini"}, "$"},
		{with, "--money 0.5 --sandbox jail -- true", 0, []string{"no model call went through Kern"}, "NOT"},
		{plain, "--money 0.5 -- true", 0, []string{"no model call went through Kern", "NOT limited by Kern: models that the program asked elsewhere"}, "$"},
		{plain, "-- true", 0, []string{"no model call went through Kern"}, "$"},
		{plain, "--money 0.5 -- agent 1", 0, []string{"1 model call ", "of $0.5"}, "NOT"},
		{w.env, "--money 0.5 -- sh -c true;grep~base_url~$CODEX_HOME/config.toml|grep~-q~$OPENAI_BASE_URL&&cat~$CODEX_HOME/config.toml", 0, []string{"model_provider = \"kern\""}, "elsewhere\""},
	} {
		w.env = c.env
		args := strings.Fields(c.args)
		for i, a := range args {
			args[i] = strings.ReplaceAll(a, "~", " ")
		}
		out, errs, code, _ := w.exec(args...)
		said := out + errs
		if code != c.code || c.not != "" && strings.Contains(said, c.not) {
			t.Errorf("%s: exit %d: %s", c.args, code, said)
		}
		for _, want := range c.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: want %q: %s", c.args, want, said)
			}
		}
	}
}

// TestExecScenario34 looks for the provider's key in what a program is given.
func TestExecScenario34(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", true)
	w.ok("ps")
	w.env = append(w.env, "OPENAI_API_KEY="+upstreamKey, "OTHER="+upstreamKey, "NO_PROXY=example.com", "GEMINI_API_KEY=x", "ANTHROPIC_API_KEY=sk-own-of-the-program")
	out, errs, code, _ := w.exec("--", "sh", "-c", "env; tr '\\0' '\\n' </proc/$PPID/environ; agent 1")
	if code != 0 || strings.Contains(out, upstreamKey) || !strings.Contains(out, "a word of the model") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	vars := map[string]string{}
	for l := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), "=")
		vars[name] = value
	}
	key := vars["KERN_KEY"]
	for name, want := range map[string]string{"OPENAI_API_KEY": key, "OTHER": key, "UP_KEY": key, "KERN_PID": "1", "NO_PROXY": "example.com,127.0.0.1,localhost,::1",
		"OPENAI_BASE_URL": vars["KERN_URL"] + "/v1", "OPENAI_API_BASE": vars["KERN_URL"] + "/v1",
		"ANTHROPIC_BASE_URL": vars["KERN_URL"] + "/k/" + key, "ANTHROPIC_API_KEY": "sk-own-of-the-program"} {
		if vars[name] != want || want == "" {
			t.Errorf("%s is %q, want %q", name, vars[name], want)
		}
	}
	if !strings.Contains(errs, "warning: what the program asks with GEMINI_API_KEY is NOT limited by Kern") {
		t.Errorf("%s", errs)
	}
	if n := m.Stats().Requests; n != 1 {
		t.Errorf("%d requests", n)
	}
	w.env = slices.DeleteFunc(w.env, func(v string) bool { return strings.HasPrefix(v, "OPENAI_API_KEY=") }) // by which it was known as well
	if out, errs, code, _ := w.exec("--", "sh", "-c", "env"); code != 0 || strings.Contains(out, upstreamKey) || !strings.Contains(out, "UP_KEY=sk-kern-") {
		t.Errorf("the key that kern.yaml names: exit %d: %s%s", code, out, errs)
	}
	w.leaks(upstreamKey, "sk-own-of-the-program")
}

// leaks looks for secrets in the data directory.
func (w *world) leaks(secrets ...string) {
	w.t.Helper()
	err := filepath.WalkDir(w.data(), func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		for _, s := range secrets {
			if strings.Contains(string(b), s) {
				w.t.Errorf("%s holds a key", name)
			}
		}
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
}

// TestExecOwnCredential runs a program with a key of its own, where the
// daemon has none: it is passed on, and never stored.
func TestExecOwnCredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, errs, _, _ := w.exec("--", "true")
	if !strings.Contains(errs, "kern mock") || !strings.Contains(errs, "OPENAI_API_KEY") {
		t.Errorf("without any: %s", errs)
	}
	w.env = append(w.env, "OPENAI_API_KEY="+upstreamKey)
	out, errs, code, _ := w.exec("--", "agent", "env", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
	if code != 0 || !strings.Contains(out, "OPENAI_API_KEY="+upstreamKey+"\n") || strings.Count(out, "/k/sk-kern-") != 2 || !strings.HasSuffix(out, "ANTHROPIC_API_KEY=\n") || strings.Contains(errs, "kern mock") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	w.ok("stop-daemon")
	m := newUpstream(t, w, "", false)
	_, errs, code, e := w.exec("--steps", "1", "--", "sh", "-c", "OPENAI_API_KEY="+upstreamKey+" OPENAI_BASE_URL=$KERN_URL/k/$KERN_KEY/v1 agent 2")
	if s := m.Stats(); code != exitStopped || e.Process.Usage.Model != 1 || s.Requests != 1 || s.OK != 1 {
		t.Errorf("exit %d, %+v, %+v: %s", code, e, s, errs)
	}
	w.leaks(upstreamKey)
}

// TestExecOwnPlace runs a program that was to ask another place than the usual:
// with its own credential when the daemon asks there too, and else not at all.
func TestExecOwnPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", false)
	b, err := os.ReadFile(filepath.Join(w.data(), "kern.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, base, _ := strings.Cut(string(b), `base_url: "`)
	base, _, _ = strings.Cut(base, `"`)
	w.env = append(w.env, "OPENAI_API_KEY="+upstreamKey)
	_, errs, code, _ := w.exec("--", "agent", "1")
	if s := m.Stats(); code == 0 || s.OK != 0 {
		t.Errorf("exit %d: a credential for the usual place went to another: %+v, %s", code, s, errs)
	}
	asked := m.Stats().Requests
	w.env = append(w.env, "OPENAI_BASE_URL="+base+"/")
	_, errs, code, _ = w.exec("--", "agent", "2")
	if s := m.Stats(); code != 0 || s.OK != 2 {
		t.Errorf("exit %d: its own credential did not go where it was for: %+v, %s", code, s, errs)
	}
	w.env = append(w.env, "OPENAI_BASE_URL=http://127.0.0.1:9/v1")
	_, errs, code, _ = w.exec("--", "agent", "2")
	if s := m.Stats(); code != exitNoStart || s.Requests != asked+2 || !strings.Contains(errs, "127.0.0.1:9") || !strings.Contains(errs, base) || !strings.Contains(errs, "kern.yaml") {
		t.Errorf("exit %d, %+v: %s", code, s, errs)
	}
	w.leaks(upstreamKey)
}

// TestExecKeyUnset starts the daemon where the variable of a provider's key is
// not set. Who has it set now is told whose it must be.
func TestExecKeyUnset(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	last := len(w.env) - 1
	set := w.env[last]
	w.env = w.env[:last]
	w.ok("ps")
	w.env = append(w.env, set)
	out, errs, code, _ := w.exec("--", "agent", "1")
	if code == 0 || !strings.Contains(out, string(abi.ModelAuth)) || !strings.Contains(out, "UP_KEY") || !strings.Contains(out, "kern stop-daemon") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	w.ok("stop-daemon")
	if out, errs, code, _ = w.exec("--", "agent", "1"); code != 0 || !strings.Contains(out, "a word of the model") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestExecMoney runs many calls up to a limit, and compares with what the
// provider counts: the limit is the price of some of the calls, to the cent.
func TestExecMoney(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", true)
	// The model says the same each time, which the watchdog would take for a loop.
	_, _, _, all := w.exec("--watchdog", "off", "--", "agent", "20")
	price, err := abi.ParseMoney(all.Process.Usage.Money)
	if err != nil || price != m.Stats().Nano {
		t.Fatalf("spent %d, billed %d, %v", price, m.Stats().Nano, err)
	}
	_, errs, code, e := w.exec("--watchdog", "off", "--money", abi.FormatMoney(price), "--", "agent", "60")
	spent, err := abi.ParseMoney(e.Process.Usage.Money)
	if err != nil || code != exitStopped || e.Process.Code != abi.LimitMoney || spent > price || spent != m.Stats().Nano-price {
		t.Errorf("exit %d, spent %d of %d, billed %d: %s", code, spent, price, m.Stats().Nano-price, errs)
	}
	if n := e.Process.Steps; n < 15 || n > 20 {
		t.Errorf("%d calls for the price of twenty", n)
	}
}

// TestExecExample runs the agent of examples/exec, which is Python with its
// standard library alone, against what kern mock says by its script.
func TestExecExample(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is not installed: ", err)
	}
	script, err := os.ReadFile("../../examples/exec/replies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Abs("../../examples/exec/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	m := newUpstream(t, w, string(script), true)
	w.env = append(w.env, "MODEL=m", "PYTHONDONTWRITEBYTECODE=1")
	out, errs, code, e := w.exec("--money", "1", "--steps", "5", "--", python, file)
	if code != 0 || strings.Count(out, "look ") != 2 || !strings.HasSuffix(out, "That is all there is.\n") || e.Process.Usage.Model != 3 || e.Process.Usage.Tool != 2 || m.Stats().Requests != 3 {
		t.Errorf("exit %d, %+v: %s%s", code, e, out, errs)
	}
	out, errs, code, e = w.exec("--tool-calls", "1", "--", python, file)
	if code != exitStopped || strings.Count(out, "look ") != 1 || e.Process.Code != abi.LimitToolCalls {
		t.Errorf("exit %d, %+v: %s%s", code, e, out, errs)
	}
}
