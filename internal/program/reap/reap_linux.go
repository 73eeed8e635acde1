package reap

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Able says that this system can find every descendant of a process.
const Able = true

// ScopedSince is the first version of Landlock that keeps signals in. Tests of older
// systems raise it.
var ScopedSince uintptr = 6

// Adopt makes this process inherit every descendant that loses its parent, and
// hides its memory and environment from them.
func Adopt() error {
	for _, p := range [][2]uintptr{{unix.PR_SET_CHILD_SUBREAPER, 1}, {unix.PR_SET_DUMPABLE, 0}} {
		if err := unix.Prctl(int(p[0]), p[1], 0, 0, 0); err != nil {
			return fmt.Errorf("prctl %d: %w", p[0], err)
		}
	}
	return nil
}

// Confine cuts the rights of the calling thread and of every process that it
// starts: exec gives no privileges, and from Landlock version since on signals
// reach only its own descendants. The rights never come back, so the thread must be
// locked.
func Confine(since uintptr) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); e != 0 || abi < since {
		return nil // the keeper kills what a killed supervisor leaves
	}
	const scopeSignal = 1 << 1
	// Only signals are kept in. The program keeps all rights on files and network.
	attr := struct{ fs, net, scoped uint64 }{scoped: scopeSignal}
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return fmt.Errorf("landlock: %w", e)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); e != 0 {
		return fmt.Errorf("landlock: %w", e)
	}
	return nil
}

// Keep starts a supervisor and waits for it. If the supervisor is killed, Keep kills
// everything it leaves. The result is an exit code.
func Keep(start func() (pid int, err error)) int {
	pid, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		return 2
	}
	const every = unix.WALL | unix.WUNTRACED
	status, ended, flags := 1, false, every
	for {
		var ws unix.WaitStatus
		p, err := unix.Wait4(-1, &ws, flags, nil)
		// After the first report all others are read without waiting, so that one search for descendants serves
		// all of them.
		flags = every | unix.WNOHANG
		switch {
		case err == unix.EINTR:
		case err != nil:
			return status
		case p == 0: // nothing more is known
			// Killed processes hand their children to this one, so it searches again until nothing is left.
			if flags = every; ended {
				KillDescendants()
			}
		case ws.Stopped():
			if p == pid || ended {
				_ = unix.Kill(p, unix.SIGCONT) // a program may have stopped it
			}
		case p == pid:
			ended = true
			if ws.Exited() && ws.ExitStatus() == 0 {
				status = 0
			}
		}
	}
}

// A Child is a report about one child of this process: it ended, unless it Stopped or
// was Continued.
type Child struct {
	Pid, Exit, Signal  int
	CPU                time.Duration
	Stopped, Continued bool
	More               bool // a report about another child follows at once
	Last               bool // no child is left
}

// Wait sends a report for each change of a child until no child is left. Flags are
// those of wait4, such as WUNTRACED.
func Wait(flags int, to chan<- Child) {
	c, err := wait(flags)
	for err == nil {
		// The usual program leaves nothing behind. Last tells the reader so at once,
		// and saves it a search for descendants.
		next, nextErr := wait(flags | unix.WNOHANG)
		c.More, c.Last = next.Pid > 0, nextErr != nil
		to <- c
		if nextErr != nil {
			return
		}
		if c = next; c.Pid == 0 {
			c, err = wait(flags)
		}
	}
	to <- Child{Last: true}
}

func wait(flags int) (Child, error) {
	for {
		var ws unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &ws, flags|unix.WALL, &ru)
		if err == unix.EINTR {
			continue
		}
		c := Child{Pid: pid, CPU: time.Duration(ru.Utime.Nano() + ru.Stime.Nano())}
		switch {
		case pid <= 0:
		case ws.Stopped():
			c.Stopped, c.Signal, c.CPU = true, int(ws.StopSignal()), 0
		case ws.Continued():
			c.Continued, c.CPU = true, 0
		case ws.Signaled():
			c.Signal = int(ws.Signal())
		default:
			c.Exit = ws.ExitStatus()
		}
		return c, err
	}
}

// KillDescendants kills every descendant that exists at this moment. The next call
// finds a descendant that starts meanwhile: its parent was killed, so a report
// comes, and another call must follow. The caller waits until no report is left to
// read ([Child.More]), because a thousand calls for a thousand reports would look at
// a million processes.
func KillDescendants() { SignalDescendants(unix.SIGKILL) }

// SignalDescendants sends a signal to every descendant that exists at this moment:
// to groups as a whole, which works in one step even for a fork bomb, and to each
// by its number.
func SignalDescendants(sig syscall.Signal) {
	// The own group must not be signalled, because this process is in it.
	own := unix.Getpgrp()
	groups := map[int]bool{own: true}
	seen := map[int]bool{}
	var reach func(pid int)
	reach = func(pid int) {
		if seen[pid] {
			return
		}
		seen[pid] = true
		if g, err := unix.Getpgid(pid); err == nil && !groups[g] {
			groups[g] = true
			_ = unix.Kill(-g, sig) // it may be gone
		}
		below := Children(pid)
		_ = unix.Kill(pid, sig)
		for _, c := range below {
			reach(c)
		}
	}
	for _, c := range Children(os.Getpid()) {
		reach(c)
	}
}

// Children lists the children of all threads of a process.
func Children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	threads, _ := d.Readdirnames(-1)
	_ = d.Close()
	var pids []int
	for _, t := range threads {
		b, _ := os.ReadFile(dir + "/" + t + "/children")
		for _, f := range bytes.Fields(b) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
