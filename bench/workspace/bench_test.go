//go:build unix

package workspace_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/workspace"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var ctx = context.Background()

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// tree makes a workspace of n files of 200 bytes, a hundred to a directory.
func tree(b *testing.B, n int) (dir, store string) {
	b.Helper()
	top := b.TempDir()
	dir, store = filepath.Join(top, "work"), filepath.Join(top, "store")
	for i := range n {
		d := filepath.Join(dir, fmt.Sprintf("d%d/d%d", i/10_000, i/100))
		if i%100 == 0 {
			must(b, os.MkdirAll(d, 0o755))
		}
		must(b, os.WriteFile(filepath.Join(d, fmt.Sprintf("f%d", i)), fmt.Appendf(nil, "%0200d", i), 0o644))
	}
	must(b, os.MkdirAll(dir, 0o755))
	return dir, store
}

func open(b *testing.B, dir, store string) *workspace.Workspace {
	b.Helper()
	w, err := workspace.Open(ctx, dir, workspace.Config{Store: store, Verify: -1})
	must(b, err)
	b.Cleanup(func() { must(b, w.Close()) })
	return w
}

func begin(b *testing.B, w *workspace.Workspace, v workspace.View) *workspace.Tx {
	b.Helper()
	tx, err := w.Begin(ctx, workspace.Options{View: v})
	must(b, err)
	return tx
}

func sizes() []int { return []int{100, 10_000, 100_000} }

// Digest after one change.
func BenchmarkDigest(b *testing.B) {
	for _, n := range sizes()[1:] {
		dir, store := tree(b, n)
		w := open(b, dir, store)
		name := filepath.Join(dir, "d0/d5/f500")
		i := 0
		change := func(b *testing.B) {
			b.StopTimer()
			i++
			must(b, os.WriteFile(name, fmt.Appendf(nil, "%0200d", i), 0o644))
			b.StartTimer()
		}
		b.Run(fmt.Sprintf("files=%d/kern", n), func(b *testing.B) {
			from := cpu(b)
			for b.Loop() {
				change(b)
				_, err := w.Snapshot(ctx)
				must(b, err)
			}
			b.ReportMetric(float64((cpu(b)-from).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
		// What the system takes for the metadata alone, on one core.
		b.Run(fmt.Sprintf("files=%d/lstat", n), func(b *testing.B) {
			for b.Loop() {
				must(b, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
					if err == nil {
						_, err = d.Info()
					}
					return err
				}))
			}
		})
		b.Run(fmt.Sprintf("files=%d/git-status", n), func(b *testing.B) {
			gitInit(b, dir)
			for b.Loop() {
				change(b)
				git(b, dir, "status", "--porcelain")
			}
			b.StopTimer()
			must(b, os.RemoveAll(filepath.Join(dir, ".git")))
		})
	}
}

// cpu returns the processor time of this process, which does not depend on the load
// of the machine.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func git(b *testing.B, dir string, args ...string) {
	b.Helper()
	if out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@localhost"}, args...)...).CombinedOutput(); err != nil {
		b.Fatalf("git %v: %s", args, out)
	}
}

func gitInit(b *testing.B, dir string) {
	b.Helper()
	git(b, dir, "init", "-q")
	git(b, dir, "config", "maintenance.auto", "false") // nothing runs on beside the next measurement
	git(b, dir, "config", "gc.auto", "0")
	git(b, dir, "add", ".")
	git(b, dir, "commit", "-qm", "all")
}

// atomicWrite writes as a careful program does: a new file, sync, rename, sync of the
// directory.
func atomicWrite(name string, data []byte) error {
	f, err := os.Create(name + ".tmp")
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Begin, one small write, commit, durable.
func BenchmarkCommit(b *testing.B) {
	for _, n := range sizes()[:2] {
		dir, store := tree(b, n)
		w := open(b, dir, store)
		name, i := "d0/d0/f7", 0
		b.Run(fmt.Sprintf("files=%d/atomic-write", n), func(b *testing.B) {
			for b.Loop() {
				i++
				must(b, atomicWrite(filepath.Join(dir, name), fmt.Appendf(nil, "%0200d", i)))
			}
		})
		_, err := w.Snapshot(ctx)
		must(b, err)
		for _, v := range []workspace.View{workspace.Layered, workspace.Overlay, workspace.Copied} {
			if v == workspace.Overlay && os.Geteuid() != 0 || v == workspace.Copied && n > 100 {
				continue
			}
			b.Run(fmt.Sprintf("files=%d/kern-%s", n, v), func(b *testing.B) {
				from, count, used := du(b, w.GitDir()), 0, cpu(b)
				for b.Loop() {
					i++
					count++
					tx := begin(b, w, v)
					data := fmt.Appendf(nil, "%0200d", i)
					if l := tx.Layer(); l != nil {
						must(b, l.WriteFile(name, data, 0o644))
					} else {
						must(b, os.WriteFile(filepath.Join(tx.Dir(), name), data, 0o644))
					}
					_, err := tx.Commit(ctx, workspace.Note{})
					must(b, err)
				}
				b.ReportMetric(float64((cpu(b)-used).Microseconds())/1000/float64(count), "cpu-ms/op")
				b.ReportMetric(float64(du(b, w.GitDir())-from)/float64(count), "history-B/op")
			})
		}
		b.Run(fmt.Sprintf("files=%d/git-add-commit", n), func(b *testing.B) {
			gitInit(b, dir)
			git(b, dir, "config", "core.fsync", "all")
			for b.Loop() {
				i++
				must(b, os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "%0200d", i), 0o644))
				git(b, dir, "add", name)
				git(b, dir, "commit", "-qm", "x")
			}
			b.StopTimer()
			must(b, os.RemoveAll(filepath.Join(dir, ".git")))
		})
	}
}

