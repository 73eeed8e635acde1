package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Pen is a group of v2 that limits nothing: it holds what one program starts,
// so that the kernel kills all of it in one step. It needs no controller, only
// the right to make a group where this process is.
type Pen struct {
	dir string
	fd  int
}

// here is where this process may make pens.
func here() (*Driver, error) {
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
			return d, nil // the first is where we are
		}
	}
	return nil, errors.New("no cgroup file system of version 2 is mounted")
}

// NewPen makes a pen, and removes those whose owner is gone. An error says that
// there can be none here.
func NewPen() (*Pen, error) {
	d, err := here()
	if err != nil {
		return nil, err
	}
	if d.owner, err = ownerName(os.Getpid()); err != nil {
		return nil, err
	}
	_ = d.Sweep() // what cannot be removed is in nobody's way
	p := &Pen{dir: filepath.Join(d.trees[""], fmt.Sprintf("%s%s-%d", groupPrefix, d.owner, groupCount.Add(1)))}
	if err := d.mkdir(p.dir); err != nil {
		return nil, err
	}
	if p.fd, err = unix.Open(p.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		_, err = os.Stat(p.dir + "/cgroup.kill") // since Linux 5.14
		if err == nil {
			return p, nil
		}
		_ = unix.Close(p.fd)
	}
	return nil, errors.Join(err, d.rmdir(p.dir))
}

// FD is the descriptor with which a process is started in the pen.
func (p *Pen) FD() int { return p.fd }

// Kill kills everything in the pen.
func (p *Pen) Kill() { emptyGroup(p.dir) }

// Remove removes the pen with what is in it.
func (p *Pen) Remove() error {
	p.Kill()
	_ = unix.Close(p.fd)
	return removeGroup(p.dir, unix.Rmdir, soon())
}

// Tidy removes the pens whose owner is gone, with what is in them.
func Tidy() error {
	d, err := here()
	if err != nil {
		return nil // then there are none
	}
	return d.Sweep()
}
