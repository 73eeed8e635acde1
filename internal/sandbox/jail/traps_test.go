//go:build linux

package jail_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
	"golang.org/x/sys/unix"
)

// Mutants that were made by hand and die here: no close_range; AF_VSOCK allowed;
// clone3 refused with EPERM; ptrace not withheld; allowed what no rule names;
// the counter of kills for memory not read, or the signal taken for it; a sweep
// that does nothing, or takes what belongs to the living; init's signals ignored
// in the program; another type of socket to the program; /usr writable.

// ask is Python that makes system calls by number and prints the errors' names.
const ask = `
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode.get(ctypes.get_errno(), 'ok') if r < 0 else 'ok'
`

func TestTrapInheritedDescriptors(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}
	// As left open by whoever started the supervisor: without close-on-exec.
	fd, err := unix.Open(secret, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 700)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(high)
	b := open(t, jail.Config{Warm: 1})
	want(t, run(t, b, sandbox.Spec{Argv: sh("echo /proc/self/fd/*")}), sandbox.OK, "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n")
	want(t, run(t, b, sandbox.Spec{Argv: []string{"python3", "-c", "import os; print(os.listdir('/proc/self/fd'))"}}), sandbox.OK, "['0', '1', '2', '3']\n")
	ready(t, b, 1)
	// Its link and nothing else.
	want(t, run(t, b, sandbox.Spec{Code: "import os; print(os.listdir('/proc/self/fd'))"}), sandbox.OK, "['0', '1', '2', '3', '4']\n")
}

func TestTrapSocketFamilies(t *testing.T) {
	b := open(t, jail.Config{})
	out := run(t, b, sandbox.Spec{Code: ask + fmt.Sprintf(`
for name, family in dict(UNIX=%d, INET=%d, INET6=%d, NETLINK=%d, PACKET=%d, VSOCK=%d, ALG=%d, BLUETOOTH=%d, XDP=%d, high=1<<32|%d).items():
    print(name, call(%d, family, 2, 0))
`, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_VSOCK, unix.AF_ALG, unix.AF_BLUETOOTH, unix.AF_XDP, unix.AF_VSOCK, unix.SYS_SOCKET)})
	want(t, out, sandbox.OK, "UNIX ok\nINET ok\nINET6 ok\nNETLINK EPERM\nPACKET EPERM\nVSOCK EPERM\nALG EPERM\nBLUETOOTH EPERM\nXDP EPERM\nhigh EPERM\n")
}

func TestTrapClone3(t *testing.T) {
	b := open(t, jail.Config{})
	want(t, run(t, b, sandbox.Spec{Code: ask + fmt.Sprintf("print(call(%d, 0, 0))", unix.SYS_CLONE3)}), sandbox.OK, "ENOSYS\n")
	want(t, run(t, b, sandbox.Spec{Code: "import threading, subprocess\nt = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\nprint(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout)"}), sandbox.OK, "thread\nchild\n\n")
}

