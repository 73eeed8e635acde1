//go:build unix

package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// The suite runs on every view: what a transaction promises does not depend on
// how it was staged.
//
// Mutants that these tests kill (each was made, seen to fail, and unmade):
//   - clash never reports
//   - do does not look at what came out of a swap

func each(t *testing.T, f func(t *testing.T, v View)) {
	for _, v := range views() {
		t.Run(string(v), func(t *testing.T) { f(t, v) })
	}
}

func TestEverythingOnce(t *testing.T) {
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		furnish(t, dir)
		before := dump(t, dir)
		w := opened(t, dir, store)
		first := get(w.Snapshot(context.Background()))(t)
		tx := begin(t, w, Options{View: v})
		must(t, rework(filesOf(tx)))
		if got := dump(t, dir); got != before {
			t.Fatalf("visible before Commit:\n%s", unlike(before, got))
		}
		diff := get(tx.Diff())(t)
		c := commit(t, tx)
		done := dump(t, dir)
		if before == done {
			t.Fatal("nothing changed")
		}
		second := get(w.Snapshot(context.Background()))(t)
		if second.Digest() != c.Digest {
			t.Error("the commit's digest is not that of the directory")
		}
		if at := get(w.At(c.Hash))(t); !at.Same(second) {
			t.Errorf("history differs from the directory: %v", at.Diff(second))
		}
		if all := get(w.Verify(context.Background()))(t); !all.Identical(second) {
			t.Errorf("reading all finds what metadata did not tell: %v", second.Diff(all))
		}
		var want, got []string
		for _, d := range first.Diff(second) {
			want = append(want, d.Path)
		}
		for _, d := range diff {
			got = append(got, d.Path)
		}
		for _, p := range got {
			if !slices.Contains(want, p) && v != Copied {
				t.Errorf("Diff named %s, which did not change", p)
			}
		}
		_, err := w.Restore(context.Background(), get(w.Commit(c.Hash))(t).Parent, Note{})
		must(t, err)
		if got, want := symlinkTimes(dump(t, dir)), symlinkTimes(before); rootless(got) != rootless(want) {
			if v != Overlay { // which breaks the pair
				t.Errorf("not restored:\n%s", unlike(want, got))
			}
		}
		asGit(t, w, "fsck", "--strict")
	})
}

// rootless drops the line of the workspace itself: its own mode and time are
// the person's.
func rootless(s string) string { _, rest, _ := strings.Cut(s, "\n"); return rest }

// Scenario 28: a half-written file by a killed tool.
func TestKilledToolLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		furnish(t, dir)
		w := opened(t, dir, store)
		before := dump(t, dir)
		tx := begin(t, w, Options{View: v})
		if d := tx.Dir(); d != "" {
			cmd := exec.Command("sh", "-c", "cd "+d+" && rm -rf away && while :; do echo half >> edit; echo x; done")
			out := get(cmd.StdoutPipe())(t)
			must(t, cmd.Start())
			_, err := io.ReadFull(out, make([]byte, 8))
			must(t, err)
			must(t, cmd.Process.Kill())
			cmd.Wait()
		} else {
			must(t, tx.Layer().WriteFile("edit", []byte("half"), 0o600))
			must(t, tx.Layer().RemoveAll("away"))
		}
		must(t, tx.Rollback())
		if got := dump(t, dir); got != before {
			t.Fatalf("not as before:\n%s", unlike(before, got))
		}
	})
}

