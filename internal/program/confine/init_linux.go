package confine

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/kern-run/kern/internal/program/frame"
	"golang.org/x/sys/unix"
)

// The roles inside a jail; package program explains roles. The path of the probe is
// the name of its role, because [Order.Probe] puts this binary there as a file.
const (
	RoleInit   = "kern-jail-init"
	RoleUserns = "kern-jail-userns"
	RoleProbe  = "/probe/program"
)

// InsideUID is the user id and the group id of the program inside the box.
const InsideUID = 1000

// control is init's end of the socket.
var control = frame.Plain(controlFD)

// An initProc is the first process of a box. A box is one jail of the sandbox, used
// for one run.
type initProc struct {
	order   Order
	fds     []int // stdin, stdout, stderr of the program, tasks, workspace
	built   bool  // the root directory is complete
	program int   // pid of the program inside the box
	rules   int   // Landlock rules of a warm program, not yet in force; -1: none
	usage   atomic.Pointer[usage]
	bound   chan struct{} // closed when the bounds of a run are in force
}

// Init is the role of the first process of a box. It never returns.
func Init() { os.Exit(initialise()) }

// HoldNamespace is the role of a process that keeps a user namespace alive until
// its standard input closes. It never returns.
func HoldNamespace() {
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	os.Exit(0)
}

// initialise builds the box, runs its program and returns the exit code of init. The
// box ends when init exits.
func initialise() int {
	// The program must not inherit descriptors that the backend's process left open.
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 1
	}
	// Init must die with the backend. The clone set this signal already, but a change
	// of user cleared it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return 1
	}
	// Catch and drop these signals, because the program would inherit an ignored one.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM)
	resetThreadSignals()
	p := &initProc{rules: -1, bound: make(chan struct{})}
	fds, err := control.Receive(&p.order)
	if err != nil {
		return 1
	}
	p.fds = fds
	if err := p.begin(); err != nil {
		// Init has every right it needs to build, except on hosts such as Ubuntu. They
		// allow the namespaces and withhold the rights in them: Barred reports that.
		control.Send(&Note{Kind: Failed, Err: err.Error(), Barred: !p.built && errors.Is(err, unix.EPERM)})
		return 1
	}
	debug.SetGCPercent(100) // off for a quick start; a long run needs the collector
	go p.listen()
	return p.reap()
}

// resetThreadSignals restores the default of signals 32 and 33, which C libraries
// reserve for their threads. Some libraries start processes with one of them ignored,
// and the program would inherit that.
func resetThreadSignals() {
	var standard [4]uint64 // the kernel's sigaction, all zero
	for sig := uintptr(32); sig <= 33; sig++ {
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&standard)), 0, 8, 0, 0)
	}
}

// begin builds the box and starts the program in it.
func (p *initProc) begin() error {
	if want := 3 + p.order.Tasks; len(p.fds) < want {
		return fmt.Errorf("want %d descriptors, got %d", want, len(p.fds))
	}
	lent := -1
	if p.order.Lent {
		last := len(p.fds) - 1
		lent, p.fds = p.fds[last], p.fds[:last] // build closes lent
	}
	if err := build(&p.order, lent); err != nil {
		return err
	}
	p.built = true
	for r, v := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_MEMLOCK: 64 << 10, unix.RLIMIT_MSGQUEUE: 0, unix.RLIMIT_NOFILE: 1024} {
		if err := lowerLimit(0, r, v); err != nil {
			return fmt.Errorf("limit %d: %w", r, err)
		}
	}
	// From here on, no process of the same user can read the memory of init.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide init's memory: %w", err)
	}
	// The backend moves init into the cgroup between the note and the answer.
	if p.order.Gate {
		var c Claim
		if err := control.Send(&Note{Kind: Poised}); err != nil {
			return err
		}
		if _, err := control.Receive(&c); err != nil {
			return err
		}
	}
	// A warm box gets its bounds later, from the claim of its run.
	if !p.order.Warm {
		if err := p.applyBounds(p.order.Bounds, p.order.Dir); err != nil {
			return err
		}
	}
	links, err := p.start()
	if err != nil {
		return err
	}
	if !p.order.Warm {
		if err := p.limitProgram(p.order.Bounds); err != nil {
			return err
		}
	}
	// A stream ends only when init holds no copy of it.
	for _, fd := range p.fds {
		unix.Close(fd)
	}
	err = control.Send(&Note{Kind: Started}, links...)
	for _, fd := range links {
		unix.Close(fd)
	}
	return err
}

