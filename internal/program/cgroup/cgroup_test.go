//go:build linux

package cgroup

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestGroupPlaces: where cgroups are made, from what two files of the kernel
// say.
func TestGroupPlaces(t *testing.T) {
	entries, err := filepath.Glob("testdata/*")
	if err != nil || len(entries) < 4 {
		t.Fatalf("want the cases, got %v, %v", entries, err)
	}
	for _, dir := range entries {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			read := func(name string) string {
				b, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			var got strings.Builder
			for _, d := range candidates(read("mountinfo"), read("cgroup"), strings.TrimSpace(read("below"))) {
				for _, c := range slices.Sorted(maps.Keys(d.trees)) {
					if d.v2 {
						got.WriteString("v2 from " + d.home)
					}
					got.WriteString(c + " " + d.trees[c] + "\n")
				}
				for _, dir := range d.around {
					got.WriteString("past " + dir + "\n")
				}
			}
			if want := read("places"); got.String() != want {
				t.Errorf("want\n%s\ngot\n%s", want, got.String())
			}
		})
	}
}

// filesV2 are those that the kernel puts into a group of v2.
func filesV2(controllers string) func(string) error {
	files := map[string]string{
		"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "memory.peak": "4096\n", "memory.events": "low 0\noom 2\noom_kill 1\n",
		"pids.events": "max 3\n", "cgroup.procs": "", "memory.oom.group": "0", "memory.max": "max", "memory.swap.max": "max", "pids.max": "max",
		"cgroup.controllers": controllers, "cgroup.subtree_control": "",
	}
	return func(at string) error {
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestGroupV2 works on a directory with the files of cgroup v2: what is
// written where, and what is read from them.
func TestGroupV2(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "top")
	make := filesV2("cpu memory pids\n")
	if err := make(dir); err != nil {
		t.Fatal(err)
	}
	d := &Driver{v2: true, home: dir, trees: map[string]string{"": dir}, owner: "1-1", mkdir: make, rmdir: os.RemoveAll}
	g, err := d.Make()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Limit(10<<20+17, 5); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Enter(77), g.Leave(78)); err != nil {
		t.Fatal(err)
	}
	at := g.dirs[""]
	for file, want := range map[string]string{
		at + "/memory.max": "10485760", at + "/memory.swap.max": "0", at + "/pids.max": "5", at + "/memory.oom.group": "1",
		at + "/cgroup.procs": "77", dir + "/cgroup.procs": "78", dir + "/cgroup.subtree_control": "+memory +pids",
	} {
		if got, err := os.ReadFile(file); string(got) != want {
			t.Errorf("%s: want %q, got %q, %v", file, want, got, err)
		}
	}
	r, err := g.Read()
	if want := (Readings{CPU: 1500e3, Peak: 4096, OOM: 1, Full: 2, Refused: 3}); err != nil || r != want {
		t.Errorf("want %+v, got %+v, %v", want, r, err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// TestGroupNone: what is said where no group can be made that limits. A
// session of systemd is root's, and a group with a process in it, such as a
// service that was given its own, has no controllers to give away.
func TestGroupNone(t *testing.T) {
	top := t.TempDir()
	shut := func(string) error { return unix.EACCES }
	var all []*Driver
	for i, mkdir := range []func(string) error{filesV2("cpu pids\n"), shut} {
		dir := filepath.Join(top, string(rune('a'+i)))
		if err := filesV2("")(dir); err != nil {
			t.Fatal(err)
		}
		all = append(all, &Driver{v2: true, trees: map[string]string{"": dir}, mkdir: mkdir, rmdir: os.RemoveAll})
	}
	_, err := firstWorking(all, "1-1")
	want := top + "/a gives a group below it no controller memory: it has none, or processes of its own; permission denied"
	if err == nil || err.Error() != want {
		t.Errorf("want\n%s\ngot\n%v", want, err)
	}
	if _, err := firstWorking(nil, "1-1"); err == nil {
		t.Error("want no place in nothing")
	}
	left, err := filepath.Glob(top + "/*/" + groupPrefix + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestPast makes groups elsewhere than where this process is. What bounds it
// there would not hold for them, so none is made; how many processes there may
// be is repeated.
func TestPast(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	mkdir := filesV2("cpu memory pids\n")
	own := top + "/unit/own"
	for _, dir := range []string{top, top + "/unit", own} {
		if err := mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ file, text, says string }{
		{"memory.max", "max\n", ""},
		{"memory.max", "1073741824\n", "memory.max of own is 1073741824, and would not hold for a group outside of that"},
		{"memory.high", "4096\n", "memory.high"},
		{"memory.swap.max", "0\n", "memory.swap.max"},
		{"cpu.max", "max 100000\n", ""},
		{"cpu.max", "5000 100000\n", "is 5000 100000,"},
		{"cpuset.cpus", "\n", ""},
		{"cpuset.cpus", "0-1\n", "cpuset.cpus"},
		{"io.max", "8:0 rbps=1000\n", "io.max"},
		{"../memory.max", "8192\n", "memory.max of unit is 8192"},
		{"../../memory.max", "4096\n", ""}, // that is around the groups too
		{"pids.max", "7\n", ""},
		{"../pids.max", "5\n", ""},
	} {
		file := filepath.Join(own, c.file)
		was, _ := os.ReadFile(file)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := firstWorking([]*Driver{{v2: true, home: own, around: []string{own, top + "/unit"}, trees: map[string]string{"": top}, mkdir: mkdir, rmdir: os.RemoveAll}}, "1-1")
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s is %q: want %q, got %v", c.file, c.text, c.says, err)
		}
		if !strings.HasSuffix(c.file, "pids.max") {
			if err := os.WriteFile(file, was, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		g, err := d.Make()
		if err != nil {
			t.Fatal(err)
		}
		most := strings.TrimSpace(c.text)
		for _, step := range []struct {
			limit int
			want  string
		}{{0, most}, {100, most}, {3, "3"}} {
			if step.limit > 0 {
				if err := g.LimitProcesses(step.limit); err != nil {
					t.Error(err)
				}
			}
			if b, err := os.ReadFile(g.dirs[""] + "/pids.max"); string(b) != step.want {
				t.Errorf("%d processes beside %s of %s: %s, %v", step.limit, c.file, most, b, err)
			}
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// TestAside has this process make room where it is alone in a group that was
// given away, and nowhere else.
func TestAside(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		name, procs string
		given, want bool
	}{
		{"alone", self + "\n", true, true},
		{"with another", "1\n" + self + "\n", true, false},
		{"systemd's", self + "\n", false, false},
	} {
		own := filepath.Join(t.TempDir(), "own")
		moved := func() bool {
			b, _ := os.ReadFile(own + "/kern/cgroup.procs")
			return string(b) == self
		}
		mkdir := func(at string) error { // a group with a process in it has no controllers to give away
			if moved() {
				return filesV2("memory pids\n")(at)
			}
			return filesV2("\n")(at)
		}
		if err := errors.Join(filesV2("memory pids\n")(own), os.WriteFile(own+"/cgroup.procs", []byte(c.procs), 0o600)); err != nil {
			t.Fatal(err)
		}
		d := &Driver{v2: true, home: own, trees: map[string]string{"": own}, mkdir: mkdir, rmdir: os.RemoveAll, delegated: func(string) bool { return c.given }}
		_, err := firstWorking([]*Driver{d}, "1-1")
		if (err == nil) != c.want || moved() != c.want || (d.home == own+"/kern") != c.want {
			t.Errorf("%s: %v, it is in %s", c.name, err, d.home)
		}
	}
}

// TestGroupV2Kernel moves and kills a process in the kernel's own v2 tree,
// where one is mounted; what of it this host has no controllers for is tried
// on files above.
func TestGroupV2Kernel(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range candidates(string(mounts), string(own), "") {
		if !d.v2 {
			continue
		}
		owner, err := ownerName(1)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(d.trees[""], groupPrefix+strings.Replace(owner, "-", "-9", 1)+"-1")
		if err := os.Mkdir(dir, 0o755); errors.Is(err, os.ErrPermission) {
			t.Logf("nothing to try: this user may make no group here: %v", err)
			return
		} else if err != nil {
			t.Fatal(err)
		}
		p, err := os.StartProcess("/usr/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		g := &Group{v2: true, home: d.home, dirs: map[string]string{"": dir}}
		if err := errors.Join(g.Enter(p.Pid), g.Leave(p.Pid), g.Enter(p.Pid)); err != nil {
			t.Error(err)
		}
		if err := d.Sweep(); err != nil {
			t.Error(err)
		}
		if s, err := p.Wait(); err != nil || s.Success() {
			t.Errorf("want the process killed with its group, got %v, %v", s, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Error("the group is still there")
		}
		return
	}
	t.Log("no cgroup2 is mounted here: nothing to try")
}

// TestNested removes a scope, and one without an owner, in which a program made
// groups of its own: a scope that stays would be waited for by each that comes.
func TestNested(t *testing.T) {
	p, err := NewScope()
	if err != nil {
		t.Logf("this host gives no cgroup: %v", err)
		return
	}
	d, err := ownDriver()
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(d.trees[""], groupPrefix+"1-1-1") // process 1 is older
	for _, dir := range []string{p.dir, left} {
		if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir + "/a/b")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
		err = cmd.Start()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }() // it was killed
		defer func() { _ = cmd.Process.Kill() }()
	}
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
	if err := d.Sweep(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{p.dir, left} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
			_ = errors.Join(os.Remove(dir+"/a/b"), os.Remove(dir+"/a"), os.Remove(dir))
		}
	}
}

// TestOwnerName: a program that chooses its name to look like more fields is named
// by its start, as any other.
func TestOwnerName(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x) R 0 0 0")
	if err := os.Symlink("/bin/sh", name); err != nil {
		t.Fatal(err)
	}
	var starts []int
	for _, program := range []string{"/bin/sh", name, "/bin/sh"} {
		cmd := exec.Command(program, "-c", "read line")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		owner, err := ownerName(cmd.Process.Pid)
		in.Close()
		_ = cmd.Wait() // read ends without a line
		if err != nil {
			t.Fatal(err)
		}
		_, start, _ := strings.Cut(owner, "-")
		n, err := strconv.Atoi(start)
		if err != nil {
			t.Fatal(err)
		}
		starts = append(starts, n)
	}
	if starts[0] == 0 || !slices.IsSorted(starts) {
		t.Errorf("want three starts in order, got %v", starts)
	}
}
