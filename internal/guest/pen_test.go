//go:build linux

package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/sandbox/jail/cgroup"
)

// groupOf is the cgroup of version 2 that a process is in.
func groupOf(pid int) string {
	b, _ := os.ReadFile("/proc/" + itoa(pid) + "/cgroup")
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// TestPen looks whether a program and what left it are in a cgroup of their
// own where the host gives one, and whether that is gone with them.
func TestPen(t *testing.T) {
	able := false
	if p, err := cgroup.NewPen(); err == nil {
		able = true
		if err := p.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	for _, who := range []string{"nobody", "supervisor"} {
		dir := t.TempDir()
		cmd := call(t, shell(dir, stay)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		me, other := groupOf(number(t, dir, "me")), groupOf(number(t, dir, "pid"))
		if penned := strings.Contains(filepath.Base(me), "kern-jail-"); penned != able || me != other {
			t.Errorf("they are in %q and %q; the host gives groups: %v", me, other, able)
		}
		if who == "supervisor" {
			kill(t, Guards(cmd.Process.Pid)[1], unix.SIGKILL)
		} else {
			kill(t, number(t, dir, "me"), unix.SIGKILL)
		}
		if code := codeOf(cmd.Wait()); code != 137 {
			t.Errorf("exit %d", code)
		}
		if left := marked(dir); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
		if able {
			until(t, "the end of "+me, func() bool {
				found, err := filepath.Glob("/sys/fs/cgroup/*" + me)
				more, _ := filepath.Glob("/sys/fs/cgroup" + me)
				return err == nil && len(found)+len(more) == 0
			})
		}
	}
}

// TestPenKills puts a program into a pen and kills the pen.
func TestPenKills(t *testing.T) {
	p, err := cgroup.NewPen()
	if err != nil {
		t.Logf("this host gives no cgroup: %v", err)
		return
	}
	cmd := call(t)
	cmd.Path, cmd.Args = "/bin/sleep", []string{"sleep", "1000"}
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: p.FD()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || time.Since(begun) > patience {
		t.Errorf("it ended %v", err)
	}
}
