package jail

import (
	"errors"
	"fmt"
	"github.com/kern-run/kern/internal/program/confine"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/frame"
	"github.com/kern-run/kern/internal/program/userns"
	"golang.org/x/sys/unix"
)

// hostBase is the first user id on the host that boxes use. It is above the range of
// systemd's containers, and no /etc/subuid contains it.
const hostBase = 0x70000000

// initEnv is the whole environment of init.
var initEnv = []string{"GOMAXPROCS=1", "GOGC=off"}

// initCaps are the capabilities of init in its user namespace if the backend is not
// root. Init mounts, counts files of other users, and sees and kills processes.
var initCaps = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_KILL,
	unix.CAP_SETPCAP, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RESOURCE,
}

// A box is one init and its program, as the backend sees them.
type box struct {
	slot   int
	proc   *os.Process
	wire   *frame.Conn
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	links  []*os.File        // the backend's ends of the program's sockets
	group  *cgroup.Group     // nil without cgroups
	notes  chan confine.Note // from init; closed when init is gone
	killed sync.Once
}

// user returns the identity that the program of a slot has on the host.
func user(slot int) identity {
	id := uint32(hostBase + 2*slot + 1)
	return identity{id, id}
}

// kill ends everything in the box.
func (x *box) kill() { x.killed.Do(func() { x.proc.Kill() }) }

// release frees the resources of the box after its notes were closed.
func (x *box) release() error {
	if x.wire != nil {
		x.wire.Close()
	}
	for _, f := range append([]*os.File{x.stdin, x.stdout, x.stderr}, x.links...) {
		if f != nil {
			f.Close()
		}
	}
	if x.group != nil {
		return x.group.Remove()
	}
	return nil
}

// end kills a box and releases it.
func (x *box) end() error {
	x.kill()
	for range x.notes {
	}
	return x.release()
}

// start makes a box and starts its program. An error means that no program ran. The
// descriptor lent is a mount of the workspace, or -1; start closes it.
func (b *Backend) start(slot int, o confine.Order, l limits, owner *identity, lent int) (x *box, err error) {
	if lent >= 0 {
		defer unix.Close(lent)
	}
	x = &box{slot: slot, notes: make(chan confine.Note, 4)}
	var ends ends
	// After an error the box, its process and its cgroup must be gone.
	defer func() {
		ends.close()
		if err == nil {
			return
		}
		if x.proc != nil {
			x.kill()
			for range x.notes {
			}
		}
		if x.wire != nil {
			err = errors.Join(err, x.release())
		} else if x.group != nil {
			err = errors.Join(err, x.group.Remove())
		}
		x = nil
	}()
	if b.driver != nil {
		// The limits hold before anything runs in the group. Helpers are the threads of init that are in it at the
		// start.
		if x.group, err = b.driver.Make(); err != nil {
			return x, err
		}
		if err = x.group.Limit(l.Memory, l.Processes+x.group.Helpers()); err != nil {
			return x, err
		}
		o.Group, o.Groups, o.Gate = x.group.Name(), x.group.Hierarchies(), x.group.WholeProcesses()
		o.Tasks = len(x.group.Tasks())
	}
	if err = ends.open(x); err != nil {
		return x, err
	}
	if x.proc, err = b.startInit(slot, owner, ends.control); err != nil {
		// The host refuses namespaces, which the caller can fix, so the error names the remedy.
		if userns.Refused(err) || errors.Is(err, unix.EINVAL) { // the kernel has none
			err = refuseNamespaces(err.Error())
		}
		return x, err
	}
	// From here listen owns the process: its notes tell when the box is gone.
	go x.listen()
	// The order of the descriptors is part of the protocol: see confine.Order.
	files := []int{ends.stdin, ends.stdout, ends.stderr}
	if x.group != nil {
		for _, f := range x.group.Tasks() {
			files = append(files, int(f.Fd()))
		}
	}
	if lent >= 0 {
		files = append(files, lent)
	}
	if err = x.wire.Send(&o, files...); err != nil {
		return x, err
	}
	ends.close() // a stream ends only if the backend holds no copy of it
	if o.Gate {
		if err = x.enterGroup(); err != nil {
			return x, err
		}
	}
	_, err = x.await(confine.Started)
	// Init leaves the run's cgroup, because its threads must not count against the run.
	if err == nil && o.Gate {
		err = x.group.Leave(x.proc.Pid)
	}
	// The helpers have left, so the whole limit belongs to the program.
	if err == nil && x.group != nil {
		err = x.group.LimitProcesses(l.Processes)
	}
	return x, err
}

// enterGroup moves init into the group while init starts the program.
func (x *box) enterGroup() error {
	if _, err := x.await(confine.Poised); err != nil {
		return err
	}
	if err := x.group.Enter(x.proc.Pid); err != nil {
		return err
	}
	return x.wire.Send(&confine.Claim{Go: true})
}

