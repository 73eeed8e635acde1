package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Nothing a path, a link or a mount does leads out of the workspace.
//
// Mutants that these tests kill (each was made, seen to fail, and unmade):
//   - openat2 without RESOLVE_NO_SYMLINKS
//   - openat2 without RESOLVE_NO_XDEV

// outside makes a directory that must not be reached.
func outside(t *testing.T, dir string) (native, string) {
	d := native(filepath.Join(filepath.Dir(dir), "outside"))
	must(t, os.Mkdir(string(d), 0o755))
	must(t, d.WriteFile("secret", []byte("secret"), 0o644))
	must(t, d.WriteFile("a", []byte("secret"), 0o644))
	return d, dump(t, string(d))
}

func TestLayerPaths(t *testing.T) {
	dir, store := pair(t)
	out, before := outside(t, dir)
	furnish(t, dir)
	d := native(dir)
	must(t, d.Symlink(string(out), "abs"))
	must(t, d.Symlink("../outside", "rel"))
	must(t, d.Symlink("dir/../../outside", "winding"))
	must(t, d.Symlink("loop2", "loop1"))
	must(t, d.Symlink("loop1", "loop2"))
	must(t, d.Symlink("dir", "in"))
	w := opened(t, dir, store)
	l := begin(t, w, Options{}).Layer()
	for _, p := range []string{"../outside/secret", "..", "dir/../../outside/secret", "/etc/passwd", string(out) + "/secret", "abs/secret",
		"rel/secret", "winding/secret", "loop1", "loop1/x", "dir/a\x00", "dir/a/../../keep/x", "nowhere/../../outside/secret"} {
		for name, f := range map[string]func() error{
			"read":    func() error { _, err := l.ReadFile(p); return err },
			"write":   func() error { return l.WriteFile(p, []byte("x"), 0o600) },
			"mkdir":   func() error { return l.Mkdir(p+"/d", 0o700) },
			"remove":  func() error { return l.Remove(p) },
			"rename":  func() error { return l.Rename(p, "here") },
			"rename2": func() error { return l.Rename("keep", p) },
			"link":    func() error { return l.Link(p, "here") },
			"chmod":   func() error { return l.Chmod(p, 0o777) },
			"list":    func() error { _, err := l.ReadDir(p); return err },
		} {
			if p == "loop1" && (name == "remove" || name == "rename" || name == "rename2") {
				continue // these are about the link itself
			}
			if err := f(); err == nil {
				t.Errorf("%s of %q was done", name, p)
			}
		}
	}
	if b, err := l.ReadFile("in/a"); err != nil || len(b) == 0 {
		t.Errorf("a link that stays inside: %v", err)
	}
	if b, err := l.ReadFile("dir/../keep"); err != nil || len(b) == 0 {
		t.Errorf("a way that stays inside: %v", err)
	}
	if got := dump(t, string(out)); got != before {
		t.Errorf("the outside changed:\n%s", unlike(before, got))
	}
}

// A directory is replaced by a link to the outside just before an operation.
func TestSwapBeforeOperation(t *testing.T) {
	for n := range 14 {
		dir, store := pair(t)
		out, before := outside(t, dir)
		furnish(t, dir)
		w := opened(t, dir, store)
		tx := begin(t, w, Options{})
		must(t, rework(tx.Layer()))
		k := 0
		w.committer.publisher.Step = func(p string) {
			if p != "op" {
				return
			}
			if k++; k == n+1 {
				d := native(dir)
				must(t, d.Rename("dir", "dir.real"))
				must(t, d.Symlink(string(out), "dir"))
			}
		}
		_, err := tx.Commit(context.Background(), Note{})
		w.committer.publisher.Step = func(string) {}
		if k <= n {
			t.Fatalf("only %d operations", k)
		}
		if err != nil && !isCode(err, Conflict) && !errors.Is(err, unix.ELOOP) {
			t.Errorf("operation %d: %v", n, err)
		}
		if got := dump(t, string(out)); got != before {
			t.Fatalf("operation %d: the outside changed:\n%s", n, unlike(before, got))
		}
	}
}

// The same all the time, at any moment.
func TestSwapAllTheTime(t *testing.T) {
	dir, store := pair(t)
	out, before := outside(t, dir)
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	must(t, native(dir).WriteFile("d/a", []byte("0"), 0o644))
	link := filepath.Join(filepath.Dir(dir), "link")
	must(t, os.Symlink(string(out), link))
	w := opened(t, dir, store)
	stop, done := make(chan bool), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
				n++
				unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, filepath.Join(dir, "d"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	ok := 0
	for i := range 150 {
		tx, err := w.Begin(context.Background(), Options{})
		if err != nil {
			continue
		}
		if tx.Layer().WriteFile("d/a", fmt.Appendf(nil, "%d", i), 0o644) == nil {
			if _, err := tx.Commit(context.Background(), Note{}); err == nil {
				ok++
			}
		}
		tx.Rollback()
	}
	close(stop)
	t.Logf("%d swaps, %d commits", <-done, ok)
	if fi := get(os.Lstat(link))(t); fi.IsDir() { // put things back where they were
		must(t, unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, filepath.Join(dir, "d"), unix.RENAME_EXCHANGE))
	}
	// What was published between two swaps may not have been made to last after
	// the next: that is said, and the next to open does it again.
	if err := w.Close(); err != nil && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
		t.Error(err)
	}
	w = opened(t, dir, store)
	if got := dump(t, string(out)); got != before {
		t.Fatalf("the outside changed:\n%s", unlike(before, got))
	}
	if note, ok := w.Pending(); ok {
		t.Fatalf("%s is in doubt", note.ID)
	}
}

