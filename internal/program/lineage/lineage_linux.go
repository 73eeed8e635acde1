package lineage

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Of returns the process at the other end of a Unix socket, and its ancestors, nearest
// first. It returns none for a connection inside this process.
//
// The other end is the process that connected. If that has ended, Of fails: a
// descendant may use its connection, and its number may belong to another.
func Of(c net.Conn) ([]Ancestor, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	handle := -1 // of the process that connected; -1 before Linux 6.5
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if h, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			handle = h
		} else if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			failed = errors.Join(failed, errEnded)
		}
	})
	if handle >= 0 {
		defer unix.Close(handle)
	}
	switch {
	case err != nil || failed != nil:
		return nil, errors.Join(err, failed)
	case peer.Pid == 0:
		return nil, errors.New("it is in another process namespace")
	case int(peer.Pid) == os.Getpid():
		return nil, nil
	}
	all, err := above(int(peer.Pid))
	if err == nil && handle >= 0 && ended(handle) {
		err = errEnded
	}
	return all, err
}

// UserOf returns the user of the process at the other end of a Unix socket.
func UserOf(c net.Conn) (uid int, ok bool) {
	u, isUnix := c.(*net.UnixConn)
	if !isUnix {
		return 0, false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid, ok = int(peer.Uid), true
		}
	})
	return uid, ok && err == nil
}

// Own returns this process and its ancestors.
func Own() ([]Ancestor, error) { return above(os.Getpid()) }

var errEnded = errors.New("the process that connected has ended")

// ended reports whether the process of a handle has ended.
func ended(handle int) bool {
	p := []unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// above returns a process and its ancestors.
func above(pid int) (all []Ancestor, err error) {
	for child := 0; pid > 0; {
		a, parent, err := look(pid)
		// If the process ended before it was read, its number may belong to another. Its
		// child has another parent then.
		if child != 0 {
			_, now, e := look(child)
			if e != nil {
				return nil, e
			}
			if now != pid {
				pid = now
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, a)
		child, pid = pid, parent
	}
	return all, nil
}

// look reads one process, and its parent; 0: none that this process sees.
func look(pid int) (a Ancestor, parent int, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		// With hidepid a process that hides its memory has no directory, and a supervisor
		// does. A process of another user is no supervisor, because it has the user of
		// its caller.
		return Ancestor{Process{Pid: pid}, unix.Kill(pid, 0) == nil}, 0, ignoreHidden(pid, err)
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name before may have spaces
	if len(f) < 20 {
		return a, 0, fmt.Errorf("%s/stat is %q", dir, b)
	}
	if parent, err = strconv.Atoi(string(f[1])); err != nil {
		return a, 0, err
	}
	a.Pid = pid
	if a.Started, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return a, 0, err
	}
	line, _ := os.ReadFile(dir + "/cmdline") // of a process that has just ended it is empty
	name, _, _ := bytes.Cut(line, []byte{0})
	a.Supervisor = string(name) == SupervisorName
	return a, parent, nil
}

// ignoreHidden returns nil if a process exists that /proc does not show.
func ignoreHidden(pid int, err error) error {
	if e := unix.Kill(pid, 0); e == nil || errors.Is(e, unix.EPERM) {
		return nil
	}
	return err
}

// Alive reports whether a process has not ended.
func (p Process) Alive() bool {
	a, _, err := look(p.Pid)
	return err == nil && a.Process == p
}
