package confine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/frame"
	"github.com/kern-run/kern/internal/program/userns"
)

// How a program gets into a jail
//
//	supervisor ── builder ── reaper, the first process inside
//	     └────── the program, inside
//
// The builder starts in new namespaces. It builds the root, starts the reaper and
// drops every right. It starts the program as a child of the supervisor, so the
// supervisor sees the program stop and end. Then the builder ends. The reaper waits
// for processes inside that lost their parent. The reaper ends when the supervisor
// ends, and then the kernel kills every process inside.

// Descriptors of a builder. The reaper has only controlFD.
const (
	controlFD = 3 // the socket to the supervisor
	groupFD   = 4 // the first cgroup file
)

// The roles of kern exec's jail, see package program.
const (
	RoleBuilder = "kern-jail-builder"
	RoleReaper  = "kern-jail-reaper"
)

// Able returns an error if this system has no namespaces. Only building a jail shows
// whether this user may make them.
func Able() error {
	for _, ns := range []string{"user", "mnt", "net", "pid", "ipc"} {
		if _, err := os.Stat("/proc/self/ns/" + ns); err != nil {
			return fmt.Errorf("a jail needs %s namespaces, and this system has none: %w", ns, err)
		}
	}
	return nil
}

// A Command is a program to start in a jail.
type Command struct {
	Plan  *Plan    `json:"plan"`
	Path  string   `json:"path"`
	Argv  []string `json:"argv"`
	Env   []string `json:"-"`     // passed as the environment of the builder
	Front bool     `json:"front"` // the program has the terminal from its start

	// Start sets these. They describe the descriptors from groupFD on.
	Outside bool `json:"outside,omitempty"` // the first one is the cgroup for the reaper
	Tasks   int  `json:"tasks,omitempty"`   // number of tasks files of the program's cgroups
}

// built is the report of a builder. Its message carries the listening socket on the
// port of the gateway.
type built struct {
	Pid   int    `json:"pid,omitempty"`
	Errno int    `json:"errno,omitempty"` // the program cannot be executed
	Err   string `json:"err,omitempty"`   // why the jail was not built
}

// A Jail lasts until it is closed, or until this process ends.
type Jail struct{ control *frame.Conn }

// capabilities are the capabilities that a builder needs in its namespaces.
var capabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETPCAP}

// Start starts the program in a jail as a child of this process, and forwards
// its connections to the gateway. The calling thread must be locked and live as long as
// the jail. The scope bounds the program and not the reaper.
func (c *Command) Start(scope *cgroup.Scope) (int, *Jail, error) {
	if err := checkStreams(); err != nil {
		return 0, nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	control, err := frame.New(fds[0])
	if err != nil {
		return 0, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	files := []uintptr{0, 1, 2, uintptr(fds[1])}
	// The reaper must not count against the program's limits, and must survive when they are hit.
	if fd := scope.Outside(); fd >= 0 {
		c.Outside = true
		files = append(files, uintptr(fd))
	}
	for _, f := range scope.Tasks() {
		c.Tasks++
		files = append(files, f.Fd())
	}
	builder, err := startBuilder(c.Env, files, scope.FD())
	if err != nil && scope.FD() >= 0 && scope.Outside() < 0 {
		builder, err = startBuilder(c.Env, files, -1) // try without the cgroup: it sets no bounds, and may be the cause
	}
	_ = unix.Close(fds[1]) // the builder has its own copy
	pid := 0
	if err == nil {
		pid, err = c.await(control)
		// Wait for the builder, because until then it counts as a process of this user.
		for e := error(unix.EINTR); e == unix.EINTR; {
			_, e = unix.Wait4(builder, nil, 0, nil)
		}
	}
	if err != nil {
		_ = control.Close()
		return 0, nil, err
	}
	return pid, &Jail{control}, nil
}

// startBuilder starts a builder, in the cgroup if group is not negative.
func startBuilder(env []string, files []uintptr, group int) (int, error) {
	uid, gid := os.Geteuid(), os.Getegid()
	// The user keeps its own number inside, so that files belong to it as outside.
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: capabilities, UseCgroupFD: group >= 0, CgroupFD: max(group, 0),
	}}
	// A process that hides its memory may not map users into a namespace. Showing the
	// memory is safe here, because no program runs yet.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{RoleBuilder}, attr)
	hide := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		err = fmt.Errorf("namespaces for it cannot be made: %w%s", err, advice(err))
	}
	return pid, errors.Join(err, hide)
}

