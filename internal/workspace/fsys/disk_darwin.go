package fsys

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const HasStamps = true

func printOf(fi fs.FileInfo) Print {
	st := fi.Sys().(*syscall.Stat_t)
	return Print{Ino: st.Ino, Ctime: st.Ctimespec.Nano(), Nlink: uint32(st.Nlink), Uid: st.Uid, Gid: st.Gid}
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

func TryLock(f *os.File) (bool, error) {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return true, nil
	case syscall.EWOULDBLOCK:
		return false, nil
	default:
		return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
}

func Unlock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

func isNotDir(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EISDIR)
}
