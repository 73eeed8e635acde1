package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock reports whether nobody else holds f. The lock ends with f, also when
// the process is killed. It is on a byte far behind the text, which others may
// still read.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{Offset: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncDir has nothing to do: NTFS keeps names in its own journal.
func syncDir(string) error { return nil }
