//go:build linux

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/guest/fence"
)

// What these tests were seen to catch, each by breaking the code on purpose,
// stands with those of main_test.go.

// gatewayPort is free in every new network.
const gatewayPort = 4411

// warden runs a program behind a fence, as kern exec does: its arguments are
// the directory to write in, the gateway's socket, what to hide and to show,
// and the program.
func warden(args []string) int {
	if err := os.Chdir(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "warden:", err)
		return 125
	}
	path, err := Find(args[4])
	if err == nil {
		var p *fence.Plan
		w := fence.Wish{Dir: args[0], Home: os.Getenv("HOME"), Path: path, Env: os.Environ(), Hide: strings.Fields(args[2]), Show: strings.Fields(args[3]),
			Base: fmt.Sprintf("http://127.0.0.1:%d", gatewayPort), Socket: args[1]}
		if p, err = fence.New(w); err == nil {
			return caller(p, args[4:])
		}
	}
	fmt.Fprintln(os.Stderr, "warden:", err)
	return 125
}

// A yard is what is around a program behind a fence.
type yard struct {
	t       *testing.T
	dir     string // to write in
	out     string // beside it
	home    string
	socket  string // of the gateway, which answers with what it hears
	hide    string
	tcp     string // somebody else's, as all below
	udp     string
	named   string
	unnamed string // abstract
	self    string // this program, for everybody
}

func newYard(t *testing.T) *yard {
	t.Helper()
	top := t.TempDir()
	for d := top; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // another user comes in
	}
	y := &yard{t: t, dir: top + "/dir", out: top + "/out", home: top + "/home", hide: top + "/dir/data", socket: top + "/dir/data/gate", named: top + "/out/sock",
		unnamed: "@kern-fence-test-" + itoa(os.Getpid())}
	for _, d := range []string{y.dir, y.out, y.home, y.hide, top + "/bin"} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{y.out + "/secret", y.home + "/secret", y.hide + "/secret"} {
		if err := os.WriteFile(f, []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	y.self = top + "/bin/self"
	if err := os.WriteFile(y.self, b, 0o755); err != nil {
		t.Fatal(err)
	}
	y.serve("unix", y.socket)
	y.serve("unix", y.named)
	y.serve("unix", y.unnamed)
	y.tcp = y.serve("tcp", "127.0.0.1:0").String()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	y.udp = c.LocalAddr().String()
	var echo sync.WaitGroup
	echo.Go(func() {
		for b := make([]byte, 64); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	})
	t.Cleanup(func() { c.Close(); echo.Wait() })
	return y
}

// serve answers what it hears, until the end of the test.
func (y *yard) serve(network, address string) net.Addr {
	y.t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		y.t.Fatal(err)
	}
	if network == "unix" && address[0] == '/' {
		if err := os.Chmod(address, 0o777); err != nil {
			y.t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { _, _ = io.Copy(c, c); c.Close() })
		}
	})
	y.t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr()
}

