//go:build linux

package jail_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
)

// Mutants that were made by hand and die here: no cgroup namespace; Landlock
// rules of a warm interpreter not put in force.

// escapes are ways out, each tried as the confined program. An expression that
// raises is held; one that is true got out. HOST is a file of the host that
// everybody may read, DIR its directory, PID a process of the host, PORT a
// listening TCP port and SOCK a listening socket of the host.
var escapes = map[string]string{
	"read a host file":              `open('HOST').read()`,
	"read it by ..":                 `open('../../../../HOST').read()`,
	"read it by a link":             `os.symlink('HOST', 'l') or open('l').read()`,
	"read it by a hard link":        `os.link('HOST', 'h') or open('h').read()`,
	"read it by init's root":        `open('/proc/1/root/HOST').read()`,
	"read it by init's cwd":         `open('/proc/1/cwd/HOST').read()`,
	"read it by a handle":           `call(303, -100, b'HOST\0', b'\0' * 128, b'\0' * 8, 0) == 'ok'`,
	"host's shadow":                 `open('/etc/shadow').read()`,
	"host's passwd":                 `'root' in open('/etc/passwd').read()`,
	"host's hosts":                  `'DIR' in open('/etc/hosts').read()`,
	"host's home":                   `os.listdir('/root') or os.listdir('/home')`,
	"host's var":                    `os.listdir('/var')`,
	"host's sys":                    `os.listdir('/sys')`,
	"host's run":                    `os.listdir('/run')`,
	"host's environment":            `'KERN_JAIL_SECRET' in open('/proc/1/environ').read()`,
	"own environment":               `any('SECRET' in k + v for k, v in os.environ.items())`,
	"environment in any process":    `any(b'KERN_JAIL_SECRET' in open(f'/proc/{p}/environ', 'rb').read() for p in os.listdir('/proc') if p.isdigit())`,
	"init's memory":                 `open('/proc/1/mem', 'rb')`,
	"init's descriptors":            `os.listdir('/proc/1/fd')`,
	"init's program":                `open('/proc/1/exe', 'rb').read(4)`,
	"init's maps":                   `open('/proc/1/maps').read()`,
	"kernel memory":                 `open('/dev/mem', 'rb') or open('/proc/kcore', 'rb')`,
	"kernel log":                    `open('/dev/kmsg') or open('/proc/kmsg')`,
	"disk":                          `open('/dev/vda', 'rb') or open('/dev/sda', 'rb')`,
	"make a disk":                   `os.mknod('disk', 0o60600, os.makedev(254, 0)) is None`,
	"make a device":                 `os.mknod('/tmp/mem', 0o20600, os.makedev(1, 1)) is None`,
	"see a host process":            `os.path.exists('/proc/PID/stat') and 'kern' in open('/proc/PID/comm').read()`,
	"signal a host process":         `os.kill(PID, 0) is None`,
	"signal all":                    `any(int(p) not in (os.getpid(), 1) for p in os.listdir('/proc') if p.isdigit())`,
	"kill init":                     `os.kill(1, 9) is None`,
	"stop init":                     `os.kill(1, 19) is None`,
	"write to usr":                  `open('/usr/kern-jail-was-here', 'w')`,
	"write to a program":            `open('/usr/bin/true', 'r+b')`,
	"write to etc":                  `open('/etc/kern-jail-was-here', 'w')`,
	"write to the root":             `open('/kern-jail-was-here', 'w')`,
	"write to sysctl":               `open('/proc/sys/kernel/core_pattern', 'w')`,
	"trigger sysrq":                 `open('/proc/sysrq-trigger', 'w')`,
	"raise oom score":               `open('/proc/1/oom_score_adj', 'w')`,
	"become root":                   `os.setuid(0) is None`,
	"become another":                `os.setresuid(0, 0, 0) is None or os.setgid(0) is None`,
	"join a group":                  `os.setgroups([0]) is None`,
	"suid program":                  `b'uid=0' in subprocess.run(['su', '-c', 'id'], capture_output=True, stdin=subprocess.DEVNULL).stdout`,
	"own suid":                      `shutil.copy('/usr/bin/id', 'id') and os.chmod('id', 0o6777) is None and b'uid=0' in subprocess.run(['./id'], capture_output=True).stdout`,
	"leave suid":                    `open('suid', 'w') and os.chmod('suid', 0o4755) is None`,
	"leave sgid directory":          `os.mkdir('sgid') is None and os.chmod('sgid', 0o2755) is None`,
	"open suid":                     `os.umask(0) and os.open('opened', os.O_CREAT | os.O_WRONLY, 0o6755)`,
	"openat2 suid":                  `call(437, -100, b'opened2\0', (0o101).to_bytes(8, 'little') + (0o6755).to_bytes(8, 'little') + bytes(8), 24) == 'ok'`,
	"mknod suid":                    `os.mknod('made', 0o104755) is None`,
	"fchmodat2 suid":                `open('suid2', 'w') and call(452, -100, b'suid2\0', 0o4755, 0) == 'ok'`,
	"mount":                         `libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0`,
	"unmount":                       `libc.umount2(b'/proc', 2) == 0`,
	"remount":                       `libc.mount(None, b'/', None, 32, None) == 0`,
	"new user namespace":            `libc.unshare(0x10000000) == 0`,
	"new mount namespace":           `libc.unshare(0x20000) == 0`,
	"enter a namespace":             `libc.setns(os.open('/proc/1/ns/mnt', 0), 0) == 0`,
	"chroot":                        `os.chroot('/tmp') is None`,
	"trace a child":                 `libc.ptrace(0, 0, 0, 0) == 0`,
	"TCP to the host":               `socket.create_connection(('127.0.0.1', PORT), 1)`,
	"TCP over IPv6":                 `socket.create_connection(('::1', PORT), 1)`,
	"UDP out":                       `socket.socket(2, 2).sendto(b'x', ('127.0.0.1', 53))`,
	"UDP to the world":              `socket.socket(2, 2).sendto(b'x', ('192.0.2.1', 53))`,
	"DNS":                           `socket.getaddrinfo('example.org', 80)`,
	"raw socket":                    `socket.socket(2, 3, 1)`,
	"listen":                        `(lambda s: s.bind(('0.0.0.0', 0)) is None and s.listen() is None)(socket.socket())`,
	"netlink":                       `socket.socket(16, 3, 0)`,
	"packet":                        `socket.socket(17, 3, 0)`,
	"vsock":                         `socket.socket(40, 1, 0)`,
	"alg":                           `socket.socket(38, 5, 0)`,
	"host's socket":                 `socket.socket(1).connect('SOCK') is None`,
	"host's abstract socket":        `socket.socket(1).connect('\0kern-jail-escape') is None`,
	"another network's devices":     `len(open('/proc/net/dev').read().splitlines()) > 3`,
	"io_uring":                      `call(425, 8, b'\0' * 200) == 'ok'`,
	"bpf":                           `call(321, 0, b'\0' * 128, 128) == 'ok'`,
	"keyring":                       `call(250, 0, -3, 1) == 'ok' or call(248, b'user\0', b'k\0', b'v\0', 1, -2) == 'ok'`,
	"perf":                          `call(298, b'\0' * 128, 0, -1, -1, 0) == 'ok'`,
	"userfaultfd":                   `call(323, 0) == 'ok'`,
	"host name":                     `libc.sethostname(b'x', 1) == 0`,
	"clock":                         `time.clock_settime(time.CLOCK_REALTIME, time.time()) is None`,
	"raise a limit":                 `resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)) is None`,
	"raise priority":                `os.nice(-5) is not None`,
	"real time":                     `os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) is None`,
	"core dump":                     `resource.getrlimit(resource.RLIMIT_CORE)[1] != 0`,
	"terminal":                      `open('/dev/tty')`,
	"pseudo terminal":               `os.openpty()`,
	"cgroup files":                  `os.listdir('/sys/fs/cgroup')`,
	"host's cgroup path":            `any(not l.strip().endswith(':/') and 'kern-jail' in l for l in open('/proc/self/cgroup'))`,
	"host's mounts":                 `any(l.split()[1] in ('/sys', '/home', '/root', '/var', 'DIR') for l in open('/proc/self/mounts'))`,
	"host's kernel threads":         `any('kthreadd' in open(f'/proc/{p}/comm').read() for p in os.listdir('/proc') if p.isdigit())`,
	"message queues":                `call(240, b'/q\0', 0o102, 0o600, 0) == 'ok' and os.path.exists('/dev/mqueue')`,
	"shared memory of the host":     `len(open('/proc/sysvipc/shm').readlines()) > 1`,
	"executable of the host by fd":  `os.execve('/proc/1/exe', ['x'], {})`,
	"dunder walk to the supervisor": `[c for c in ().__class__.__base__.__subclasses__() if c.__module__ == 'tools']`,
}

