//go:build unix

package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// Mutant that these tests kill (made, seen to fail, and unmade): Same trusts
// equal digests.

func write(t testing.TB, w *Workspace, note Note, pairs ...string) *Commit {
	t.Helper()
	tx := begin(t, w, Options{})
	for i := 0; i < len(pairs); i += 2 {
		if d := filepath.Dir(pairs[i]); d != "." {
			must(t, tx.Layer().MkdirAll(d, 0o755))
		}
		must(t, tx.Layer().WriteFile(pairs[i], []byte(pairs[i+1]), 0o644))
	}
	c, err := tx.Commit(context.Background(), note)
	must(t, err)
	return c
}

// A person reads the history with plain Git.
func TestPlainGit(t *testing.T) {
	dir, store := pair(t)
	must(t, native(dir).WriteFile("hello.txt", []byte("hello\n"), 0o644))
	w := opened(t, dir, store)
	write(t, w, Note{ID: "7.1", PID: 7, Call: 1, Tool: "fs.write"}, "hello.txt", "hello\nworld\n")
	write(t, w, Note{ID: "7.2", PID: 7, Call: 2, Message: "say it\n\nat length"}, "src/main.c", "int main;\n")
	log := asGit(t, w, "log", "--format=%an|%s")
	if want := "kern|say it\nkern|fs.write: call 1 of process 7\noutside|What was there\n"; log != want {
		t.Errorf("git log: %q", log)
	}
	if d := asGit(t, w, "diff", "HEAD~2", "HEAD~1"); !strings.Contains(d, "+world") || !strings.Contains(d, "a/hello.txt") {
		t.Errorf("git diff: %s", d)
	}
	if s := asGit(t, w, "show", "--stat", "HEAD"); !strings.Contains(s, "src/main.c") || !strings.Contains(s, "Kern-Pid: 7") || !strings.Contains(s, "Kern-Call: 2") {
		t.Errorf("git show: %s", s)
	}
	if s := asGit(t, w, "log", "--format=%(trailers:key=Kern-Tool,valueonly)", "-1", "HEAD~1"); strings.TrimSpace(s) != `"fs.write"` {
		t.Errorf("trailer: %q", s)
	}
	if s := asGit(t, w, "show", "HEAD~1:hello.txt"); s != "hello\nworld\n" {
		t.Errorf("content: %q", s)
	}
	asGit(t, w, "fsck", "--strict")
	clone := filepath.Join(filepath.Dir(dir), "clone")
	run2(t, "git", "clone", "-q", w.GitDir(), clone)
	if b := get(os.ReadFile(filepath.Join(clone, "src/main.c")))(t); string(b) != "int main;\n" {
		t.Errorf("cloned %q", b)
	}
	var notes []Note
	for c, err := range w.History() {
		must(t, err)
		notes = append(notes, c.Note)
	}
	if len(notes) != 3 || notes[0].ID != "7.2" || notes[0].Message != "say it\n\nat length" || notes[1].Tool != "fs.write" || notes[1].PID != 7 {
		t.Errorf("%+v", notes)
	}
	asGit(t, w, "gc", "-q") // what Git repacks is still read
	w2 := opened(t, dir, filepath.Join(filepath.Dir(store), "x"), func(c *Config) { c.Store = store })
	if s := get(w2.At(get(w2.Commit(hashOf(t, w, "HEAD~1")))(t).Hash))(t); !strings.Contains(fmt.Sprint(s.Lookup("hello.txt")), "12") {
		t.Errorf("after gc: %v", s)
	}
}