func du(b *testing.B, dir string) (n int64) {
	must(b, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				n += fi.Size()
			}
		}
		return nil
	}))
	return n
}

// Rollback of a transaction that wrote a thousand files; the baseline is a
// copy put back with cp -a.
func BenchmarkRollback(b *testing.B) {
	dir, store := tree(b, 1000)
	w := open(b, dir, store)
	for _, v := range []workspace.View{workspace.Layered, workspace.Overlay, workspace.Copied} {
		if v == workspace.Overlay && os.Geteuid() != 0 {
			continue
		}
		for _, files := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/written=%d", v, files), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					tx := begin(b, w, v)
					for i := range files {
						var err error
						if l := tx.Layer(); l != nil {
							err = l.WriteFile(fmt.Sprint("n", i), []byte("x"), 0o644)
						} else {
							err = os.WriteFile(filepath.Join(tx.Dir(), fmt.Sprint("n", i)), []byte("x"), 0o644)
						}
						must(b, err)
					}
					b.StartTimer()
					must(b, tx.Rollback())
				}
			})
		}
	}
	b.Run("cp-a", func(b *testing.B) {
		for b.Loop() {
			must(b, exec.Command("cp", "-a", dir, dir+".back").Run())
			b.StopTimer()
			must(b, os.RemoveAll(dir+".back"))
			b.StartTimer()
		}
	})
}

// Restore of the state before ten changed files.
func BenchmarkRestore(b *testing.B) {
	for _, n := range sizes() {
		dir, store := tree(b, n)
		w := open(b, dir, store)
		states := []workspace.Hash{}
		for k := range 2 {
			tx := begin(b, w, workspace.Layered)
			for i := range 10 {
				must(b, tx.Layer().WriteFile(fmt.Sprintf("d0/d0/f%d", i), fmt.Append(nil, k), 0o644))
			}
			c, err := tx.Commit(ctx, workspace.Note{})
			must(b, err)
			states = append(states, c.Hash)
		}
		i := 0
		b.Run(fmt.Sprintf("files=%d/kern", n), func(b *testing.B) {
			for b.Loop() {
				_, err := w.Restore(ctx, states[i%2], workspace.Note{})
				must(b, err)
				i++
			}
		})
		if n <= 10_000 {
			b.Run(fmt.Sprintf("files=%d/cp-a", n), func(b *testing.B) {
				for b.Loop() {
					must(b, exec.Command("cp", "-a", dir, dir+".back").Run())
					b.StopTimer()
					must(b, os.RemoveAll(dir+".back"))
					b.StartTimer()
				}
			})
		}
	}
}

// Fifty processes on fifty workspaces, each committing one small write; the
// baseline is fifty writers of plain atomic writes.
func BenchmarkFifty(b *testing.B) {
	const n = 50
	top := b.TempDir()
	var ws []*workspace.Workspace
	for i := range n {
		dir := filepath.Join(top, fmt.Sprint("w", i))
		must(b, os.Mkdir(dir, 0o755))
		ws = append(ws, open(b, dir, filepath.Join(top, fmt.Sprint("s", i))))
	}
	each := func(b *testing.B, f func(i, k int) error) {
		for k := 0; b.Loop(); k++ {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					if err := f(i, k); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
		}
		b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "commits/s")
	}
	b.Run("atomic-write", func(b *testing.B) {
		each(b, func(i, k int) error {
			return atomicWrite(filepath.Join(ws[i].Dir(), "plain"), fmt.Append(nil, k))
		})
	})
	b.Run("kern", func(b *testing.B) {
		each(b, func(i, k int) error {
			tx, err := ws[i].Begin(ctx, workspace.Options{})
			if err != nil {
				return err
			}
			if err := tx.Layer().WriteFile("f", fmt.Append(nil, k), 0o644); err != nil {
				return err
			}
			_, err = tx.Commit(ctx, workspace.Note{})
			return err
		})
	})
}