// await sends the command to the builder, waits for its report and starts to forward
// connections. It returns the pid of the program.
func (c *Command) await(control *frame.Conn) (int, error) {
	if err := control.Send(frame.JSON{Value: c}); err != nil {
		return 0, err
	}
	var b built
	got, err := control.Receive(frame.JSON{Value: &b})
	switch {
	case errors.Is(err, io.EOF):
		return 0, errors.New("the jail was not built, and its builder ended without a reason")
	case err != nil:
		return 0, err
	case b.Err != "":
		return 0, errors.New(b.Err)
	case b.Errno != 0:
		return 0, syscall.Errno(b.Errno)
	case len(got) != 1:
		return 0, fmt.Errorf("want the port of the gateway, got %d descriptors", len(got))
	}
	f := os.NewFile(uintptr(got[0]), "port")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return 0, err
	}
	// The socket belongs to the network inside, and this process accepts from outside of it.
	go relay(ln, c.Plan.Socket)
	return b.Pid, nil
}

// checkStreams refuses standard streams that lead out of the jail.
func checkStreams() error {
	for fd, name := range []string{"input", "output", "error output"} {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return fmt.Errorf("its standard %s is a directory, through which it could reach the host's files", name)
		}
	}
	return nil
}

// advice returns a hint if err is a refused namespace; else "".
func advice(err error) string {
	if !userns.Refused(err) {
		return ""
	}
	return " (to fix it: " + userns.Remedy() + ")"
}

// Build is the role of a builder. It never returns.
func Build() {
	closeOthers()
	var c Command
	if _, err := frame.Plain(controlFD).Receive(frame.JSON{Value: &c}); err != nil {
		os.Exit(2)
	}
	done := make(chan struct{})
	go c.buildAndStart(done)
	<-done
	os.Exit(0)
}

// closeOthers makes all other descriptors close on exec, because the program must not
// inherit them.
func closeOthers() {
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		report(built{Err: fmt.Sprintf("descriptors cannot be closed: %v", err)})
		os.Exit(1)
	}
}

// report sends b to the supervisor. It ignores errors, because the jail ends with the
// supervisor.
func report(b built, port ...int) {
	_ = frame.Plain(controlFD).Send(frame.JSON{Value: b}, port...)
}

// buildAndStart builds the jail and starts the program. It does so from a thread that
// is not the first, because the runtime starts new threads from the first one. A
// thread that unshared its process namespace cannot start others.
func (c *Command) buildAndStart(done chan<- struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go c.buildAndStart(done)
		select {}
	}
	defer close(done)
	port, err := c.prepare()
	if err != nil {
		report(built{Err: "a jail cannot be built here: " + err.Error() + advice(err)})
		return
	}
	pid, err := c.launch()
	e, refused := err.(syscall.Errno)
	switch {
	case refused:
		report(built{Errno: int(e)})
	case err != nil:
		report(built{Err: err.Error()})
	default:
		report(built{Pid: pid}, port)
	}
}

// prepare builds the whole jail except the program, and enters it. It returns the
// socket that listens on the gateway's port.
func (c *Command) prepare() (port int, err error) {
	if port, err = listenInside(c.Plan.Port); err != nil {
		return -1, err
	}
	if err := c.Plan.build(); err != nil {
		return -1, err
	}
	if err := unix.Unshare(unix.CLONE_NEWPID); err != nil {
		return -1, fmt.Errorf("processes of its own: %w", err)
	}
	if err := c.startReaper(); err != nil {
		return -1, err
	}
	if err := leaveHost(); err != nil {
		return -1, err
	}
	return port, unix.Chdir(c.Plan.Dir)
}

