package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passed are the signals that go on to the program. Those of the keyboard come
// here only while the program is not in front.
var passed = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH}

// A Guest is a program that runs.
type Guest struct {
	Pid int // of the program, and of its process group

	keeper  *os.Process
	control *os.File
	tty     *terminal // nil: there is none
	words   chan word
	signals chan os.Signal
	wakes   chan os.Signal // SIGCONT
	asks    chan func()
	done    chan struct{} // closed when all is gone

	paused bool        // by Pause
	halted bool        // the program stopped, and was not told to go on
	broken bool        // it was told to end
	grace  *time.Timer // until it is killed
	ended  Ended
	over   atomic.Bool
}

// Start starts a program. The caller's own handling of signals ends until Wait
// returns.
func Start(s Spec) (*Guest, error) {
	path, err := Find(s.Argv[0])
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	g := &Guest{tty: openTerminal(), words: make(chan word), signals: make(chan os.Signal, 16), wakes: make(chan os.Signal, 1), asks: make(chan func()), done: make(chan struct{}),
		ended: Ended{Lost: true}}
	g.control = os.NewFile(uintptr(fds[0]), "control")
	h := home{Control: fds[1], Caller: os.Getpid(), Path: path, Fence: s.Fence, Bounds: s.Bounds, Front: g.tty.ours() && isTerminal(0) && isTerminal(1)}
	signal.Notify(g.signals, append(heeded(passed), unix.SIGTSTP)...) // from now on all are for the program
	signal.Notify(g.wakes, unix.SIGCONT)
	err = g.launch(s, h)
	_ = unix.Close(fds[1])
	if err == nil {
		err = g.greet(s.Argv[0])
	}
	if err != nil {
		signal.Stop(g.signals)
		signal.Stop(g.wakes)
		_ = g.control.Close()
		if g.keeper != nil {
			_, _ = g.keeper.Wait()
		}
		g.tty.close()
		return nil, err
	}
	if h.Front {
		g.tty.lent = g.Pid
	}
	return g, nil
}

// launch starts the guard.
func (g *Guest) launch(s Spec, h home) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	argv := slices.Concat(s.Guard, []string{string(b)}, s.Argv)
	pid, err := syscall.ForkExec(s.Guard[0], argv, &syscall.ProcAttr{Env: s.Env, Files: handed(h.Control), Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err == syscall.E2BIG { // as the program itself would be, or nearly
		return startError(s.Argv[0], syscall.E2BIG)
	}
	if err != nil {
		return fmt.Errorf("the guard of the program cannot be started: %w", err)
	}
	g.keeper, err = os.FindProcess(pid)
	return err
}

// handed are the descriptors of a new process up to and with control: each has
// the number it has here, and those that are closed on exec are.
func handed(control int) []uintptr {
	files := make([]uintptr, control+1)
	for fd := range control {
		files[fd] = uintptr(fd)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			files[fd] = ^uintptr(0)
		}
	}
	files[control] = uintptr(control)
	return files
}

// greet waits until the program is started, and begins to listen.
func (g *Guest) greet(name string) error {
	d := json.NewDecoder(g.control)
	var w word
	err := d.Decode(&w)
	switch {
	case err != nil:
		return fmt.Errorf("the guard of the program ended before it was started: %w", err)
	case w.Failed != 0:
		return startError(name, syscall.Errno(w.Failed))
	case w.Started == 0:
		return errors.New("the program cannot be guarded: " + w.Why)
	}
	g.Pid = w.Started
	go func() {
		defer close(g.words)
		for {
			var w word
			if d.Decode(&w) != nil {
				return
			}
			g.words <- w
		}
	}()
	return nil
}

// Wait stays with the program until it and everything it started is gone.
func (g *Guest) Wait() Ended {
	for open := true; open; {
		var w word
		select {
		case w, open = <-g.words:
			g.heard(w)
		case s := <-g.signals:
			g.signalled(s.(syscall.Signal))
		case <-g.wakes:
			g.woken()
		case ask := <-g.asks:
			ask()
		}
	}
	close(g.done)
	signal.Stop(g.signals)
	signal.Stop(g.wakes)
	if g.grace != nil {
		g.grace.Stop()
	}
	_ = g.control.Close()
	_, _ = g.keeper.Wait() // with it goes what a killed guard left
	g.ended.Ctrl = g.ended.Signal == int(unix.SIGINT) && g.tty != nil && g.tty.lent != 0
	g.tty.restore(g.ended.Signal != 0 || g.ended.Lost || g.broken)
	g.tty.close()
	return g.ended
}

func (g *Guest) heard(w word) {
	switch {
	case w.Stopped != 0:
		g.stopped(syscall.Signal(w.Stopped))
	case w.Ended:
		g.over.Store(true)
		g.ended.Exit, g.ended.Signal, g.ended.Lost = w.Exit, w.Signal, false
	case w.Gone:
		g.ended.CPU, g.ended.Starved, g.ended.Crowded = time.Duration(w.CPU), w.Starved, w.Crowded
	}
}

