//go:build linux

package program

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

	"github.com/kern-run/kern/internal/program/confine"
)

// What these tests were seen to catch
// stands in main_test.go.

// gatewayPort is free in every new network.
const gatewayPort = 4411

// jailCaller runs a program in a jail, as kern exec does: its arguments are
// the directory to write in, the gateway's socket, what to hide and to show
// (behind + to write in, behind ~ its home), and the program.
func jailCaller(args []string) int {
	if err := os.Chdir(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "jailCaller:", err)
		return 125
	}
	path, err := Find(args[4])
	if err == nil {
		var p *confine.Plan
		w := confine.Options{Dir: args[0], Home: os.Getenv("HOME"), Path: path, Env: os.Environ(), Hide: strings.Fields(args[2]),
			Base: fmt.Sprintf("http://127.0.0.1:%d", gatewayPort), Socket: args[1]}
		for _, name := range strings.Fields(args[3]) {
			switch name[0] {
			case '+':
				w.Write = append(w.Write, name[1:])
			case '~':
				w.Keep = name[1:]
			default:
				w.Show = append(w.Show, name)
			}
		}
		if p, err = confine.NewPlan(w); err == nil {
			os.Clearenv()
			for _, v := range p.Environ(w.Env) {
				name, value, _ := strings.Cut(v, "=")
				_ = os.Setenv(name, value)
			}
			return caller(p, args[4:])
		}
	}
	fmt.Fprintln(os.Stderr, "jailCaller:", err)
	return 125
}

// A jailRig is what is around a program in a jail.
type jailRig struct {
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
	given   string // to see or write in, as jailCaller has it
}

