package program

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/frame"
)

// A Pool runs jobs below supervisors and keeps supervisors that have nothing to
// do, so that a job need not wait for one to start. The zero Pool is ready.
type Pool struct {
	Idle int // how many are kept; 0: DefaultIdle, negative: none

	// Command is the path of this binary, and words that are shown behind the
	// name of a supervisor in a list of processes. Nil: /proc/self/exe.
	Command []string

	mu     sync.Mutex
	idle   []*connection
	closed bool
}

// DefaultIdle is how many supervisors a Pool keeps by default.
const DefaultIdle = 4

// Warm starts one supervisor ahead of the first job.
func (p *Pool) Warm() error {
	c, err := p.launch()
	if err == nil {
		p.put(c)
	}
	return err
}

// Close ends the idle supervisors, and every other one when its job ends.
func (p *Pool) Close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	var err error
	for _, c := range idle {
		if state, e := c.close(); e != nil || !state.Success() {
			err = errors.Join(err, e, fmt.Errorf("a supervisor ended with %v", state))
		}
	}
	return err
}

// take returns an idle supervisor or a new one.
func (p *Pool) take() (*connection, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	return p.launch()
}

// put keeps a supervisor that has nothing to do, or ends it.
func (p *Pool) put(c *connection) {
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < cmp.Or(p.Idle, DefaultIdle)
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		_, _ = c.close() // it had nothing left to do
	}
}

// launch starts a supervisor in a session of its own. Its environment is empty,
// because a tool may find a way to read it.
func (p *Pool) launch() (*connection, error) {
	if !Ready() {
		return nil, ErrNotReady
	}
	c, theirs, err := connect()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(theirs) }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer closeFile(null)
		fd := null.Fd()
		err = c.launch(p.Command, &syscall.ProcAttr{Env: []string{"GOMAXPROCS=2", "GOTRACEBACK=single", settings(3, false, false)},
			Files: []uintptr{fd, fd, fd, uintptr(theirs)}, Sys: &syscall.SysProcAttr{Setsid: true}})
	}
	if err != nil {
		_ = c.conn.Close()
		return nil, err
	}
	return c, nil
}

// A Run is a job that runs. Exactly one report comes, also after Stop.
type Run struct {
	Report <-chan Report
	Stop   func() // kills everything the program started
	Nudge  func() // continues a supervisor that another process stopped
}

// Start runs a job with the three standard streams.
func (p *Pool) Start(j Job, files [3]*os.File) (*Run, error) {
	c, err := p.take()
	if err != nil {
		return nil, err
	}
	if err := c.conn.Send(&order{job: &j}, int(files[0].Fd()), int(files[1].Fd()), int(files[2].Fd())); err != nil {
		_, _ = c.close() // the reason is err
		return nil, err
	}
	reports := make(chan Report, 1)
	go func() {
		r, err := c.receive()
		if err == nil {
			p.put(c)
		} else {
			r = c.lost(err)
		}
		reports <- r
	}()
	return &Run{
		Report: reports,
		Stop:   func() { _ = c.kill(unix.SIGKILL) }, // if the supervisor is gone, the report says so
		Nudge:  func() { _ = unix.Kill(-c.keeper.Pid, unix.SIGCONT) },
	}, nil
}

// A connection leads to a supervisor. The supervisor takes the end of the
// connection as the death of its caller.
type connection struct {
	keeper *os.Process
	conn   *frame.Conn
}

// connect makes a connection, and the descriptor that its supervisor gets.
func connect() (c *connection, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	conn, err := frame.New(fds[0])
	if err != nil {
		return nil, -1, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return &connection{conn: conn}, fds[1], nil
}

// launch starts the supervisor.
func (c *connection) launch(command []string, attr *syscall.ProcAttr) error {
	path, argv := selfPath, []string{roleSupervisor}
	if len(command) > 0 {
		path, argv = command[0], append(argv, command[1:]...)
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return &os.PathError{Op: "start supervisor", Path: path, Err: err}
	}
	c.keeper, err = os.FindProcess(pid)
	return err
}

// close ends a supervisor and waits until everything it had is gone.
func (c *connection) close() (*os.ProcessState, error) {
	_ = c.conn.Close()
	return c.keeper.Wait()
}

func (c *connection) receive() (r Report, err error) {
	_, err = c.conn.Receive(frame.JSON{Value: &r})
	return r, err
}

// signal sends a signal to the process group of the program.
func (c *connection) signal(s syscall.Signal) error { return c.conn.Send(&order{signal: int(s)}) }

// kill sends a signal to everything the program started.
func (c *connection) kill(s syscall.Signal) error {
	return c.conn.Send(&order{signal: int(s), all: true})
}

// lost is the report about a supervisor that is gone. Its keeper outlives
// everything the program started, so lost waits for the keeper.
func (c *connection) lost(why error) Report {
	state, err := c.close()
	what := "all it had started was killed"
	if err != nil || !state.Exited() {
		what = "its keeper ended too, so processes of the program may be left"
	}
	return Report{Lost: true, Err: fmt.Sprintf("%s (%v)", what, why)}
}