// send gives an order. If the guard is gone, the end of the socket says so too.
func (g *Guest) send(o order) {
	b, err := json.Marshal(o)
	if err == nil {
		_, _ = io.Writer(g.control).Write(append(b, '\n'))
	}
}

func (g *Guest) group(s syscall.Signal) { g.send(order{Signal: int(s)}) }
func (g *Guest) all(s syscall.Signal)   { g.send(order{Signal: int(s), All: true}) }

// signalled passes a signal on.
func (g *Guest) signalled(s syscall.Signal) {
	switch {
	case s == unix.SIGTSTP && g.paused:
		g.suspend(s) // the program cannot say that it stops
	default:
		g.group(s)
	}
}

// woken is what happens when somebody wakes us, with or without the program.
func (g *Guest) woken() {
	switch {
	case g.halted:
		g.resumed(false)
	case g.tty.ours() && g.tty.lent != 0: // we slept alone, and a shell put us in front
		g.tty.lend(g.Pid)
	}
}

// stopped is what happens when the program stops: what a shell would do if the
// program were its child, in two steps. One that wants the terminal gets it, if
// we have it; else we stop as well, so that the shell takes over.
func (g *Guest) stopped(s syscall.Signal) {
	g.halted = true
	wants := s == unix.SIGTTIN || s == unix.SIGTTOU
	switch {
	case g.paused:
	case wants && g.tty.ours():
		g.resumed(true)
	case g.broken: // who slept could not kill it
	default:
		lent := g.tty.takeBack()
		g.suspend(s)
		g.resumed(wants || lent)
	}
}

// suspend stops this process's job. It returns when the job goes on. Where
// nobody would ever wake it, because no shell looks after it, the program hears
// what a job hears whose shell is gone.
func (g *Guest) suspend(s syscall.Signal) {
	if s != unix.SIGSTOP && orphaned() {
		if s != unix.SIGTSTP {
			g.group(unix.SIGHUP)
		}
		return
	}
	if s == unix.SIGTSTP { // the whole pipeline sleeps
		signal.Ignore(s) // the runtime does not give back what it does by default
		_ = unix.Kill(0, s)
		signal.Notify(g.signals, s)
	}
	select {
	case <-g.wakes: // of earlier
	default:
	}
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	<-g.wakes // the call above may return before all threads have stopped
}

// resumed lets the program go on, in front if it was there and the shell put us
// there.
func (g *Guest) resumed(front bool) {
	if g.paused {
		return
	}
	if front && g.tty.ours() {
		g.tty.lend(g.Pid)
	}
	g.halted = false
	g.group(unix.SIGCONT)
}

// orphaned reports whether no shell looks after our job: no parent of it is of
// the same session.
func orphaned() bool {
	own, session := unix.Getpgrp(), 0
	session, _ = unix.Getsid(0)
	for pid := os.Getppid(); pid > 1; {
		sid, err := unix.Getsid(pid)
		if err != nil || sid != session {
			return true
		}
		if g, err := unix.Getpgid(pid); err != nil || g != own {
			return err != nil
		}
		if pid = parent(pid); pid == 0 {
			return true
		}
	}
	return true
}

// ask has f done by the goroutine in Wait, unless all is gone.
func (g *Guest) ask(f func()) {
	select {
	case g.asks <- f:
	case <-g.done:
	}
}

// Pause stops everything the program started. We stay, and the keyboard is ours
// meanwhile.
func (g *Guest) Pause() {
	g.ask(func() {
		g.paused = true
		g.all(unix.SIGSTOP)
		g.tty.takeBack()
	})
}

// Resume is the end of Pause.
func (g *Guest) Resume() {
	g.ask(func() {
		if !g.paused {
			return
		}
		g.paused, g.halted = false, false
		if g.tty.ours() && g.tty.was != 0 {
			g.tty.lend(g.Pid)
		}
		g.all(unix.SIGCONT)
	})
}

// End asks the program to end with SIGTERM, and kills it with everything it
// started when it has not after the grace.
func (g *Guest) End(grace time.Duration) {
	g.ask(func() {
		if g.broken {
			return
		}
		g.broken, g.paused, g.halted = true, false, false
		g.grace = time.AfterFunc(grace, g.Kill)
		g.group(unix.SIGTERM)
		g.all(unix.SIGCONT)
	})
}

// Kill kills the program and everything it started.
func (g *Guest) Kill() {
	g.ask(func() {
		g.broken = true
		g.all(unix.SIGKILL)
	})
}

// Over says that the program has ended, though not all that it started may have.
func (g *Guest) Over() bool { return g.over.Load() }

// SignalName is what a signal is called.
func SignalName(n int) string { return unix.SignalName(syscall.Signal(n)) }

// Signal sends the program's group a signal.
func (g *Guest) Signal(s syscall.Signal) { g.ask(func() { g.group(s) }) }
