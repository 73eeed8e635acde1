//go:build linux

package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Mutants that were made by hand and die here: Landlock rules of a cold box not
// put in force; the fence, or the cgroup, not read back; allowed what no filter
// rule names.

// lying returns a Backend that believes of its host what change says.
func lying(t *testing.T, change func(*Backend)) *Backend {
	t.Helper()
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	change(b)
	return b
}

// TestProbeTruth: on this host, as root, everything is enforced, and the probe
// says so after trying.
func TestProbeTruth(t *testing.T) {
	b := lying(t, func(*Backend) {})
	found, err := b.Probe(context.Background())
	if err != nil || len(found) > 0 {
		t.Errorf("want no weakness, got %+v, %v", found, err)
	}
}

// allowAll is a seccomp program that is there and stops nothing.
func allowAll() string {
	var b []byte
	b = binary.NativeEndian.AppendUint16(b, unix.BPF_RET|unix.BPF_K)
	b = append(b, 0, 0)
	return string(binary.NativeEndian.AppendUint32(b, unix.SECCOMP_RET_ALLOW))
}

// TestProbeFindsLies: where the survey believes in a wall that does not hold,
// the probe tells by trying, and runs are refused from then on.
func TestProbeFindsLies(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Backend)
		want   []string
		mend   bool // whether a caller may accept it
	}{
		{"a filter that stops nothing", func(b *Backend) { b.filter = allowAll() }, []string{wallSeccomp}, false},
		{"Landlock that is not there", func(b *Backend) { b.abi = 0 }, []string{weakLandlock}, true},
		{"limits that nobody set", func(b *Backend) { b.driver = nil }, []string{weakMemory, weakProcesses}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := lying(t, c.change)
			found, err := b.Probe(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, w := range found {
				names = append(names, w.Name)
				if w.Why == "" || w.Fix == "" {
					t.Errorf("want why and what to do, got %+v", w)
				}
			}
			for _, n := range c.want {
				if !slices.Contains(names, n) {
					t.Errorf("want the probe to find %q, got %+v", n, found)
				}
			}
			s := sandbox.Spec{Argv: []string{"true"}}
			var r *sandbox.Refusal
			if _, err := b.Run(context.Background(), s); !errors.As(err, &r) || !strings.Contains(r.Reason, c.want[0]) {
				t.Errorf("want runs refused for %s, got %v", c.want[0], err)
			}
			s.Allow = names
			if _, err := b.Run(context.Background(), s); (err == nil) != c.mend {
				t.Errorf("want acceptance by name to help: %t; got %v", c.mend, err)
			}
		})
	}
}

