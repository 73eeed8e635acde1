package workspace

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A publishLock lets one transaction publish at a time. A channel locks within
// this process. A file lock, which ends with its holder, locks across processes.
type publishLock struct {
	local chan struct{}
	file  *os.File
	wait  time.Duration
}

func (l *publishLock) open(name string, wait time.Duration) (err error) {
	l.local, l.wait = make(chan struct{}, 1), wait
	l.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	return err
}

func (l *publishLock) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// heldHere reports whether this process holds the lock.
func (l *publishLock) heldHere() bool { return len(l.local) > 0 }

// lockLocal keeps other goroutines of this process out.
func (l *publishLock) lockLocal(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	select {
	case l.local <- struct{}{}:
		return func() { <-l.local }, nil
	case <-ctx.Done():
		return nil, l.timeoutError(ctx)
	}
}

// lockAll keeps other processes out, too.
func (l *publishLock) lockAll(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	leave, err := l.lockLocal(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.lockFile(ctx); err != nil {
		leave()
		return nil, err
	}
	// The pid is for the error of a process that waits in vain. The file lock alone decides.
	l.file.WriteAt(fmt.Appendf(nil, "%-10d\n", os.Getpid()), 0)
	return func() { fsys.Unlock(l.file); leave() }, nil
}

func (l *publishLock) lockFile(ctx context.Context) error {
	// A blocking flock cannot be ended by ctx, so the lock is polled.
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if ok, err := fsys.TryLock(l.file); ok || err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return l.timeoutError(ctx)
		}
	}
}

func (l *publishLock) timeoutError(ctx context.Context) error {
	b := make([]byte, 10)
	n, _ := l.file.ReadAt(b, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	e := fsys.Errorf(Locked, "", "another commit (process %d) held the workspace until the deadline", pid)
	e.Err = ctx.Err()
	return e
}