// TestTrapAllowList tries what containers may not do, what a box may not
// beyond that, and a call nobody has invented yet.
func TestTrapAllowList(t *testing.T) {
	b := open(t, jail.Config{})
	calls := map[string][]uintptr{
		"ptrace": {unix.SYS_PTRACE}, "keyctl": {unix.SYS_KEYCTL}, "add_key": {unix.SYS_ADD_KEY}, "request_key": {unix.SYS_REQUEST_KEY},
		"bpf": {unix.SYS_BPF}, "mount": {unix.SYS_MOUNT}, "umount": {unix.SYS_UMOUNT2}, "open_tree": {unix.SYS_OPEN_TREE}, "move_mount": {unix.SYS_MOVE_MOUNT},
		"fsopen": {unix.SYS_FSOPEN}, "mount_setattr": {unix.SYS_MOUNT_SETATTR}, "pivot_root": {unix.SYS_PIVOT_ROOT}, "chroot": {unix.SYS_CHROOT},
		"unshare": {unix.SYS_UNSHARE, unix.CLONE_NEWUSER}, "setns": {unix.SYS_SETNS}, "clone newuser": {unix.SYS_CLONE, unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)},
		"io_uring_setup": {unix.SYS_IO_URING_SETUP}, "io_uring_enter": {unix.SYS_IO_URING_ENTER}, "io_uring_register": {unix.SYS_IO_URING_REGISTER},
		"userfaultfd": {unix.SYS_USERFAULTFD}, "perf_event_open": {unix.SYS_PERF_EVENT_OPEN}, "process_vm_readv": {unix.SYS_PROCESS_VM_READV},
		"process_vm_writev": {unix.SYS_PROCESS_VM_WRITEV}, "pidfd_getfd": {unix.SYS_PIDFD_GETFD}, "kcmp": {unix.SYS_KCMP},
		"open_by_handle_at": {unix.SYS_OPEN_BY_HANDLE_AT}, "name_to_handle_at": {unix.SYS_NAME_TO_HANDLE_AT}, "kexec_load": {unix.SYS_KEXEC_LOAD},
		"init_module": {unix.SYS_INIT_MODULE}, "reboot": {unix.SYS_REBOOT}, "swapon": {unix.SYS_SWAPON}, "acct": {unix.SYS_ACCT}, "quotactl": {unix.SYS_QUOTACTL},
		"settimeofday": {unix.SYS_SETTIMEOFDAY}, "clock_settime": {unix.SYS_CLOCK_SETTIME}, "sethostname": {unix.SYS_SETHOSTNAME}, "syslog": {unix.SYS_SYSLOG},
		"fanotify_init": {unix.SYS_FANOTIFY_INIT}, "mbind": {unix.SYS_MBIND}, "memfd_secret": {unix.SYS_MEMFD_SECRET}, "personality odd": {unix.SYS_PERSONALITY, 0x0040000},
		"uninvented": {9999},
	}
	var code strings.Builder
	code.WriteString(ask)
	for name, c := range calls {
		args := ""
		for _, a := range append(c, 0, 0, 0, 0)[:5] {
			args += fmt.Sprintf(", %d", a)
		}
		fmt.Fprintf(&code, "r = call(%s)\nif r != 'EPERM': print(%q, r)\n", args[2:], name)
	}
	want(t, run(t, b, sandbox.Spec{Code: code.String()}), sandbox.OK, "")
}

