package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/daemon"
)

// starting counts the daemons of a directory that were started on demand.
func starting(dir string) (n int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, name := range lines {
		b, err := os.ReadFile(name)
		if err == nil && bytes.Contains(b, []byte("\x00serve\x00--"+daemon.DetachedFlag+"\x00--data\x00"+dir)) {
			n++
		}
	}
	return n
}

// TestStarterGone kills the command that starts the daemon before that is ready:
// nobody starts a second one, which would wait for the end of the first.
//
// Mutant that dies here: the daemon does not hold the lock of the start.
func TestStarterGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"data/none": ""})
	life, err := daemon.Lock(t.Context(), filepath.Join(w.data(), daemon.LifeLock)) // as long as it is held, no daemon is ready
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	c := w.command("ps")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("a daemon starts", func() bool { return starting(w.data()) == 1 })
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var killed interface{ Sys() any }
	if err := c.Wait(); !errors.As(err, &killed) || killed.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("its starter: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if f, err := daemon.Lock(short, filepath.Join(w.data(), daemon.StartLock)); err == nil {
		f.Close()
		t.Error("another daemon can be started while one is on its way")
	}
	if err := life.Close(); err != nil {
		t.Fatal(err)
	}
	w.ok("ps")
	if n := starting(w.data()); n != 1 {
		t.Errorf("%d daemons were started", n)
	}
	f, err := daemon.Lock(t.Context(), filepath.Join(w.data(), daemon.StartLock)) // it is let go of
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
