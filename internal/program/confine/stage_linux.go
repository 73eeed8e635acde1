package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/userns"
)

// How a program gets behind a fence
//
//	supervisor ── stage ── holder, the first process inside
//	     └────── the program, inside
//
// The stage is started in new namespaces. It builds the root, starts the
// holder, gives up every right and starts the program as a child of the
// supervisor, which so sees it stop and end as any other; then the stage ends.
// The holder buries who loses its parent inside. It ends when the supervisor
// does, and with it the system kills everything inside.

// Descriptors of a stage. The holder has the first.
const (
	lineFD   = 3 // the socket to the supervisor
	inmateFD = 4 // what to do
	outFD    = 5 // and, from here on, cgroups
)

// The roles of a stage and of a holder, see package program.
const (
	RoleStage  = "kern-jail-stage"
	RoleHolder = "kern-jail-reaper"
)

// Able is an error where this system has no fence. Whether it really has is
// known when one is built.
func Able() error {
	for _, ns := range []string{"user", "mnt", "net", "pid", "ipc"} {
		if _, err := os.Stat("/proc/self/ns/" + ns); err != nil {
			return fmt.Errorf("a jail needs %s namespaces, and this system has none: %w", ns, err)
		}
	}
	return nil
}

// An Inmate is a program to be started behind a fence.
type Inmate struct {
	Plan  *Plan    `json:"plan"`
	Path  string   `json:"path"`
	Argv  []string `json:"argv"`
	Env   []string `json:"-"`     // goes as the environment of the stage
	Front bool     `json:"front"` // it has the terminal from its start

	// What Start hands on from outFD.
	Out   bool `json:"out,omitempty"`   // the cgroup that the holder is to be in
	Doors int  `json:"doors,omitempty"` // to the cgroups of the program
}

// outcome is what a stage came to.
type outcome struct {
	Pid   int    `json:"pid,omitempty"`
	Errno int    `json:"errno,omitempty"` // the program cannot be executed
	Why   string `json:"why,omitempty"`   // there is no fence
}

// A Line to what is behind a fence. Everything there ends with it.
type Line struct{ file *os.File }

// rights are those the stage has, in its namespaces.
var rights = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETPCAP}

// Start starts a program behind a fence as a child of this process, and
// forwards what it sends to the gateway. The thread must be locked and stay.
// Of all that is behind a fence the program alone is what a pen bounds.
func (i *Inmate) Start(pen *cgroup.Pen) (int, *Line, error) {
	if err := upright(); err != nil {
		return 0, nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	l := &Line{os.NewFile(uintptr(fds[0]), "fence")}
	files := []uintptr{0, 1, 2, uintptr(fds[1]), 0}
	if out := pen.Out(); out >= 0 {
		i.Out = true
		files = append(files, uintptr(out))
	}
	for _, f := range pen.Doors() {
		i.Doors++
		files = append(files, f.Fd())
	}
	maker := 0
	order, err := i.order()
	if err == nil {
		files[inmateFD] = order.Fd()
		if maker, err = stage(i.Env, files, pen.FD()); err != nil && pen.FD() >= 0 && pen.Out() < 0 { // it may be the pen that fails: go without
			maker, err = stage(i.Env, files, -1)
		}
		_ = order.Close()
	}
	_ = unix.Close(fds[1]) // the stage has its own
	if err != nil {
		_ = l.file.Close()
		return 0, nil, err
	}
	pid, err := l.receive(i.Plan.Socket)
	if err != nil {
		_ = l.file.Close()
	}
	for e := error(unix.EINTR); e == unix.EINTR; { // it is counted as long as it is there
		_, e = unix.Wait4(maker, nil, 0, nil)
	}
	return pid, l, err
}

// order is a file with all of i, which may be more than an argument holds.
func (i *Inmate) order() (*os.File, error) {
	b, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(RoleStage, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), RoleStage)
	if _, err = f.WriteAt(b, 0); err != nil {
		_ = f.Close()
	}
	return f, err
}

// stage starts a stage, in a cgroup if that is not negative.
func stage(env []string, files []uintptr, group int) (int, error) {
	uid, gid := os.Geteuid(), os.Getegid()
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: rights, UseCgroupFD: group >= 0, CgroupFD: max(group, 0),
	}}
	// A process that hides its memory may not say who is who in a namespace.
	// There is nobody yet from whom to hide it.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{RoleStage}, attr)
	hide := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		err = fmt.Errorf("namespaces for it cannot be made: %w%s", err, advice(err))
	}
	return pid, errors.Join(err, hide)
}

// receive hears what the stage came to.
func (l *Line) receive(socket string) (int, error) {
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(l.file.Fd()), buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	var o outcome
	if err := json.Unmarshal(buf[:n], &o); err != nil {
		return 0, errors.New("it was not built, and nobody said why")
	}
	switch {
	case o.Why != "":
		return 0, errors.New(o.Why)
	case o.Errno != 0:
		return 0, syscall.Errno(o.Errno)
	}
	cs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(cs) != 1 {
		return 0, fmt.Errorf("want the port of the gateway, got %d messages: %w", len(cs), err)
	}
	got, err := unix.ParseUnixRights(&cs[0])
	if err != nil || len(got) != 1 {
		return 0, fmt.Errorf("want the port of the gateway, got %d descriptors: %w", len(got), err)
	}
	f := os.NewFile(uintptr(got[0]), "port")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return 0, err
	}
	go relay(ln, socket)
	return o.Pid, nil
}

