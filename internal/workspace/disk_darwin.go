package workspace

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const hasStamps = true

func printOf(fi fs.FileInfo) print {
	st := fi.Sys().(*syscall.Stat_t)
	return print{st.Ino, st.Ctimespec.Nano(), uint32(st.Nlink), st.Uid, st.Gid}
}

func syncName(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func sameVolume(a, b string) bool {
	var x, y syscall.Stat_t
	return syscall.Stat(a, &x) == nil && syscall.Stat(b, &y) == nil && x.Dev == y.Dev
}

func flock(f *os.File) (bool, error) {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return true, nil
	case syscall.EWOULDBLOCK:
		return false, nil
	default:
		return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
}

func unflock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

func isNotDir(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EISDIR)
}