func newYard(t *testing.T) *jailRig {
	t.Helper()
	top := t.TempDir()
	for d := top; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // another user comes in
	}
	y := &jailRig{t: t, dir: top + "/dir", out: top + "/out", home: top + "/home", hide: top + "/dir/data", socket: top + "/dir/data/gate", named: top + "/out/sock",
		unnamed: "@kern-jail-test-" + itoa(os.Getpid())}
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
func (y *jailRig) serve(network, address string) net.Addr {
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

// command runs argv behind the jail, as another user if that is said.
func (y *jailRig) command(uid int, argv ...string) *exec.Cmd {
	y.t.Helper()
	line := []string{"jailCaller", y.dir, y.socket, y.hide, y.given}
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
	cmd.Dir, cmd.Stdin = y.dir, empty(y.t)
	cmd.Env = append(os.Environ(), "HOME="+y.home, "TMPDIR="+y.out)
	return cmd
}

// try makes every attempt once and prints what came of it.
func try(args []string) {
	var y jailRig
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
	family := func(family, protocol int) func() error {
		return func() error {
			fd, err := unix.Socket(family, unix.SOCK_RAW, protocol)
			if err == nil {
				unix.Close(fd)
			}
			return err
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
		"read beside": read(y.out + "/secret"), "read by the old root": read("/.." + y.out + "/secret"), "read home": read(y.home + "/secret"), "read hidden": read(y.hide + "/secret"), "read shadow": read("/etc/shadow"),
		"read keys": read("/proc/keys"), "read timers": read("/proc/timer_list"), "read symbols": read("/proc/kallsyms"), "read allocations": read("/proc/slabinfo"),
		"read processors": read("/proc/cpuinfo"), "read mounts": read("/proc/self/mounts"),
		"read environment": read(fmt.Sprintf("/proc/%d/environ", pid)), "read by root of": read(fmt.Sprintf("/proc/%d/root%s/secret", pid, y.out)),
		"write beside": write(y.out + "/written"), "write system": write("/usr/kern-jail-test"), "write settings": write("/etc/kern-jail-test"),
		"write workspace": write(y.dir + "/written"), "write tmp": write("/tmp/kern-jail-test"), "write home": write(y.home + "/written"),
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
		"packet": family(unix.AF_PACKET, 0), "audit": family(unix.AF_NETLINK, unix.NETLINK_AUDIT), "interfaces": family(unix.AF_NETLINK, unix.NETLINK_ROUTE),
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
func (y *jailRig) attempts(cmd *exec.Cmd) map[string]string {
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

// TestJail tries every way out as the program. Each way is open without the
// jail, or the attempt would show nothing.
func TestJail(t *testing.T) {
	inside := map[string]bool{"read processors": true, "read mounts": true, "gateway": true, "write workspace": true, "write tmp": true, "write home": true, "interfaces": true}
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
			for _, what := range []string{"typing", "mount", "unshare", "ptrace", "vsock", "packet", "audit"} {
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
					t.Errorf("without the jail, %s: %s", what, open[what])
				}
			}
		})
	}
}

// TestJailHolds looks whether nothing of a program is left in a jail,
// however it ends.
func TestJailHolds(t *testing.T) {
	for _, uid := range users() {
		for _, c := range []struct {
			who  string
			pick func(caller int) int
			code int
		}{
			{"nobody", nil, 3},
			{"caller", func(caller int) int { return caller }, -1},
			{"supervisor", func(caller int) int { return supervisorOf(t, caller) }, 137},
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

// TestJailGiven gives a program places of the host to write in, and a home. It
// changes those, and gets nowhere by them.
func TestJailGiven(t *testing.T) {
	const script = `top=$0; tell() { name=$1; shift; ("$@") >/dev/null 2>&1 && echo "$name"; }
put() { echo 1 >>"$1"; }
tell directory put "$top/given/new"; tell file put "$top/single"; tell home put "$HOME/kept"; tell "old home" put "$top/home/gone"
tell "shown below" cat "$top/given/shown/old"; tell "written below" put "$top/given/shown/new"
tell "by a link" cat "$top/given/link/secret"; tell "to a link" put "$top/given/link/new"; tell hidden cat "$top/given/data/secret"
tell "in hidden" put "$top/given/data/new"; tell moved mv "$top/given/data" "$top/given/away"; tell uncovered rmdir "$top/given/data"
tell beside put "$top/out/new"; tell dots put "$top/given/../out/new"; tell "in /tmp" put "$top/new"; tell device mknod "$top/given/null" c 1 3
mv "$top/given/sub" "$top/given/sub2"; ln -s "$top/out" "$top/given/sub"; tell swapped cat "$top/given/sub/secret"; exit 0`
	for _, uid := range users() {
		t.Run(fmt.Sprint("root is ", uid == 0), func(t *testing.T) {
			y := newYard(t)
			top := filepath.Dir(y.dir)
			for _, d := range []string{"given", "given/data", "given/shown", "given/sub", "home/keep"} {
				if err := errors.Join(os.Mkdir(top+"/"+d, 0o777), os.Chmod(top+"/"+d, 0o777)); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []string{"given/data/secret", "given/shown/old", "single"} {
				if err := errors.Join(os.WriteFile(top+"/"+f, []byte("old\n"), 0o666), os.Chmod(top+"/"+f, 0o666)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(y.out, top+"/given/link"); err != nil {
				t.Fatal(err)
			}
			y.hide += " " + top + "/given/data"
			y.given = strings.ReplaceAll("+$/given $/given/shown +$/single ~$/home/keep", "$", top)
			out, err := y.command(uid, shell(top, script)...).Output()
			if want := "directory\nfile\nhome\nold home\nshown below\nin /tmp\n"; err != nil || string(out) != want {
				t.Errorf("%v: it could\n%swant\n%s", err, out, want)
			}
			for name, there := range map[string]bool{"given/new": true, "home/keep/kept": true, "home/gone": false, "new": false, "given/shown/new": false} {
				if _, err := os.Stat(top + "/" + name); (err == nil) != there {
					t.Errorf("%s: %v", name, err)
				}
			}
			if b, err := os.ReadFile(top + "/single"); err != nil || string(b) != "old\n1\n" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// TestJailSwapped puts a link in the place of what was planned to be seen.
func TestJailSwapped(t *testing.T) {
	for _, what := range []string{"shown", "given", "dir"} {
		t.Run(what, func(t *testing.T) {
			y := newYard(t)
			top := filepath.Dir(y.dir)
			for _, d := range []string{"shown", "given"} {
				if err := os.Mkdir(top+"/"+d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			p, err := confine.NewPlan(confine.Options{Dir: y.dir, Path: "/bin/sh", Show: []string{top + "/shown"}, Write: []string{top + "/given"},
				Base: fmt.Sprintf("http://127.0.0.1:%d", gatewayPort), Socket: y.socket})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Rename(top+"/"+what, top+"/away"), os.Symlink(y.out, top+"/"+what)); err != nil {
				t.Fatal(err)
			}
			s := spec("cat", top+"/"+what+"/secret")
			s.Jail = p
			if g, err := Start(s); err == nil || !strings.Contains(err.Error(), "too many levels of symbolic links") {
				t.Errorf("%s: it was started: %v", what, err)
				if err == nil {
					g.Wait()
				}
			}
		})
	}
}

// TestJailArguments gives a program more than one argument holds: what the
// system takes without a jail it takes with one.
func TestJailArguments(t *testing.T) {
	y := newYard(t)
	long := strings.Repeat("a", 100_000)
	out, err := y.command(os.Getuid(), "sh", "-c", `echo $#`, "sh", long, long, long, long).CombinedOutput()
	if err != nil || string(out) != "4\n" {
		t.Errorf("%v: %.300s", err, out)
	}
}

// TestJailStarts has programs start in a jail as they do without, and
// buries those who lose their parent there.
func TestJailStarts(t *testing.T) {
	y := newYard(t)
	for _, name := range []string{y.dir + "/script", y.hide + "/script"} {
		if err := os.WriteFile(name, []byte("exit $1\n"), 0o755); err != nil { // which names no interpreter
			t.Fatal(err)
		}
	}
	if out, err := y.command(os.Getuid(), "./script", "9").CombinedOutput(); codeOf(err) != 9 {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := y.command(os.Getuid(), y.hide+"/script", "9").CombinedOutput(); codeOf(err) != 125 || !strings.Contains(string(out), "the jail does not show "+y.hide) {
		t.Errorf("%v: %s", err, out)
	}
	const orphans = `: >pids; for i in 1 2 3; do (sh -c 'echo $$ >>pids' &); done
while [ "$(wc -l <pids)" != 3 ]; do sleep 0.01; done
for pid in $(cat pids); do n=0; while [ -e /proc/$pid ] && [ $n -lt 1000 ]; do n=$((n+1)); sleep 0.01; done; [ -e /proc/$pid ] && echo "left: $pid"; done; exit 0`
	if out, err := y.command(os.Getuid(), "sh", "-c", orphans).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestJailRefuses asks for what cannot be.
func TestJailRefuses(t *testing.T) {
	y := newYard(t)
	if code := codeOf(y.command(os.Getuid(), "no-such-program").Run()); code != 125 { // the jailCaller's own look
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

// TestJailTerminal types at programs in a jail as a person does.
func TestJailTerminal(t *testing.T) {
	y := newYard(t)
	s := newScreen(t)
	s.line("CALL='" + strings.Join([]string{y.self, "jailCaller", y.dir, y.socket, y.hide}, " ") + " '; CALL=\"$CALL /usr/share\"; D=" + y.dir)
	s.see("READY> ")
	s.line(`$CALL sh -c 'tty; read a </dev/tty; echo "got=$a"; exit 3' $D; echo "code=$?"`)
	s.see("/dev/console")
	s.key("hello\r")
	s.see("got=hello")
	s.see("code=3")
	s.line(`$CALL sh -c 'echo is""here; exec sleep 100' $D`)
	s.see("ishere")
	s.key(ctrlC)
	s.see("READY> ")
	s.line(`echo "code=$?"`)
	s.see("code=130")
	for range 2 { // suspended by its shell, and brought back
		s.line(`$CALL sh -c 'echo is""here; read a; echo "got=$a"; exit 4' $D`)
		s.see("ishere")
		s.key(ctrlZ)
		s.see("Stopped")
		s.see("READY> ")
		s.line("echo shell; fg; echo code=$?")
		s.see("shell\r\n")
		s.key("hello\r")
		s.see("got=hello")
		s.see("code=4")
	}
	s.within()
}

// TestJailPause stops and continues a program in a jail, then ends it.
func TestJailPause(t *testing.T) {
	y := newYard(t)
	p, err := confine.NewPlan(confine.Options{Dir: y.dir, Path: "/bin/sh", Base: fmt.Sprintf("http://127.0.0.1:%d", gatewayPort), Socket: y.socket})
	if err != nil {
		t.Fatal(err)
	}
	s := spec(shell(y.dir, `trap "exit 4" TERM; echo 1 >me; while :; do :; done`)...)
	s.Jail = p
	g, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan Ended, 1)
	go func() { done <- g.Wait() }()
	number(t, y.dir, "me")
	if group, err := unix.Getpgid(g.Pid); err != nil || group != g.Pid {
		t.Errorf("it is in group %d, %v", group, err)
	}
	for range 3 {
		g.Pause()
		until(t, "the stop", func() bool { return state(g.Pid) == "T" })
		g.Resume()
		until(t, "the end of the stop", func() bool { return state(g.Pid) == "R" || state(g.Pid) == "S" })
	}
	g.End(0, patience, nil)
	if e := <-done; e.Exit != 4 || e.Lost || e.CPU == 0 {
		t.Errorf("%+v", e)
	}
}
