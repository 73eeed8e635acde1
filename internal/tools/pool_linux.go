package tools

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// A Pool keeps supervisors that have nothing to do, so that a call need not
// wait for one to start. The zero Pool is ready.
type Pool struct {
	Idle int // how many are kept; 0: DefaultIdle

	mu     sync.Mutex
	idle   []*handle
	closed bool
}

// DefaultIdle is how many supervisors a Pool keeps when nothing else is said.
const DefaultIdle = 4

// Warm starts one supervisor ahead of the first call.
func (p *Pool) Warm(r Runner) error {
	if len(r.Supervisor) == 0 {
		return r.check()
	}
	h, err := launch(r.Supervisor)
	if err != nil {
		return err
	}
	p.put(h)
	return nil
}

// Close ends the idle supervisors, and every other as soon as its call ends.
func (p *Pool) Close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	var err error
	for _, h := range idle {
		err = errors.Join(err, h.close())
	}
	return err
}

// take returns an idle supervisor started by this command line, or a new one.
func (p *Pool) take(argv []string) (*handle, error) {
	if p != nil {
		p.mu.Lock()
		for i := len(p.idle) - 1; i >= 0; i-- {
			if h := p.idle[i]; slices.Equal(h.cmd.Args, argv) {
				p.idle = slices.Delete(p.idle, i, i+1)
				p.mu.Unlock()
				return h, nil
			}
		}
		p.mu.Unlock()
	}
	return launch(argv)
}

// put takes back a supervisor that has nothing to do.
func (p *Pool) put(h *handle) {
	if p != nil {
		p.mu.Lock()
		most := p.Idle
		if most == 0 {
			most = DefaultIdle
		}
		if !p.closed && len(p.idle) < most {
			p.idle = append(p.idle, h)
			h = nil
		}
		p.mu.Unlock()
	}
	if h != nil {
		_ = h.close() // it had nothing to do any more
	}
}

// handle is a supervisor as its user sees it.
type handle struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
}

// launch starts a supervisor. Its environment is empty: what it has, a tool
// might see.
func launch(argv []string) (*handle, error) {
	h, theirs, err := ready(argv)
	if err != nil {
		return nil, err
	}
	defer closeFile(theirs)
	if err := h.cmd.Start(); err != nil {
		_ = h.conn.Close()
		return nil, err
	}
	return h, nil
}

// ready makes a supervisor that is to be started, and its end of the connection.
func ready(argv []string) (*handle, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer closeFile(ours)
	conn, err := net.FileConn(ours)
	if err != nil {
		closeFile(theirs)
		return nil, nil, err
	}
	h := &handle{conn: conn.(*net.UnixConn)}
	h.cmd = &exec.Cmd{Path: argv[0], Args: argv, Env: []string{"GOMAXPROCS=2", "GOTRACEBACK=single"}, ExtraFiles: []*os.File{theirs},
		SysProcAttr: &unix.SysProcAttr{Setsid: true}}
	return h, theirs, nil
}

// close ends a supervisor and waits until it and all it had are gone.
func (h *handle) close() error {
	_ = h.conn.Close() // the supervisor takes it as its end
	return h.cmd.Wait()
}

// start gives a job to a supervisor.
func (r Runner) start(j job, files [3]*os.File) (*flight, error) {
	if len(r.Supervisor) == 0 {
		return startGroup(j, files)
	}
	h, err := r.Pool.take(r.Supervisor)
	if err != nil {
		return nil, err
	}
	if err := h.send(j, files); err != nil {
		_ = h.close() // the reason is err
		return nil, err
	}
	reports := make(chan report, 1)
	go func() {
		rep, err := h.receive()
		if err == nil {
			r.Pool.put(h)
		} else {
			rep = h.lost(err)
		}
		reports <- rep
	}()
	return &flight{
		report: reports,
		stop: func() {
			b, _ := frame(nil)
			_, _ = h.conn.Write(b) // if it is gone, the report says so
		},
		nudge: func() { _ = unix.Kill(-h.cmd.Process.Pid, unix.SIGCONT) },
	}, nil
}

// send gives a job with its files.
func (h *handle) send(j job, files [3]*os.File) error {
	b, err := frame(j)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("command line and environment of %d bytes", len(b))
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := h.conn.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil && n < len(b) {
		_, err = h.conn.Write(b[n:])
	}
	return err
}

func (h *handle) receive() (report, error) {
	var r report
	var size [4]byte
	if _, err := io.ReadFull(h.conn, size[:]); err != nil {
		return r, err
	}
	body := make([]byte, min(binary.BigEndian.Uint32(size[:]), maxFrame))
	if _, err := io.ReadFull(h.conn, body); err != nil {
		return r, err
	}
	err := json.Unmarshal(body, &r)
	return r, err
}

// lost is the report about a supervisor that is gone. Its keeper outlives
// everything the program started, so its end is waited for.
func (h *handle) lost(why error) report {
	err := h.close()
	what := "all it had started was killed"
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		what = "its keeper ended too, so processes of the tool may be left"
	}
	return report{Lost: true, Err: fmt.Sprintf("%s (%v)", what, why)}
}
