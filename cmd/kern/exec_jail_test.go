//go:build linux

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/cgroup"
)

// newJail is a world whose programs start in a directory beside all else.
func newJail(t *testing.T) (w *world, m interface{ bill() (int64, int64) }) {
	t.Helper()
	w = newWorld(t, nil)
	up := newUpstream(t, w, "", true)
	w.env = append(w.env, "HOME="+os.Getenv("HOME"))
	return w, billed(func() (int64, int64) { s := up.Stats(); return s.Requests, s.Nano })
}

// billed is what the provider counts: requests and nanodollars.
type billed func() (int64, int64)

func (b billed) bill() (int64, int64) { return b() }

const unmodified = `
import json, os, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
head = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
for i in range(100):
    body = {"model": "m", "messages": [{"role": "user", "content": "question %d" % i}]}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head), timeout=60) as r:
        print(json.load(r)["choices"][0]["message"]["content"], flush=True)
    open("progress", "a").write("%d\n" % i)
`

// TestExecJailAgent runs an agent in Python that knows nothing of all this, and
// stops it to the cent.
func TestExecJailAgent(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is not installed: ", err)
	}
	w, m := newJail(t)
	if err := os.WriteFile(w.file("agent.py"), []byte(unmodified), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code, e := w.exec("--sandbox", "jail", "--money", "0.001", "--", python, "agent.py")
	requests, nano := m.bill()
	spent, err := abi.ParseMoney(e.Process.Usage.Money)
	if code != exitStopped || e.Process.Code != abi.LimitMoney || err != nil || int64(spent) != nano || nano > 1_000_000 || requests < 5 {
		t.Errorf("exit %d, %+v, %d requests for %d, %v: %s%s", code, e, requests, nano, err, out, errs)
	}
	b, err := os.ReadFile(w.file("progress"))
	if n := int64(strings.Count(string(b), "\n")); err != nil || n != requests {
		t.Errorf("%d answers in the workspace, and %d requests: %v", n, requests, err)
	}
}

// TestExecJailShut has a program look for Kern: it is not there.
func TestExecJailShut(t *testing.T) {
	t.Parallel()
	w, m := newJail(t)
	w.ok("ps")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tries := strings.Join([]string{
		"[ -S " + api.SocketOf(w.data()) + " ] && echo control socket",
		"cat " + w.data() + "/kern.yaml 2>/dev/null",
		"[ -e /proc/$PPID ] && echo parent",
		"echo x 2>/dev/null >" + w.data() + "/x && echo written",
		"echo $UP_KEY",
		"agent 1",
	}, "; ")
	out, errs, code, _ := w.exec("--sandbox", "jail", "--show", self, "--", "sh", "-c", tries)
	if requests, _ := m.bill(); code != 0 || requests != 1 || !strings.Contains(out, "a word of the model") || strings.Contains(out, upstreamKey) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	for _, open := range []string{"control", "providers", "parent", "written"} {
		if strings.Contains(out, open) {
			t.Errorf("%s", out)
		}
	}
}

// TestExecJailKeyFile has a provider's key in a file of the directory that the
// program writes in: it is not there for the program.
func TestExecJailKeyFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"key.txt": upstreamKey, "other.txt": "other"})
	w.env = append(w.env, "HOME="+os.Getenv("HOME"))
	m := newUpstream(t, w, "", false)
	file := filepath.Join(w.data(), "kern.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), "models:", "key_file: "+w.file("key.txt")+", models:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, errs, code, _ := w.exec("--sandbox", "jail", "--show", self, "--", "sh", "-c", "cat key.txt other.txt; agent 1")
	if code != 0 || strings.Contains(out, upstreamKey) || !strings.Contains(out, "other") || m.Stats().OK != 1 {
		t.Errorf("exit %d, %+v: %s%s", code, m.Stats(), out, errs)
	}
}

