package program

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/program/frame"
	"github.com/kern-run/kern/internal/program/reap"
)

// settingsEnv is the variable that tells a supervisor what it is: the
// descriptor of its control socket, whether it is attached to the session of
// its caller, and whether it is the supervisor below a keeper.
const settingsEnv = "KERN_SUPERVISOR"

func settings(control int, attached, inner bool) string {
	return fmt.Sprintf("%s=%d %t %t", settingsEnv, control, attached, inner)
}

// A supervisor runs jobs one after the other. A job ends when the program and all its
// descendants have ended.
type supervisor struct {
	control  int
	attached bool
	conn     *frame.Conn
	orders   chan received
	starts   chan *running
	started  chan error
}

// received is an order with the standard streams that came with it.
type received struct {
	order
	files []int
}

// supervise is the role of keepers and supervisors. It never returns.
func supervise() {
	s := &supervisor{orders: make(chan received), starts: make(chan *running), started: make(chan error)}
	inner := false
	_, err := fmt.Sscan(os.Getenv(settingsEnv), &s.control, &s.attached, &inner)
	if err == nil {
		_, err = unix.GetsockoptInt(s.control, unix.SOL_SOCKET, unix.SO_TYPE)
	}
	if err != nil || s.control <= 2 {
		fmt.Fprintln(os.Stderr, "Kern starts this command; it is not for use by hand")
		os.Exit(2)
	}
	outliveSignals(s.attached)
	s.conn = frame.Plain(s.control)
	if !s.attached {
		// The caller may have left descriptors open; a tool must not get them.
		if err := unix.CloseRange(uint(s.control+1), ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
			closeOnExec(s.control + 1)
		}
	}
	if err := reap.Adopt(); err != nil {
		s.send(Report{Err: err.Error()})
		os.Exit(2)
	}
	if !inner {
		code := reap.Keep(s.startInner)
		if code != 0 {
			_ = cgroup.Tidy() // the supervisor was killed, so its cgroups are left
		}
		os.Exit(code)
	}
	unix.CloseOnExec(s.control)
	go s.listen()
	go s.starter()
	s.serve()
	os.Exit(0)
}

// outliveSignals catches every signal that would end or stop a supervisor. A
// program inherits the ignored signals: an attached program keeps them, because of
// nohup. Any other program starts with none ignored.
func outliveSignals(attached bool) {
	all := []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGALRM}
	if attached {
		all = withoutIgnored(all)
	}
	signal.Notify(make(chan os.Signal, 1), all...)
}

func withoutIgnored(all []os.Signal) []os.Signal {
	return slices.DeleteFunc(slices.Clone(all), signal.Ignored)
}

// closeOnExec is for systems without close_range (before Linux 5.11).
func closeOnExec(first int) {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, f := range fds {
		if n, err := strconv.Atoi(f.Name()); err == nil && n >= first {
			unix.CloseOnExec(n)
		}
	}
}

// startInner starts the supervisor below this keeper. The supervisor inherits
// every descriptor that is open over exec, the control socket too.
func (s *supervisor) startInner() (int, error) {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return len(v) > len(settingsEnv) && v[:len(settingsEnv)+1] == settingsEnv+"=" })
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env: append(env, settings(s.control, s.attached, true)), Files: []uintptr{0, 1, 2}})
	if err != nil {
		s.send(Report{Err: err.Error()})
	}
	_ = unix.Close(s.control) // only the supervisor holds it, so its end is the supervisor's
	closeInherited()
	return pid, err
}

