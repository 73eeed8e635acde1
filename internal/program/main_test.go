//go:build linux

package program

// What these tests were seen to catch, each by breaking the code on purpose:
//
//   - watch: EOF of the control socket ignored                   TestKilled
//   - child: no end of the rest when the program ended           TestNothingIsLeft
//   - reap.Adopt: no subreaper                                   TestNothingIsLeft
//   - reap.Keep: no sweep after the supervisor is gone           TestKilled
//   - run: streams kept open in the supervisor                        TestStreamEnds
//   - heeded: signals caught that were ignored                   TestNohup, TestHome
//   - handed: descriptors above 2 not handed on                  TestHome
//   - Wait, Interrupt: Ctrl-C for the program alone              TestKeyboard
//   - takeBack: the terminal left with the program               TestKeyboard, TestModes
//   - restore: modes left as they are                            TestModes
//   - start: not confined                                        TestOutOfReach
//   - Pause: of the group alone                                  TestPause
//   - stopped: no terminal for one that asks for it              TestKeyboard
//   - End: no kill after the grace                               TestEnd
//   - signalled: signals not passed on                           TestSignals
//   - jail: the hidden shown, /etc shown whole, the system to write in,
//     descriptors left open, no filter, no filter of typing, capabilities kept,
//     the host's home, network or old root, nothing forwarded    TestJail
//   - jail: a directory as a stream, or as too much             TestJailRefuses
//   - jail: the program in its supervisor's group                    TestJailPause
//   - run: no cgroup where there could be one                       TestScope
//   - reap: a sweep for each that ended                          TestCrowd
//   - letGo: descriptors above 2 kept                            TestStreamEnds
//   - End: SIGTERM for each reason to stop                       TestEnd
//   - Keep: a stopped supervisor left so; Confine: privileges     TestStopped
//   - cgroup: tasks not joined, the supervisor left in them, room
//     for it not taken back                                      TestBounds
//   - Keep: groups of the killed not removed                     TestScope, TestBoundsKilled
//   - watch: the time of the program alone                       TestTime
//   - suspend: no wait until the stop has taken effect           TestKeyboard, now and then

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/program/reap"
)

// The test binary is also the supervisor and the caller.
func TestMain(m *testing.M) {
	Main()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "caller":
			os.Exit(caller(nil, os.Args[2:]))
		case "jailCaller":
			os.Exit(jailCaller(os.Args[2:]))
		case "try":
			try(os.Args[2:])
			os.Exit(0)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // who runs the tests may have it ignored, and then a shell cannot trap it
	leaktest.Main(m)
}

func spec(argv ...string) Spec {
	return Spec{Argv: argv, Env: os.Environ()}
}

// letsGo is the first word of a caller that keeps no streams when the program is
// started, and toldName what every caller is called from then on: whoever may
// not look into a process sees its name.
const letsGo, toldName = "caller-lets-go", "told"

// caller runs a program as kern exec does.
func caller(f *confine.Plan, argv []string) int {
	s := spec(argv...)
	s.Jail = f
	g, err := Start(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "caller:", err)
		var s *StartError
		if errors.As(err, &s) {
			return s.Code
		}
		return 125
	}
	err = os.WriteFile("/proc/self/comm", []byte(toldName), 0)
	if os.Args[0] == letsGo {
		err = errors.Join(err, unix.Dup3(0, 2, 0), unix.Close(3))
	}
	if err != nil {
		panic(err)
	}
	e := g.Wait()
	if e.Ctrl {
		Interrupt()
	}
	return e.Code()
}

// call is a caller that is not started yet.
func call(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, append([]string{"caller"}, argv...)...)
	c.Dir = t.TempDir()
	c.Stdin = empty(t)
	return c
}

// empty is a stream with nothing in it, which is not what supervisors put in its
// place.
func empty(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "empty"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// shell is the command line of a shell script in which $0 is the directory of
// the test; it is on the command line of all that the script starts through
// it, so that what is left can be found.
func shell(dir, script string) []string { return []string{"sh", "-c", script, dir} }

// marked are the processes that have dir on their command line, other than
// callers and supervisors.
func marked(dir string) (left []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		b, err := os.ReadFile(name)
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if err == nil && strings.Contains(line, dir) {
			left = append(left, name[6:]+" "+line)
		}
	}
	return left
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for begun := time.Now(); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("%s does not come", what)
		}
	}
}

func exists(dir, name string) func() bool {
	return func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
}

// number reads the number in a file.
func number(t *testing.T, dir, name string) int {
	t.Helper()
	n := 0
	until(t, name, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return n
}

// state is the state of a process, such as T for stopped; Z and nothing are
// dead.
func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0]
}

func alive(pid int) bool { s := state(pid); return s != "" && s != "Z" && s != "X" }

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

func codeOf(err error) int {
	var x *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &x):
		return x.ExitCode()
	}
	return -1
}

func itoa(n int) string { return strconv.Itoa(n) }

func kids(pid int) []int { return reap.Children(pid) }

// comm is the command line of a process.
func comm(pid int) string {
	b, _ := os.ReadFile("/proc/" + itoa(pid) + "/cmdline")
	return string(b)
}

func landlocked() bool {
	v, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return e == 0 && v >= reap.ScopedSince
}
