//go:build linux

package tools

// What these tests were seen to catch, each by breaking the code on purpose:
//
//   - supervisor.run: no end of the rest when the program ended       TestNothingIsLeft
//   - Supervise: no subreaper                                         TestNothingIsLeft
//   - supervisor.run: the report before the last child is gone        TestNothingIsLeft
//   - supervisor.run: EOF of the control socket ignored               TestKernelKilled
//   - serve: private directory not removed                            TestDirectories, TestNobodyWaits
//   - serve: a job begun although its owner is dead                   TestNobodyWaits
//   - keep: no sweep after the supervisor is gone                     TestSupervisorKilled
//   - keep: a supervisor that was told to pause left so               TestKernelKilled
//   - execute: no nudge, no timeout of our own                            TestSupervisorKilled
//   - execute: private directory left when the supervisor is lost         the check after all tests
//   - starter: on the first thread, or confine left out               TestSupervisorCannotBeKilled
//   - confine: no_new_privs left out                                  TestNoNewPrivileges
//   - prepare: a variable of ours let into the environment            TestScenario34
//   - launch: Env nil, so that the supervisor inherits ours           TestScenario34
//   - Supervise: descriptors left open over exec                      TestDescriptors
//   - execute, finish: a pipe left open                                   TestDescriptorsOfOurs
//   - Pool: a supervisor kept after the end of its pool               TestPoolClosedDuringACall
//   - ring: everything kept, or too little                            TestRing
//   - Conceal: without effect                                         TestConceal
//   - pipes: bound on output too high                                 TestNasty
//   - supervisor.run: a timeout taken for an end by itself            TestScenario10
//   - supervisor.run: CPU of the program alone                        TestCPUOfDescendants
//   - interrupted: the cause of the context ignored                       TestScenario11, TestFunc
//   - run: arguments not checked                                      TestScenario16
//   - answered: result not checked                                    TestScenario17
//   - censor: half a secret at a cut, escapes not looked at           TestSecrets, TestCensor
//   - recoverPanic: no recover                                             TestFunc
//   - removeAll: permissions left as they are                         TestPrivateDirectoryGoes
//   - compile: attempts > 1 let through for irreversible              TestSpec
//
// Three that live are no faults: sweep finds the same with only its group
// kill, only its kill by pid, or without going below the first level, because
// it is repeated until nothing is left. It has all three to be quick.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/reap"
)

// oldSystem is a word on the command line of a supervisor, which then believes
// that this system cannot keep signals in.
const oldSystem = "old-system"

// The test binary is also the supervisor and the programs that it runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == oldSystem {
		reap.ScopedSince = 1 << 20
	}
	program.Main()
	if len(os.Args) > 1 && os.Args[1] == "nasty" {
		nasty(os.Args[2], os.Args[3:])
	}
	tmp, err := os.MkdirTemp("", "kern-tool-test-")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("TMPDIR", tmp); err != nil {
		panic(err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		panic(err)
	}
	code := leaktest.Wrap(m).Run()
	if files := mustGlob(filepath.Join(tmp, "kern-tool-*")); len(files) > 0 {
		fmt.Println("left behind:", files)
		code = 1
	}
	_ = os.RemoveAll(tmp)
	os.Exit(code)
}

func mustGlob(pattern string) []string {
	files, err := filepath.Glob(pattern)
	if err != nil {
		panic(err)
	}
	return files
}

// marked lists the processes that have mark on their command line.
func marked(mark string) []string {
	var found []string
	for _, f := range mustGlob("/proc/[0-9]*/cmdline") {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), mark) {
			continue
		}
		pid := filepath.Base(filepath.Dir(f))
		if pid != fmt.Sprint(os.Getpid()) {
			found = append(found, pid+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// nest is a directory for a nasty program. What a broken supervisor lets live
// is ended with the test.
func nest(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	open(t, dir)
	t.Cleanup(func() {
		for left := marked(dir); len(left) > 0; left = marked(dir) {
			for _, l := range left {
				var pid int
				if _, err := fmt.Sscan(l, &pid); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL) // gone is as good
				}
			}
		}
	})
	return dir
}

// open lets every user look into a directory of the test.
func open(t testing.TB, dir string) {
	t.Helper()
	for d := dir; strings.HasPrefix(d, os.Getenv("TMPDIR")); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// nastyProgram is a command that runs the test binary as a nasty program.
func nastyProgram(t testing.TB, name string, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{self, "nasty", name}, args...)
}

// supervised runs tools below supervisors with these words on their command
// lines.
func supervised(t testing.TB, words ...string) Runner {
	t.Helper()
	p := &program.Pool{Command: append([]string{"/proc/self/exe"}, words...)}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return Runner{Pool: p}
}

// unpooled starts a supervisor for each call.
func unpooled() Runner { return Runner{Pool: &program.Pool{Idle: -1}} }

func command1(t testing.TB, s abi.ToolSpec, r Runner) *Tool {
	t.Helper()
	if s.Name == "" {
		s.Name = "x"
	}
	tl, err := Command(s, r)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("this test needs %s: %v", program, err)
	}
}
