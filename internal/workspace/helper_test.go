//go:build unix

package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/workspace/fsys"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		os.Exit(0)
	}
	leaktest.Main(m)
}

// soak runs the long form of a test, as make soak does.
var soak = os.Getenv("KERN_SOAK") == "1"

// pair makes a workspace directory and its store, side by side. In short runs
// they are in memory where there is such a file system; TestPowerLoss and the
// soak are on ext4 or whatever holds temporary files.
func pair(t testing.TB) (dir, store string) {
	t.Helper()
	top := memory(t)
	if soak {
		top = t.TempDir()
	}
	dir, store = filepath.Join(top, "work"), filepath.Join(top, "store")
	must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { noMounts(t, top) })
	return dir, store
}

// noMounts fails a test that leaves a mount behind.
func noMounts(t testing.TB, top string) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && strings.Contains(string(b), top) {
		t.Errorf("mounts are left below %s", top)
		fsys.Unmount(top)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func opened(t testing.TB, dir, store string, change ...func(*Config)) *Workspace {
	t.Helper()
	c := Config{Store: store}
	for _, f := range change {
		f(&c)
	}
	w, err := Open(context.Background(), dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func begin(t testing.TB, w *Workspace, opt Options) *Tx {
	t.Helper()
	tx, err := w.Begin(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func commit(t testing.TB, tx *Tx) *Commit {
	t.Helper()
	c, err := tx.Commit(context.Background(), Note{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// files is what a test does to a view, whichever it is.
type files interface {
	WriteFile(name string, b []byte, mode fs.FileMode) error
	ReadFile(name string) ([]byte, error)
	Mkdir(name string, mode fs.FileMode) error
	Symlink(target, name string) error
	Link(old, name string) error
	Remove(name string) error
	RemoveAll(name string) error
	Rename(old, name string) error
	Chmod(name string, mode fs.FileMode) error
	Chtimes(name string, at time.Time) error
	ReadDir(name string) ([]string, error)
}

// native is files by the operating system.
type native string

func (d native) at(name string) string { return filepath.Join(string(d), name) }
func (d native) WriteFile(name string, b []byte, mode fs.FileMode) error {
	return os.WriteFile(d.at(name), b, mode)
}
func (d native) ReadFile(name string) ([]byte, error)      { return os.ReadFile(d.at(name)) }
func (d native) Mkdir(name string, mode fs.FileMode) error { return os.Mkdir(d.at(name), mode) }
func (d native) Symlink(target, name string) error         { return os.Symlink(target, d.at(name)) }
func (d native) Remove(name string) error                  { return os.Remove(d.at(name)) }
func (d native) Chmod(name string, mode fs.FileMode) error { return os.Chmod(d.at(name), mode) }
func (d native) Chtimes(name string, at time.Time) error   { return os.Chtimes(d.at(name), at, at) }

// Link links files only: a Layer has no second names for links.
func (d native) Link(old, name string) error {
	if fi, err := os.Lstat(d.at(old)); err != nil || !fi.Mode().IsRegular() {
		return fmt.Errorf("not a file: %v", err)
	}
	return os.Link(d.at(old), d.at(name))
}

func (d native) RemoveAll(name string) error {
	if err := os.RemoveAll(d.at(name)); !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return nil
}

func (d native) Rename(old, name string) error {
	err := syscall.Rename(d.at(old), d.at(name)) // os.Rename does not replace an empty directory
	if errors.Is(err, syscall.EXDEV) {           // an overlay moves a directory as mv(1) does
		if out, err := exec.Command("mv", "-T", d.at(old), d.at(name)).CombinedOutput(); err != nil {
			return fmt.Errorf("mv: %s", out)
		}
		return nil
	}
	return err
}

func (d native) ReadDir(name string) (out []string, err error) {
	ents, err := os.ReadDir(d.at(name))
	for _, e := range ents {
		out = append(out, e.Name())
	}
	return out, err
}

func filesOf(tx *Tx) files {
	if l := tx.Layer(); l != nil {
		return l
	}
	return native(tx.Dir())
}

// views are those that this host can show; the overlay needs root.
func views() []View {
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		return []View{Layered, Copied, Overlay}
	}
	return []View{Layered, Copied}
}

// dump writes down a tree completely: kind, mode, time, content, targets, and
// which names share a file.
func dump(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	inodes := map[uint64]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%q %v %d", rel, fi.Mode(), fi.ModTime().UnixNano())
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			fmt.Fprintf(&b, " %d %x", len(data), sum[:8])
			st := fi.Sys().(*syscall.Stat_t)
			if st.Nlink > 1 {
				if first, ok := inodes[st.Ino]; ok {
					fmt.Fprintf(&b, " = %q", first)
				} else {
					inodes[st.Ino] = rel
				}
			}
		case fi.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %q", target)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// unlike shows where two dumps part.
func unlike(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for _, l := range x {
		if !slices.Contains(y, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range y {
		if !slices.Contains(x, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

func asGit(t testing.TB, w *Workspace, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"--git-dir", w.GitDir()}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

var isCode = fsys.Is