func TestConflict(t *testing.T) {
	cases := []struct {
		name    string
		inside  func(f files) error
		outside func(d native) error
		clash   string
	}{
		{"unrelated", func(f files) error { return f.WriteFile("edit", []byte("mine"), 0o600) },
			func(d native) error { return d.WriteFile("keep", []byte("theirs"), 0o600) }, ""},
		{"same file", func(f files) error { return f.WriteFile("edit", []byte("mine"), 0o600) },
			func(d native) error { return d.WriteFile("edit", []byte("theirs"), 0o600) }, "edit"},
		{"same file, replaced", func(f files) error { return f.WriteFile("edit", []byte("mine"), 0o600) },
			func(d native) error {
				return errors.Join(d.WriteFile("tmp", []byte("theirs"), 0o600), d.Rename("tmp", "edit"))
			}, "edit"},
		{"same size and time", func(f files) error { return f.WriteFile("gone", []byte("mine"), 0o600) },
			func(d native) error {
				fi, err := os.Stat(d.at("gone"))
				b, _ := d.ReadFile("gone")
				return errors.Join(err, d.WriteFile("gone", bytes.ToUpper(b), 0o600), d.Chtimes("gone", fi.ModTime()))
			}, "gone"},
		{"removed outside", func(f files) error { return f.WriteFile("edit", []byte("mine"), 0o600) },
			func(d native) error { return d.Remove("edit") }, "edit"},
		{"removed here, changed there", func(f files) error { return f.Remove("edit") },
			func(d native) error { return d.WriteFile("edit", []byte("theirs"), 0o600) }, "edit"},
		{"removed by both", func(f files) error { return f.Remove("edit") },
			func(d native) error { return d.Remove("edit") }, ""},
		{"made by both", func(f files) error { return f.WriteFile("made", []byte("mine"), 0o600) },
			func(d native) error { return d.WriteFile("made", []byte("theirs"), 0o600) }, "made"},
		{"directory made by both", func(f files) error {
			return errors.Join(f.Mkdir("out", 0o755), f.WriteFile("out/mine", []byte("mine"), 0o600))
		}, func(d native) error {
			return errors.Join(d.Mkdir("out", 0o755), d.WriteFile("out/theirs", []byte("theirs"), 0o600))
		}, ""},
		{"tree removed here, file put in there", func(f files) error { return f.RemoveAll("away") },
			func(d native) error { return d.WriteFile("away/x/new", []byte("theirs"), 0o600) }, "away/x/new"},
		{"tree replaced by a file here, changed there", func(f files) error {
			return errors.Join(f.RemoveAll("away"), f.WriteFile("away", []byte("mine"), 0o600))
		}, func(d native) error { return d.WriteFile("away/x/deep", []byte("theirs"), 0o600) }, "away/x/deep"},
		{"directory replaced by a link", func(f files) error { return f.WriteFile("dir/a", []byte("mine"), 0o600) },
			func(d native) error {
				return errors.Join(d.Rename("dir", "dir.old"), d.Symlink("dir.old", "dir"))
			}, "dir/a"},
		{"file became a directory", func(f files) error { return f.WriteFile("edit", []byte("mine"), 0o600) },
			func(d native) error { return errors.Join(d.Remove("edit"), d.Mkdir("edit", 0o700)) }, "edit"},
		{"mode changed outside", func(f files) error { return f.WriteFile("edit", []byte("mine"), 0o600) },
			func(d native) error { return d.Chmod("edit", 0o777) }, "edit"},
		{"link changed by both", func(f files) error { return errors.Join(f.Remove("link"), f.Symlink("mine", "link")) },
			func(d native) error { return errors.Join(d.Remove("link"), d.Symlink("theirs", "link")) }, "link"},
	}
	each(t, func(t *testing.T, v View) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				dir, store := pair(t)
				furnish(t, dir)
				w := opened(t, dir, store)
				tx := begin(t, w, Options{View: v})
				must(t, c.inside(filesOf(tx)))
				must(t, c.outside(native(dir)))
				theirs := dump(t, dir)
				_, err := tx.Commit(context.Background(), Note{})
				if c.clash == "" {
					must(t, err)
					return
				}
				var e *Error
				if !errors.As(err, &e) || e.Code != Conflict || !slices.ContainsFunc(e.Paths, func(p string) bool { return fsys.Under(p, c.clash) || fsys.Under(c.clash, p) }) {
					t.Fatalf("expected a conflict at %s, found %v", c.clash, err)
				}
				if got := dump(t, dir); got != theirs {
					t.Fatalf("something was published:\n%s", unlike(theirs, got))
				}
			})
		}
	})
}