// harness tries each of WAYS, a list of names and expressions.
const harness = ask + `
import resource, shutil, socket, subprocess, time
ways = WAYS
for name, expr in ways:
    try:
        got = eval(expr)
    except Exception as e:
        got = None
    if got:
        print('OUT:', name, repr(got)[:200])
print('tried', len(ways))
`

// TestPromiseConfines tries every escape in a private and in a named workspace,
// from a cold and from a warm interpreter.
func TestPromiseConfines(t *testing.T) {
	t.Setenv("KERN_JAIL_SECRET", "1")
	dir, err := os.MkdirTemp("/var/tmp", "kern-jail-escape-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	host := filepath.Join(dir, "host")
	if err := os.WriteFile(host, []byte("hidden"), 0o666); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for _, name := range []string{filepath.Join(dir, "sock"), "@kern-jail-escape"} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	victim := exec.Command("sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer victim.Wait()
	defer victim.Process.Kill()
	fill := strings.NewReplacer("HOST", host, "DIR", dir, "PID", fmt.Sprint(victim.Process.Pid),
		"PORT", fmt.Sprint(tcp.Addr().(*net.TCPAddr).Port), "SOCK", filepath.Join(dir, "sock"))
	var ways strings.Builder
	for _, name := range slices.Sorted(maps.Keys(escapes)) {
		fmt.Fprintf(&ways, "(%q, %q),\n", name, fill.Replace(escapes[name]))
	}
	control := `("control", "os.getpid() and call(39) == 'ok' and libc.getuid() == 1000 and resource and shutil and socket and subprocess and time and 'seen'"),`
	for _, cfg := range []jail.Config{{}, {Warm: 1}} {
		b := open(t, cfg)
		want(t, run(t, b, sandbox.Spec{Code: strings.Replace(harness, "WAYS", "["+control+"]", 1)}), sandbox.OK, "OUT: control 'seen'\ntried 1\n")
		for _, ws := range []string{"", t.TempDir()} {
			ready(t, b, cfg.Warm)
			s := sandbox.Spec{Code: strings.Replace(harness, "WAYS", "["+ways.String()+"]", 1), Dir: ws}
			want(t, run(t, b, s), sandbox.OK, fmt.Sprintf("tried %d\n", len(escapes)))
		}
	}
	if err := victim.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the host's process is gone: %v", err)
	}
}