// command runs argv behind the fence, as another user if that is said.
func (y *yard) command(uid int, argv ...string) *exec.Cmd {
	y.t.Helper()
	line := []string{"warden", y.dir, y.socket, y.hide, ""}
	if argv[0] == "bare" {
		line, argv = nil, argv[1:]
	}
	if argv[0] == "self" {
		argv[0] = y.self
	}
	if line != nil {
		argv = slices.Concat([]string{y.self}, line, argv)
	}
	if uid != os.Getuid() {
		argv = append([]string{"setpriv", "--reuid", itoa(uid), "--regid", itoa(uid), "--clear-groups"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = y.dir
	cmd.Env = append(os.Environ(), "HOME="+y.home, "TMPDIR="+y.out)
	return cmd
}

// try makes every attempt once and prints what came of it.
func try(args []string) {
	var y yard
	var pid int
	y.dir, y.out, y.home, y.hide, y.tcp, y.udp, y.named, y.unnamed = args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7]
	_, _ = fmt.Sscan(args[8], &pid)
	talk := func(network, address string) func() error {
		return func() error {
			c, err := net.DialTimeout(network, address, 5*time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			_, err = io.ReadFull(c, make([]byte, 1))
			return err
		}
	}
	read := func(name string) func() error {
		return func() error {
			b, err := os.ReadFile(name)
			if err == nil && len(b) == 0 {
				err = errors.New("nothing in it")
			}
			return err
		}
	}
	write := func(name string) func() error { return func() error { return os.WriteFile(name, []byte("x"), 0o644) } }
	call := func(nr uintptr, a, b, c uintptr) func() error {
		return func() error {
			if _, _, e := unix.Syscall(nr, a, b, c); e != 0 {
				return e
			}
			return nil
		}
	}
	said := map[string]string{}
	for name, do := range map[string]func() error{
		"tcp": talk("tcp", y.tcp), "udp": talk("udp", y.udp), "abstract socket": talk("unix", y.unnamed), "socket": talk("unix", y.named),
		"hidden socket": talk("unix", y.hide+"/gate"), "gateway": talk("tcp", fmt.Sprintf("127.0.0.1:%d", gatewayPort)),
		"route out": func() error {
			c, err := net.Dial("udp", "192.0.2.1:9") // which sends nothing
			if err == nil {
				c.Close()
			}
			return err
		},
		"read beside": read(y.out + "/secret"), "read home": read(y.home + "/secret"), "read hidden": read(y.hide + "/secret"), "read shadow": read("/etc/shadow"),
		"read environment": read(fmt.Sprintf("/proc/%d/environ", pid)), "read by root of": read(fmt.Sprintf("/proc/%d/root%s/secret", pid, y.out)),
		"write beside": write(y.out + "/written"), "write system": write("/usr/kern-fence-test"), "write settings": write("/etc/kern-fence-test"),
		"write workspace": write(y.dir + "/written"), "write tmp": write("/tmp/kern-fence-test"), "write home": write(y.home + "/written"),
		"write sysctl": func() error {
			f, err := os.OpenFile("/proc/sys/vm/swappiness", os.O_WRONLY, 0)
			if err == nil {
				f.Close()
			}
			return err
		},
		"by descriptor": func() error {
			fd, err := unix.Openat(5, strings.TrimPrefix(y.out, "/")+"/secret", unix.O_RDONLY, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		},
		"signal": call(unix.SYS_KILL, uintptr(pid), 0, 0),
		"ptrace": call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0),
		"typing": call(unix.SYS_IOCTL, 0, unix.TIOCSTI, 0),
		"vsock": func() error {
			fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		},
	} {
		said[name] = "ok"
		if err := do(); err != nil {
			said[name] = err.Error()
		}
	}
	for name, do := range map[string]func() error{ // which change who tries
		"mount": call(unix.SYS_MOUNT, 0, 0, 0), "unshare": call(unix.SYS_UNSHARE, unix.CLONE_NEWNET, 0, 0), "setuid": call(unix.SYS_SETUID, 12345, 0, 0),
	} {
		said[name] = "ok"
		if err := do(); err != nil {
			said[name] = err.Error()
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(said)
}

// attempts are what try said.
func (y *yard) attempts(cmd *exec.Cmd) map[string]string {
	y.t.Helper()
	f, err := os.Open("/")
	if err != nil {
		y.t.Fatal(err)
	}
	defer f.Close()
	cmd.ExtraFiles = []*os.File{f, f, f} // 3, 4 and 5
	var errs strings.Builder
	cmd.Stderr = &errs
	b, err := cmd.Output()
	var said map[string]string
	if err := errors.Join(err, json.Unmarshal(b, &said)); err != nil {
		y.t.Fatalf("%v: %s%s", err, b, &errs)
	}
	return said
}

// users are those as whom to try: this one, and where that is root another.
func users() []int {
	if os.Getuid() == 0 {
		return []int{0, 50000 + os.Getpid()%10000}
	}
	return []int{os.Getuid()}
}

// TestFence tries every way out as the program. Each way is open without the
// fence, or the attempt would show nothing.
func TestFence(t *testing.T) {
	inside := map[string]bool{"gateway": true, "write workspace": true, "write tmp": true, "write home": true}
	for _, uid := range users() {
		t.Run(fmt.Sprint("root is ", uid == 0), func(t *testing.T) {
			y := newYard(t)
			other := exec.Command("sleep", "1000")
			other.Env = []string{"SECRET=1"}
			if uid != os.Getuid() {
				other = exec.Command("setpriv", "--reuid", itoa(uid), "--regid", itoa(uid), "--clear-groups", "sleep", "1000")
			}
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
			until(t, "the other", func() bool { return strings.HasPrefix(comm(other.Process.Pid), "sleep") })
			args := []string{"self", "try", y.dir, y.out, y.home, y.hide, y.tcp, y.udp, y.named, y.unnamed, itoa(other.Process.Pid)}
			said := y.attempts(y.command(uid, args...))
			for what, came := range said {
				if (came == "ok") != inside[what] {
					t.Errorf("%s: %s", what, came)
				}
			}
			for _, what := range []string{"typing", "mount", "unshare", "ptrace", "vsock"} {
				if came := said[what]; came != unix.EPERM.Error() {
					t.Errorf("%s: %s", what, came)
				}
			}
			if _, err := os.Stat(y.dir + "/written"); err != nil {
				t.Errorf("what it wrote: %v", err)
			}
			if _, err := os.Stat(y.home + "/written"); err == nil {
				t.Error("it wrote in the home")
			}
			open := y.attempts(y.command(uid, append([]string{"bare"}, args...)...))
			for _, what := range []string{"tcp", "udp", "abstract socket", "socket", "hidden socket", "read beside", "read home", "read hidden", "read environment", "read by root of",
				"write beside", "by descriptor", "signal", "ptrace", "vsock"} {
				if open[what] != "ok" && !(what == "vsock" && open[what] == unix.EAFNOSUPPORT.Error()) {
					t.Errorf("without the fence, %s: %s", what, open[what])
				}
			}
		})
	}
}

// TestFenceHolds looks whether nothing of a program is left behind a fence,
// however it ends.
func TestFenceHolds(t *testing.T) {
	for _, uid := range users() {
		for _, c := range []struct {
			who  string
			pick func(caller int) int
			code int
		}{
			{"nobody", nil, 3},
			{"caller", func(caller int) int { return caller }, -1},
			{"supervisor", func(caller int) int { return Guards(caller)[1] }, 137},
		} {
			t.Run(fmt.Sprint(c.who, ", root is ", uid == 0), func(t *testing.T) {
				y := newYard(t)
				script := `(setsid sh -c 'trap "" TERM; echo 1 >left; exec sleep 1000' "$0" &); while ! [ -e left ]; do sleep 0.01; done; echo 1 >me; `
				if c.pick == nil {
					script += "exit 3"
				} else {
					script += "while :; do sleep 0.01; done"
				}
				cmd := y.command(uid, shell(y.dir, script)...)
				var out strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &out
				if c.who == "caller" {
					cmd.Stdout, cmd.Stderr = nil, nil
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if c.pick != nil {
					number(t, y.dir, "me")
					kill(t, c.pick(cmd.Process.Pid), unix.SIGKILL)
				}
				if code := codeOf(cmd.Wait()); code != c.code {
					t.Errorf("exit %d, want %d: %s", code, c.code, &out)
				}
				until(t, "the end of all", func() bool { return len(marked(y.dir)) == 0 })
			})
		}
	}
}

// TestFenceRefuses asks for what cannot be.
func TestFenceRefuses(t *testing.T) {
	y := newYard(t)
	if code := codeOf(y.command(os.Getuid(), "no-such-program").Run()); code != 125 { // the warden's own look
		t.Errorf("exit %d", code)
	}
	cmd := y.command(os.Getuid(), "cat")
	f, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdin = f
	out, err := cmd.CombinedOutput()
	if codeOf(err) != 125 || !strings.Contains(string(out), "standard input is a directory") {
		t.Errorf("%v: %s", err, out)
	}
	cmd = y.command(os.Getuid(), "true")
	cmd.Env = append(cmd.Env, "HOME="+y.dir)
	if out, err := cmd.CombinedOutput(); codeOf(err) != 125 || !strings.Contains(string(out), "is too much") {
		t.Errorf("%v: %s", err, out)
	}
	if os.Getuid() == 0 { // a host that makes no namespaces
		cmd = y.command(os.Getuid(), "true")
		cmd.Path, cmd.Args = "/usr/bin/unshare", append([]string{"unshare", "-U", "--map-root-user", "sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"`, "sh"}, cmd.Args...)
		if out, err := cmd.CombinedOutput(); codeOf(err) != 125 || !strings.Contains(string(out), "max_user_namespaces") {
			t.Errorf("%v: %s", err, out)
		}
	}
}
