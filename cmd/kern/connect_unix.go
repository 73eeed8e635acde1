//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminate is the signal that asks a program to end.
const terminate = syscall.SIGTERM

// executable is this program, also when its file was replaced meanwhile.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// ownSession is for a child that lives on without us and our terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// columnsOf is how wide a terminal is, 0 where it does not say.
func columnsOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// lock takes the lock of a file, waiting for it until ctx ends. It is given back
// when the file is closed, also in those who inherited it.
func lock(ctx context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, nil
	}
	got := make(chan error, 1)
	go func() {
		err := syscall.Flock(fd, syscall.LOCK_EX)
		for errors.Is(err, syscall.EINTR) {
			err = syscall.Flock(fd, syscall.LOCK_EX)
		}
		got <- err
	}()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	case <-ctx.Done():
		go func() { <-got; f.Close() }()
		return nil, errors.New(name + " is held by another kern")
	}
}

func stateHome(getenv func(string) string) (string, error) {
	return xdg(getenv, "XDG_STATE_HOME", ".local", "state")
}

func configHome(getenv func(string) string) (string, error) {
	return xdg(getenv, "XDG_CONFIG_HOME", ".config")
}

func xdg(getenv func(string) string, name string, below ...string) (string, error) {
	if dir := getenv(name); filepath.IsAbs(dir) { // a relative one is to be ignored, says the specification
		return dir, nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("HOME is not set")
	}
	return filepath.Join(append([]string{home}, below...)...), nil
}
