package program

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/program/reap"
)

// How nothing of a program is left
//
//	caller ── keeper ── supervisor ── the program ── whatever it starts
//	   └───── control socket ──┘
//
// All are of the caller's session, so that the program keeps its terminal.
// Keeper and supervisor have a process group of their own: what is meant for the
// caller's job or the program's does not reach them. The supervisor is the
// program's parent, in another group of the same session, so the system takes
// the program's group for one that somebody looks after, and stops it at
// Ctrl-Z.

// caught are signals that a guard outlives. Those that were ignored when it was
// started are left so, and are for the program too: nohup means it.
var caught = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE,
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGALRM}

// heeded are those of all that are not ignored.
func heeded(all []os.Signal) []os.Signal {
	return slices.DeleteFunc(slices.Clone(all), signal.Ignored)
}

// Guard is what a guard does with its arguments. It never returns.
func Guard(args []string) {
	signal.Notify(make(chan os.Signal, 1), heeded(caught)...)
	var h home
	if len(args) < 2 || json.Unmarshal([]byte(args[0]), &h) != nil || h.Control <= 2 {
		fmt.Fprintln(os.Stderr, "this command is started by kern exec, not by hand")
		os.Exit(2)
	}
	g := &guard{home: h, argv: args[1:], control: os.NewFile(uintptr(h.Control), "control")}
	if err := reap.Adopt(); err != nil {
		g.say(word{Why: err.Error()})
		os.Exit(2)
	}
	if !h.Inner {
		code := reap.Keep(g.inner)
		if code != 0 {
			_ = cgroup.Tidy() // it could not
		}
		os.Exit(code)
	}
	unix.CloseOnExec(h.Control)
	g.run()
	os.Exit(0)
}

type guard struct {
	home
	argv    []string
	control *os.File
	pid     int // of the program
	over    bool
	woken   bool // the caller told it to go on
	paused  bool // the caller told all to stop
	line    *confine.Line
	pen     *cgroup.Pen // nil: this host gives us none
}

// halted reports whether a process is stopped.
func halted(pid int) bool {
	f := stat(pid)
	return len(f) > 0 && f[0] == "T"
}

// say tells the caller. If it is gone, the end of the socket says so too.
func (g *guard) say(w word) {
	_ = json.NewEncoder(g.control).Encode(w)
}

// inner starts the supervisor proper. Every descriptor that is open over exec,
// the control socket too, is handed on by being left alone.
func (g *guard) inner() (int, error) {
	h := g.home
	h.Inner = true
	b, err := json.Marshal(h)
	if err != nil {
		return 0, err
	}
	argv := slices.Concat(os.Args[:len(os.Args)-len(g.argv)-1], []string{string(b)}, g.argv)
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		g.say(word{Why: err.Error()})
	}
	_ = g.control.Close() // it is the supervisor's: who holds it, lives
	letGo()
	return pid, err
}

// letGo closes what is the program's: a pipe that the program closes must not
// stay open in a guard.
func letGo() {
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
		var fd int
		if _, err := fmt.Sscan(f.Name(), &fd); err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd) // ours are all closed on exec
		}
	}
}

// started is a program, or why there is none.
type started struct {
	pid int
	err error
}

// start starts the program from a thread whose rights are cut. The program dies
// with the thread, which stays as long as the guard does.
func (g *guard) start(to chan<- started) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go g.start(to) // the first thread stands for the guard: keep it out of the program's reach
		select {}
	}
	if g.Fence != nil {
		pid, err := g.fenced()
		to <- started{pid, err}
		select {}
	}
	if err := reap.Confine(reap.ScopedSince); err != nil {
		to <- started{err: err}
		return
	}
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if g.Front {
		if tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			defer func() { _ = unix.Close(tty) }()
			sys.Foreground, sys.Ctty = true, tty
		}
	}
	if g.pen.FD() >= 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, g.pen.FD()
	}
	if err := cgroup.Pass(g.pen.Doors()); err != nil {
		to <- started{err: unbounded(err)}
		return
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err := syscall.ForkExec(g.Path, g.argv, attr)
	if err != nil && sys.UseCgroupFD && g.pen.Out() < 0 { // it may be the pen that fails: go without
		sys.UseCgroupFD = false
		pid, err = syscall.ForkExec(g.Path, g.argv, attr)
	}
	if err == syscall.ENOEXEC { // a script without a first line that says so
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", g.Path}, g.argv[1:]...), attr)
	}
	if e := g.pen.Leave(); e != nil && err == nil {
		err = unbounded(e)
	}
	to <- started{pid, err}
	select {}
}