// TestTrapMountsAcrossNamespaces: workspaces below what the box's own root
// covers, and on a file system of their own.
func TestTrapMountsAcrossNamespaces(t *testing.T) {
	b := open(t, jail.Config{})
	for _, at := range []string{"/tmp", "/dev/shm", "/var/tmp", "/usr/local"} {
		dir, err := os.MkdirTemp(at, "kern-jail-test-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		want(t, run(t, b, sandbox.Spec{Argv: sh("echo in > f; cat f; ls /tmp"), Dir: dir}), sandbox.OK, "in\n")
		if got, err := os.ReadFile(dir + "/f"); string(got) != "in\n" {
			t.Errorf("%s: want what the box wrote, got %q, %v", at, got, err)
		}
	}
}

// TestMounts: each mount in the box is as weak as can be, so that the file
// system holds also where Landlock does not.
func TestMounts(t *testing.T) {
	const list = `
for line in open('/proc/self/mounts'):
    _, path, _, options, *_ = line.split()
    has = set(options.split(','))
    open_ = path in ('/workspace', '/tmp', '/dev/shm')
    device = path.startswith('/dev/') and not open_
    if 'nosuid' not in has or not device and 'nodev' not in has or not open_ and not device and 'ro' not in has:
        print(path, options)
    if device and 'noexec' not in has or path == '/proc' and 'hidepid=invisible' not in has:
        print(path, options)
`
	b := open(t, jail.Config{})
	for _, dir := range []string{"", t.TempDir()} {
		want(t, run(t, b, sandbox.Spec{Code: list, Dir: dir}), sandbox.OK, "")
	}
}

// TestTrapOOMByCounter: not the signal says that memory ran out.
func TestTrapOOMByCounter(t *testing.T) {
	b := open(t, jail.Config{})
	const child = "python3 -c 'x = b\"x\" * (1 << 30)'"
	out := run(t, b, sandbox.Spec{Argv: sh(child + "; exit 7")})
	if out.Cause != sandbox.Memory || out.Exit != 7 {
		t.Errorf("want memory, exit 7, when a child is killed for it, got %s, %d", out.Cause, out.Exit)
	}
	out = run(t, b, sandbox.Spec{Argv: sh("kill -9 $$")})
	if out.Cause != sandbox.Failed || out.Signal != "SIGKILL" {
		t.Errorf("want failed by SIGKILL of its own, got %s, %s", out.Cause, out.Signal)
	}
	out = run(t, b, sandbox.Spec{Argv: sh(child + "; echo survived")})
	want(t, out, sandbox.OK, "survived\n")
}

// TestTrapSweep: what a killed supervisor left is cleared away by the next,
// and what a living one has is not.
func TestTrapSweep(t *testing.T) {
	b := open(t, jail.Config{})
	ended := make(chan sandbox.Outcome)
	up := make(chan struct{})
	go func() {
		out, _ := b.Run(context.Background(), sandbox.Spec{Argv: sh("echo; read line; echo $line"), Stdin: &gate{open: up}, Stdout: once(func() {})})
		ended <- out
	}()
	if err := until(soon, func() bool { return len(groups(os.Getpid())) > 0 }); err != nil {
		t.Fatal(err)
	}
	mine := groups(os.Getpid())
	var old []string
	for _, g := range mine {
		dir := filepath.Join(filepath.Dir(g), "kern-jail-1-1-1") // no process 1 began then
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		old = append(old, dir)
	}
	orphan, err := os.StartProcess("/usr/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range old {
		if err := os.WriteFile(dir+"/cgroup.procs", fmt.Append(nil, orphan.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	open(t, jail.Config{})
	state, err := orphan.Wait()
	if err != nil || state.Sys().(interface{ Signaled() bool }).Signaled() == false {
		t.Errorf("want the orphan killed, got %v, %v", state, err)
	}
	for _, dir := range old {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
			os.Remove(dir)
		}
	}
	for _, g := range mine {
		if _, err := os.Stat(g); err != nil {
			t.Errorf("the living run lost %s", g)
		}
	}
	close(up)
	want(t, <-ended, sandbox.OK, "\nopen\n")
}

// gate is a Reader that says "open" once it is.
type gate struct {
	open <-chan struct{}
	said bool
}

func (g *gate) Read(b []byte) (int, error) {
	<-g.open
	if g.said {
		return 0, io.EOF
	}
	g.said = true
	return copy(b, "open\n"), nil
}

func TestTrapFileSizeIsPerFile(t *testing.T) {
	b := open(t, jail.Config{})
	out := run(t, b, sandbox.Spec{
		Code:   "for i in range(40): open(f'/tmp/{i}', 'wb').write(b'x' * 1_000_000); open(f'/dev/shm/{i}', 'wb').write(b'x' * 1_000_000); open(str(i), 'wb').write(b'x' * 1_000_000)",
		Limits: sandbox.Limits{FileBytes: 100_000_000},
	})
	if out.Cause != sandbox.Files {
		t.Errorf("want 120 MB in small files of three directories stopped at 100 MB, got %s: %s", out.Cause, out.Stderr)
	}
}

// TestSignalsAreDefault: what init ignores or catches, the program does not.
func TestSignalsAreDefault(t *testing.T) {
	b := open(t, jail.Config{})
	want(t, run(t, b, sandbox.Spec{Argv: sh("grep -E 'Sig(Ign|Blk)' /proc/self/status | cut -f2")}), sandbox.OK, strings.Repeat("0000000000000000\n", 2))
}

// TestFunctions is the host's functions as the program sees them.
func TestFunctions(t *testing.T) {
	fs := []sandbox.Function{
		{Namespace: "math", Name: "add", Doc: "Adds \"two\" '''numbers'''.\n\nReally.", Params: []sandbox.Param{{Name: "a", Type: "int"}, {Name: "b", Type: "int", Optional: true}},
			Call: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
				var v struct {
					A int
					B *int
				}
				if err := json.Unmarshal(args, &v); err != nil {
					return nil, err
				}
				if v.B == nil {
					return json.Marshal(v.A)
				}
				return json.Marshal(v.A + *v.B)
			}},
		{Namespace: "math", Name: "twice", Params: []sandbox.Param{{Name: "data", Type: "bytes"}},
			Call: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
				var v struct{ Data sandbox.Bytes }
				if err := json.Unmarshal(args, &v); err != nil {
					return nil, err
				}
				return json.Marshal(append(v.Data, v.Data...))
			}},
		{Namespace: "fail", Name: "typed", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, &sandbox.CallError{Code: "denied", Message: "not you", Fields: map[string]any{"who": "you"}}
		}},
		{Namespace: "fail", Name: "plain", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("broke") }},
		{Namespace: "fail", Name: "garbage", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage("{"), nil }},
		{Namespace: "fail", Name: "nothing", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }},
	}
	code := `
import inspect
from tools.math import add, twice
from tools import ToolError, fail
print(add(2, 3), add(2), add(b=1, a=5), twice(b'\x00\xff'), inspect.signature(add), add.__doc__ == "Adds \"two\" '''numbers'''.\n\nReally.")
for f in fail.typed, fail.plain, fail.garbage:
    try:
        f()
    except ToolError as e:
        print(e.code, e.message, e.fields)
print(fail.nothing())
for bad in lambda: add(), lambda: add(1, c=2), lambda: add({1}), lambda: add(float('nan')):
    try:
        bad()
    except (TypeError, ValueError) as e:
        print(type(e).__name__)
try:
    import tools.other
except ModuleNotFoundError as e:
    print(e)
import threading
sums = []
ts = [threading.Thread(target=lambda i=i: sums.append(add(i, i))) for i in range(20)]
[t.start() for t in ts]; [t.join() for t in ts]
print(sum(sums))
`
	const says = `5 2 6 b'\x00\xff\x00\xff' (a: int, b: int = Ellipsis) True
denied not you {'who': 'you'}
failed broke {}
failed the tool did not answer in JSON {}
None
TypeError
TypeError
TypeError
ValueError
No module named 'tools.other'
380
`
	for _, cfg := range []jail.Config{{}, {Warm: 1}} {
		b := open(t, cfg)
		ready(t, b, cfg.Warm)
		want(t, run(t, b, sandbox.Spec{Code: code, Functions: fs}), sandbox.OK, says)
		ready(t, b, cfg.Warm)
		want(t, run(t, b, sandbox.Spec{Code: "from tools import ToolError\nimport tools\nprint(tools.__all__)"}), sandbox.OK, "['ToolError']\n")
		// A program that talks to the socket itself gets nowhere with it.
		out := run(t, b, sandbox.Spec{Code: "import os\nos.write(3, b'\\xff' * 100)\ntry:\n    print(os.read(3, 1))\nexcept ConnectionError:\n    print(b'')", Functions: fs})
		want(t, out, sandbox.OK, "b''\n")
	}
}