// What somebody changed before a transaction began is no conflict, also when
// nothing had looked since, and it is in the history before it is replaced.
func TestChangedBeforeBegin(t *testing.T) {
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		furnish(t, dir)
		w := opened(t, dir, store)
		must(t, native(dir).WriteFile("edit", []byte("theirs"), 0o600))
		must(t, native(dir).WriteFile("fresh", []byte("theirs"), 0o600))
		must(t, native(dir).Remove("gone"))
		tick(t, dir)
		tx := begin(t, w, Options{View: v})
		f := filesOf(tx)
		for _, name := range []string{"edit", "fresh", "gone"} {
			must(t, f.WriteFile(name, []byte("mine"), 0o600))
		}
		c := commit(t, tx)
		at := get(w.At(get(w.Commit(c.Hash))(t).Parent))(t)
		for _, name := range []string{"edit", "fresh"} {
			e, ok := at.Lookup(name)
			if !ok {
				t.Fatalf("%s is not in the history", name)
			}
			r := get(w.Content(e.Hash))(t)
			if b := get(io.ReadAll(r))(t); string(b) != "theirs" {
				t.Errorf("%s was %q", name, b)
			}
			r.Close()
		}
	})
}

// tick waits until the file system's clock has moved on.
func tick(t testing.TB, dir string) {
	t.Helper()
	stamp := func() int64 {
		f, err := os.CreateTemp(filepath.Dir(dir), "tick")
		must(t, err)
		defer os.Remove(f.Name())
		defer f.Close()
		return get(fsys.Stat(f))(t).Print.Ctime
	}
	for first := stamp(); stamp() == first; {
	}
}

// A file that is changed between the check and its operation is a conflict,
// and all that was published before it comes back.
func TestConflictWhilePublishing(t *testing.T) {
	for _, link := range []bool{false, true} {
		for _, name := range []string{"edit", "gone", "away/x/deep", "dir2file/in/f"} {
			t.Run(fmt.Sprintf("%s/link=%t", name, link), func(t *testing.T) {
				dir, store := pair(t)
				furnish(t, dir)
				w := opened(t, dir, store)
				w.committer.publisher.Link = link
				tx := begin(t, w, Options{})
				must(t, rework(tx.Layer()))
				var theirs string
				w.committer.publisher.Step = func(p string) {
					if p == "intent" {
						must(t, native(dir).WriteFile(name, []byte("theirs"), 0o600))
						theirs = dump(t, dir)
					}
				}
				_, err := tx.Commit(context.Background(), Note{})
				if !isCode(err, Conflict) {
					t.Fatalf("expected a conflict, found %v", err)
				}
				if got := dump(t, dir); got != theirs {
					t.Fatalf("something was published:\n%s", unlike(theirs, got))
				}
				w.committer.publisher.Step = func(string) {}
				if _, ok := w.Pending(); ok {
					t.Fatal("in doubt")
				}
			})
		}
	}
}

// What somebody does to a published path before it is taken back stays.
func TestRollbackLeavesTheirs(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	tx := begin(t, w, Options{})
	must(t, rework(tx.Layer()))
	_, err := tx.Publish(context.Background(), Note{ID: "1"})
	must(t, err)
	d := native(dir)
	must(t, d.WriteFile("edit", []byte("theirs"), 0o600))
	must(t, d.WriteFile("new/theirs", []byte("theirs"), 0o600))
	must(t, d.WriteFile("gone", []byte("theirs"), 0o600))
	err = tx.Rollback()
	var e *Error
	if !errors.As(err, &e) || e.Code != Conflict || len(e.Paths) != 3 {
		t.Fatalf("expected three conflicts, found %v", err)
	}
	for _, name := range []string{"edit", "new/theirs", "gone"} {
		if b := get(d.ReadFile(name))(t); string(b) != "theirs" {
			t.Errorf("%s was overwritten: %q", name, b)
		}
	}
	if b := get(d.ReadFile("dir/b"))(t); len(b) == 0 {
		t.Error("dir/b is gone")
	}
	if ents := get(os.ReadDir(filepath.Join(store, "scratch", "rescued")))(t); len(ents) != 2 {
		t.Errorf("expected the person's two files kept, found %v", ents)
	}
}