// upright refuses streams that are a way out.
func upright() error {
	for fd, name := range []string{"input", "output", "error output"} {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return fmt.Errorf("its standard %s is a directory, through which it could reach the host's files", name)
		}
	}
	return nil
}

// advice is what to do about a namespace that is refused.
func advice(err error) string {
	if !userns.Refused(err) {
		return ""
	}
	return " (to mend it: " + userns.Remedy() + ")"
}

// Stage is the role of a stage. It never returns.
func Stage() {
	closeOthers()
	var i Inmate
	if json.NewDecoder(os.NewFile(inmateFD, "order")).Decode(&i) != nil {
		os.Exit(2)
	}
	done := make(chan struct{})
	go i.stage(done)
	<-done
	os.Exit(0)
}

// closeOthers closes on exec whatever else the caller left open, because it is
// not for the program.
func closeOthers() {
	if err := unix.CloseRange(lineFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		tell(outcome{Why: fmt.Sprintf("descriptors cannot be closed: %v", err)}, -1)
		os.Exit(1)
	}
}

// tell tells the supervisor what came of it.
func tell(o outcome, port int) {
	b, err := json.Marshal(o)
	if err != nil {
		return
	}
	var oob []byte
	if port >= 0 {
		oob = unix.UnixRights(port)
	}
	_ = unix.Sendmsg(lineFD, b, oob, nil, 0) // who does not hear it sees our end
}

// stage starts the program from a thread that is not the first, for what is
// unshared must not be the whole process's: new threads need it whole.
func (i *Inmate) stage(done chan<- struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go i.stage(done)
		select {}
	}
	defer close(done)
	port, err := i.prepare()
	if err != nil {
		tell(outcome{Why: "a jail cannot be built here: " + err.Error() + advice(err)}, -1)
		return
	}
	pid, err := i.launch()
	e, refused := err.(syscall.Errno)
	switch {
	case refused:
		tell(outcome{Errno: int(e)}, -1)
	case err != nil:
		tell(outcome{Why: err.Error()}, -1)
	default:
		tell(outcome{Pid: pid}, port)
	}
}

// prepare makes all there is inside but the program, and enters it.
func (i *Inmate) prepare() (port int, err error) {
	if port, err = loopback(i.Plan.Port); err != nil {
		return -1, err
	}
	if err := i.Plan.build(); err != nil {
		return -1, err
	}
	if err := unix.Unshare(unix.CLONE_NEWPID); err != nil {
		return -1, fmt.Errorf("processes of its own: %w", err)
	}
	if err := i.startHolder(); err != nil {
		return -1, err
	}
	if err := leaveHost(); err != nil {
		return -1, err
	}
	return port, unix.Chdir(i.Plan.Dir)
}

// loopback brings the network up, and listens where the gateway is expected.
func loopback(port int) (int, error) {
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

// startHolder starts the first process inside, and waits until it has made /proc.
func (i *Inmate) startHolder() error {
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
	_, err = syscall.ForkExec("/proc/self/exe", []string{RoleHolder}, &syscall.ProcAttr{Files: []uintptr{uintptr(null), uintptr(null), uintptr(ready[1]), lineFD},
		Sys: &syscall.SysProcAttr{UseCgroupFD: i.Out, CgroupFD: outFD}})
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

// Hold is the role of a holder. It never returns.
func Hold() {
	closeOthers()
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, ""); err != nil {
		fmt.Fprintf(os.Stderr, "/proc: %v", err)
		if err == unix.EPERM {
			fmt.Fprint(os.Stderr, " (parts of this host's own are covered, as containers do: run it outside of one, or in one whose /proc is whole)")
		}
		os.Exit(1)
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	fmt.Fprint(os.Stderr, "ready")
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
		n, err := unix.Read(lineFD, make([]byte, 1))
		if n == 0 || err != nil && err != unix.EINTR {
			os.Exit(0)
		}
	}
}

// launch starts the program from a thread without rights. The child is our
// parent's.
func (i *Inmate) launch() (int, error) {
	if err := dropRights(); err != nil {
		return 0, err
	}
	sys := &syscall.SysProcAttr{Setpgid: true, Cloneflags: unix.CLONE_PARENT}
	if i.Front {
		if tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(tty)
			sys.Foreground, sys.Ctty = true, tty
		}
	}
	if _, err := os.Stat(i.Path); err != nil {
		return 0, fmt.Errorf("the jail does not show %s: %w", i.Path, err)
	}
	if err := i.pass(); err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err := syscall.ForkExec(i.Path, i.Argv, attr)
	if err == syscall.ENOEXEC { // a script without a first line that says so
		pid, err = syscall.ForkExec("/bin/sh", slices.Concat([]string{"sh", i.Path}, i.Argv[1:]), attr)
	}
	return pid, err
}

// pass has what this thread starts be in the cgroups of the program.
func (i *Inmate) pass() error {
	next := outFD
	if i.Out {
		next++
	}
	var doors []*os.File
	for range i.Doors {
		doors = append(doors, os.NewFile(uintptr(next), "door"))
		next++
	}
	if err := cgroup.Pass(doors); err != nil {
		return fmt.Errorf("the memory and the processes of a program cannot be bounded on this host: %w", err)
	}
	return nil
}
