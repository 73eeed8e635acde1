package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kern-run/kern/internal/journal"
)

// lockFile is locked as long as a journal is open. It holds the operating system's
// number of the process that locked it. It is never removed, because two processes
// could lock a removed file and its successor.
const lockFile = "lock"

func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ok, err := tryLock(f)
	if !ok && err == nil {
		err = fmt.Errorf("%w: %s is held by %s: Kern's daemon, which kern stop-daemon ends, or a program that embeds Kern", journal.ErrLocked, f.Name(), holder(f))
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
