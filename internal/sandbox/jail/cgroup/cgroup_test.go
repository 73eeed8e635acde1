//go:build linux

package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
			}
			if want := read("places"); got.String() != want {
				t.Errorf("want\n%s\ngot\n%s", want, got.String())
			}
		})
	}
}

// TestGroupV2 works on a directory with the files of cgroup v2: what is
// written where, and what is read from them.
func TestGroupV2(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "memory.peak": "4096\n", "memory.events": "low 0\noom 2\noom_kill 1\n",
		"pids.events": "max 3\n", "cgroup.procs": "", "memory.oom.group": "0", "memory.max": "max", "memory.swap.max": "max", "pids.max": "max",
	}
	make := func(at string) error {
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
	if want := (Readings{CPU: 1500e3, Peak: 4096, OOM: 1, Refused: 3}); err != nil || r != want {
		t.Errorf("want %+v, got %+v, %v", want, r, err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
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
		if err := os.Mkdir(dir, 0o755); err != nil {
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