// TestRunFindsLies: a cgroup that takes limits and processes and is none.
func TestRunFindsLies(t *testing.T) {
	dir := t.TempDir()
	b := lying(t, func(b *Backend) {
		trees := map[string]string{}
		for _, c := range controllers {
			trees[c] = filepath.Join(dir, c)
		}
		b.driver = &driver{trees: trees, owner: b.driver.owner}
	})
	fake := fakeGroups(t, map[string]string{"tasks": "", "memory.limit_in_bytes": "67108864\n", "memory.memsw.limit_in_bytes": "67108864\n", "pids.max": "9\n", "cpuacct.usage": "0\n", "memory.oom_control": "oom_kill 0\n", "pids.events": "max 0\n", "memory.max_usage_in_bytes": "0\n"})
	defer fake()
	ran := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(ran, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := b.Run(context.Background(), sandbox.Spec{Argv: []string{"touch", "ran"}, Dir: ran, Limits: sandbox.Limits{Memory: 64 << 20, Processes: 8}})
	if err == nil || !strings.Contains(err.Error(), "hierarchies, the kernel says") {
		t.Errorf("want the run refused since the kernel knows of no such cgroup, got %v", err)
	}
	if _, err := os.Stat(filepath.Join(ran, "ran")); err == nil {
		t.Error("the refused program ran")
	}
}

// fakeGroups puts files of a cgroup where the next groups will be made, as a
// plain file system that takes every write.
func fakeGroups(t *testing.T, files map[string]string) (stop func()) {
	t.Helper()
	makeDir = func(dir string) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	removeDir = os.RemoveAll
	return func() { makeDir, removeDir = makeGroup, unix.Rmdir }
}

// TestAttestRefusesAnOpenFence: what init reads back, it reads from the kernel.
func TestAttestRefusesAnOpenFence(t *testing.T) {
	if err := attest(); err == nil || !strings.Contains(err.Error(), "the kernel says") {
		t.Errorf("want a thread with all its rights refused, got %v", err)
	}
	if err := inGroup("kern-jail-not-there", 1); err == nil {
		t.Error("want a thread outside of its cgroup refused")
	}
}

func TestFilterIsAnAllowList(t *testing.T) {
	f, err := filter()
	if err != nil {
		t.Fatal(err)
	}
	if len(f)%8 != 0 || len(f) < 8*300 {
		t.Fatalf("want a program for some 300 calls, got %d bytes", len(f))
	}
	last := binary.NativeEndian.Uint32([]byte(f[len(f)-4:]))
	if last&unix.SECCOMP_RET_ACTION_FULL != unix.SECCOMP_RET_ERRNO {
		t.Errorf("want what no rule names refused, got %#x", last)
	}
}

// TestWire: what is sent is what is received, and half of it is not.
func TestWire(t *testing.T) {
	values := []struct{ in, out packed }{
		{&order{Argv: []string{"a", ""}, Env: []string{"b=c"}, Shown: []string{}, Filter: "\x00\xff", Landlock: 6, Root: true, Lent: true, Dir: "/d", Links: 2, Warm: true, Doors: 3, Gate: true, Group: "g", Groups: 3, Probe: true, Bounds: bounds{1, 2, 3, 4, 5, 6}}, &order{}},
		{&note{"k", "e", -1, "s", true, "o", 7, 8}, &note{}},
		{&claim{true, true, "/d", bounds{1 << 40, 2, 3, 4, 5, 6}}, &claim{}},
	}
	for _, v := range values {
		p := packer{}
		v.in.pack(&p)
		whole := slices.Clone(p.b)
		in := packer{b: whole, reading: true}
		v.out.pack(&in)
		again := packer{}
		v.out.pack(&again)
		if in.short || len(in.b) > 0 || !slices.Equal(again.b, whole) {
			t.Errorf("want %+v, got %+v", v.in, v.out)
		}
		for cut := range whole {
			in := packer{b: slices.Clone(whole[:cut]), reading: true}
			if v.out.pack(&in); !in.short {
				t.Fatalf("%T cut at %d of %d reads as whole", v.in, cut, len(whole))
			}
		}
	}
}

// TestGroupPlaces: where cgroups are made, from what two files of the kernel
// say.
func TestGroupPlaces(t *testing.T) {
	entries, err := filepath.Glob("testdata/cgroup/*")
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
	d := &driver{v2: true, home: dir, trees: map[string]string{"": dir}, owner: "1-1"}
	stop := fakeGroups(t, map[string]string{
		"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "memory.peak": "4096\n", "memory.events": "low 0\noom 2\noom_kill 1\n",
		"pids.events": "max 3\n", "cgroup.procs": "", "memory.oom.group": "0", "memory.max": "max", "memory.swap.max": "max", "pids.max": "max",
	})
	defer stop()
	g, err := d.make()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.limit(10<<20+17, 5); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.enter(77), g.leave(78)); err != nil {
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
	r, err := g.read()
	if want := (readings{cpu: 1500e3, peak: 4096, oom: 1, pids: 3}); err != nil || r != want {
		t.Errorf("want %+v, got %+v, %v", want, r, err)
	}
	if err := g.remove(); err != nil {
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
		g := &group{v2: true, home: d.home, dirs: map[string]string{"": dir}}
		if err := errors.Join(g.enter(p.Pid), g.leave(p.Pid), g.enter(p.Pid)); err != nil {
			t.Error(err)
		}
		if err := d.sweep(); err != nil {
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