// listenInside starts the loopback network and listens on the port where the program
// expects the gateway.
func listenInside(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return -1, err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return -1, fmt.Errorf("the loopback: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, fmt.Errorf("the gateway's port %d: %w", port, err)
	}
	return fd, unix.Listen(fd, 1024)
}

// startReaper starts the reaper, the first process inside, and waits until the reaper
// has mounted /proc.
func (c *Command) startReaper() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	var ready [2]int
	if err := unix.Pipe2(ready[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(ready[0])
	_, err = syscall.ForkExec("/proc/self/exe", []string{RoleReaper}, &syscall.ProcAttr{Files: []uintptr{uintptr(null), uintptr(null), uintptr(ready[1]), controlFD},
		Sys: &syscall.SysProcAttr{UseCgroupFD: c.Outside, CgroupFD: groupFD}})
	// With a copy open here, the read below would wait for ever if the reaper dies.
	_ = unix.Close(ready[1])
	if err != nil {
		return fmt.Errorf("the first process inside: %w", err)
	}
	buf := make([]byte, 512)
	n, err := unix.Read(ready[0], buf)
	if err != nil || string(buf[:n]) != "ready" {
		return fmt.Errorf("the first process inside: %s", buf[:max(n, 0)])
	}
	return nil
}

// Reap is the role of a reaper. It never returns.
func Reap() {
	closeOthers()
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, ""); err != nil {
		fmt.Fprintf(os.Stderr, "/proc: %v", err)
		if err == unix.EPERM {
			fmt.Fprint(os.Stderr, " (parts of this host's own are covered, as containers do: run it outside of one, or in one with a whole /proc)")
		}
		os.Exit(1)
	}
	// Programs inside have the same user, and must not read or trace the reaper.
	if err := coverPrivateProc("proc"); err != nil {
		fmt.Fprintf(os.Stderr, "/proc: %v", err)
		os.Exit(1)
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	fmt.Fprint(os.Stderr, "ready")
	// The pipe to the builder has done its work, and /dev/null takes its place.
	_ = unix.Dup3(0, 2, 0)
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, unix.SIGCHLD)
	go func() {
		for ; ; <-dead {
			for pid := 1; pid > 0; {
				pid, _ = unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
			}
		}
	}()
	for {
		// Nothing is ever sent here. The read ends when the supervisor ends, and the jail must end with it.
		n, err := unix.Read(controlFD, make([]byte, 1))
		if n == 0 || err != nil && err != unix.EINTR {
			os.Exit(0)
		}
	}
}

// launch starts the program from a thread without rights. The program becomes a
// child of the builder's parent, the supervisor.
func (c *Command) launch() (int, error) {
	if err := dropRights(); err != nil {
		return 0, err
	}
	// A group of its own lets the terminal stop and continue the program like a job of a shell.
	sys := &syscall.SysProcAttr{Setpgid: true, Cloneflags: unix.CLONE_PARENT}
	if c.Front {
		if tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(tty)
			sys.Foreground, sys.Ctty = true, tty
		}
	}
	// Exec would say the same of a missing interpreter, so the program itself is checked first.
	if _, err := os.Stat(c.Path); err != nil {
		return 0, fmt.Errorf("the jail does not show %s: %w", c.Path, err)
	}
	if err := c.joinGroups(); err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err := syscall.ForkExec(c.Path, c.Argv, attr)
	if err == syscall.ENOEXEC { // a script without a first line that names its interpreter
		pid, err = syscall.ForkExec("/bin/sh", slices.Concat([]string{"sh", c.Path}, c.Argv[1:]), attr)
	}
	return pid, err
}

// joinGroups moves this thread into the cgroups of the program. The program starts
// there, because this thread starts it.
func (c *Command) joinGroups() error {
	next := groupFD
	if c.Outside {
		next++
	}
	var tasks []*os.File
	for range c.Tasks {
		tasks = append(tasks, os.NewFile(uintptr(next), "tasks"))
		next++
	}
	if err := cgroup.Join(tasks); err != nil {
		return fmt.Errorf("the memory and the processes of a program cannot be bounded on this host: %w", err)
	}
	return nil
}
