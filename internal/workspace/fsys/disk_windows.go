package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// HasStamps is false, because no change time is read here that programs cannot set.
// So a transaction looks at the whole workspace when it begins.
const HasStamps = false

func printOf(fs.FileInfo) Print { return Print{Nlink: 1} }

// syncName has nothing to do: names are journalled by NTFS itself.
func syncName(string) error { return nil }

func sameVolume(a, b string) bool {
	return strings.EqualFold(filepath.VolumeName(a), filepath.VolumeName(b))
}

func TryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	switch err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION:
		return false, nil
	}
	return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
}

func Unlock(f *os.File) {
	windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

func isNotDir(err error) bool { return errors.Is(err, windows.ERROR_DIRECTORY) }
