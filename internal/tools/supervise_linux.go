package tools

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/reap"
)

// How nothing is left behind
//
// A program is not started by us but by a supervisor, two small processes:
//
//	we ── keeper ── supervisor ── the program ── whatever it starts
//	 └──── control socket ─┘
//
// The supervisor is a child subreaper: a descendant that loses its parent, by
// whatever trick, becomes the supervisor's child, so all of them can be found
// and waited for. When the program ends, its time is up, we say so, or the
// control socket closes because we died, it kills until it has no child left,
// and only then reports. Process groups are killed whole, which the system does
// in one step even for a fork bomb; what left its group is found by walking
// the tree, again and again until nothing is there.
//
// A program cannot kill its supervisor where the system lets us forbid it: it
// runs in a Landlock domain from which no signal gets out (Linux 6.12), and
// from which only root can read our memory and environment.
// Elsewhere, or if the supervisor dies of something else, the keeper, a
// subreaper too, inherits all that the supervisor had and kills it. A program
// that runs as our user on an older system and kills keeper and supervisor in
// one go gets away; nothing short of a sandbox holds it.
//
// no_new_privs is set for every program: a set-user-id program would be out of
// reach for our signals.

const (
	canSupervise = true
	controlFD    = 3
	innerEnv     = "KERN_SUPERVISOR=inner"
)

// Supervise is what a supervisor does. A program calls it first thing in main
// when its arguments are those of Runner.Supervisor. It never returns.
func Supervise() {
	// Caught and dropped, for what is ignored would be so in the program too.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGALRM)
	if _, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		fmt.Fprintln(os.Stderr, "this command is started by the program that runs tools, not by hand")
		os.Exit(2)
	}
	// Whatever else we were started with is no program's business.
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		closeOnExec()
	}
	if err := reap.Adopt(); err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		os.Exit(2)
	}
	if os.Getenv("KERN_SUPERVISOR") != "inner" {
		os.Exit(reap.Keep(startInner))
	}
	s := supervisor{jobs: make(chan order), starts: make(chan order), started: make(chan startResult)}
	go s.listen()
	go s.starter()
	s.serve()
	os.Exit(0)
}

// closeOnExec is for systems without close_range (before Linux 5.11).
func closeOnExec() {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, f := range fds {
		if n, err := strconv.Atoi(f.Name()); err == nil && n >= controlFD {
			unix.CloseOnExec(n)
		}
	}
}

// startInner starts the supervisor proper.
func startInner() (int, error) {
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), innerEnv),
		Files: []uintptr{0, 1, 2, controlFD},
	})
	_ = unix.Close(controlFD) // it is the supervisor's: who holds it, lives
	return pid, err
}

// An order comes over the control socket: run a job, or stop the one that
// runs, which is an order without a job.
type order struct {
	job   *job
	files []int
}

type startResult struct {
	pid int
	err error
}

type supervisor struct {
	jobs    chan order
	starts  chan order
	started chan startResult
}

// listen reads orders until the socket closes.
func (s *supervisor) listen() {
	defer close(s.jobs)
	for {
		o, err := receiveOrder(controlFD)
		if err != nil {
			return
		}
		s.jobs <- o
	}
}