// closeInherited closes the descriptors that are for the program: a pipe that the
// program closes must not stay open in its supervisor.
func closeInherited() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0)
	}
	_ = unix.Close(null)
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, f := range dir {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// The supervisor's own descriptors are all closed on exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// send sends a report. If the caller is gone, the end of the socket says so too.
func (s *supervisor) send(r Report) error { return s.conn.Send(frame.JSON{Value: r}) }

// listen reads orders until the socket closes.
func (s *supervisor) listen() {
	defer close(s.orders)
	for {
		var o received
		files, err := s.conn.Receive(&o.order)
		if err != nil {
			return
		}
		o.files = files
		s.orders <- o
	}
}

// serve runs one job after the other until the socket closes. An attached supervisor
// runs only one job.
func (s *supervisor) serve() {
	for o := range s.orders {
		if o.job == nil {
			continue // a signal for a job that is over
		}
		r := s.run(o)
		r.Gone = true
		if s.send(r) != nil || s.attached {
			return
		}
	}
}

// run runs one job to the end of everything it started.
func (s *supervisor) run(o received) Report {
	p := &running{supervisor: s, job: o.job, attached: o.attached, files: []uintptr{0, 1, 2}}
	if !s.attached && len(o.files) == 3 {
		p.files = []uintptr{uintptr(o.files[0]), uintptr(o.files[1]), uintptr(o.files[2])}
	}
	defer func() {
		for _, fd := range o.files {
			_ = unix.Close(fd) // only the program writes to it
		}
		RemoveAll(o.job.Scratch)
	}()
	if o.job.Scratch != "" {
		// The supervisor makes and removes the directory, because it is there
		// even if the caller dies.
		if err := os.Mkdir(o.job.Scratch, 0o700); err != nil {
			return Report{Err: err.Error()}
		}
	}
	if hungUp(s.control) {
		return Report{Err: "the caller ended"}
	}
	if err := p.makeCgroup(); err != nil {
		return Report{Err: err.Error()}
	}
	if p.group != nil {
		defer func() { _ = p.group.Remove() }()
	}
	s.starts <- p
	if err := <-s.started; err != nil {
		if e, ok := err.(syscall.Errno); ok {
			return Report{Errno: int(e), Err: fmt.Sprintf("%s: %v", o.job.Path, err)}
		}
		return Report{Err: err.Error()}
	}
	settled := p.group.Tighten()
	flags := 0
	if s.attached {
		flags = unix.WUNTRACED | unix.WCONTINUED
		if settled == nil {
			_ = s.send(Report{Started: p.pid})
		}
		closeInherited()
	}
	for _, fd := range o.files {
		_ = unix.Close(fd) // the program has it now
	}
	o.files = nil
	happened := make(chan reap.Child)
	go reap.Wait(flags, happened)
	p.watch(happened, settled != nil)
	if settled != nil {
		return Report{Err: unbounded(settled).Error()}
	}
	return p.result
}

// hungUp reports whether the other end of a socket is closed.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// starter starts programs from a thread of its own, whose rights are cut: a
// child inherits the rights of the thread that starts it. A thread never gets
// its rights back, so no other thread may come from this one; the runtime
// guarantees that for locked threads. Programs die with the thread, which stays
// as long as the supervisor does.
func (s *supervisor) starter() {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// A program that is in the Landlock domain of the first thread could
		// signal the supervisor. Keep that thread, so that another one is used.
		go s.starter()
		select {}
	}
	confined := false
	for p := range s.starts {
		var err error
		if p.job.Jail == nil && !confined {
			err = reap.Confine(reap.ScopedSince)
			confined = err == nil
		}
		if err == nil {
			p.pid, err = p.start()
		}
		s.started <- err
	}
}

// A running program is one job of a supervisor.
type running struct {
	supervisor *supervisor
	job        *Job
	attached   *attachment
	files      []uintptr // its standard streams
	pid        int
	group      *cgroup.Scope // nil: this host gives none
	jail       *confine.Jail

	ended  bool
	woken  bool // the caller continued the program
	paused bool // the caller stopped everything
	result Report
}

// makeCgroup makes a cgroup for an attached program. Without bounds it only makes
// the kill quicker, so a host that gives none is good enough.
func (p *running) makeCgroup() (err error) {
	if p.job.Bounds != (cgroup.Bounds{}) {
		if p.group, err = cgroup.NewBoundedScope(p.job.Bounds); err != nil {
			return unbounded(err)
		}
		return nil
	}
	if p.attached != nil {
		if g, err := cgroup.NewScope(); err == nil {
			p.group = g
		}
	}
	return nil
}

// start starts the program from the calling thread.
func (p *running) start() (pid int, err error) {
	if p.job.Jail != nil {
		i := confine.Command{Plan: p.job.Jail, Path: p.job.Path, Argv: p.job.Argv, Env: p.job.Env, Front: p.attached != nil && p.attached.Front}
		pid, p.jail, err = i.Start(p.group)
		return pid, err
	}
	sys := &syscall.SysProcAttr{Setsid: p.attached == nil, Setpgid: p.attached != nil, Pdeathsig: syscall.SIGKILL}
	if p.attached != nil && p.attached.Front {
		if tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			defer func() { _ = unix.Close(tty) }()
			sys.Foreground, sys.Ctty = true, tty
		}
	}
	if p.group.FD() >= 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, p.group.FD()
	}
	if err := cgroup.Join(p.group.Tasks()); err != nil {
		return 0, unbounded(err)
	}
	attr := &syscall.ProcAttr{Dir: p.job.Dir, Env: p.job.Env, Files: p.files, Sys: sys}
	pid, err = syscall.ForkExec(p.job.Path, p.job.Argv, attr)
	if err != nil && sys.UseCgroupFD && p.group.Outside() < 0 {
		sys.UseCgroupFD = false // the cgroup may be what fails, and it bounds nothing
		pid, err = syscall.ForkExec(p.job.Path, p.job.Argv, attr)
	}
	if err == syscall.ENOEXEC && p.attached != nil { // a script without a first line that names its interpreter
		pid, err = syscall.ForkExec("/bin/sh", slices.Concat([]string{"sh", p.job.Path}, p.job.Argv[1:]), attr)
	}
	if e := p.group.Leave(); e != nil && err == nil {
		err = unbounded(e)
	}
	return pid, err
}