// TestExecJailHome gives an agent a home that stays, and one of its own that does
// not: in both it keeps its state.
func TestExecJailHome(t *testing.T) {
	t.Parallel()
	w, _ := newJail(t)
	home, other := t.TempDir(), t.TempDir()
	const script = `cat "$HOME/state" 2>/dev/null; mkdir -p "$HOME/.agent/log" && echo kept >"$HOME/state" && echo wrote; echo 1 >"$0/new" && echo more`
	for _, c := range []struct {
		args []string
		out  string
	}{
		{nil, "wrote\n"}, {nil, "wrote\n"},
		{[]string{"--home", home}, "wrote\n"}, {[]string{"--home", home, "--write", other}, "kept\nwrote\nmore\n"},
	} {
		args := append([]string{"-q", "--sandbox", "jail"}, c.args...)
		out, errs, _, _ := w.exec(append(args, "--", "sh", "-c", script, other)...)
		if out != c.out {
			t.Errorf("%q: %s, want %s: %s", c.args, out, c.out, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(home, ".agent/log")); err != nil {
		t.Error(err)
	}
	w.env = append(w.env, "HOME=/")
	if out, errs, _, _ := w.exec("-q", "--sandbox", "jail", "--", "sh", "-c", script, other); out != "wrote\n" {
		t.Errorf("without a home: %s%s", out, errs)
	}
}

// TestExecJailDoctor has the doctor build one.
func TestExecJailDoctor(t *testing.T) {
	t.Parallel()
	w, _ := newJail(t)
	if out, errs, code := w.kern("doctor"); code != 0 || !strings.Contains(out, "can reach only the gateway") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestExecJailRefused asks for jails that cannot be.
func TestExecJailRefused(t *testing.T) {
	t.Parallel()
	w, _ := newJail(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--sandbox", "vm", "--", "true"}, "expected jail"},
		{[]string{"--write", "/usr", "--", "true"}, "need --sandbox jail"},
		{[]string{"--home", "/tmp", "--", "true"}, "need --sandbox jail"},
		{[]string{"--sandbox", "jail", "--write", os.Getenv("HOME"), "--", "true"}, "too much"},
		{[]string{"--sandbox", "jail", "--write", w.data(), "--", "true"}, "no program may see"},
		{[]string{"--sandbox", "jail", "--home", "/nothing/there", "--", "true"}, "no such file"},
		{[]string{"--show", "/usr", "--", "true"}, "need --sandbox jail"},
		{[]string{"--sandbox", "jail", "--show", "/proc", "--", "true"}, "a jail has its own"},
		{[]string{"--sandbox", "jail", "--show", w.data(), "--", "true"}, "no program may see"},
		{[]string{"--sandbox", "jail", "--show", "/nothing/there", "--", "true"}, "no such file"},
	} {
		_, errs, code, _ := w.exec(c.args...)
		if code != exitNoStart || !strings.Contains(errs, c.says) {
			t.Errorf("%q: exit %d: %s", c.args, code, errs)
		}
	}
	w.env = append(w.env, "HOME="+w.dir)
	if _, errs, code, _ := w.exec("--sandbox", "jail", "--", "true"); code != exitNoStart || !strings.Contains(errs, "is too much") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestExecJailShared starts jails in a directory to which everybody writes, with
// somebody else's socket in it. A program reaches it only if the user says so.
func TestExecJailShared(t *testing.T) {
	t.Parallel()
	w, _ := newJail(t)
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(shared, "u.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const connect = `import socket; socket.socket(socket.AF_UNIX).connect("u.sock"); print("CONNECTED")`
	for _, c := range []struct {
		args []string
		code int
		out  string
		says string
	}{
		{[]string{"exec", "-q", "--sandbox", "jail", "--", "python3", "-c", connect}, exitNoStart, "", "say --write " + shared},
		{[]string{"exec", "-q", "--sandbox", "jail", "--write", shared, "--", "python3", "-c", connect}, 0, "CONNECTED\n", ""},
		{[]string{"exec", "-q", "--sandbox", "jail", "--home", shared, "--", "true"}, exitNoStart, "", "everybody's"},
		{[]string{"code", "--sandbox", "jail", "--workspace", shared, "--", "python3", "-c", connect}, exitUsage, "", "everybody's"},
	} {
		cmd := w.command(c.args...)
		cmd.Dir = shared
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if code := codeOf(err); code != c.code || string(out) != c.out || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%q: exit %d: %s%s", c.args, code, out, &errs)
		}
	}
}

// TestExecJailBounds looks at the bounds of a jail that has none of its own: they are
// those of this machine, and can be lifted.
func TestExecJailBounds(t *testing.T) {
	t.Parallel()
	w, _ := newJail(t)
	usual, err := cgroup.Usual()
	if err != nil || usual.Memory < 1<<20 || usual.Processes < 512 {
		t.Fatalf("%+v, %v", usual, err)
	}
	if err := program.Bounded(usual); err != nil {
		t.Fatalf("this host makes no cgroups: %v", err)
	}
	const fork = `n=0; while [ $n -lt $0 ]; do n=$((n+1)); sleep 1000 & done; kill $(jobs -p); echo started $n`
	many := strconv.Itoa(usual.Processes + 50)
	for _, c := range []struct {
		args []string
		done bool
	}{
		{[]string{"--sandbox", "jail"}, false},
		{[]string{"--sandbox", "jail", "--processes", "none"}, true},
	} {
		out, errs, _, e := w.exec(append(append([]string{}, c.args...), "--", "bash", "-c", fork, many)...)
		if strings.Contains(out, "started "+many) != c.done || !c.done && e.Process.Error != nil && !strings.Contains(e.Process.Error.Message, "--processes "+strconv.Itoa(usual.Processes)) {
			t.Errorf("%q: %s%s", c.args, out, errs[max(0, len(errs)-500):])
		}
	}
	for _, args := range [][]string{{"--sandbox", "jail"}, {"--sandbox", "jail", "--memory", "none"}} {
		if out, errs, code, _ := w.exec(append(args, "--", "sh", "-c", "cat /proc/self/cgroup >/dev/null && echo in")...); code != 0 || out != "in\n" {
			t.Errorf("%q: exit %d: %s%s", args, code, out, errs)
		}
	}
}

// TestExecJailScenario23 kills the daemon between two calls: the way to it is
// found again.
func TestExecJailScenario23(t *testing.T) {
	t.Parallel()
	w, m := newJail(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := w.command("exec", "--sandbox", "jail", "--show", self, "--steps", "5", "--", "agent", "3", w.file("go"))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("the first answer", func() bool { n, _ := m.bill(); return n == 1 })
	w.crash()
	if err := os.WriteFile(w.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(cmd.Wait()); code != 0 || strings.Count(out.String(), "a word of the model") != 3 {
		t.Errorf("exit %d: %s%s", code, &out, &errs)
	}
}