// starter starts programs from a thread of its own, whose rights are cut: a
// child inherits those of the thread it comes from. They can never be given
// back, so no other thread may come from this one; the runtime sees to that
// for locked threads.
func (s *supervisor) starter() {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread stands for the process: a program in its domain
		// could signal it. Keep it, so that another thread is taken.
		go s.starter()
		select {}
	}
	err := reap.Confine(landlockSince)
	for o := range s.starts {
		r := startResult{err: err}
		if err == nil {
			files := []uintptr{uintptr(o.files[0]), uintptr(o.files[1]), uintptr(o.files[2])}
			r.pid, r.err = syscall.ForkExec(o.job.Argv[0], o.job.Argv, &syscall.ProcAttr{
				Dir: o.job.Dir, Env: o.job.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
		}
		s.started <- r
	}
}

// landlockSince is the version of Landlock from which on signals are kept in.
// Tests of older systems raise it.
var landlockSince uintptr = reap.ScopedSince

// serve runs one job after the other until nobody gives more.
func (s *supervisor) serve() {
	for o := range s.jobs {
		if o.job == nil {
			continue // a stop that came after the end
		}
		var r report
		if err := o.job.makeScratch(); err != nil {
			closeAll(o.files)
			r.Err = err.Error()
		} else if hungUp(controlFD) {
			closeAll(o.files) // nobody wants it any more
		} else {
			r = s.run(o)
		}
		removeAll(o.job.Scratch)
		if sendFrame(controlFD, r) != nil {
			return
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // received, and not written to
	}
}

// hungUp reports whether the other end of a socket is closed.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// run runs one job to the end of everything it started.
func (s *supervisor) run(o order) report {
	s.starts <- o
	st := <-s.started
	closeAll(o.files) // the program has them now
	if st.err != nil {
		return report{Err: fmt.Sprintf("%s: %v", o.job.Argv[0], st.err)}
	}
	reaped := make(chan reap.Child)
	go reap.Wait(0, reaped)
	timer := time.NewTimer(o.job.Timeout)
	defer timer.Stop()
	var r report
	ending, orders, late := false, s.jobs, timer.C
	again, more := time.Duration(0), false
	for {
		select {
		case c := <-reaped:
			r.CPU += c.CPU
			more = c.More
			if c.Pid == st.pid && !ending {
				r.Ended, r.Exit, r.Signal = true, c.Exit, c.Signal
			}
			ending = ending || c.Pid == st.pid
			if c.Last {
				return r
			}
		case _, open := <-orders:
			if ending = true; !open {
				orders = nil
			}
		case <-late:
			if !ending {
				r.Late, ending = true, true
			}
		case <-after(ending && !more, again):
		}
		if ending && !more {
			reap.Sweep()
			again = min(2*again+time.Millisecond, 50*time.Millisecond)
		}
	}
}

func after(on bool, d time.Duration) <-chan time.Time {
	if !on {
		return nil
	}
	return time.After(d)
}

// maxFrame is the largest message on a control socket.
const maxFrame = 16 << 20

// sendFrame writes v as one message: its length, then JSON.
func sendFrame(fd int, v any) error {
	b, err := frame(v)
	for err == nil && len(b) > 0 {
		var n int
		if n, err = unix.Write(fd, b); err == unix.EINTR {
			err = nil
		}
		b = b[max(n, 0):]
	}
	return err
}

func frame(v any) ([]byte, error) {
	b := make([]byte, 4)
	if v != nil {
		body, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		b = append(b, body...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b, nil
}

// receiveOrder reads one order. Its files come with the first byte.
func receiveOrder(fd int) (order, error) {
	var o order
	var size [4]byte
	oob := make([]byte, unix.CmsgSpace(3*4))
	n, oobn := 0, 0
	var err error
	for {
		n, oobn, _, _, err = unix.Recvmsg(fd, size[:], oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return o, err
	}
	if n == 0 {
		return o, io.EOF
	}
	if oobn > 0 {
		ms, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return o, err
		}
		for i := range ms {
			fds, err := unix.ParseUnixRights(&ms[i])
			if err != nil {
				return o, err
			}
			o.files = append(o.files, fds...)
		}
	}
	r := rawReader(fd)
	if _, err := io.ReadFull(r, size[n:]); err != nil {
		return o, err
	}
	l := binary.BigEndian.Uint32(size[:])
	if l == 0 {
		return o, nil
	}
	if l > maxFrame || len(o.files) != 3 {
		return o, fmt.Errorf("a message of %d bytes with %d files", l, len(o.files))
	}
	body := make([]byte, l)
	if _, err := io.ReadFull(r, body); err != nil {
		return o, err
	}
	o.job = new(job)
	return o, json.Unmarshal(body, o.job)
}

// rawReader reads a blocking descriptor.
type rawReader int

func (r rawReader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(r), b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Conceal hides the memory and the environment of this process, which may hold
// keys, from programs of the same user. A daemon that runs tools calls it in
// main; it also ends core dumps of the process.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("tool: this process cannot be hidden: %w", err)
	}
	return nil
}

func signalName(n int) string { return unix.SignalName(syscall.Signal(n)) }
