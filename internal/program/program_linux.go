package program

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passed are the signals that go on to the program. The keyboard sends signals to
// this process only while the program is not in front.
var passed = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH}

// A Program runs in the session of its caller.
type Program struct {
	Pid int // of the program, and of its process group

	link     *connection
	tty      *terminal // nil: there is none
	reports  chan Report
	signals  chan os.Signal
	wakes    chan os.Signal // SIGCONT
	requests chan func()    // for the goroutine in Wait
	gone     chan struct{}  // closed when everything is gone

	paused bool        // by Pause
	halted bool        // the program stopped, and was not continued
	broken bool        // it was told to end
	grace  *time.Timer // until it is killed
	result Ended
	ended  atomic.Bool
}

// Start starts a program. The caller's own handling of signals ends until Wait
// returns.
func Start(s Spec) (*Program, error) {
	path, err := Find(s.Argv[0])
	if err != nil {
		return nil, err
	}
	if !Ready() {
		return nil, ErrNotReady
	}
	link, theirs, err := connect()
	if err != nil {
		return nil, err
	}
	p := &Program{link: link, tty: openTerminal(), reports: make(chan Report), signals: make(chan os.Signal, 16), wakes: make(chan os.Signal, 1),
		requests: make(chan func()), gone: make(chan struct{}), result: Ended{Lost: true}}
	front := p.tty.ours() && isTerminal(0) && isTerminal(1)
	signal.Notify(p.signals, append(withoutIgnored(passed), unix.SIGTSTP)...) // from now on all are for the program
	signal.Notify(p.wakes, unix.SIGCONT)
	err = link.launch(nil, &syscall.ProcAttr{Env: append(slices.Clone(s.Env), settings(theirs, true, false)), Files: inherited(theirs), Sys: &syscall.SysProcAttr{Setpgid: true}})
	_ = unix.Close(theirs)
	if err == nil {
		job := &Job{Path: path, Argv: s.Argv, Env: s.Env, Jail: s.Jail, Bounds: s.Bounds}
		err = p.begin(&order{job: job, attached: &attachment{Front: front, Caller: os.Getpid()}})
	}
	if err != nil {
		signal.Stop(p.signals)
		signal.Stop(p.wakes)
		_ = link.conn.Close()
		if link.keeper != nil {
			_, _ = link.keeper.Wait()
		}
		p.tty.close()
		if errors.Is(err, unix.E2BIG) {
			err = startError(s.Argv[0], syscall.E2BIG)
		}
		return nil, err
	}
	if front {
		p.tty.lent = p.Pid
	}
	return p, nil
}