func TestLaterCommitSeesConflict(t *testing.T) {
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		furnish(t, dir)
		w := opened(t, dir, store)
		one, two, three := begin(t, w, Options{View: v}), begin(t, w, Options{View: v}), begin(t, w, Options{View: v})
		must(t, filesOf(one).WriteFile("edit", []byte("one"), 0o600))
		must(t, filesOf(two).WriteFile("edit", []byte("two"), 0o600))
		must(t, filesOf(three).WriteFile("dir/a", []byte("three"), 0o600))
		commit(t, one)
		if _, err := two.Commit(context.Background(), Note{}); !isCode(err, Conflict) {
			t.Fatalf("expected a conflict, found %v", err)
		}
		commit(t, three)
		if b := get(os.ReadFile(filepath.Join(dir, "edit")))(t); string(b) != "one" {
			t.Errorf("found %q", b)
		}
		must(t, filesOf(begin(t, w, Options{View: v})).WriteFile("edit", nil, 0o600))
		four := begin(t, w, Options{View: v})
		must(t, filesOf(four).WriteFile("edit", []byte("four"), 0o600))
		commit(t, four) // right after another commit of the same file
	})
}

// Two processes share a store. The second one commits what it began before a commit
// of the first, and history takes nothing of the first back.
func TestTwoProcesses(t *testing.T) {
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		furnish(t, dir)
		a, b := opened(t, dir, store), opened(t, dir, store)
		for i := range 3 {
			one, two := begin(t, a, Options{View: v}), begin(t, b, Options{View: v})
			must(t, filesOf(one).WriteFile("edit", fmt.Appendf(nil, "by the first %d", i), 0o600))
			must(t, filesOf(one).WriteFile(fmt.Sprint("one", i), nil, 0o600))
			must(t, filesOf(two).WriteFile(fmt.Sprint("two", i), nil, 0o600))
			first, second := commit(t, one), commit(t, two)
			if got := get(b.Commit(second.Hash))(t); got.Parent != first.Hash {
				t.Fatalf("round %d: the second commit does not follow the first but %s", i, got.Parent)
			}
			for _, w := range []*Workspace{a, b} {
				if b := contentAt(t, w, second.Hash, "edit"); string(b) != fmt.Sprint("by the first ", i) {
					t.Fatalf("round %d: the second commit holds %q", i, b)
				}
				if got, want := get(w.At(second.Hash))(t).Digest(), get(w.Verify(context.Background()))(t).Digest(); got != want {
					t.Fatalf("round %d: history holds %s, the directory is %s", i, got, want)
				}
			}
			a, b = b, a
		}
	})
}