// A name shared with the outside is never written through.
func TestHardLinkToOutside(t *testing.T) {
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		out, _ := outside(t, dir)
		furnish(t, dir)
		must(t, os.Link(out.at("secret"), filepath.Join(dir, "shared")))
		w := opened(t, dir, store)
		tx := begin(t, w, Options{View: v})
		f := filesOf(tx)
		must(t, f.WriteFile("shared", []byte("mine"), 0o600))
		if v == Copied { // the same file system: a program could link what is outside
			must(t, os.Link(out.at("a"), filepath.Join(tx.Dir(), "stolen")))
		}
		commit(t, tx)
		if b := get(os.ReadFile(filepath.Join(dir, "shared")))(t); string(b) != "mine" {
			t.Errorf("found %q", b)
		}
		if b := get(out.ReadFile("secret"))(t); string(b) != "secret" {
			t.Errorf("written through: %q", b)
		}
		if v == Copied {
			a, b := get(os.Stat(out.at("a")))(t), get(os.Stat(filepath.Join(dir, "stolen")))(t)
			if os.SameFile(a, b) {
				t.Error("the published file is shared with the outside")
			}
		}
		tx = begin(t, w, Options{View: v})
		must(t, filesOf(tx).Chmod("shared", 0o777))
		commit(t, tx)
		for _, fi := range get(os.ReadDir(string(out)))(t) {
			if m := get(fi.Info())(t).Mode(); m != 0o644 {
				t.Errorf("%s has mode %v", fi.Name(), m)
			}
		}
	})
}

// A mount in the workspace is not entered, neither to read nor to write.
func TestOtherMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		out, before := outside(t, dir)
		furnish(t, dir)
		at := filepath.Join(dir, "away", "x")
		must(t, unix.Mount(string(out), at, "", unix.MS_BIND, ""))
		defer unix.Unmount(at, unix.MNT_DETACH)
		w := opened(t, dir, store)
		for p := range get(w.Snapshot(context.Background()))(t).All() {
			if strings.Contains(p, "secret") {
				t.Errorf("the snapshot holds %s", p)
			}
		}
		for name, f := range map[string]func(f files) error{
			"write":  func(f files) error { return f.WriteFile("away/x/a", []byte("mine"), 0o600) },
			"create": func(f files) error { return f.WriteFile("away/x/new", []byte("mine"), 0o600) },
			"remove": func(f files) error { return f.RemoveAll("away") },
		} {
			tx := begin(t, w, Options{View: v})
			err := f(filesOf(tx))
			if err == nil {
				_, err = tx.Commit(context.Background(), Note{})
			}
			if err == nil {
				t.Errorf("%s was done", name)
			}
			must(t, tx.Rollback())
			if got := dump(t, string(out)); got != before {
				t.Fatalf("%s: the outside changed:\n%s", name, unlike(before, got))
			}
		}
	})
}

func TestOddNames(t *testing.T) {
	names := []string{"\u00e9", "e\u0301", "a", "\u0430", "new\nline", "tab\there", "\xff\xfe not utf8", " lead", "trail ", "-rf", "it's \"q\"", `back\slash`,
		"colon:comma,", strings.Repeat("n", 255), "CASE", "case", "*", "[x]", ".hidden", "~", "con", "=", "dx", "a.b", "a-b", "a0", "a/z", "%s"}
	deep := strings.Repeat(strings.Repeat("d", 60)+"/", 40) + "end"
	each(t, func(t *testing.T, v View) {
		top := filepath.Join(t.TempDir(), "a:b,c d\\e")
		dir, store := filepath.Join(top, "work"), filepath.Join(top, "store")
		must(t, os.MkdirAll(dir, 0o755))
		w := opened(t, dir, store)
		tx := begin(t, w, Options{View: v})
		f := filesOf(tx)
		for i, n := range names {
			if n == "a/z" {
				must(t, f.Remove("a"))
				must(t, f.Mkdir("a", 0o755))
			}
			must(t, f.WriteFile(n, fmt.Append(nil, i), 0o644))
		}
		for i := range deep {
			if deep[i] == '/' {
				must(t, f.Mkdir(deep[:i], 0o755))
			}
		}
		must(t, f.WriteFile(deep, []byte("deep"), 0o644))
		c := commit(t, tx)
		for i, n := range names {
			if b, err := os.ReadFile(filepath.Join(dir, n)); n != "a" && (err != nil || string(b) != fmt.Sprint(i)) {
				t.Errorf("%q: %q %v", n, b, err)
			}
		}
		s := get(w.Snapshot(context.Background()))(t)
		if at := get(w.At(c.Hash))(t); !at.Same(s) {
			t.Errorf("history differs: %v", at.Diff(s))
		}
		asGit(t, w, "fsck", "--strict")
		first := get(w.Commit(c.Hash))(t).Parent
		_, err := w.Restore(context.Background(), first, Note{})
		must(t, err)
		if ents := get(os.ReadDir(dir))(t); len(ents) != 0 {
			t.Errorf("left: %v", ents)
		}
		_, err = w.Restore(context.Background(), c.Hash, Note{})
		must(t, err)
		if !get(w.Snapshot(context.Background()))(t).Same(s) {
			t.Error("not restored")
		}
	})
}