// inherited are the descriptors of a new process up to and with control. Each
// keeps its number, without those that are closed on exec.
func inherited(control int) []uintptr {
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

// begin waits until the program is started, and begins to listen.
func (p *Program) begin(o *order) error {
	if err := p.link.conn.Send(o); err != nil {
		return fmt.Errorf("the supervisor of the program cannot be told to start it: %w", err)
	}
	r, err := p.link.receive()
	switch {
	case err != nil:
		return fmt.Errorf("the supervisor of the program ended before it was started: %w", err)
	case r.Errno != 0:
		return startError(o.job.Argv[0], syscall.Errno(r.Errno))
	case r.Started == 0:
		return errors.New("the program cannot be supervised: " + r.Err)
	}
	p.Pid = r.Started
	go func() {
		defer close(p.reports)
		for {
			r, err := p.link.receive()
			if err != nil {
				return
			}
			p.reports <- r
		}
	}()
	return nil
}

// Wait stays with the program until it and everything it started is gone.
func (p *Program) Wait() Ended {
	for open := true; open; {
		var r Report
		select {
		case r, open = <-p.reports:
			p.apply(r)
		case s := <-p.signals:
			p.passOn(s.(syscall.Signal))
		case <-p.wakes:
			p.continued()
		case f := <-p.requests:
			f()
		}
	}
	close(p.gone)
	signal.Stop(p.signals)
	signal.Stop(p.wakes)
	if p.grace != nil {
		p.grace.Stop()
	}
	_, _ = p.link.close() // with the keeper goes what a killed supervisor left
	p.result.Ctrl = p.result.Signal == int(unix.SIGINT) && p.tty != nil && p.tty.lent != 0
	p.tty.restore(p.result.Signal != 0 || p.result.Lost || p.broken)
	p.tty.close()
	return p.result
}

func (p *Program) apply(r Report) {
	if r.Stopped != 0 {
		p.stopped(syscall.Signal(r.Stopped))
	}
	if r.Ended {
		p.ended.Store(true)
		p.result.Exit, p.result.Signal, p.result.Lost = r.Exit, r.Signal, false
	}
	if r.Gone {
		p.result.CPU, p.result.OutOfMemory, p.result.OutOfProcesses = r.CPU, r.OutOfMemory, r.OutOfProcesses
	}
}

// An order cannot fail here: if the supervisor is gone, the end of the connection
// says so too.
func (p *Program) group(s syscall.Signal) { _ = p.link.signal(s) }
func (p *Program) all(s syscall.Signal)   { _ = p.link.kill(s) }

// passOn passes a signal on to the program.
func (p *Program) passOn(s syscall.Signal) {
	switch {
	case s == unix.SIGTSTP && p.paused:
		p.suspend(s) // the program cannot say that it stops
	default:
		p.group(s)
	}
}

// continued handles SIGCONT, which this process gets with or without the program.
func (p *Program) continued() {
	switch {
	case p.halted:
		p.resumed(false)
	case p.tty.ours() && p.tty.lent != 0: // only this process was stopped, and a shell put it in front
		p.tty.lend(p.Pid)
	}
}

// stopped handles a stop of the program as a shell would, in two steps. A program
// that wants the terminal gets it, if this process has it. Otherwise this process
// stops too, so that the shell takes over.
func (p *Program) stopped(s syscall.Signal) {
	p.halted = true
	wants := s == unix.SIGTTIN || s == unix.SIGTTOU
	switch {
	case p.paused:
	case wants && p.tty.ours():
		p.resumed(true)
	case p.broken: // a stopped process could not kill it
	default:
		lent := p.tty.takeBack()
		p.suspend(s)
		p.resumed(wants || lent)
	}
}

// suspend stops the job of this process, and returns when the job goes on. If no
// shell controls the job, nothing would ever continue it: then the program gets
// SIGHUP, as a job does when its shell is gone.
func (p *Program) suspend(s syscall.Signal) {
	if s != unix.SIGSTOP && orphaned() {
		if s != unix.SIGTSTP {
			p.group(unix.SIGHUP)
		}
		return
	}
	if s == unix.SIGTSTP { // the whole pipeline stops
		signal.Ignore(s) // the runtime does not restore the default action
		_ = unix.Kill(0, s)
		signal.Notify(p.signals, s)
	}
	select {
	case <-p.wakes: // an earlier one
	default:
	}
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	<-p.wakes // the call above may return before all threads have stopped
}

// resumed continues the program, in front if it was there and the shell put this
// process there.
func (p *Program) resumed(front bool) {
	if p.paused {
		return
	}
	if front && p.tty.ours() {
		p.tty.lend(p.Pid)
	}
	p.halted = false
	p.group(unix.SIGCONT)
}

// orphaned reports whether no shell controls the job of this process: no parent of
// the job is in the same session.
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

// do has f done by the goroutine in Wait, unless all is gone.
func (p *Program) do(f func()) {
	select {
	case p.requests <- f:
	case <-p.gone:
	}
}

// Pause stops everything the program started. This process goes on, and has the
// terminal.
func (p *Program) Pause() {
	p.do(func() {
		p.paused = true
		p.all(unix.SIGSTOP)
		p.tty.takeBack()
	})
}

// Resume continues everything after Pause.
func (p *Program) Resume() {
	p.do(func() {
		if !p.paused {
			return
		}
		p.paused, p.halted = false, false
		if p.tty.ours() && p.tty.was != 0 {
			p.tty.lend(p.Pid)
		}
		p.all(unix.SIGCONT)
	})
}

// End sends the program SIGTERM if it still runs after the delay, and calls told before.
// If it still runs after the grace, End kills it and everything it started.
func (p *Program) End(delay, grace time.Duration, told func()) {
	p.do(func() {
		if p.broken {
			return
		}
		p.broken = true
		p.grace = time.AfterFunc(delay, func() { p.do(func() { p.terminate(grace, told) }) })
	})
}

// terminate sends SIGTERM, and kills after the grace.
func (p *Program) terminate(grace time.Duration, told func()) {
	if told != nil && !p.ended.Load() {
		told()
	}
	p.paused, p.halted = false, false
	p.grace = time.AfterFunc(grace, p.Kill)
	p.group(unix.SIGTERM)
	p.all(unix.SIGCONT)
}

// Kill kills the program and everything it started.
func (p *Program) Kill() {
	p.do(func() {
		p.broken = true
		p.all(unix.SIGKILL)
	})
}

// Over reports whether the program has ended. Its descendants may still run.
func (p *Program) Over() bool { return p.ended.Load() }
