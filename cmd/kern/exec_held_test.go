//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// post is a program that makes one request at the control socket: without a word of
// Kern's own, and at wish from a child of the process that connected.
const post = `
import os, socket, sys
path, method, target, body, how = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
if how == "orphan" and os.fork():
    os._exit(0)
if how == "orphan":
    os.setsid()
    if os.fork():
        os._exit(0)
s.connect(path)
if how == "handed":
    r, w = os.pipe()
    if os.fork():
        os._exit(0)
    os.close(w)
    while os.getppid() == int(os.environ["CONNECTED"]):
        pass
s.sendall(("%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (method, target, len(body), body)).encode())
answer = b""
while True:
    b = s.recv(65536)
    if not b:
        break
    answer += b
open(sys.argv[0] + ".answer", "wb").write(answer)
os.rename(sys.argv[0] + ".answer", sys.argv[0] + ".done")
`

// TestExecHeld has the program of a process try all that would widen its limits, by
// the commands and past them, and do what it may.
func TestExecHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"post.py": post})
	newUpstream(t, w, "", true)
	w.ok("account", "set", "crew", "--money", "5")
	w.ok("key", "new", "--money", "3") // process 1, somebody else's
	tries := []struct{ command, code string }{
		{"kern limit $KERN_PID --unset money", "may not raise or remove a limit"},
		{"kern limit $KERN_PID --money 100", "money 100 is more than the 1 it has"},
		{"kern limit $KERN_PID --steps 40 --unset money", "may not raise or remove a limit"},
		{"kern limit 1 --money 1", "which is not below it"},
		{"kern nice $KERN_PID 0", "more urgent"},
		{"kern kill 1", "which is not below it"},
		{"kern stop 1", "which is not below it"},
		{"kern cont $KERN_PID", "may not continue"},
		{"kern account set crew --money 100", "may not change an account"},
		{"kern account set new --money 100", "may not change an account"},
		{"env -u KERN_KEY -u KERN_PID kern key new --money 100", "outside of its limits"},
		{"KERN_PID=1 kern key new --money 100", "outside of its limits"},
		{"env -u KERN_KEY -u KERN_PID -u KERN_URL kern run --model openai:m hello", "outside of its limits"},
		{"env -i PATH=$PATH HOME=$HOME KERN_DATA=$KERN_DATA kern exec -- true", "outside of its limits"},
		{"kern approve 1 1", "may not answer a question"},
		{"kern deny 1 1", "may not answer a question"},
		{"kern fork 1", "outside of that program"},
		{"env -u KERN_PID kern fork 1", "may not fork"},
		{"kern key revoke 1", "which is not below it"},
		{"setsid -w kern stop-daemon", "may not stop the daemon"},
		{"kern stop-daemon", "may not stop the daemon"},
	}
	var script strings.Builder
	for i, c := range tries {
		fmt.Fprintf(&script, "echo TRY %d; %s; echo RC $?\n", i, c.command)
	}
	script.WriteString("echo TRY end; kern ps; kern show 1; kern log 1; kern account list; kern key new --money 0.1 --json; kern limit $KERN_PID --money 0.5; kern kill 3; kern exec --steps 1 -- sh -c 'kern limit $KERN_PID --unset steps; kern limit 2 --steps 1; kern kill 2'; kern limit $KERN_PID --steps 40; kern kill $KERN_PID; sleep 100")
	before := daemonOf(w.data())
	out, errs, code, e := w.exec("--money", "1", "--steps", "50", "--", "sh", "-c", "exec 2>&1\n"+script.String())
	if code != exitStopped || e.Process.Exit != abi.ExitKilled { // by its own last command
		t.Errorf("exit %d, %+v: %s", code, e, errs)
	}
	parts := strings.Split("\n"+out, "\nTRY ")[1:]
	for i, c := range tries {
		_, said, _ := strings.Cut(parts[i], "\n")
		if refused := !strings.Contains(said, "RC 0"); refused != (c.code != "") || !strings.Contains(said, c.code) || refused && !strings.Contains(said, "hint:") {
			t.Errorf("%s: %s", c.command, said)
		}
	}
	may := parts[len(tries)]
	for _, want := range []string{`"key":"sk-kern-`, "crew", "process 4 may not raise", "process 4 may not change process 2, which"} {
		if !strings.Contains(may, want) {
			t.Errorf("want %s in what it may: %s", want, may)
		}
	}
	if daemonOf(w.data()) != before {
		t.Error("the daemon is another one")
	}
	for _, p := range []struct {
		pid    abi.Pid
		parent abi.Pid
		money  string
	}{{1, 0, "3"}, {2, 0, "0.5"}, {3, 2, "0.1"}} {
		if got, err := w.client().Show(t.Context(), p.pid); err != nil || got.Parent != p.parent || moneyLimit(&got.Limits) != p.money {
			t.Errorf("%+v, %v, want %+v", got, err, p)
		}
	}
	if all, err := w.client().Keys.List(t.Context(), true); err != nil || len(all.Keys) != 4 {
		t.Errorf("%d keys, want 4: %v", len(all.Keys), err)
	}
}