// start starts the program with its descriptors and without the rights that cutRights
// drops. It returns the backend's ends of the links.
func (p *initProc) start() (links []int, err error) {
	files := []uintptr{uintptr(p.fds[0]), uintptr(p.fds[1]), uintptr(p.fds[2])}
	for range p.order.Links {
		// Init makes the sockets, so that they belong to the box's network namespace.
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("socket to the program: %w", err)
		}
		defer unix.Close(pair[1])
		files, links = append(files, uintptr(pair[1])), append(links, pair[0])
	}
	if p.order.Landlock > 0 {
		if p.rules, err = ruleset(p.order.Landlock, readablePaths(&p.order)); err != nil {
			return nil, fmt.Errorf("landlock: %w", err)
		}
		// A warm program puts the rules in force itself, after its claim.
		if p.order.Warm {
			files = append(files, uintptr(p.rules))
		}
	}
	if p.order.Argv[0], err = findInside(p.order.Argv[0], p.order.Env); err != nil {
		return nil, err
	}
	errs := make(chan error)
	go p.fork(files, errs)
	if err := <-errs; err != nil {
		return nil, err
	}
	if p.rules >= 0 && !p.order.Warm {
		unix.Close(p.rules)
	}
	return links, nil
}

// fork starts the program from a thread that dropped its rights, because the
// program inherits them. The thread is not used again.
func (p *initProc) fork(files []uintptr, errs chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread must keep its rights.
		inner := make(chan error)
		go p.fork(files, inner)
		errs <- <-inner
		runtime.UnlockOSThread()
		return
	}
	// From here to the exec only this thread has lost its rights; init keeps its own to watch and to kill.
	err := cutRights(&p.order, p.fds[3:3+p.order.Tasks], p.rules)
	if err == nil {
		p.program, err = syscall.ForkExec(p.order.Argv[0], p.order.Argv, &syscall.ProcAttr{
			Dir:   Workspace,
			Env:   p.order.Env,
			Files: files,
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			err = &startError{p.order.Argv[0], err}
		}
	}
	errs <- err
}

// findInside returns the path of a program inside the box, as a shell there would
// find it.
func findInside(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		at := filepath.Join(Workspace, dir, name)
		if filepath.IsAbs(dir) {
			at = filepath.Join(dir, name)
		}
		var st unix.Stat_t
		if unix.Stat(at, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 {
			return at, nil
		}
	}
	return "", fmt.Errorf("start %s: no such file in PATH=%s", name, path)
}

type startError struct {
	path string
	err  error
}

func (e *startError) Error() string { return fmt.Sprintf("start %s: %v", e.path, e.err) }

// applyBounds puts the bounds of one run in force.
func (p *initProc) applyBounds(b Bounds, dir string) error {
	w, err := newUsage(b, p.order.Lent || dir != "", emptyFiles)
	if err != nil {
		return err
	}
	p.usage.Store(w)
	close(p.bound)
	pid := p.program // 0 before the program starts: init limits itself, and its children inherit
	// A host file system cannot limit a box, so no single file may grow beyond what the run may add.
	if w.lent {
		if err := lowerLimit(pid, unix.RLIMIT_FSIZE, uint64(w.largest+b.FileBytes)); err != nil {
			return err
		}
	}
	if b.Processes > 0 {
		// The kernel counts all threads of the user in this namespace, also init's.
		if err := lowerLimit(pid, unix.RLIMIT_NPROC, uint64(b.Processes+threads())); err != nil {
			return err
		}
	}
	if pid != 0 {
		return p.limitProgram(b)
	}
	return nil
}

// limitProgram sets the program's limits that the kernel counts per process.
func (p *initProc) limitProgram(b Bounds) error {
	if b.Data > 0 {
		if err := lowerLimit(p.program, unix.RLIMIT_DATA, uint64(b.Data)); err != nil {
			return err
		}
	}
	if b.CPU > 0 {
		return lowerLimit(p.program, unix.RLIMIT_CPU, uint64(b.CPU/time.Second)+1)
	}
	return nil
}

