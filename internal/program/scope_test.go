//go:build linux

package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/confine"
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

// TestScope looks whether a program and what left it are in a cgroup of their
// own where the host gives one, and whether that is gone with them.
func TestScope(t *testing.T) {
	able := false
	if p, err := cgroup.NewScope(); err == nil {
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
			kill(t, supervisorOf(t, cmd.Process.Pid), unix.SIGKILL)
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

// TestScopeKills puts a program into a scope and kills the scope.
func TestScopeKills(t *testing.T) {
	p, err := cgroup.NewScope()
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

// TestBounds bounds programs, with and without a jail, each exactly. A host
// that cannot is told so, and nothing runs.
func TestBounds(t *testing.T) {
	scope, able := cgroup.NewBoundedScope(cgroup.Bounds{Memory: 32 << 20, Processes: 5})
	if able == nil {
		if err := scope.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, script string
		bounds       cgroup.Bounds
		want         Ended
	}{
		{"processes", `for i in 1 2 3 4 5 6 7; do echo >>n; sleep 1000 & done`, cgroup.Bounds{Processes: 5}, Ended{Exit: 2, OutOfProcesses: true}},
		{"one", `echo >>n; echo >>n; echo >>n; echo >>n; echo >>n; true & exit 3`, cgroup.Bounds{Processes: 1}, Ended{Exit: 2, OutOfProcesses: true}},
		{"memory", `printf '\n\n\n\n\n' >n; exec tail /dev/zero >/dev/null`, cgroup.Bounds{Memory: 32 << 20}, Ended{Signal: 9, OutOfMemory: true}},
		{"room", `printf '\n\n\n\n\n' >n; head -c 1000000 /dev/zero | tail -c 1000000 >/dev/null; exit 5`, cgroup.Bounds{Memory: 32 << 20, Processes: 3}, Ended{Exit: 5}},
	} {
		for _, jailed := range []bool{false, true} {
			dir := t.TempDir()
			s := spec("sh", "-c", "cd "+dir+" && { while ! [ -e go ]; do :; done; "+c.script+"; } 2>/dev/null")
			s.Bounds = c.bounds
			if jailed {
				var err error
				if s.Jail, err = confine.NewPlan(confine.Options{Dir: dir, Path: "/bin/sh", Env: s.Env, Base: "http://127.0.0.1:4400", Socket: dir + "/gate"}); err != nil {
					t.Fatal(err)
				}
			}
			g, err := Start(s)
			if able != nil {
				if err == nil || !strings.Contains(err.Error(), "cannot be bounded") {
					t.Errorf("%s, jail %v: it was started where %v: %v", c.name, jailed, able, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil { // now it is settled
				t.Fatal(err)
			}
			e := g.Wait()
			e.CPU = 0
			if e != c.want {
				t.Errorf("%s, jail %v: %+v, want %+v", c.name, jailed, e, c.want)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "n")); err != nil || len(b) != 5 {
				t.Errorf("%s, jail %v: it came to %d, want 5: %v", c.name, jailed, len(b), err)
			}
		}
	}
}

// TestBoundsKilled kills the supervisor of a program with bounds: what it left
// is gone, its groups too.
func TestBoundsKilled(t *testing.T) {
	p, err := cgroup.NewBoundedScope(cgroup.Bounds{Processes: 100})
	if err != nil {
		t.Logf("this host gives no cgroup that limits: %v", err)
		return
	}
	if err := p.Remove(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := spec(shell(dir, stay)...)
	s.Bounds.Processes = 100
	g, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	number(t, dir, "pid")
	inner := supervisors(os.Getpid())[1]
	name := fmt.Sprintf("/kern-jail-%d-", inner)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", number(t, dir, "me")))
	if err != nil || strings.Count(string(b), name) < 1 {
		t.Fatalf("its groups are %s, %v", b, err)
	}
	kill(t, inner, unix.SIGKILL)
	if e := g.Wait(); !e.Lost {
		t.Errorf("%+v", e)
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && strings.Contains(f[2], name) {
			for _, at := range []string{"/sys/fs/cgroup/" + f[1] + f[2], "/sys/fs/cgroup/unified" + f[2], "/sys/fs/cgroup" + f[2]} {
				if _, err := os.Stat(at); err == nil {
					t.Errorf("%s is left", at)
				}
			}
		}
	}
}
