//go:build linux

package program

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCode(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain": 0o600, "script": 0o700} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("exit $1\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		argv []string
		want int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 7"}, 7},
		{[]string{"sh", "-c", "exit 125"}, 125},
		{[]string{"sh", "-c", "kill -9 $$"}, 137},
		{[]string{"sh", "-c", "kill -15 $$"}, 143},
		{[]string{"no-such-program-anywhere"}, NotFound},
		{[]string{dir + "/nothing"}, NotFound},
		{[]string{dir + "/plain"}, CannotRun},
		{[]string{dir}, CannotRun},
		{[]string{dir + "/script", "9"}, 9}, // which names no interpreter
	} {
		cmd := call(t, c.argv...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if got := codeOf(cmd.Run()); got != c.want {
			t.Errorf("%q: exit %d, want %d: %s", c.argv, got, c.want, &errs)
		}
		if named := strings.Contains(errs.String(), "caller:"); named != (c.want == NotFound || c.want == CannotRun) {
			t.Errorf("%q: %s", c.argv, &errs)
		}
	}
}

// TestHere finds a program in the directory, where PATH names that.
func TestHere(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/here", []byte("#!/bin/sh\nexit 9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := call(t, "here")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH=.:"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); codeOf(err) != 9 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestNotStarted starts what cannot be: nothing is left of the attempt, and
// what is too large is said to be that.
func TestNotStarted(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, argv := range map[int][]string{NotFound: {script}, CannotRun: {"true", strings.Repeat("a", 200_000)}} {
		var e *StartError
		if _, err := Start(spec(argv...)); !errors.As(err, &e) || e.Code != want {
			t.Errorf("want %d: %v", want, err)
		}
	}
	if left := supervisors(os.Getpid()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, pid := range kids(os.Getpid()) {
		if state(pid) == "Z" {
			t.Errorf("%d is not buried", pid)
		}
	}
}

// TestByHand starts a supervisor as a person might.
func TestByHand(t *testing.T) {
	for _, setting := range []string{"", "3", "3 true", "3 x false", "2 true false", "77 true false"} {
		cmd := call(t)
		cmd.Args = []string{roleSupervisor}
		cmd.Env = append(os.Environ(), settingsEnv+"="+setting)
		if out, err := cmd.CombinedOutput(); codeOf(err) != 2 || !strings.Contains(string(out), "not for use by hand") {
			t.Errorf("%q: %v: %s", setting, err, out)
		}
	}
}

// TestOtherGroup ends a program that has gone to another group.
func TestOtherGroup(t *testing.T) {
	const script = `import os, signal, sys, time
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    time.sleep(1000)
while os.getpgid(child) != child:
    pass
os.setpgid(0, child)
signal.signal(signal.SIGTERM, lambda *_: os._exit(4))
open(sys.argv[1] + "/me", "w").write("%d\n" % os.getpid())
time.sleep(1000)
`
	dir := t.TempDir()
	g, err := Start(spec("python3", "-c", script, dir))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan Ended, 1)
	go func() { done <- g.Wait() }()
	number(t, dir, "me")
	g.End(0, patience, nil)
	if e := <-done; e.Exit != 4 || e.Signal != 0 {
		t.Errorf("%+v", e)
	}
}

// TestHome compares what a program finds with what it finds without a supervisor:
// streams, directory, environment, further descriptors, signals, limits.
func TestHome(t *testing.T) {
	const look = `cat; pwd; umask; echo "$A"; cat <&5; ls /proc/self/fd; grep -E "Sig(Blk|Ign)" /proc/self/status; ulimit -n; ulimit -Hn; trap; echo errs >&2; echo "$0 $*"`
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("five\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := func(prefix ...string) string {
		argv := append(prefix, "sh", "-c", look, "name", "", "a b")
		cmd := call(t)
		if len(prefix) > 0 {
			argv[0] = cmd.Path
		}
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec 5<"$TEXT"; trap "" HUP; exec "$@"`, "sh"}
		cmd.Args = append(cmd.Args, argv...)
		cmd.Env = append(os.Environ(), "A=with\nlines", "TEXT="+text)
		cmd.Dir = "/"
		cmd.Stdin = strings.NewReader("input\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	bare, guarded := seen(), seen("caller", "caller")
	if bare != guarded || !strings.Contains(bare, "five") {
		t.Errorf("without a supervisor:\n%s\nwith it:\n%s", bare, guarded)
	}
}

// TestStreamEnds closes the streams of a program that lives on: a reader sees
// the end of each, although supervisor and keeper were given it too.
func TestStreamEnds(t *testing.T) {
	cmd := call(t, "sh", "-c", "exec 2>&- 3>&-; exec sleep 100")
	cmd.Args[0] = letsGo
	var theirs, ours []*os.File
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ours, theirs = append(ours, r), append(theirs, w)
	}
	cmd.Stderr, cmd.ExtraFiles = theirs[0], theirs[1:]
	err := cmd.Start()
	for i, w := range theirs {
		_ = w.Close()
		_ = ours[i].SetReadDeadline(time.Now().Add(patience))
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range ours {
		if said, err := io.ReadAll(r); err != nil || len(said) > 0 {
			t.Errorf("stream %d does not end: %q, %v", i+2, said, err)
		}
	}
	kill(t, cmd.Process.Pid, unix.SIGTERM)
	if code := codeOf(cmd.Wait()); code != 143 {
		t.Errorf("exit %d", code)
	}
}

// TestNothingIsLeft has programs leave others behind, by every trick there is.
func TestNothingIsLeft(t *testing.T) {
	const linger = `setsid sh -c 'trap "" HUP INT TERM; echo x >"$0/left"; while :; do sleep 1; done' "$0"`
	const came = `while ! [ -e "$0/left" ]; do sleep 0.01; done; `
	for name, script := range map[string]string{
		"daemon":      linger + ` & ` + came,
		"double fork": `(` + linger + ` &); ` + came,
		"chain": `cat >"$0/deep" <<'END'
[ "$1" = 0 ] && { ` + strings.ReplaceAll(linger, `"$0"`, `"$2"`) + ` & exit; }
(setsid sh "$0" $(($1-1)) "$2" &)
END
sh "$0/deep" 4 "$0"; ` + came,
		"killed": linger + ` & ` + came + `kill -9 $$`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := call(t, shell(dir, script)...)
			if out, err := cmd.CombinedOutput(); codeOf(err) < 0 || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
			if left := marked(dir); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
			if !exists(dir, "left")() {
				t.Error("nothing was to be left")
			}
		})
	}
}

// TestTime counts the processor time of what a program left behind too, which is
// nobody's child when it ends.
func TestTime(t *testing.T) {
	const burn = `import os, sys, time
if os.fork() == 0:
    os.setsid()
    while time.process_time() < 0.2:
        pass
    os.rename(sys.argv[1] + "/me", sys.argv[1] + "/burnt")
    os._exit(0)
os._exit(0)
`
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/me", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `python3 -c "$1" "$0"; while ! [ -e "$0/burnt" ]; do sleep 0.01; done`
	g, err := Start(spec("sh", "-c", script, dir, burn))
	if err != nil {
		t.Fatal(err)
	}
	if e := g.Wait(); e.Exit != 0 || e.CPU < 200*time.Millisecond {
		t.Errorf("%+v", e)
	}
}

// bomb goes on when it can have no more processes; a shell would end there, and
// all of them at once.
const bomb = `import os, time
if os.fork():
    time.sleep(100)
while True:
    try:
        if os.fork() == 0:
            %s
    except OSError:
        time.sleep(0.01)
`

// threadsOfMine counts what a limit on this user's processes counts.
func threadsOfMine() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, name := range all {
		var st unix.Stat_t
		if unix.Stat(name, &st) == nil && int(st.Uid) == os.Getuid() {
			n++
		}
	}
	return n
}

// TestBomb ends programs that fork for ever.
func TestBomb(t *testing.T) {
	for name, child := range map[string]string{"chain": "pass", "setsid": "os.setsid()"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "bomb.py")
			script := fmt.Sprintf(bomb, child)
			if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
				_ = os.Chmod(d, 0o755)
			}
			limit := fmt.Sprintf("prlimit --nproc=%d -- python3 %s", threadsOfMine()+150, file)
			if os.Getuid() == 0 {
				limit = fmt.Sprintf("setpriv --reuid %d --clear-groups prlimit --nproc=150 -- python3 %s", 50000+os.Getpid()%10000, file) // nobody else's processes count
			}
			g, err := Start(spec("sh", "-c", limit+" 2>/dev/null"))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan Ended, 1)
			go func() { done <- g.Wait() }()
			defer g.Kill()
			until(t, "the bomb", func() bool { return len(marked(file)) > 40 })
			g.End(0, 10*time.Millisecond, nil)
			if e := <-done; e.Lost {
				t.Errorf("%+v", e)
			}
			if left := marked(dir); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// crowd is a thousand processes, each in a session of its own.
const crowd = `import os, sys, time
for i in range(1000):
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
open(sys.argv[1], "w").write("1\n")
time.sleep(float(sys.argv[2]))
`

// TestCrowd has a program leave a thousand others behind, to its supervisor or,
// if that was killed, to its keeper. To end them all takes a few looks at them,
// and not one for each that ends.
func TestCrowd(t *testing.T) {
	for who, stays := range map[string]string{"supervisor": "0", "keeper": "1000"} {
		t.Run(who, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "crowd.py")
			if err := os.WriteFile(file, []byte(crowd), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := call(t, "python3", file, dir+"/all", stays)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			number(t, dir, "all")
			begun := time.Now()
			if who == "keeper" {
				kill(t, supervisorOf(t, cmd.Process.Pid), unix.SIGKILL)
			}
			if code := codeOf(cmd.Wait()); code != 0 && who != "keeper" {
				t.Errorf("exit %d", code)
			}
			if took := time.Since(begun); took > patience/4 {
				t.Errorf("it took %s", took)
			}
			if left := marked(file); len(left) > 0 {
				t.Errorf("left behind: %d", len(left))
			}
		})
	}
}

// stay is two programs that heed nothing, one of them in a session of its own.
// They wait without starting others: a shell between fork and exec cannot be
// seen to stop.
const stay = `mkfifo "$0/f"; (setsid sh -c 'trap "" TERM; echo $$ >"$0/pid"; exec 3<>"$0/f"; read x <&3' "$0" &); echo $$ >"$0/me"; trap "" TERM; exec 3<>"$0/f"; read x <&3`

// supervisors are keeper and supervisor of a caller.
func supervisors(caller int) (pids []int) {
	for _, keeper := range kids(caller) {
		if strings.Contains(comm(keeper), roleSupervisor) {
			pids = append(pids, keeper)
			for _, inner := range kids(keeper) {
				if strings.Contains(comm(inner), roleSupervisor) {
					pids = append(pids, inner)
				}
			}
		}
	}
	return pids
}

// supervisorOf is the supervisor of a caller, when it has told the caller of the program.
func supervisorOf(t *testing.T, caller int) (pid int) {
	t.Helper()
	until(t, "the word of the program", func() bool {
		all := supervisors(caller)
		name, err := os.ReadFile("/proc/" + itoa(caller) + "/comm")
		if len(all) < 2 || err != nil || strings.TrimSpace(string(name)) != toldName {
			return false
		}
		pid = all[1]
		return true
	})
	return pid
}

// TestKilled kills, with SIGKILL, whoever looks after a program. The program
// and everything it started are gone soon after.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		who  string
		pick func(caller int) int
		code int
	}{
		{"caller", func(caller int) int { return caller }, -1},
		{"keeper", func(caller int) int { return supervisors(caller)[0] }, 0},
		{"supervisor", func(caller int) int { return supervisorOf(t, caller) }, 137},
	} {
		t.Run(c.who, func(t *testing.T) {
			dir := t.TempDir()
			cmd := call(t, shell(dir, stay)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_, _ = number(t, dir, "me"), number(t, dir, "pid")
			kill(t, c.pick(cmd.Process.Pid), unix.SIGKILL)
			if c.who == "keeper" { // nothing is lost yet
				kill(t, number(t, dir, "me"), unix.SIGKILL)
				c.code = 137
			}
			if code := codeOf(cmd.Wait()); code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			if c.who == "caller" {
				until(t, "the end of all", func() bool { return len(marked(dir)) == 0 })
			}
			if left := marked(dir); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestOutOfReach has a program try to kill its supervisor.
func TestOutOfReach(t *testing.T) {
	dir := t.TempDir()
	cmd := call(t, shell(dir, `k=$(awk '/^PPid/{print $2}' /proc/$PPID/status); kill -9 $PPID; kill -9 $k; kill -STOP $PPID; echo here`)...)
	out, err := cmd.CombinedOutput()
	if !landlocked() {
		t.Log("this system cannot keep signals in; TestKilled is what holds here")
		return
	}
	if err != nil || strings.Count(strings.ToLower(string(out)), "permitted") != 3 || !strings.Contains(string(out), "here") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStopped stops the supervisor of a program. It is woken, and sees the end.
func TestStopped(t *testing.T) {
	dir := t.TempDir()
	cmd := call(t, shell(dir, `[ "$(grep -c 'NoNewPrivs:.*1' /proc/self/status)" = 1 ] || exit 3; `+stay)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	number(t, dir, "pid") // or it could gain rights
	kill(t, supervisorOf(t, cmd.Process.Pid), unix.SIGSTOP)
	kill(t, number(t, dir, "me"), unix.SIGKILL)
	until(t, "the end", func() bool { return !alive(cmd.Process.Pid) })
	if code := codeOf(cmd.Wait()); code != 137 {
		t.Errorf("exit %d", code)
	}
}

// TestSignals sends signals to the caller. The program gets them, and the
// caller stays until the program ends.
func TestSignals(t *testing.T) {
	for _, s := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH} {
		dir := t.TempDir()
		name := strings.TrimPrefix(unix.SignalName(s), "SIG")
		cmd := call(t, shell(dir, `trap 'echo 1 >"$0/got"; exit 42' `+name+`; echo $$ >"$0/me"; while :; do sleep 0.01; done`)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		number(t, dir, "me")
		kill(t, cmd.Process.Pid, s)
		if code := codeOf(cmd.Wait()); code != 42 || !exists(dir, "got")() {
			t.Errorf("%s: exit %d", name, code)
		}
	}
}

// TestNohup starts a caller that ignores SIGHUP: so does its program.
func TestNohup(t *testing.T) {
	cmd := call(t, "sh", "-c", "kill -HUP $$; exit 5")
	cmd.Args = append([]string{"nohup", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/usr/bin/nohup"
	if code := codeOf(cmd.Run()); code != 5 {
		t.Errorf("exit %d", code)
	}
}

// TestPause stops and continues a program with what it started elsewhere, and
// leaves its caller awake.
func TestPause(t *testing.T) {
	dir := t.TempDir()
	g, err := Start(spec(shell(dir, stay)...))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan Ended, 1)
	go func() { done <- g.Wait() }()
	pids := []int{number(t, dir, "me"), number(t, dir, "pid")}
	for range 3 {
		g.Pause()
		for _, pid := range pids {
			until(t, "the stop", func() bool { return state(pid) == "T" })
		}
		g.Resume()
		for _, pid := range pids {
			until(t, "the end of the stop", func() bool { return state(pid) == "S" || state(pid) == "R" })
		}
	}
	g.Pause()
	g.Kill()
	if e := <-done; e.Signal != int(unix.SIGKILL) || e.Lost {
		t.Errorf("%+v", e)
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	g.Pause() // it is too late for all of these
	g.Resume()
	g.End(0, 0, nil)
	g.Kill()
}

// TestEnd asks programs to end. One that does not is killed.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		script string
		want   Ended
	}{
		{`trap 'exit 4' TERM; echo $$ >"$0/me"; while :; do sleep 0.01; done`, Ended{Exit: 4}},
		{`trap '' TERM; echo $$ >"$0/me"; while :; do sleep 0.01; done`, Ended{Signal: 9}},
		{`trap 'exit 4' TERM; echo $$ >"$0/me"; while :; do sleep 0.01; done # paused`, Ended{Exit: 4}},
		{`trap 'n=$((n+1)); echo >"$0/terms"' TERM; trap 'exit $n' WINCH; echo $$ >"$0/me"; while :; do sleep 0.01; done # count`, Ended{Exit: 1}},
	} {
		dir := t.TempDir()
		g, err := Start(spec(shell(dir, c.script)...))
		if err != nil {
			t.Fatal(err)
		}
		pid := number(t, dir, "me")
		done := make(chan Ended, 1)
		go func() { done <- g.Wait() }()
		if strings.Contains(c.script, "paused") {
			g.Pause()
			// A shell that is stopped while it starts a command shows D and not T,
			// because its stopped child holds it in vfork.
			until(t, "the stop", func() bool { return state(pid) == "T" || state(pid) == "D" })
		}
		grace := patience
		if c.want.Signal == 9 {
			grace = 50 * time.Millisecond
		}
		g.End(0, grace, nil)
		if strings.Contains(c.script, "count") {
			until(t, "the word", exists(dir, "terms"))
			g.End(0, grace, nil) // it was told already
			g.do(func() { g.group(unix.SIGWINCH) })
		}
		e := <-done
		e.CPU = 0
		if e != c.want {
			t.Errorf("%s: %+v, want %+v", c.script, e, c.want)
		}
	}
}
