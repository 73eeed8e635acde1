//go:build linux

package program

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A screen is a terminal with a shell in it that has job control, and one who
// types and reads.
type screen struct {
	t    *testing.T
	dir  string
	keys *os.File
	cmd  *exec.Cmd

	mu   sync.Mutex
	text strings.Builder
	mark int // what was looked at
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := onFd(keys, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, dir: t.TempDir(), keys: keys}
	s.cmd = exec.Command("sh", "-i")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = tty, tty, tty, s.dir
	s.cmd.Env = append(os.Environ(), "PS1=READY> ", "ENV=", "D="+s.dir, "CALL="+self+" caller")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := keys.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("ps", "-s", itoa(s.cmd.Process.Pid), "-o", "pid,ppid,pgid,tpgid,stat,pending,blocked,ignored,args").Output()
			t.Logf("its processes:\n%s", out)
		}
		_ = unix.Kill(s.cmd.Process.Pid, unix.SIGKILL) // if it lives still
		_ = s.cmd.Wait()
		for _, left := range marked(s.dir) {
			if pid, err := strconv.Atoi(left[:strings.IndexByte(left, '/')]); err == nil && t.Failed() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		until(t, "the end of all on the screen", func() bool { return len(marked(s.dir)) == 0 })
		_ = keys.Close()
		reading.Wait()
		if t.Failed() {
			t.Logf("the screen:\n%s", s.text.String())
		}
	})
	s.see("READY> ")
	return s
}

// onFd uses a descriptor without making it blocking.
func onFd(f *os.File, use func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = use(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func (s *screen) key(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// line types a command whose program marks every process with the directory.
func (s *screen) line(command string) { s.t.Helper(); s.key(command + "\r") }

// see waits until text stands on the screen, after what was seen before.
func (s *screen) see(text string) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%q", text), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := strings.Index(s.text.String()[s.mark:], text)
		if i < 0 {
			return false
		}
		s.mark += i + len(text)
		return true
	})
}

