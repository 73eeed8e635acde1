package program

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal of this session; nil means none.
type terminal struct {
	fd    int
	modes *unix.Termios // when the program started
	lent  int           // the group that has the terminal; 0: the group of this process
	was   int           // the last group that had the terminal
}

// openTerminal opens the terminal.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd}
	t.modes, _ = unix.IoctlGetTermios(fd, unix.TCGETS)
	return t
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// foreground is the group in front.
func (t *terminal) foreground() int {
	n, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return n
}

// ours reports whether the group of this process is in front.
func (t *terminal) ours() bool { return t != nil && t.foreground() == unix.Getpgrp() }

// give puts a group in front. A process that is not in front may do that only while
// it blocks SIGTTOU.
func (t *terminal) give(group int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGTTOU - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old) != nil {
		return
	}
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) // the group may be gone
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
}

// lend puts a group in front.
func (t *terminal) lend(group int) {
	t.give(group)
	t.lent = group
}

// takeBack puts this process in front again if the program was, and reports
// whether it was. A shell that took the terminal meanwhile keeps it.
func (t *terminal) takeBack() bool {
	if t == nil || t.lent == 0 {
		return false
	}
	t.was, t.lent = t.lent, 0
	if h := t.foreground(); h == t.was || unix.Kill(-h, 0) == unix.ESRCH {
		t.give(unix.Getpgrp())
	}
	return true
}

// restore takes the terminal back at the end. It restores the modes if the program
// had no chance to.
func (t *terminal) restore(broken bool) {
	if t == nil {
		return
	}
	t.takeBack()
	if broken && t.ours() && t.modes != nil {
		_ = unix.IoctlSetTermios(t.fd, unix.TCSETSW, t.modes)
	}
}

// Interrupt ends this process and its job as Ctrl-C would if they were in front,
// because Ctrl-C is also meant for a script that waits for them. It returns if the
// signal is ignored.
func Interrupt() {
	signal.Reset(unix.SIGINT)
	runtime.LockOSThread()
	_ = unix.Kill(0, unix.SIGINT)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGINT) // to this thread, so at once
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// parent returns the parent of a process; 0: it is not known.
func parent(pid int) int {
	f := stat(pid)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// stat returns the fields of /proc/PID/stat from the state on.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}