// unbounded is the error of a program that would have no bounds.
func unbounded(err error) error {
	return fmt.Errorf("the memory and the processes of a program cannot be bounded on this host: %w", err)
}

// Bounded is an error where this host cannot hold bounds.
func Bounded(b cgroup.Bounds) error {
	if b == (cgroup.Bounds{}) {
		return nil
	}
	p, err := cgroup.NewBound(b)
	if err == nil {
		err = p.Remove()
	}
	if err != nil {
		return unbounded(err)
	}
	return nil
}

// fenced starts the program behind its fence, which stands as long as the line
// to it is held.
func (g *guard) fenced() (pid int, err error) {
	i := confine.Inmate{Plan: g.Fence, Path: g.Path, Argv: g.argv, Front: g.Front}
	pid, g.line, err = i.Start(g.pen)
	return pid, err
}

// enclose makes a pen. One without bounds is there where it can be: elsewhere
// descendants are found one by one.
func (g *guard) enclose() (err error) {
	if g.Bounds != (cgroup.Bounds{}) {
		if g.pen, err = cgroup.NewBound(g.Bounds); err != nil {
			return unbounded(err)
		}
	} else if p, err := cgroup.NewPen(); err == nil {
		g.pen = p
	}
	return nil
}

// run runs the program to the end of everything it started.
func (g *guard) run() {
	if err := g.enclose(); err != nil {
		g.say(word{Why: err.Error()})
		return
	}
	if g.pen != nil {
		defer func() { _ = g.pen.Remove() }()
	}
	first := make(chan started)
	go g.start(first)
	s := <-first
	if s.err == nil {
		if s.err = g.pen.Settle(); s.err != nil {
			s.err = unbounded(s.err) // it dies with us
		}
	}
	if s.err != nil {
		e, ok := s.err.(syscall.Errno)
		if !ok {
			g.say(word{Why: s.err.Error()})
			return
		}
		g.say(word{Failed: int(e)})
		return
	}
	g.pid = s.pid
	g.say(word{Started: s.pid})
	letGo()
	orders := make(chan order)
	go g.listen(orders)
	happened := make(chan reap.Child)
	go reap.Wait(unix.WUNTRACED|unix.WCONTINUED, happened)
	g.watch(orders, happened)
}

// listen reads orders until the caller is gone.
func (g *guard) listen(to chan<- order) {
	defer close(to)
	for d := json.NewDecoder(g.control); ; {
		var o order
		if d.Decode(&o) != nil {
			return
		}
		to <- o
	}
}

func (g *guard) watch(orders <-chan order, happened <-chan reap.Child) {
	cpu, ending, more, again := time.Duration(0), false, false, time.Duration(0)
	for {
		var next <-chan time.Time
		if ending && !more {
			if g.pen != nil {
				g.pen.Kill()
			}
			reap.Sweep()
			again = min(2*again+time.Millisecond, 50*time.Millisecond)
			next = time.After(again)
		}
		select {
		case c := <-happened:
			cpu, more = cpu+c.CPU, c.More
			ending = g.child(c) || ending
			if c.Last {
				starved, crowded := g.pen.Bounded()
				g.say(word{Gone: true, CPU: int64(cpu), Starved: starved, Crowded: crowded})
				return
			}
		case o, open := <-orders:
			if !open {
				orders, ending = nil, true
				continue
			}
			ending = g.obey(o) || ending
		case <-next:
		}
	}
}

// child tells the caller what happened to the program, and reports whether that
// is its end.
func (g *guard) child(c reap.Child) bool {
	switch {
	case c.Pid != g.pid:
	case c.Stopped && (g.paused || !halted(g.pid)): // by our order, or of a moment ago
	case c.Stopped:
		g.woken = false
		g.say(word{Stopped: c.Signal})
	case c.Continued && g.woken:
		g.woken = false // by the caller, who is awake
	case c.Continued:
		_ = unix.Kill(g.Caller, unix.SIGCONT)
	case !g.over:
		g.over = true
		g.say(word{Ended: true, Exit: c.Exit, Signal: c.Signal})
		return true
	}
	return false
}

// obey carries out an order, and reports whether it is the end.
func (g *guard) obey(o order) bool {
	sig := syscall.Signal(o.Signal)
	g.woken = g.woken || sig == unix.SIGCONT
	switch {
	case o.All && sig == unix.SIGKILL:
		return true
	case o.All:
		g.paused = sig == unix.SIGSTOP
		reap.Signal(sig)
	case !g.over && unix.Kill(-g.pid, sig) != nil:
		_ = unix.Kill(g.pid, sig) // it went to another group
	}
	return false
}