// lowerLimit sets the soft and hard resource limit of pid to v or less. A process
// without privileges cannot raise a hard limit again.
func lowerLimit(pid, resource int, v uint64) error {
	var old unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &old); err != nil {
		return err
	}
	v = min(v, old.Max)
	return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: v, Max: v}, nil)
}

// listen takes the claims of the backend. It ends init when the backend is gone.
func (p *initProc) listen() {
	for {
		var c Claim
		fds, err := control.Receive(&c)
		if err != nil {
			os.Exit(1)
		}
		if err := p.accept(c, fds); err != nil {
			control.Send(&Note{Kind: Failed, Err: err.Error()})
			os.Exit(1)
		}
		control.Send(&Note{Kind: Claimed})
	}
}

// accept gives a warm box to one run: it applies the bounds and mounts the workspace.
func (p *initProc) accept(c Claim, fds []int) error {
	// The box was made with the default limits; from here those of this run hold.
	if err := resize("/tmp", c.Bounds); err != nil {
		return err
	}
	p.order.Lent, p.order.Dir = c.Lent, c.Dir
	if c.Lent || c.Dir != "" {
		lent := -1
		if len(fds) == 1 {
			lent = fds[0]
		}
		if lent < 0 {
			return fmt.Errorf("want the workspace %s as a descriptor", c.Dir)
		}
		if err := putWorkspace(lent, Workspace); err != nil {
			return err
		}
	}
	if p.rules >= 0 {
		// The rule names the workspace that is mounted now. The old directory below the mount would be another
		// one.
		if err := permit(p.rules, p.order.Landlock, writable...); err != nil {
			return err
		}
		unix.Close(p.rules)
	}
	if err := p.applyBounds(c.Bounds, c.Dir); err != nil {
		return err
	}
	return nil
}

// reap waits for the program, kills all remaining processes of the box and sends a
// Done note. It also collects orphans that end before the program.
func (p *initProc) reap() int {
	stop := make(chan struct{})
	over := make(chan string, 1)
	go p.patrol(stop, over)
	var ws unix.WaitStatus
	var own unix.Rusage
	for {
		pid, err := unix.Wait4(-1, &ws, 0, &own)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 1
		}
		if pid == p.program {
			break
		}
	}
	// Patrol sends the limit for which it killed the program, or an empty string.
	close(stop)
	n := Note{Kind: Done, Over: <-over}
	if ws.Signaled() {
		n.Exit, n.Signal = -1, unix.SignalName(ws.Signal())
	} else {
		n.Exit = ws.ExitStatus()
	}
	// Kill the rest first: a running process would change the files during the count.
	unix.Kill(-1, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if w := p.usage.Load(); w != nil {
		over, full := w.final()
		n.Full = full
		if n.Over == "" {
			n.Over = over
		}
		n.Peak = w.peak
	}
	var all unix.Rusage
	// All children were reaped above, so this counts the whole run.
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &all) == nil {
		n.CPU = time.Duration(all.Utime.Nano() + all.Stime.Nano())
		n.Peak = max(n.Peak, all.Maxrss<<10)
	}
	control.Send(&n)
	return 0
}

// patrol enforces the limits that no counter of the kernel enforces, until stop is
// closed. It then sends the limit for which it killed the program, if any.
func (p *initProc) patrol(stop <-chan struct{}, over chan<- string) {
	select {
	case <-stop:
		over <- ""
		return
	case <-p.bound: // a warm box has no bounds before its claim
	}
	const period = 5 * time.Millisecond
	tick := time.NewTicker(period)
	defer tick.Stop()
	var reason string
	for {
		select {
		case <-stop:
			over <- reason
			return
		case <-tick.C:
		}
		if w := p.usage.Load(); w != nil && reason == "" {
			// The first reason is kept, because the kill may break other limits.
			if reason = w.look(); reason != "" {
				unix.Kill(-1, unix.SIGKILL)
			}
		}
	}
}

// threads counts the threads of this process.
func threads() int {
	e, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 16
	}
	return len(e)
}