// TestFunctionOfKilledRun: the end of a run ends the wait of its function, and
// the program's wait.
func TestFunctionOfKilledRun(t *testing.T) {
	b := open(t, jail.Config{})
	ended := make(chan error, 1)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	out, err := b.Run(ctx, sandbox.Spec{
		Code: "from tools.slow import f\nf()",
		Functions: []sandbox.Function{{Namespace: "slow", Name: "f", Call: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			kill()
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, out, sandbox.Killed, "")
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("want the function's context cancelled, got %v", err)
	}
}

// TestProxy: descriptor 3 is the way out, and the only one.
func TestProxy(t *testing.T) {
	b := open(t, jail.Config{Warm: 1})
	const program = `
import socket
s = socket.socket(fileno=3)
s.sendall(b'ping\n')
print(s.family.name, s.recv(4))
try:
    s.connect('\0nobody')
except OSError as e:
    print('no')
s.shutdown(socket.SHUT_WR)
print(s.recv(100), s.recv(100))
`
	for name, s := range map[string]sandbox.Spec{
		"program": {Argv: []string{"python3", "-c", program}},
		"code":    {Code: program},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			said := make(chan string, 1)
			go func() {
				defer ours.Close()
				b := make([]byte, 100)
				n, err := ours.Read(b)
				said <- fmt.Sprint(string(b[:n]), err)
				ours.Write([]byte("pong"))
				ours.Write([]byte("bye"))
			}()
			s.Proxy = theirs
			out := run(t, b, s)
			if out.Cause != sandbox.OK || !strings.HasPrefix(string(out.Stdout), "AF_UNIX b'pong'\nno\n") || !strings.HasSuffix(string(out.Stdout), "b'bye' b''\n") {
				t.Errorf("want a conversation and no other way, got %s: %s%s", out.Cause, out.Stdout, out.Stderr)
			}
			if got := <-said; got != "ping\n<nil>" {
				t.Errorf("the proxy heard %q", got)
			}
		})
	}
}