// patience is how long a box may take to start. A caller's context does not shorten
// it, because an error must mean that the program did not run, and only init knows.
const patience = 30 * time.Second

// await returns the next note of init. It fails if the note has another kind.
func (x *box) await(kind string) (confine.Note, error) {
	select {
	case n, ok := <-x.notes:
		switch {
		case !ok:
			return n, errGone
		case n.Kind == confine.Failed && n.Barred:
			return n, refuseNamespaces(n.Err)
		case n.Kind == confine.Failed:
			return n, errors.New(n.Err)
		case n.Kind != kind:
			return n, fmt.Errorf("want the box to say %q, got %q", kind, n.Kind)
		}
		return n, nil
	case <-time.After(patience):
		return confine.Note{}, fmt.Errorf("the box was not %s after %v", kind, patience)
	}
}

// listen puts the notes of init into x.notes until init is gone, then closes the
// channel. The kernel ends init only after every other process in the box is gone.
func (x *box) listen() {
	for {
		var n confine.Note
		fds, err := x.wire.Receive(&n)
		for _, fd := range fds {
			// A blocking descriptor would take a thread of Go for each read.
			unix.SetNonblock(fd, true)
			x.links = append(x.links, os.NewFile(uintptr(fd), "link"))
		}
		if err != nil {
			break
		}
		x.notes <- n
	}
	// The socket ended, so init is gone or no longer follows the protocol.
	x.kill()
	x.proc.Wait()
	close(x.notes)
}

// ends holds the ends of the box's pipes and socket that init gets.
type ends struct{ control, stdin, stdout, stderr int }

// open makes the pipes and the socket of x, and puts the backend's ends into x.
func (e *ends) open(x *box) error {
	*e = ends{-1, -1, -1, -1}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// The end of init goes into e at once, so that close finds it after an error.
	e.control = pair[1]
	if x.wire, err = frame.New(pair[0]); err != nil {
		return errors.Join(err, unix.Close(pair[0]))
	}
	// Only the backend's ends do not block, because Go's poller reads and writes them.
	for _, p := range []struct {
		ours    **os.File
		theirs  *int
		writing int // index of the backend's end in the pipe
	}{{&x.stdin, &e.stdin, 1}, {&x.stdout, &e.stdout, 0}, {&x.stderr, &e.stderr, 0}} {
		var fd [2]int
		if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		*p.theirs = fd[1-p.writing]
		if err := unix.SetNonblock(fd[p.writing], true); err != nil {
			return err
		}
		*p.ours = os.NewFile(uintptr(fd[p.writing]), "stream")
	}
	return nil
}

func (e *ends) close() {
	for _, fd := range []*int{&e.control, &e.stdin, &e.stdout, &e.stderr} {
		if *fd > 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
}

// startInit starts an init in its namespaces. It does so on the one thread that lives
// as long as the backend. The kernel sends the parent death signal when the thread
// that cloned ends, and Go may end any other thread.
func (b *Backend) startInit(slot int, owner *identity, control int) (*os.Process, error) {
	// StartProcess needs an os.File, and its finalizer would close the descriptor of
	// the caller. Give it a copy.
	fd, err := unix.FcntlInt(uintptr(control), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "control")
	defer f.Close()
	sys := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
		Pdeathsig:  unix.SIGKILL,
	}
	// As root, each slot has users of its own on the host, so that two boxes share no files, limits or processes.
	if b.root {
		id := user(slot)
		if owner != nil {
			id = *owner
		}
		base := hostBase + 2*slot
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: 1}, {ContainerID: confine.InsideUID, HostID: int(id.uid), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: 1}, {ContainerID: confine.InsideUID, HostID: int(id.gid), Size: 1}}
		sys.GidMappingsEnableSetgroups = true
		// Init is root inside of its namespace, and an unknown user without rights outside.
		sys.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	} else {
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: confine.InsideUID, HostID: os.Geteuid(), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: confine.InsideUID, HostID: os.Getegid(), Size: 1}}
		// Without root, init keeps its capabilities over exec only as ambient ones.
		sys.AmbientCaps = initCaps
	}
	type result struct {
		p   *os.Process
		err error
	}
	// The buffer lets the job end if the backend closes meanwhile.
	got := make(chan result, 1)
	job := func() {
		p, err := os.StartProcess("/proc/self/exe", []string{confine.RoleInit}, &os.ProcAttr{Env: initEnv, Files: []*os.File{b.null, b.null, b.null, f}, Sys: sys})
		got <- result{p, err}
	}
	select {
	case b.clones <- job:
	case <-b.ctx.Done():
		return nil, errClosed
	}
	r := <-got
	return r.p, r.err
}
