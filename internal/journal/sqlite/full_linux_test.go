package sqlite_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// mountDir tells the test's own binary where to mount a small disk.
const mountDir = "KERN_JOURNAL_MOUNT"

// TestFullDisk runs TestFullMount in a world of mounts of its own, which ends
// with it.
func TestFullDisk(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestFullMount$", "-test.v")
	cmd.Env = append(os.Environ(), mountDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || cmd.ProcessState.ExitCode() == noMount {
		t.Log("this host does not let us mount; TestFullPages tests the same on a limit of SQLite's")
		fullDisk(t, pages(t))
		return
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// noMount is the exit code of a child that may not mount.
const noMount = 77

// TestFullMount does nothing unless TestFullDisk runs it.
func TestFullMount(t *testing.T) {
	dir := os.Getenv(mountDir)
	if dir == "" {
		return
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		os.Exit(noMount)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		os.Exit(noMount)
	}
	full, free := filler(dir)
	fullDisk(t, disk{dir, full, free})
}