// shown is all that was on the screen.
func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// front is the group in front.
func (s *screen) front() (group int) {
	s.t.Helper()
	if err := onFd(s.keys, func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return group
}

// modes are those of the terminal.
func (s *screen) modes() (m unix.Termios) {
	s.t.Helper()
	if err := onFd(s.keys, func(fd int) error {
		p, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			m = *p
		}
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return m
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// TestKeyboard types at programs as a person does.
func TestKeyboard(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		s := newScreen(t)
		s.line(`$CALL sh -c 'read a; echo "got=$a"; exit 3' $D; echo "code=$?"`)
		s.key("hello\r")
		s.see("got=hello")
		s.see("code=3")
	})
	t.Run("interrupt", func(t *testing.T) {
		s := newScreen(t)
		s.line(`$CALL sh -c 'trap "exit 9" INT; echo is""here; while :; do sleep 0.01; done' $D; echo "code=$?"`)
		s.see("ishere")
		s.key(ctrlC)
		s.see("code=9")
		s.line(`$CALL sh -c 'echo is""here; exec sleep 100' $D; echo on""wards`)
		s.see("ishere")
		s.key(ctrlC)
		s.see("READY> ")
		s.line("echo code=$?")
		s.see("READY> ")
		if text := s.shown(); !strings.Contains(text, "code=130") || strings.Contains(text, "onwards") {
			t.Error("not as without us")
		}
	})
	t.Run("interrupt a loop", func(t *testing.T) {
		s := newScreen(t)
		s.line(`for i in 1 2; do $CALL sh -c 'echo is""here$1; exec sleep 100' $D $i; done`)
		s.see("ishere1")
		s.key(ctrlC)
		s.see("READY> ")
	})
	t.Run("interrupt a script", func(t *testing.T) {
		s := newScreen(t)
		if err := os.WriteFile(s.dir+"/script", []byte("$CALL sh -c 'echo ishere; exec sleep 100' $D\necho >$D/went\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.line(`sh $D/script; echo code=$?`)
		s.see("ishere")
		s.key(ctrlC)
		s.see("READY> ")
		if exists(s.dir, "went")() {
			t.Error("it went on")
		}
	})
	t.Run("suspend", func(t *testing.T) {
		s := newScreen(t)
		s.line(`$CALL sh -c 'echo $$ >$0/me; echo is""here; read a; echo "got=$a"; exit 4' $D`)
		s.see("ishere")
		pid := number(t, s.dir, "me")
		for range 3 {
			s.key(ctrlZ)
			s.see("Stopped")
			s.see("READY> ")
			if state(pid) != "T" {
				t.Errorf("the program is %s", state(pid))
			}
			s.line("echo shell; fg; echo code=$?")
			s.see("shell\r\n")
			until(t, "the program", func() bool { return state(pid) == "S" })
		}
		s.key("hello\r")
		s.see("got=hello")
		s.see("code=4")
	})
	t.Run("background", func(t *testing.T) {
		s := newScreen(t)
		s.line(`$CALL sh -c 'echo $$ >$0/me; read a; echo "got=$a"; exit 5' $D & echo $! >$D/caller`)
		number(t, s.dir, "me")
		until(t, "the stop of all", func() bool { // it wants to read, and may not
			return state(number(t, s.dir, "me")) == "T" && state(number(t, s.dir, "caller")) == "T"
		})
		s.line("fg; echo code=$?")
		s.see("fg;")
		s.key("hello\r")
		s.see("got=hello")
		s.see("code=5")
	})
	t.Run("to the background", func(t *testing.T) {
		s := newScreen(t)
		s.line(`$CALL sh -c 'echo $$ >$0/me; echo is""here; while ! [ -e $0/go ]; do :; done; echo 1 >$0/went' $D`)
		s.see("ishere")
		s.key(ctrlZ)
		s.see("Stopped")
		s.line("bg; echo shell$((1+1))")
		s.see("shell2")
		s.line("echo >$D/go")
		until(t, "its end", exists(s.dir, "went"))
		s.line("wait; echo again$((1+1))")
		s.see("again2")
	})
	t.Run("pipeline", func(t *testing.T) { // the reader behind it keeps the terminal
		s := newScreen(t)
		s.line(`$CALL sh -c 'echo out; read a </dev/tty; echo "got=$a"' $D | sh -c 'read x; echo "first=$x"; cat' $D`)
		s.see("first=out")
		s.key("hello\r")
		s.see("got=hello")
		s.line(`$CALL sh -c 'trap "echo int; exit" INT; echo is""here; while :; do sleep 0.01; done' $D | sh -c 'trap "" INT; cat' $D`)
		s.see("ishere")
		s.key(ctrlC)
		s.see("int\r\n")
		s.see("READY> ")
	})
	t.Run("suspend a pipeline", func(t *testing.T) {
		s := newScreen(t)
		s.line(`$CALL sh -c 'read a </dev/tty; echo "got=$a"' $D | sh -c 'echo $$ >$0/reader; exec cat' $D`)
		reader := number(t, s.dir, "reader")
		s.key("one")
		until(t, "its turn", func() bool { // it is in front when it reads, and the reader is not
			group, err := unix.Getpgid(reader)
			front := s.front()
			return err == nil && group != front && state(front) == "S" // and goes on: it was stopped when it read behind it
		})
		s.key(ctrlZ)
		s.see("Stopped")
		until(t, "the stop of the reader", func() bool { return state(reader) == "T" })
		s.line("fg")
		s.see("fg")
		s.key("hello\r")
		s.see("hello")
		s.see("READY> ")
	})
	t.Run("woken by another", func(t *testing.T) {
		s := newScreen(t)
		s.line(`$CALL sh -c 'echo $$ >$0/me; echo is""here; while ! [ -e $0/go ]; do :; done' $D`)
		s.see("ishere")
		s.key(ctrlZ)
		s.see("Stopped")
		caller := kids(s.cmd.Process.Pid)[0]
		kill(t, number(t, s.dir, "me"), unix.SIGCONT)
		until(t, "the caller", func() bool { return state(caller) == "S" })
		s.line("echo >$D/go; wait; echo again$((1+1))")
		s.see("again2")
	})
	t.Run("shell within", func(t *testing.T) {
		newScreen(t).within()
	})
}

// within starts a shell with jobs of its own, stops one of them, and leaves.
func (s *screen) within() {
	s.line(`PS1=INN""ER'> ' $CALL sh -i`)
	s.see("INNER> ")
	s.line(`sh -c 'echo is""here; exec sleep 100'`)
	s.see("ishere")
	s.key(ctrlZ)
	s.see("Stopped")
	s.line("exit 6")
	s.see("stopped jobs")
	s.line("kill -9 %1; exit 6")
	s.see("READY> ")
	s.line("echo code=$?")
	s.see("code=6")
}

// TestModes kills a program that has put the terminal into another mode: the
// terminal is as it was, and the shell's.
func TestModes(t *testing.T) {
	s := newScreen(t)
	before := s.modes()
	s.line(`$CALL sh -c 'echo $$ >$0/me; stty raw -echo; echo is""here; sleep 100' $D; echo code=$?`)
	s.see("ishere")
	if s.modes() == before {
		t.Fatal("the modes are the same")
	}
	kill(t, number(t, s.dir, "me"), unix.SIGKILL)
	s.see("code=137")
	s.see("READY> ")
	until(t, "the shell's own modes", func() bool { return s.modes() == before })
	s.line(`$CALL sh -c 'stty -echo' $D; echo code=$?`) // that is its wish
	s.see("code=0")
	s.see("READY> ")
	if s.modes().Lflag&unix.ECHO != 0 {
		t.Error("what the program set is undone")
	}
}

// TestResize changes the size of the terminal.
func TestResize(t *testing.T) {
	s := newScreen(t)
	s.line(`$CALL sh -c 'trap "stty size; exit" WINCH; echo is""here; while :; do sleep 0.01; done' $D`)
	s.see("ishere")
	if err := onFd(s.keys, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77})
	}); err != nil {
		t.Fatal(err)
	}
	s.see("33 77")
}

// TestHangup takes the terminal away.
func TestHangup(t *testing.T) {
	s := newScreen(t)
	s.line(`$CALL sh -c 'trap "echo 1 >$0/hup; exit" HUP; echo is""here; while :; do sleep 0.01; done' $D`)
	s.see("ishere")
	kill(t, s.cmd.Process.Pid, unix.SIGKILL)
	until(t, "the word of it", exists(s.dir, "hup"))
}