// moneyLimit is the limit on money, in dollars.
func moneyLimit(l *abi.Limits) string {
	n, _ := l.Get(abi.Money)
	return abi.FormatMoney(n)
}

// TestExecHeldByHand makes the requests without Kern's client, from processes that
// left the program's session and lost their parents. After a restart of the daemon
// the same holds. Outside of the program each request is granted.
func TestExecHeldByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	requests := []struct{ method, target, body string }{
		{"PATCH", "/v1/processes/1", `{"unset":["money"]}`},
		{"PATCH", "/v1/processes/1", `{"limits":{"money":"100"}}`},
		{"POST", "/v1/keys", `{"limits":{"money":"100"},"priority":10}`},
		{"POST", "/v1/keys", `{"limits":{"money":"100"},"priority":10,"parent":2}`},
		{"PUT", "/v1/accounts/crew", `{"limits":{"money":"100"}}`},
		{"POST", "/v1/processes/2/signal", `{"signal":"kill"}`},
		{"POST", "/v1/daemon/stop", ``},
	}
	w.ok("ps")
	started, stop := w.file("started"), w.file("stop")
	cmd := w.command("exec", "-q", "--money", "1", "--", "sh", "-c", `
n=0; echo >"$1"; while ! [ -e "$2" ]; do
  if [ -e run.sh ]; then mv run.sh now.sh; sh now.sh; fi
  sleep 0.02; done`, "sh", started, stop)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("the program", func() bool { _, err := os.Stat(started); return err == nil })
	w.ok("key", "new", "--money", "3") // process 2
	n := 0
	ask := func(how string, i int) string {
		t.Helper()
		n++
		name := fmt.Sprintf("post%d.py", n)
		q := requests[i]
		if err := os.WriteFile(w.file(name), []byte(post), 0o600); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("CONNECTED=$$ exec python3 %s %s %s %s '%s' %s\n", name, api.SocketOf(w.data()), q.method, q.target, q.body, how)
		if err := errors.Join(os.WriteFile(w.file("run.tmp"), []byte(line), 0o600), os.Rename(w.file("run.tmp"), w.file("run.sh"))); err != nil {
			t.Fatal(err)
		}
		w.until(name, func() bool { _, err := os.Stat(w.file(name + ".done")); return err == nil })
		b, err := os.ReadFile(w.file(name + ".done"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, crashed := range []bool{false, true} {
		if crashed {
			w.crash()
			w.ok("ps")
		}
		for i, q := range requests {
			for _, how := range []string{"plain", "orphan", "handed"} {
				if got := ask(how, i); !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, string(abi.NotGranted)) {
					t.Errorf("%s %s %s, %s: %s", q.method, q.target, q.body, how, got)
				}
			}
		}
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(cmd.Wait()); code != 0 {
		t.Errorf("exit %d: %s", code, &said)
	}
	if p, err := w.client().Show(t.Context(), 1); err != nil || moneyLimit(&p.Limits) != "1" {
		t.Errorf("%+v, %v", p, err)
	}
	// Outside of the program the same requests are those of a person.
	for _, args := range [][]string{{"limit", "2", "--unset", "money"}, {"account", "set", "crew", "--money", "100"}, {"key", "new", "--money", "100"}, {"kill", "2"}, {"stop-daemon"}} {
		w.ok(args...)
	}
}

// TestToolHeld has a tool of kern run try to widen the limits of its process.
func TestToolHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"replies.yaml": "replies:\n  - calls: [{tool: try, args: {}}]\n  - text: done\n",
		"agent.yaml": `model: script:$WORK/replies.yaml
tools:
  - name: try
    command: [sh, -c, "exec >$WORK/said 2>&1; export KERN_DATA=$WORK/data; kern limit 1 --unset steps; kern key new; kern run --model openai:m hello; kern stop-daemon; kern ps"]
`})
	newUpstream(t, w, "", true)
	out, errs, code := w.kern("run", "-f", "agent.yaml", "--steps", "5", "go")
	b, err := os.ReadFile(w.file("said"))
	said := string(b)
	if code != 0 || err != nil || strings.Count(said, "a tool may not") != 4 || !strings.Contains(said, "PID") {
		t.Errorf("exit %d, %v: %s%s%s", code, err, out, errs, said)
	}
	if p, err := w.client().Show(t.Context(), 1); err != nil {
		t.Error(err)
	} else if n, set := p.Limits.Get(abi.Steps); !set || n != 5 {
		t.Errorf("%+v", p.Limits)
	}
}

// TestExecOtherDaemon starts a daemon of another data directory in a program: it is
// the program's own, and obeys it.
func TestExecOtherDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newUpstream(t, w, "", true)
	const script = `export KERN_DATA=$PWD/other; unset KERN_PID KERN_URL KERN_KEY; kern key new --money 1 >/dev/null && kern limit 1 --unset money && kern exec -- sh -c 'kern limit 2 --money 5; kern stop-daemon' ; kern stop-daemon`
	out, errs, code, _ := w.exec("-q", "--money", "1", "--", "sh", "-c", script)
	if code != 0 || strings.Count(errs, "may not") != 1 || !strings.Contains(errs, "may not stop the daemon") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
