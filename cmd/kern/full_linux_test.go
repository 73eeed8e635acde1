package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
)

// onSmallDisk tells the test's own binary that it has mounts of its own.
const onSmallDisk = "KERN_TEST_SMALL_DISK"

// noMount is the exit code of a child that may not mount.
const noMount = 77

// TestKillOnFullDisk runs TestKillOnSmallDisk in a world of mounts of its own,
// which ends with it.
func TestKillOnFullDisk(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestKillOnSmallDisk$", "-test.v")
	cmd.Env = append(os.Environ(), onSmallDisk+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM) || cmd.ProcessState.ExitCode() == noMount:
		t.Log("this host does not let us mount; the kernel's own test fills a disk that is none")
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestKillOnSmallDisk does nothing unless TestKillOnFullDisk runs it. It kills a
// process with a tool, and asks a program of kern exec to end, while the disk of
// the data directory is full: they and what they started end, and it is written
// when there is room.
func TestKillOnSmallDisk(t *testing.T) {
	if os.Getenv(onSmallDisk) == "" {
		return
	}
	w := newWorld(t, map[string]string{
		"replies.yaml": "replies:\n  - calls: [{tool: slow, args: {}}]\n",
		"agent.yaml":   "name: a\nmodel: script:replies.yaml\ntools: [{name: slow, command: [sh, -c, 'setsid sleep 77 & echo $! >>$WORK/pids; exec sleep 77']}]\n",
		"data/none":    "",
	})
	if syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") != nil || syscall.Mount("tmpfs", w.data(), "tmpfs", 0, "size=12m,mode=0700") != nil {
		os.Exit(noMount)
	}
	readOnly(t, w.file("readonly"))
	w.ok("run", "--detach", "-f", "agent.yaml", "go")
	program := w.command("exec", "--quiet", "--grace", "1m", "--", "sh", "-c", `setsid sleep 77 & echo $! >>pids; trap 'echo told; exit 0' TERM; while :; do sleep 0.1; done`)
	var said bytes.Buffer
	program.Stdout, program.Stderr = &said, &said
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("both to start", func() bool {
		b, err := os.ReadFile(w.file("pids"))
		return err == nil && bytes.Count(b, []byte("\n")) == 2
	})

	if c := checkData(w.data()); !c.OK {
		t.Errorf("there is room: %s", c.Note)
	}
	fill(t, w.file("data/filler"))
	if c := checkData(w.data()); c.OK || !strings.Contains(c.Note, "is full") {
		t.Errorf("the doctor says %s", c.Note)
	}
	for _, args := range [][]string{{"kill", "1"}, {"term", "2"}} {
		if _, errs, code := w.kern(args...); code != exitFailed || !strings.Contains(errs, "obeys "+args[0]) || !strings.Contains(errs, "disk is full") {
			t.Errorf("kern %s: exit %d, %s", args, code, errs)
		}
	}
	w.swept(10 * time.Second)
	if out, errs, code := w.kern("run", "--detach", "-f", "agent.yaml", "go"); code == exitDone {
		t.Errorf("another process starts: %s%s", out, errs)
	}
	if err := os.Remove(w.file("data/filler")); err != nil {
		t.Fatal(err)
	}
	for pid, sig := range map[string]string{"1": "kill", "2": "term"} {
		if r := w.wait(pid); r.Exit != abi.ExitKilled || r.Reason != sig || r.Usage.Tool > 1 {
			t.Errorf("%s: %+v", sig, r)
		}
		if log := w.ok("log", pid); !strings.Contains(log, "signal "+sig) {
			t.Errorf("the journal does not know of %s:\n%s", sig, log)
		}
	}
	if code := codeOf(program.Wait()); code != exitStopped || !strings.Contains(said.String(), "told") {
		t.Errorf("exec exits with %d: %s", code, said.String())
	}
	before := w.ok("ps", "-a", "--json")
	w.crash()
	if after := w.ok("ps", "-a", "--json"); after != before {
		t.Errorf("recovered as %s, was %s", after, before)
	}
	for pid := 1; pid <= 2; pid++ {
		w.ok("replay", fmt.Sprint(pid))
	}
	w.ok("run", "--detach", "-f", "agent.yaml", "go")
	w.until("the tool to start", func() bool {
		b, err := os.ReadFile(w.file("pids"))
		return err == nil && bytes.Count(b, []byte("\n")) == 3
	})
	fill(t, w.file("data/filler"))
	w.ok("stop-daemon") // which does not wait for room for ever
	w.until("the daemon to let go of the disk", func() bool { return syscall.Unmount(w.data(), 0) == nil })
}

// readOnly says what the doctor finds of a data directory, there or not, where
// nobody may write.
func readOnly(t *testing.T, at string) {
	t.Helper()
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", at, "tmpfs", syscall.MS_RDONLY, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(at, 0) }) // what is mounted cannot be removed
	for _, dir := range []string{at, at + "/new"} {
		if c := checkData(dir); c.OK || !strings.Contains(c.Note, at+" cannot be written: read-only file system") {
			t.Errorf("of %s the doctor says %s", dir, c.Note)
		}
	}
}

// fill takes all the room of a disk.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
