package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kern-run/kern/internal/journal"
)

// lockFile is taken for as long as a journal is open. It holds the number of
// the operating system's process that took it, and is never removed: a removed
// file could be locked twice.
const lockFile = "lock"

func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ok, err := tryLock(f)
	if !ok && err == nil {
		err = fmt.Errorf("%w: %s is held by %s", journal.ErrLocked, f.Name(), holder(f))
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func holder(f *os.File) string {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:n]))); err == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}
