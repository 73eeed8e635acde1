//go:build linux

package jail_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/kern-run/kern/internal/program/userns"
	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
	"golang.org/x/sys/unix"
)

// Mutants that were made by hand and die here: no parent death signal, neither
// at the clone nor in init; no sweep; init's memory not hidden; /proc mounted
// without hidepid.

// supervise is a supervisor that will be killed: three boxes of daemons, and
// warm interpreters.
func supervise() int {
	b, err := jail.New(jail.Config{Warm: 2})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for range 3 {
		go func() {
			fmt.Println(b.Run(context.Background(), sandbox.Spec{
				Argv:   sh(stubborn + "echo up; wait"),
				Stdout: os.Stdout,
				Limits: sandbox.Limits{Processes: 200, Wall: time.Hour},
			}))
		}()
	}
	select {}
}

// TestTrapSupervisorKilled: kill -9 of the supervisor leaves no process,
// also when nobody closes its end of init's socket, so that only the parent
// death signal is left to tell. Its cgroups fall to the next supervisor.
func TestTrapSupervisorKilled(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprintf("sockets held %t", hold), func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "KERN_JAIL_ROLE=supervisor")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for range 3 {
				if !lines.Scan() || lines.Text() != "up" {
					t.Fatalf("want three boxes up, heard %q", lines.Text())
				}
			}
			pid := cmd.Process.Pid
			victims := children(pid)
			if len(victims) < 3*55 {
				t.Errorf("want three boxes of 55, found %d processes", len(victims))
			}
			if hold {
				defer holdSockets(t, pid)()
			}
			cmd.Process.Kill()
			killed := time.Now()
			cmd.Wait()
			if err := until(soon, func() bool {
				for _, p := range victims {
					// One that waits for the host's init to bury it is gone.
					if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p)); err == nil && !strings.Contains(string(b), ") Z ") {
						return false
					}
				}
				return true
			}); err != nil {
				t.Errorf("%d processes of the box outlived their supervisor: %v", len(victims), err)
			}
			t.Logf("%d processes gone %v after", len(victims), time.Since(killed))
			if len(groups(pid)) == 0 {
				t.Error("the test looks for cgroups in the wrong place")
			}
			open(t, jail.Config{})
			if left := groups(pid); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// holdSockets takes copies of all sockets of pid.
func holdSockets(t *testing.T, pid int) (release func()) {
	t.Helper()
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(handle)
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	var held []int
	for _, l := range links {
		if to, _ := os.Readlink(l); !strings.HasPrefix(to, "socket:") {
			continue
		}
		var n int
		fmt.Sscan(filepath.Base(l), &n)
		fd, err := unix.PidfdGetfd(handle, n, 0)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, fd)
	}
	if len(held) < 3 {
		t.Fatalf("want a socket to each init, found %d", len(held))
	}
	return func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}
}

// A plainReport is what a user without rights found.
type plainReport struct {
	Refused  string // without accepting anything
	Fix      string
	Impaired string // why nothing can run at all
	Names    []string
	Probe    []sandbox.Weakness
	Runs     map[string]sandbox.Outcome
	Errs     map[string]string
	Owner    uint32
	Init     uint32 // whose the files of a warm box's init in /proc are
}

var plainRuns = map[string]sandbox.Spec{
	"user":      {Argv: sh("id -u; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status")},
	"code":      {Code: "import os; open('f', 'w').write('x'); print(os.getuid(), os.listdir('/proc') .count('1'))"},
	"workspace": {Code: "open('mine', 'w').write('x')\nprint(open('theirs').read())", Dir: "DIR"},
	"init":      {Code: "import os, signal\nfor s in signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP:\n    try:\n        os.kill(1, s)\n    except PermissionError:\n        pass\ntry:\n    open('/proc/1/mem', 'r+b')\nexcept OSError as e:\n    print(type(e).__name__)\nimport time; time.sleep(0.1); print('still here')"},
	"memory":    {Code: "x = b'x' * (1 << 30)"},
	"memories":  {Code: "import os, time\nfor i in range(8):\n    if os.fork() == 0:\n        x = b'x' * (60 << 20); time.sleep(60)\ntime.sleep(60)"},
	"cpu":       {Code: "while True: pass", Limits: sandbox.Limits{CPU: 300 * time.Millisecond}},
	"crowd":     {Argv: sh("for i in $(seq 100); do sleep 9 & done")},
	"daemons":   {Argv: sh(stubborn + "sleep 30"), Limits: sandbox.Limits{Wall: 500 * time.Millisecond, Processes: 200}},
	"disk":      {Code: "open('f', 'wb').write(b'x' * (200 << 20))", Limits: sandbox.Limits{Memory: 1 << 30}},
	"host":      {Code: "import os; print(os.path.exists('/root'), os.path.exists('/home'), os.listdir('/'))"},
}