func run2(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func hashOf(t testing.TB, w *Workspace, rev string) Hash {
	t.Helper()
	return get(fsys.ParseHash(strings.TrimSpace(asGit(t, w, "rev-parse", rev))))(t)
}

func TestIgnore(t *testing.T) {
	dir, store := pair(t)
	d := native(dir)
	for _, p := range []string{"build/out.o", "src/a.c", "src/a.tmp", "keep.tmp", "sub/build/x", ".git/config", "sub/.git/HEAD", "node_modules/m/i.js"} {
		must(t, os.MkdirAll(filepath.Dir(d.at(p)), 0o755))
		must(t, d.WriteFile(p, []byte(p), 0o644))
	}
	w := opened(t, dir, store, func(c *Config) { c.Ignore = []string{"/build/", "*.tmp", "!/keep.tmp", "node_modules/"} })
	if got, want := asGit(t, w, "ls-tree", "-r", "--name-only", "HEAD"), "keep.tmp\nsrc/a.c\nsub/build/x\n"; got != want {
		t.Fatalf("the history holds %q", got)
	}
	sum := get(w.Snapshot(context.Background()))(t).Digest()
	must(t, d.WriteFile("node_modules/m/i.js", []byte("other"), 0o644))
	must(t, d.WriteFile(".git/config", []byte("other"), 0o644))
	if get(w.Snapshot(context.Background()))(t).Digest() != sum {
		t.Error("the digest saw an ignored file")
	}
	each(t, func(t *testing.T, v View) { // ignored files are staged, published and checked like others
		tx := begin(t, w, Options{View: v})
		must(t, filesOf(tx).WriteFile("build/out.o", []byte(v), 0o644))
		must(t, filesOf(tx).WriteFile("build/new.o", []byte(v), 0o644))
		commit(t, tx)
		if b := get(d.ReadFile("build/out.o"))(t); string(b) != string(v) {
			t.Errorf("found %q", b)
		}
		tx = begin(t, w, Options{View: v})
		must(t, filesOf(tx).WriteFile("build/out.o", []byte("mine"), 0o644))
		must(t, d.WriteFile("build/out.o", []byte("theirs"), 0o644))
		if _, err := tx.Commit(context.Background(), Note{}); !isCode(err, Conflict) {
			t.Errorf("expected a conflict, found %v", err)
		}
		must(t, d.Remove("build/new.o"))
	})
	tx := begin(t, w, Options{})
	if err := tx.Layer().WriteFile(".git/config", nil, 0o600); !isCode(err, Refused) {
		t.Errorf("expected %s, found %v", Refused, err)
	}
	if err := tx.Layer().RemoveAll("sub"); !isCode(err, Refused) {
		t.Errorf("expected %s, found %v", Refused, err)
	}
}

// A digest is a hint: with one that always collides nothing is confused.
func TestForcedCollision(t *testing.T) {
	old := fsys.DigestSum
	t.Cleanup(func() { fsys.DigestSum = old })
	fsys.DigestSum = func([]byte) (h [sha256.Size]byte) { return h }
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	a := get(w.Snapshot(context.Background()))(t)
	before := dump(t, dir)
	tx := begin(t, w, Options{})
	must(t, rework(tx.Layer()))
	c := commit(t, tx)
	b := get(w.Snapshot(context.Background()))(t)
	if a.Digest() != b.Digest() {
		t.Fatal("the digests do not collide")
	}
	if a.Same(b) || a.Identical(b) || len(a.Diff(b)) == 0 {
		t.Error("different states are taken for the same")
	}
	if !b.Same(get(w.At(c.Hash))(t)) {
		t.Error("the same state is taken for different")
	}
	must(t, native(dir).WriteFile("edit", []byte("outside"), 0o640))
	get(w.Snapshot(context.Background()))(t)
	_, err := w.Restore(context.Background(), get(w.Commit(c.Hash))(t).Parent, Note{})
	must(t, err)
	if got, want := rootless(symlinkTimes(dump(t, dir))), rootless(symlinkTimes(before)); got != want {
		t.Errorf("not restored:\n%s", unlike(want, got))
	}
	head, _ := get(w.At(hashOf(t, w, "HEAD~1")))(t).Lookup("edit")
	if b := get(io.ReadAll(get(w.Content(head.Hash))(t)))(t); string(b) != "outside" {
		t.Error("what somebody else wrote is not in the history")
	}
}

// Metadata that is made to look unchanged is seen through: by the time of the
// last change of anything, which nobody can set, or at the latest by Verify.
func TestDigestSeesThrough(t *testing.T) {
	dir, store := pair(t)
	d := native(dir)
	must(t, d.WriteFile("f", []byte("old content"), 0o644))
	w := opened(t, dir, store)
	first := get(w.Snapshot(context.Background()))(t)
	fi := get(os.Stat(d.at("f")))(t)
	must(t, d.WriteFile("f", []byte("new content"), 0o644))
	must(t, d.Chtimes("f", fi.ModTime()))
	second := get(w.Snapshot(context.Background()))(t)
	if second.Same(first) || second.Digest() == first.Digest() {
		t.Fatal("a file of the same size and time is taken for the same")
	}
	lie := w.index.root.Dir.Ents[0]
	lie.Hash = Hash{1} // as if a change had left no trace
	w.index.root = w.index.root.Merge([]fsys.Edit{{Path: "f", Item: &lie}})
	if get(w.Snapshot(context.Background()))(t).Same(second) {
		t.Fatal("the lie was not believed")
	}
	if third := get(w.Verify(context.Background()))(t); !third.Same(second) || third.Digest() != second.Digest() {
		t.Error("Verify does not read")
	}
	must(t, d.Chmod("f", 0o600))
	fourth := get(w.Snapshot(context.Background()))(t)
	if fourth.Digest() == second.Digest() {
		t.Error("the mode is not in the digest")
	}
	must(t, d.Chtimes("f", fi.ModTime().Add(time.Hour)))
	fifth := get(w.Snapshot(context.Background()))(t)
	if fifth.Digest() != fourth.Digest() || !fifth.Same(fourth) || fifth.Identical(fourth) {
		t.Error("a time belongs to Identical and to nothing else")
	}
}

// The digest kept up change by change is the one computed from nothing.
func TestDigestIncremental(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	for i := range 20 {
		write(t, w, Note{}, fmt.Sprintf("d%d/f%d", i%3, i), strings.Repeat("x", i))
		got := get(w.Snapshot(context.Background()))(t).Digest()
		fresh := opened(t, dir, filepath.Join(filepath.Dir(dir), fmt.Sprint("fresh", i)))
		if want := get(fresh.Snapshot(context.Background()))(t).Digest(); got != want {
			t.Fatalf("after %d: %s, from nothing %s", i, got, want)
		}
	}
}

func TestRestoreAndExport(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	states := map[Hash]string{hashOf(t, w, "HEAD"): dump(t, dir)}
	for i := range 6 {
		tx := begin(t, w, Options{})
		if i == 0 {
			must(t, rework(tx.Layer()))
		}
		must(t, tx.Layer().WriteFile("edit", fmt.Appendf(nil, "version %d", i), 0o640))
		states[commit(t, tx).Hash] = dump(t, dir)
	}
	n := 0
	for h, want := range states {
		_, err := w.Restore(context.Background(), h, Note{ID: fmt.Sprint("undo", n)})
		must(t, err)
		if got, want := rootless(symlinkTimes(dump(t, dir))), rootless(symlinkTimes(want)); got != want {
			t.Fatalf("restoring %s:\n%s", h, unlike(want, got))
		}
		to := filepath.Join(t.TempDir(), "fork")
		must(t, w.Export(context.Background(), h, to))
		if got, want := rootless(symlinkTimes(dump(t, to))), rootless(symlinkTimes(want)); got != want {
			t.Fatalf("exporting %s:\n%s", h, unlike(want, got))
		}
		if s, _, err := w.Outcome(fmt.Sprint("undo", n)); err != nil || s != Committed {
			t.Fatalf("%s %v", s, err)
		}
		n++
	}
	if err := w.Export(context.Background(), hashOf(t, w, "HEAD"), dir); !isCode(err, Refused) {
		t.Errorf("exported over what is there: %v", err)
	}
	if _, err := w.Restore(context.Background(), Hash{1}, Note{}); !isCode(err, Missing) {
		t.Errorf("expected %s, found %v", Missing, err)
	}
}

func TestRetention(t *testing.T) {
	dir, store := pair(t)
	d := native(dir)
	must(t, d.WriteFile("yours", []byte("what a person had"), 0o644))
	w := opened(t, dir, store, func(c *Config) { c.History.MaxCommits = 8 })
	first := hashOf(t, w, "HEAD")
	var middle Hash
	for i := range 40 {
		if i == 5 {
			must(t, d.WriteFile("yours", []byte("changed by the person"), 0o644))
			get(w.Snapshot(context.Background()))(t)
		}
		c := write(t, w, Note{ID: fmt.Sprint(i)}, "yours", fmt.Sprint("by an agent ", i), fmt.Sprint("f", i), strings.Repeat(fmt.Sprint(i), 100))
		if i == 5 {
			middle = get(w.Commit(c.Hash))(t).Parent
		}
	}
	asGit(t, w, "fsck", "--strict")
	n := 0
	for _, err := range w.History() {
		must(t, err)
		n++
	}
	if n < 8 || n > 11 {
		t.Errorf("%d commits are left", n)
	}
	kept := get(w.Kept())(t)
	if len(kept) != 2 || kept[0].Hash != middle || kept[1].Hash != first {
		t.Fatalf("kept %v", kept)
	}
	for h, want := range map[Hash]string{first: "what a person had", middle: "changed by the person"} {
		_, err := w.Restore(context.Background(), h, Note{})
		must(t, err)
		if b := get(d.ReadFile("yours"))(t); string(b) != want {
			t.Errorf("found %q", b)
		}
	}
	var e *Error
	if _, err := w.At(hashOf(t, w, "HEAD~7")); errors.As(err, &e) {
		t.Error(err)
	}
}

func TestHistoryFull(t *testing.T) {
	dir, store := pair(t)
	noise := make([]byte, 100<<10)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	must(t, native(dir).WriteFile("yours", noise, 0o644))
	w := opened(t, dir, store, func(c *Config) { c.History.MaxBytes = 40 << 10 })
	before := dump(t, dir)
	tx := begin(t, w, Options{})
	sum := sha256.Sum256(noise)
	var big bytes.Buffer
	for range 4000 { // does not compress
		sum = sha256.Sum256(sum[:])
		big.Write(sum[:])
	}
	must(t, tx.Layer().WriteFile("yours", big.Bytes(), 0o644))
	_, err := tx.Commit(context.Background(), Note{})
	if err == nil {
		_, err = func() (*Commit, error) {
			before = dump(t, dir)
			tx := begin(t, w, Options{})
			must(t, tx.Layer().WriteFile("other", []byte("x"), 0o644))
			return tx.Commit(context.Background(), Note{})
		}()
	}
	if !isCode(err, Full) {
		t.Fatalf("expected %s, found %v", Full, err)
	}
	if got := dump(t, dir); got != before {
		t.Errorf("something was published:\n%s", unlike(before, got))
	}
}

// Many commits stay a few packs, and every state can still be read.
func TestPacksGather(t *testing.T) {
	dir, store := pair(t)
	w := opened(t, dir, store)
	var all []Hash
	for i := range 150 {
		all = append(all, write(t, w, Note{}, fmt.Sprint("f", i%10), fmt.Sprint(i)).Hash)
	}
	packs := get(filepath.Glob(filepath.Join(w.GitDir(), "objects/pack/*.pack")))(t)
	if len(packs) > 34 {
		t.Errorf("%d packs", len(packs))
	}
	asGit(t, w, "fsck", "--strict")
	for i, h := range all {
		e, ok := get(w.At(h))(t).Lookup(fmt.Sprint("f", i%10))
		r := get(w.Content(e.Hash))(t)
		if b := get(io.ReadAll(r))(t); !ok || string(b) != fmt.Sprint(i) {
			t.Fatalf("commit %d holds %q", i, b)
		}
		r.Close()
	}
}

// A torn index is made anew; a damaged log refuses to open and says where.
func TestDamage(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	for i := range 5 {
		write(t, w, Note{ID: fmt.Sprint(i)}, "f", fmt.Sprint(i))
	}
	must(t, w.Close())
	idx := get(filepath.Glob(filepath.Join(w.GitDir(), "objects/pack/*.idx")))(t)
	for i, name := range idx {
		os.Chmod(name, 0o600)
		if i%2 == 0 {
			must(t, os.Truncate(name, 100))
		} else {
			must(t, os.Remove(name))
		}
	}
	w = opened(t, dir, store)
	if s, _, err := w.Outcome("3"); err != nil || s != Committed {
		t.Fatalf("%s %v", s, err)
	}
	asGit(t, w, "fsck", "--strict")
	must(t, w.Close())

	name := filepath.Join(store, "log")
	log := get(os.ReadFile(name))(t)
	end := bytes.LastIndexByte(log, '}') + 1
	for cut := end - 1; cut > end-60; cut -= 7 { // the last record is torn: it never was
		torn := append(bytes.Clone(log[:cut]), make([]byte, len(log)-cut)...)
		must(t, os.WriteFile(name, torn, 0o600))
		l, err := openLog(name, true)
		must(t, err)
		if l.Pending() == nil || l.Pending().Intent.Note.ID != "4" || l.Now().Seq != 5 {
			t.Fatalf("cut at %d: %+v", cut, l.Now())
		}
		must(t, l.Close())
		again, err := openLog(name, false)
		must(t, err)
		if again.Pending() == nil || again.Now().Seq != 5 {
			t.Fatalf("cut at %d, then rewritten: %+v", cut, again.Now())
		}
		must(t, again.Close())
	}
	bad := bytes.Clone(log)
	bad[len("kernlog1")+12] ^= 1
	must(t, os.WriteFile(name, bad, 0o600))
	if _, err := Open(context.Background(), dir, Config{Store: store}); !isCode(err, Damaged) || !strings.Contains(err.Error(), "byte 8") {
		t.Fatalf("expected %s naming byte 8, found %v", Damaged, err)
	}
}

func TestReopenReadsNothing(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	want := get(w.Snapshot(context.Background()))(t)
	must(t, w.Close())
	w = opened(t, dir, store)
	if got := get(w.Snapshot(context.Background()))(t); !got.Identical(want) {
		t.Error("another state after reopening")
	}
	n := 0
	for range w.History() {
		n++
	}
	if n != 1 {
		t.Errorf("reopening made %d commits", n-1)
	}
	must(t, w.Close())
	b := get(os.ReadFile(filepath.Join(store, "index")))(t)
	for i := 0; i < len(b); i += 1 + len(b)/50 {
		bad := bytes.Clone(b)
		bad[i] ^= 0x41
		must(t, os.WriteFile(filepath.Join(store, "index"), bad, 0o600))
		w = opened(t, dir, store)
		if !get(w.Snapshot(context.Background()))(t).Identical(want) {
			t.Fatalf("a bad index at %d is believed", i)
		}
		must(t, w.Close())
	}
}

func TestConfigRefused(t *testing.T) {
	top := t.TempDir()
	for _, d := range []string{"work", "work/in", "store"} {
		must(t, os.Mkdir(filepath.Join(top, d), 0o755))
	}
	at := func(s string) string { return filepath.Join(top, s) }
	for _, c := range []struct {
		name, dir string
		conf      Config
	}{
		{"no store", at("work"), Config{}},
		{"store in the workspace", at("work"), Config{Store: at("work/in")}},
		{"workspace in the store", at("work/in"), Config{Store: at("work")}},
		{"same", at("work"), Config{Store: at("work")}},
		{"bad pattern", at("work"), Config{Store: at("store"), Ignore: []string{"[z-a]"}}},
		{"scratch elsewhere", at("work"), Config{Store: at("store"), Scratch: memory(t)}},
		{"no directory", at("none"), Config{Store: at("store")}},
	} {
		w, err := Open(context.Background(), c.dir, c.conf)
		if err == nil {
			t.Errorf("%s: opened", c.name)
			w.Close()
		}
	}
}
