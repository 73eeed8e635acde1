//go:build linux

package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Mutants that were made by hand and die here: Landlock rules of a cold box not
// put in force; the fence, or the cgroup, not read back.

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
	files := map[string]string{"tasks": "", "memory.limit_in_bytes": "67108864\n", "memory.memsw.limit_in_bytes": "67108864\n", "pids.max": "9\n", "cpuacct.usage": "0\n", "memory.oom_control": "oom_kill 0\n", "pids.events": "max 0\n", "memory.max_usage_in_bytes": "0\n"}
	b := lying(t, func(b *Backend) {
		trees := map[string]string{}
		for _, c := range []string{"memory", "pids", "cpuacct"} {
			trees[c] = filepath.Join(dir, c)
		}
		b.driver = cgroup.NewDriver(trees, func(dir string) error { return writeFiles(dir, files) }, os.RemoveAll)
	})
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

// writeFiles makes a directory with files in it.
func writeFiles(dir string, files map[string]string) error {
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
