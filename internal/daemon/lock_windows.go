package daemon

import (
	"context"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func executable() (string, error) {
	return "", errors.New("on this system the daemon is not started on demand; start it with: kern serve")
}

func ownSession() *syscall.SysProcAttr { return nil }

// Lock takes the lock of a file. It does not wait, because this system starts no
// daemons on demand.
func Lock(_ context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err != nil {
		f.Close()
		return nil, errors.New(name + " is held by another kern")
	}
	return f, nil
}

func stateHome(func(string) string) (string, error)  { return os.UserCacheDir() }
func configHome(func(string) string) (string, error) { return os.UserConfigDir() }
