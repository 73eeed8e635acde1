package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Scope holds everything that one program starts, so that the kernel kills all of
// it in one step. That is a group of v2, which needs no controller, only the right
// to make a group where this process is. With bounds the scope limits the program.
// The nil Scope does neither.
type Scope struct {
	dir    string // of v2; empty: it cannot be killed in one step
	fd     int    // -1: none
	bounds Bounds
	group  *Group   // has the limits; nil: there are none
	out    int      // v2 with bounds: the group for processes that are not counted; -1: none
	home   []string // v1: the tasks files of the groups around
}

// Usual returns bounds for a program that has none of its own: half of the memory of this
// machine, and processes by its processors. They leave room for what else runs.
func Usual() (Bounds, error) {
	var i unix.Sysinfo_t
	if err := unix.Sysinfo(&i); err != nil {
		return Bounds{}, err
	}
	const each = 1024 // processes and threads for each processor
	return Bounds{Memory: int64(uint64(i.Totalram) * uint64(i.Unit) / 2), Processes: each * runtime.NumCPU()}, nil
}

// ownDriver returns the driver for the group of this process.
func ownDriver() (*Driver, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for _, d := range candidates(string(mounts), string(own), "") {
		if d.v2 {
			return d, nil // the first one is where this process is
		}
	}
	return nil, errors.New("no cgroup file system of version 2 is mounted")
}

// NewScope makes a scope, and removes scopes without an owner. An error says that this
// host allows none.
func NewScope() (*Scope, error) {
	d, err := ownDriver()
	if err != nil {
		return nil, err
	}
	if d.owner, err = ownerName(os.Getpid()); err != nil {
		return nil, err
	}
	_ = d.Sweep() // a group that stays does no harm
	p := &Scope{fd: -1, out: -1, dir: filepath.Join(d.trees[""], fmt.Sprintf("%s%s-%d", groupPrefix, d.owner, groupCount.Add(1)))}
	if err := d.mkdir(p.dir); err != nil {
		return nil, err
	}
	if p.fd, err = unix.Open(p.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		// Without this file a scope kills no faster than the search for descendants, so there is none.
		_, err = os.Stat(p.dir + "/cgroup.kill") // since Linux 5.14
		if err == nil {
			return p, nil
		}
		_ = unix.Close(p.fd)
	}
	return nil, errors.Join(err, d.rmdir(p.dir))
}

// NewBoundedScope makes a scope with bounds. An error says why this host cannot hold
// them.
func NewBoundedScope(b Bounds) (*Scope, error) {
	d, err := Find("")
	if err != nil {
		return nil, err
	}
	_ = d.Sweep()
	g, err := d.Make()
	if err != nil {
		return nil, err
	}
	p := &Scope{fd: -1, out: -1, bounds: b, group: g}
	if b.Memory > 0 {
		err = g.limitMemory(b.Memory)
	}
	if err == nil && b.Processes > 0 {
		// The threads that start the program count until they leave, so they get room; Tighten takes it back.
		err = g.LimitProcesses(b.Processes + g.Helpers())
	}
	switch {
	case err != nil:
	case g.v2:
		p.dir = g.dirs[""]
		const dir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
		if p.fd, err = unix.Open(p.dir, dir, 0); err == nil {
			p.out, err = unix.Open(d.home, dir, 0)
		}
	default:
		for _, tree := range d.trees {
			p.home = append(p.home, tree+"/tasks")
		}
		// Groups of v1 limit, but only v2 kills in one step.
		if whole, e := NewScope(); e == nil { // else descendants are found one by one
			p.dir, p.fd = whole.dir, whole.fd
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Remove())
	}
	return p, nil
}

// FD is the descriptor with which a process starts in the scope; negative: none.
func (p *Scope) FD() int {
	if p == nil {
		return -1
	}
	return p.fd
}

// Outside is the descriptor with which a process starts outside the scope although
// its parent is inside; negative: without FD a process starts where its parent is.
func (p *Scope) Outside() int {
	if p == nil {
		return -1
	}
	return p.out
}

// Tasks are the files with which a thread enters before it starts the program: see
// [Join].
func (p *Scope) Tasks() []*os.File {
	if p == nil || p.group == nil {
		return nil
	}
	return p.group.tasks
}

// Join moves the calling thread, which must be locked, into groups. Everything it
// starts is there from the beginning.
func Join(tasks []*os.File) error {
	for _, f := range tasks {
		if _, err := f.WriteString("0"); err != nil {
			return err
		}
	}
	return nil
}

// Leave moves the calling thread back.
func (p *Scope) Leave() (err error) {
	if p == nil {
		return nil
	}
	for _, tasks := range p.home {
		err = errors.Join(err, os.WriteFile(tasks, []byte("0"), 0))
	}
	return err
}

// Tighten drops the room for helpers after the program started and they left. Until
// then the program may take that room.
func (p *Scope) Tighten() error {
	if p == nil || p.bounds.Processes == 0 {
		return nil
	}
	return p.group.LimitProcesses(p.bounds.Processes)
}

// Bounded reports which bounds were reached.
func (p *Scope) Bounded() (memory, processes bool) {
	if p == nil || p.group == nil {
		return false, false
	}
	r, err := p.group.Read()
	return err == nil && r.OOM > 0 && r.Full > 0 && p.bounds.Memory > 0, err == nil && r.Refused > 0 && p.bounds.Processes > 0
}

// Kill kills everything in the scope, if the kernel can do that in one step.
func (p *Scope) Kill() {
	if p.dir != "" {
		emptyGroup(p.dir)
	}
}

// Remove removes the scope with everything in it.
func (p *Scope) Remove() (err error) {
	p.Kill()
	for _, fd := range []int{p.fd, p.out} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if p.group != nil {
		err = p.group.Remove()
	}
	if p.dir != "" && (p.group == nil || !p.group.v2) {
		err = errors.Join(err, removeGroup(p.dir, unix.Rmdir, removeDeadline()))
	}
	return err
}

// Tidy removes the scopes and groups without an owner, with everything in them.
func Tidy() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil // then there are none
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for _, d := range candidates(string(mounts), string(own), "") {
		err = errors.Join(err, d.Sweep())
	}
	return err
}