// A commit is known by its ID as soon as its seal is in the log.
func TestOutcomeWhileSealing(t *testing.T) {
	dir, store := pair(t)
	w := opened(t, dir, store)
	asked := 0
	w.committer.publisher.Step = func(p string) {
		if p == "sealed" {
			asked++
			if s, _, err := w.Outcome(fmt.Sprint(asked)); err != nil || s != Committed {
				t.Errorf("commit %d: expected %s, found %s, %v", asked, Committed, s, err)
			}
		}
	}
	for i := range 3 {
		write(t, w, Note{ID: fmt.Sprint(i + 1)}, "f", fmt.Sprint(i))
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

func TestLocked(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store, func(c *Config) { c.LockWait = 20 * time.Millisecond })
	holder := exec.Command("flock", "--no-fork", filepath.Join(store, "lock"), "cat")
	holder.Stdin = get(os.Open("/dev/zero"))(t)
	must(t, holder.Start())
	waitFor(t, func() bool {
		f := get(os.OpenFile(filepath.Join(store, "lock"), os.O_RDWR, 0))(t)
		defer f.Close()
		got, err := fsys.TryLock(f)
		must(t, err)
		return !got
	})
	tx := begin(t, w, Options{})
	must(t, tx.Layer().WriteFile("edit", []byte("x"), 0o600))
	if _, err := tx.Publish(context.Background(), Note{ID: "1"}); !isCode(err, Locked) {
		t.Fatalf("expected %s, found %v", Locked, err)
	}
	must(t, holder.Process.Kill())
	holder.Wait()
	if _, err := tx.Publish(context.Background(), Note{ID: "1"}); err != nil {
		t.Fatalf("the holder is dead, but: %v", err)
	}
	other := begin(t, w, Options{})
	if _, err := other.Commit(context.Background(), Note{}); !isCode(err, Locked) {
		t.Fatalf("expected %s while another commit is published and not sealed, found %v", Locked, err)
	}
	must(t, tx.Seal())
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

// A commit in doubt stops others until it is decided, by an ID that is used
// once.
func TestInDoubt(t *testing.T) {
	for _, v := range []Verdict{Undo, Finish} {
		dir, store := pair(t)
		furnish(t, dir)
		before := dump(t, dir)
		j := job{Dir: dir, Store: store, Journal: store + ".journal", Do: "publish", View: Layered, KillAt: 26, Trace: store + ".trace"}
		if !spawn(t, j) {
			t.Fatal("it lived")
		}
		w := opened(t, dir, store)
		note, ok := w.Pending()
		if at := string(get(os.ReadFile(j.Trace))(t)); !ok || note.Tool != "t" || note.PID != 1 || note.Call != 1 {
			t.Fatalf("killed at %s: %+v %t", at, note, ok)
		}
		if s, _, err := w.Outcome("1.1"); err != nil || s != Doubtful {
			t.Fatalf("%s %v", s, err)
		}
		if _, err := w.Begin(context.Background(), Options{}); !isCode(err, InDoubt) {
			t.Fatalf("expected %s, found %v", InDoubt, err)
		}
		if _, err := w.Resolve(context.Background(), "other", v); !isCode(err, Missing) {
			t.Fatalf("expected %s, found %v", Missing, err)
		}
		_, err := w.Resolve(context.Background(), "1.1", v)
		must(t, err)
		s, h, err := w.Outcome("1.1")
		must(t, err)
		if want := map[Verdict]State{Undo: Unknown, Finish: Committed}[v]; s != want {
			t.Fatalf("expected %s, found %s", want, s)
		}
		if (dump(t, dir) == before) != (v == Undo) {
			t.Fatal("not what was decided")
		}
		tx := begin(t, w, Options{})
		_, err = tx.Publish(context.Background(), Note{ID: "1.1"})
		if v == Finish && !isCode(err, Refused) {
			t.Fatalf("commit %s was made again: %v", h, err)
		}
		if v == Undo {
			must(t, err)
			must(t, tx.Seal())
		}
	}
}

func TestQuota(t *testing.T) {
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		furnish(t, dir)
		must(t, native(dir).WriteFile("large", make([]byte, 300<<10), 0o600))
		w := opened(t, dir, store)
		before := dump(t, dir)
		full := func(err error) bool {
			return isCode(err, Quota) || errors.Is(err, syscall.ENOSPC)
		}
		tx := begin(t, w, Options{View: v, Bytes: 256 << 10})
		f := filesOf(tx)
		must(t, f.WriteFile("fits", make([]byte, 100<<10), 0o600))
		if err := f.WriteFile("not", make([]byte, 4<<20), 0o600); !full(err) {
			t.Fatalf("4 MiB in 256 KiB: %v", err)
		}
		must(t, tx.Rollback())

		tx = begin(t, w, Options{View: v, Files: 20})
		f = filesOf(tx)
		var err error
		n := 0
		for ; n < 100 && err == nil; n++ {
			err = f.WriteFile(fmt.Sprintf("f%d", n), []byte("x"), 0o600)
		}
		if !full(err) || n > 21 {
			t.Fatalf("%d files of 20: %v", n, err)
		}
		must(t, tx.Rollback())

		tx = begin(t, w, Options{View: v, Bytes: 1 << 20, Files: 50})
		must(t, rework(filesOf(tx)))
		commit(t, tx)
		if dump(t, dir) == before {
			t.Fatal("nothing changed")
		}
	})
}

