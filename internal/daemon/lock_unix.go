//go:build unix

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// executable returns the path of this program. On Linux the path stays valid if
// another version replaces the file.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// ownSession returns the attributes of a child that survives this process and its
// terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// Lock takes the lock of a file, and waits for it until ctx ends. The lock is
// released when the file is closed, also in every process that inherited it.
func Lock(ctx context.Context, name string) (*os.File, error) {
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
	if dir := getenv(name); filepath.IsAbs(dir) { // the specification says to ignore a relative path
		return dir, nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("HOME is not set")
	}
	return filepath.Join(append([]string{home}, below...)...), nil
}