// unbounded returns the error for a program whose bounds this host cannot hold.
func unbounded(err error) error {
	return fmt.Errorf("the memory and the processes of a program cannot be bounded on this host: %w", err)
}

// watch waits until the program and everything it started is gone. It kills when
// the program ends, when its time is up, on order, when the caller dies, and at once
// if ending is true.
func (p *running) watch(happened <-chan reap.Child, ending bool) {
	orders := p.supervisor.orders
	var late <-chan time.Time
	if p.job.Timeout > 0 {
		timer := time.NewTimer(p.job.Timeout)
		defer timer.Stop()
		late = timer.C
	}
	more, again := false, time.Duration(0)
	for {
		var next <-chan time.Time
		if ending && !more {
			if p.group != nil {
				p.group.Kill()
			}
			reap.KillDescendants()
			again = min(2*again+time.Millisecond, 50*time.Millisecond)
			next = time.After(again)
		}
		select {
		case c := <-happened:
			p.result.CPU += c.CPU
			more = c.More
			ending = p.child(c, ending) || ending
			if c.Last {
				p.result.OutOfMemory, p.result.OutOfProcesses = p.group.Bounded()
				return
			}
		case o, open := <-orders:
			if !open {
				orders, ending = nil, true
				continue
			}
			ending = p.obey(o.order) || ending
		case <-late:
			p.result.Late = !ending
			ending = true
		case <-next:
		}
	}
}

// child reports what happened to the program, and returns whether that ends the
// job.
func (p *running) child(c reap.Child, ending bool) bool {
	switch {
	case c.Pid != p.pid:
	case c.Stopped && (p.paused || !isStopped(p.pid)): // the caller ordered it, or it goes on already
	case c.Stopped:
		p.woken = false
		_ = p.supervisor.send(Report{Stopped: c.Signal})
	case c.Continued && p.woken:
		p.woken = false // the caller did it
	case c.Continued:
		_ = unix.Kill(p.attached.Caller, unix.SIGCONT)
	case !p.ended:
		p.ended = true
		p.result.Ended, p.result.Killed, p.result.Exit, p.result.Signal = true, ending, c.Exit, c.Signal
		if p.attached != nil {
			_ = p.supervisor.send(p.result)
		}
		return true
	}
	return false
}

// obey carries out an order, and returns whether it ends the job.
func (p *running) obey(o order) bool {
	sig := syscall.Signal(o.signal)
	p.woken = p.woken || sig == unix.SIGCONT
	switch {
	case o.all && sig == unix.SIGKILL:
		return true
	case o.all:
		p.paused = sig == unix.SIGSTOP
		reap.SignalDescendants(sig)
	case !p.ended && unix.Kill(-p.pid, sig) != nil:
		_ = unix.Kill(p.pid, sig) // it moved to another group
	}
	return false
}

// isStopped reports whether a process is stopped.
func isStopped(pid int) bool {
	f := stat(pid)
	return len(f) > 0 && f[0] == "T"
}

// Pack puts an order into a frame. Arguments and environment are bytes, which
// JSON would not keep.
func (o *order) Pack(p *frame.Packer) {
	isJob, isAttached := o.job != nil, o.attached != nil
	p.Bool(&isJob)
	p.Bool(&isAttached)
	frame.Number(p, &o.signal)
	p.Bool(&o.all)
	if isJob {
		if o.job == nil {
			o.job = new(Job)
		}
		j := o.job
		p.String(&j.Path)
		p.Strings(&j.Argv)
		p.Strings(&j.Env)
		p.String(&j.Dir)
		frame.Number(p, &j.Timeout)
		p.String(&j.Scratch)
		p.JSON(&j.Jail)
		p.JSON(&j.Bounds)
	}
	if isAttached {
		p.JSON(&o.attached)
	}
}

// Bounded returns an error if this host cannot hold bounds.
func Bounded(b cgroup.Bounds) error {
	if b == (cgroup.Bounds{}) {
		return nil
	}
	p, err := cgroup.NewBoundedScope(b)
	if err == nil {
		err = p.Remove()
	}
	if err != nil {
		return unbounded(err)
	}
	return nil
}