func TestQuotaGivesBack(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	tx := begin(t, w, Options{Bytes: 1000, Files: 2})
	l := tx.Layer()
	for range 50 {
		must(t, l.WriteFile("a", make([]byte, 900), 0o600))
		must(t, l.WriteFile("b", make([]byte, 90), 0o600))
		if err := l.WriteFile("b", make([]byte, 101), 0o600); !isCode(err, Quota) {
			t.Fatalf("1001 bytes of 1000: %v", err)
		}
		f := get(l.OpenFile("a", os.O_RDWR, 0))(t)
		must(t, f.Truncate(10))
		must(t, f.Close())
		must(t, l.Remove("a"))
		must(t, l.Remove("b"))
	}
	must(t, l.WriteFile("a", make([]byte, 1000), 0o600))
	must(t, l.WriteFile("b", nil, 0o600))
	must(t, l.Remove("a"))
	must(t, l.Remove("b"))
	if err := l.WriteFile("sparse", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := get(l.OpenFile("dir/a", os.O_RDWR, 0))(t)
	if err := f.Truncate(5000); !isCode(err, Quota) {
		t.Fatal(err)
	}
	must(t, f.Close())
}

// Every way to stage names and to remove them again leaves the quota as it was.
func TestQuotaCountsNames(t *testing.T) {
	for what, round := range map[string]func(l *Layer) error{
		"link":          func(l *Layer) error { return errors.Join(l.Link("keep", "b"), l.Remove("b")) },
		"link and move": func(l *Layer) error { return errors.Join(l.Link("keep", "b"), l.Remove("keep"), l.Rename("b", "keep")) },
		"rename over": func(l *Layer) error {
			return errors.Join(l.Link("keep", "b"), l.WriteFile("c", nil, 0o600), l.Rename("c", "b"), l.Remove("b"))
		},
		"directory": func(l *Layer) error { return errors.Join(l.Mkdir("b", 0o700), l.Remove("b")) },
		"symlink":   func(l *Layer) error { return errors.Join(l.Symlink("keep", "b"), l.Remove("b")) },
		"new file": func(l *Layer) error {
			return errors.Join(l.WriteFile("b", nil, 0o600), l.Link("b", "c"), l.Remove("b"), l.Remove("c"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir, store := pair(t)
			furnish(t, dir)
			w := opened(t, dir, store)
			l := begin(t, w, Options{Files: 3}).Layer()
			for i := range 10 {
				if err := round(l); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
			fillQuota(t, l, 3)
		})
	}
	// A file with two names counts once when it is written, and returns no more than that.
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	l := begin(t, w, Options{Files: 3}).Layer()
	must(t, l.WriteFile("twin1", []byte("both"), 0o600))
	must(t, l.Remove("twin1"))
	must(t, l.Remove("dir/twin2"))
	fillQuota(t, l, 3)
}

// fillQuota checks that just n more files can be staged.
func fillQuota(t *testing.T, l *Layer, n int) {
	t.Helper()
	for i := range n {
		must(t, l.WriteFile(fmt.Sprint("fill", i), nil, 0o600))
	}
	if err := l.WriteFile("beyond", nil, 0o600); !isCode(err, Quota) {
		t.Errorf("file %d of %d: expected %s, found %v", n+1, n, Quota, err)
	}
}

func TestRefused(t *testing.T) {
	mk := map[string]func(dir string) error{
		"fifo":   func(d string) error { return syscall.Mkfifo(d+"/x", 0o600) },
		"setuid": func(d string) error { os.WriteFile(d+"/x", nil, 0o700); return os.Chmod(d+"/x", 0o700|os.ModeSetuid) },
		"setgid": func(d string) error { os.WriteFile(d+"/x", nil, 0o700); return os.Chmod(d+"/x", 0o700|os.ModeSetgid) },
		"setuid directory": func(d string) error {
			return errors.Join(os.Mkdir(d+"/x", 0o700), os.Chmod(d+"/x", 0o777|os.ModeSetuid|os.ModeSetgid|os.ModeSticky))
		},
		"setgid directory": func(d string) error {
			return errors.Join(os.Mkdir(d+"/x", 0o700), os.Chmod(d+"/x", 0o700|os.ModeSetgid))
		},
		"setgid old directory": func(d string) error { return os.Chmod(d+"/dir", 0o700|os.ModeSetgid) },
		"setuid top":           func(d string) error { return os.Chmod(d, 0o700|os.ModeSetuid) },
		"socket": func(d string) error {
			return exec.Command("python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", d+"/x").Run()
		},
		"git": func(d string) error { return os.Mkdir(d+"/.git", 0o700) },
		"GIT": func(d string) error { return os.Mkdir(d+"/.GiT", 0o700) },
	}
	if os.Geteuid() == 0 {
		mk["device"] = func(d string) error { return syscall.Mknod(d+"/x", syscall.S_IFCHR|0o600, 1<<8|3) }
	}
	for _, v := range views()[1:] {
		for name, f := range mk {
			t.Run(string(v)+"/"+name, func(t *testing.T) {
				dir, store := pair(t)
				furnish(t, dir)
				w := opened(t, dir, store)
				before := dump(t, dir)
				tx := begin(t, w, Options{View: v})
				must(t, f(tx.Dir()))
				if _, err := tx.Commit(context.Background(), Note{}); !isCode(err, Refused) {
					t.Fatalf("expected %s, found %v", Refused, err)
				}
				if got := dump(t, dir); got != before {
					t.Fatalf("something was published:\n%s", unlike(before, got))
				}
			})
		}
	}
}

// A directory with the setgid bit keeps it, and gives it to the directories that are
// made in it, also below other new ones. It gives no file the bit.
func TestSetgidOfParent(t *testing.T) {
	for _, v := range views()[1:] {
		t.Run(string(v), func(t *testing.T) {
			dir, store := pair(t)
			furnish(t, dir)
			must(t, os.Chmod(dir+"/dir", 0o755|os.ModeSetgid))
			w := opened(t, dir, store)
			tx := begin(t, w, Options{View: v})
			must(t, os.MkdirAll(tx.Dir()+"/dir/new/newer", 0o755))
			must(t, os.WriteFile(tx.Dir()+"/dir/new/file", nil, 0o644))
			_, err := tx.Commit(context.Background(), Note{})
			must(t, err)
			for _, name := range []string{"dir", "dir/new", "dir/new/newer"} {
				if fi := get(os.Stat(dir + "/" + name))(t); fi.Mode()&os.ModeSetgid == 0 {
					t.Errorf("%s: %v", name, fi.Mode())
				}
			}
			tx = begin(t, w, Options{View: v})
			must(t, os.WriteFile(tx.Dir()+"/dir/other", nil, 0o755))
			must(t, os.Chmod(tx.Dir()+"/dir/other", 0o755|os.ModeSetgid))
			if _, err := tx.Commit(context.Background(), Note{}); !isCode(err, Refused) {
				t.Errorf("expected %s, found %v", Refused, err)
			}
		})
	}
}

// A process that still has a file open for writing could change it after it
// was checked.
func TestBusy(t *testing.T) {
	for _, v := range views()[1:] {
		t.Run(string(v), func(t *testing.T) {
			dir, store := pair(t)
			furnish(t, dir)
			w := opened(t, dir, store)
			tx := begin(t, w, Options{View: v})
			cmd := exec.Command("sh", "-c", "exec 3>edit; echo ready; exec cat")
			cmd.Dir = tx.Dir()
			in, out := get(cmd.StdinPipe())(t), get(cmd.StdoutPipe())(t)
			must(t, cmd.Start())
			_, err := io.ReadFull(out, make([]byte, 5))
			must(t, err)
			if _, err := tx.Commit(context.Background(), Note{}); !isCode(err, Busy) {
				t.Errorf("expected %s, found %v", Busy, err)
			}
			in.Close()
			cmd.Wait()
		})
	}
}

// An observer reads the directory all the time and never sees a torn, missing
// or extra file.
func TestObserver(t *testing.T) {
	top := memory(t)
	dir, store := filepath.Join(top, "work"), filepath.Join(top, "store")
	must(t, os.Mkdir(dir, 0o755))
	d := native(dir)
	body := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 20_000) }
	names := []string{"one", "two", "sub/three"}
	must(t, d.Mkdir("sub", 0o755))
	for _, n := range names {
		must(t, d.WriteFile(n, body(0), 0o644))
	}
	w := opened(t, dir, store)
	script := get(filepath.Abs("testdata/observer.py"))(t)
	cmd := exec.Command("python3", append([]string{script, dir}, names...)...)
	in, out := get(cmd.StdinPipe())(t), &bytes.Buffer{}
	cmd.Stderr = out
	first := get(cmd.StdoutPipe())(t)
	must(t, cmd.Start())
	_, err := io.ReadFull(first, make([]byte, 1))
	must(t, err)
	commits := 1000
	if testing.Short() || racing && !soak {
		commits = 100
	}
	for i := range commits {
		tx := begin(t, w, Options{View: views()[i%len(views())*(i%10/9)]})
		for _, n := range names {
			must(t, filesOf(tx).WriteFile(n, body(i), 0o644))
		}
		if i%7 == 3 {
			_, err := tx.Publish(context.Background(), Note{ID: fmt.Sprint(i)})
			must(t, err)
			must(t, tx.Rollback())
			continue
		}
		commit(t, tx)
	}
	in.Close()
	if rest := string(get(io.ReadAll(first))(t)); cmd.Wait() != nil || out.Len() > 0 {
		t.Fatalf("the observer saw: %s", out)
	} else {
		t.Logf("%s readings during %d commits", strings.TrimSpace(rest), commits)
	}
}

func TestConcurrent(t *testing.T) {
	dir, store := pair(t)
	d := native(dir)
	for i := range 4 {
		must(t, d.WriteFile(fmt.Sprint("f", i), []byte("0"), 0o600))
	}
	w := opened(t, dir, store)
	var won [4]atomic.Int64
	done := make(chan error)
	for g := range 8 {
		go func() {
			var err error
			for i := range 25 {
				k := (g + i) % 4
				err = increment(w, fmt.Sprint("f", k))
				if isCode(err, Conflict) {
					err = nil
				} else if err == nil {
					won[k].Add(1)
				} else {
					break
				}
			}
			done <- err
		}()
	}
	for range 8 {
		must(t, <-done)
	}
	for i := range 4 {
		if b := get(d.ReadFile(fmt.Sprint("f", i)))(t); string(b) != fmt.Sprint(won[i].Load()) {
			t.Errorf("f%d is %s after %d increments: one was lost", i, b, won[i].Load())
		}
	}
	asGit(t, w, "fsck", "--strict")
}

func increment(w *Workspace, name string) error {
	tx, err := w.Begin(context.Background(), Options{})
	if err != nil {
		return err
	}
	b, err := tx.Layer().ReadFile(name)
	if err == nil {
		var n int
		fmt.Sscan(string(b), &n)
		err = tx.Layer().WriteFile(name, []byte(fmt.Sprint(n+1)), 0o600)
	}
	if err == nil {
		_, err = tx.Commit(context.Background(), Note{})
	}
	return errors.Join(err, tx.Rollback())
}