// beNobody runs as a user without rights and says what it found.
func beNobody() int {
	r := plainReport{Runs: map[string]sandbox.Outcome{}, Errs: map[string]string{}}
	defer func() { json.NewEncoder(os.Stdout).Encode(r) }()
	b, err := jail.New(jail.Config{Warm: 1})
	if err != nil {
		r.Impaired = err.Error()
		return 0
	}
	defer b.Close()
	var refusal *sandbox.Refusal
	if _, err := b.Run(context.Background(), sandbox.Spec{Argv: []string{"true"}}); errors.As(err, &refusal) {
		r.Refused, r.Fix = refusal.Reason, refusal.Fix
	}
	r.Probe, err = b.Probe(context.Background())
	if err != nil {
		r.Impaired = err.Error()
		return 0
	}
	for _, w := range r.Probe {
		r.Names = append(r.Names, w.Name)
	}
	if err := until(2*soon, func() bool { return b.Warm() == 1 }); err != nil {
		r.Impaired = err.Error()
		return 0
	}
	r.Init = r.ownerOfInit()
	dir, err := os.MkdirTemp("", "kern-jail-plain-")
	if err != nil {
		r.Impaired = err.Error()
		return 0
	}
	defer os.RemoveAll(dir)
	os.WriteFile(dir+"/theirs", []byte("given"), 0o600)
	for name, s := range plainRuns {
		if s.Dir != "" {
			s.Dir = dir
		}
		s.Allow = r.Names
		out, err := b.Run(context.Background(), s)
		r.Runs[name] = out
		if err != nil {
			r.Errs[name] = err.Error()
		}
	}
	var st unix.Stat_t
	unix.Stat(dir+"/mine", &st)
	r.Owner = st.Uid
	return 0
}

// ownerOfInit is the user who may look into the memory of an init: the kernel
// gives the files of a process that hides its memory to root.
func (*plainReport) ownerOfInit() uint32 {
	for _, p := range children(os.Getpid()) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		var st unix.Stat_t
		if strings.HasPrefix(string(b), "kern-jail-init") && unix.Stat(fmt.Sprintf("/proc/%d/mem", p), &st) == nil {
			return st.Uid
		}
	}
	return ^uint32(0)
}

// TestWithoutRoot runs everything as a user without rights: what this host
// cannot enforce then is refused by name, and what is left still holds.
func TestWithoutRoot(t *testing.T) {
	const nobody = 65534
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"KERN_JAIL_ROLE=plainuser", "PATH=/usr/bin:/bin", "TMPDIR=/tmp"}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var r plainReport
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, w := range r.Probe {
		if w.Name == "namespaces" {
			if w.Fix == "" || !strings.Contains(w.Why, "user namespaces") {
				t.Errorf("want the refusal to say that user namespaces are missing, and the mend, got %+v", w)
			}
			return
		}
	}
	if r.Impaired != "" {
		t.Fatal(r.Impaired)
	}
	if !strings.Contains(r.Refused, `"memory"`) || r.Fix == "" {
		t.Errorf("want refused by the name of what is not enforced, got %q, fix %q", r.Refused, r.Fix)
	}
	check := func(name string, c sandbox.Cause, stdout string) {
		t.Helper()
		out := r.Runs[name]
		if r.Errs[name] != "" || out.Cause != c || stdout != "*" && string(out.Stdout) != stdout {
			t.Errorf("%s: want %s with %q, got %s, exit %d %s, %q %s %s", name, c, stdout, out.Cause, out.Exit, out.Signal, out.Stdout, clip(out.Stderr), r.Errs[name])
		}
	}
	check("user", sandbox.OK, "1000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n")
	check("code", sandbox.OK, "1000 0\n")
	check("workspace", sandbox.OK, "given\n")
	check("init", sandbox.OK, "FileNotFoundError\nstill here\n")
	check("memory", sandbox.Memory, "") // told by the interpreter
	check("memories", sandbox.Memory, "")
	check("cpu", sandbox.Timeout, "")
	check("daemons", sandbox.Timeout, "")
	check("disk", sandbox.Files, "")
	check("host", sandbox.OK, "*")
	if out := r.Runs["crowd"]; out.Cause == sandbox.OK {
		t.Errorf("want 100 processes refused at 64, got %s", out.Cause)
	}
	if r.Init != 0 {
		t.Errorf("want init's memory hidden from its own user, it belongs to %d", r.Init)
	}
	if r.Owner != nobody {
		t.Errorf("want the workspace's file to be the caller's, got %d", r.Owner)
	}
}

// beBarred runs where namespaces can be made and no rights come with them, as
// AppArmor has it on Ubuntu: what takes a right is refused.
func beBarred() int {
	const allow = 0x7fff0000 // SECCOMP_RET_ALLOW
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_SETHOSTNAME},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_MOUNT},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: allow},
	}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
		if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f))); e != 0 {
			err = e
		}
	}
	var r sandbox.Refusal
	if b, e := jail.New(jail.Config{}); e == nil && err == nil {
		defer b.Close()
		_, err = b.Run(context.Background(), sandbox.Spec{Argv: []string{"true"}, Allow: []string{"memory", "cpu", "processes", "landlock"}})
		var refusal *sandbox.Refusal
		if errors.As(err, &refusal) {
			r, err = *refusal, nil
		}
		found, e := b.Probe(context.Background())
		for _, w := range found {
			if w.Name == "namespaces" && w.Why == r.Reason && w.Fix == r.Fix {
				r.Backend += " probed"
			}
		}
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(r)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestBarred: a host that makes namespaces and gives no rights in them is told
// apart from a box that breaks, and what mends it is said.
func TestBarred(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"KERN_JAIL_ROLE=barred", "PATH=/usr/bin:/bin", "TMPDIR=/tmp"}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var r sandbox.Refusal
	if err != nil || json.Unmarshal(out, &r) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Backend != "jail probed" || !strings.Contains(r.Reason, "host name: operation not permitted") || r.Fix != userns.Remedy() {
		t.Errorf("want a refusal that says why and what to do, from a run and from the probe, got %+v", r)
	}
}