// Holes stay holes while a large file is staged and published.
func TestSparse(t *testing.T) {
	const size = 48 << 20
	each(t, func(t *testing.T, v View) {
		dir, store := pair(t)
		must(t, native(dir).WriteFile("old", []byte("head"), 0o644))
		must(t, os.Truncate(filepath.Join(dir, "old"), size))
		w := opened(t, dir, store)
		tx := begin(t, w, Options{View: v})
		if l := tx.Layer(); l != nil {
			for _, n := range []string{"old", "new"} {
				f := get(l.OpenFile(n, os.O_RDWR|os.O_CREATE, 0o644))(t)
				must(t, f.Truncate(size))
				_, err := f.WriteAt([]byte("tail"), size-4)
				must(t, err)
				must(t, f.Close())
			}
		} else {
			for _, n := range []string{"old", "new"} {
				f := get(os.OpenFile(filepath.Join(tx.Dir(), n), os.O_RDWR|os.O_CREATE, 0o644))(t)
				must(t, f.Truncate(size))
				_, err := f.WriteAt([]byte("tail"), size-4)
				must(t, err)
				must(t, f.Close())
			}
		}
		commit(t, tx)
		for _, n := range []string{"old", "new"} {
			var st syscall.Stat_t
			must(t, syscall.Stat(filepath.Join(dir, n), &st))
			if st.Size != size || st.Blocks*512 > 2<<20 {
				t.Errorf("%s has %d bytes and takes %d", n, st.Size, st.Blocks*512)
			}
		}
		n := 0
		for _, p := range get(filepath.Glob(filepath.Join(w.GitDir(), "objects/pack/*")))(t) {
			n += int(get(os.Stat(p))(t).Size())
		}
		if n > 1<<20 {
			t.Errorf("the history takes %d bytes", n)
		}
	})
}

// Ordinary programs work in a view as they do anywhere, and what they made is
// sound after the commit.
func TestPrograms(t *testing.T) {
	for _, p := range []string{"git", "sqlite3", "cc", "python3", "tar", "rsync"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("%v; tools/needs.sh installs it", err)
		}
	}
	script := get(filepath.Abs("testdata/programs.sh"))(t)
	for _, v := range views()[1:] {
		t.Run(string(v), func(t *testing.T) {
			dir, store := pair(t)
			must(t, os.MkdirAll(filepath.Join(dir, "seed"), 0o755))
			furnish(t, filepath.Join(dir, "seed"))
			run(t, "sqlite3", filepath.Join(dir, "old.sqlite"), "create table t(x); insert into t values(1),(50)")
			run(t, "rsync", "-a", filepath.Join(dir, "seed")+"/", filepath.Join(dir, "partly"))
			must(t, os.WriteFile(filepath.Join(dir, "partly", "keep"), []byte("old"), 0o600))
			w := opened(t, dir, store, func(c *Config) { c.WriteGit = true })
			tx := begin(t, w, Options{View: v})
			cmd := exec.Command("sh", script)
			cmd.Dir = tx.Dir()
			start := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("programs took %v", time.Since(start).Round(time.Millisecond))
			commit(t, tx)
			check := exec.Command("sh", "-euc", `
				git -C repo fsck --strict; test -z "$(git -C repo status --porcelain)"
				test -f repo/moved/a
				test "$(sqlite3 db.sqlite 'pragma integrity_check; select count(*) from t')" = "ok
1334"
				test "$(sqlite3 old.sqlite 'select group_concat(x) from t')" = 50,99
				test "$(./prog)" = compiled
				test "$(cat py/symlink)" = atomic; test py/linked -ef py/replaced; test ! -e py/copy/dir
				diff -r --no-dereference seed untar/seed; diff -r --no-dereference seed synced; diff -r --no-dereference seed partly
				test -z "$(rsync -ain --delete seed/ synced/)"`)
			check.Dir = dir
			if out, err := check.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			asGit(t, w, "fsck", "--strict")
		})
	}
}
