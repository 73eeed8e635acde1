//go:build unix

package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A person may tidy the history up with Git at any time. Nothing is lost by
// it, no commit fails, and none keeps the lock.
//
// Mutants that these tests kill (each was made, seen to fail, and unmade):
//   - a published pack has no .keep file
//   - packs that are gone are still believed to be there
//   - what may be gone is not recorded anew
//   - refs are looked for in their own files only
//   - deltas are joined as they are
func TestTidiedUp(t *testing.T) {
	for _, at := range []string{"between commits", "before the seal", "before the rollback", "always"} {
		t.Run(at, func(t *testing.T) {
			dir, store := pair(t)
			furnish(t, dir)
			w := opened(t, dir, store)
			tidy := func(now string) {
				if at == now || at == "always" {
					asGit(t, w, "gc", "--prune=now", "-q")
				}
			}
			large := []byte(noise())
			want := map[Hash][]byte{}
			for i := range 60 {
				tx := begin(t, w, Options{})
				text := fmt.Appendf(bytes.Clone(large), "%d", i)
				must(t, tx.Layer().WriteFile("dir/large", text, 0o644))
				must(t, tx.Layer().WriteFile(fmt.Sprint("f", i%7), fmt.Append(nil, i), 0o644))
				c, err := tx.Publish(context.Background(), Note{ID: fmt.Sprint(i)})
				must(t, err)
				if i%5 == 4 {
					if i%20 == 4 {
						tidy("before the rollback")
					}
					must(t, tx.Rollback())
					continue
				}
				if i%20 == 1 {
					tidy("before the seal")
				}
				must(t, tx.Seal())
				if w.lock.heldHere() {
					t.Fatal("the lock is kept")
				}
				if i%20 == 3 {
					tidy("between commits")
				}
				want[c.Hash] = text
			}
			asGit(t, w, "fsck", "--strict")
			for h, text := range want {
				if got := contentAt(t, w, h, "dir/large"); !bytes.Equal(got, text) {
					t.Fatalf("%s holds %d bytes, expected %d", h, len(got), len(text))
				}
			}
			must(t, w.Close())
			w = opened(t, dir, store)
			for h, text := range want {
				_, err := w.Restore(context.Background(), h, Note{})
				must(t, err)
				if got := get(os.ReadFile(filepath.Join(dir, "dir/large")))(t); !bytes.Equal(got, text) {
					t.Fatalf("restored %d bytes", len(got))
				}
				break
			}
		})
	}
}

// noise does not compress, so Git makes deltas of what begins with it.
func noise() string {
	sum, b := sha256.Sum256(nil), []byte(nil)
	for range 300 {
		sum = sha256.Sum256(sum[:])
		b = append(b, sum[:]...)
	}
	return string(b)
}

func contentAt(t testing.TB, w *Workspace, h Hash, name string) []byte {
	e, ok := get(w.At(h))(t).Lookup(name)
	if !ok {
		t.Fatalf("%s does not hold %s", h, name)
	}
	r := get(w.Content(e.Hash))(t)
	defer r.Close()
	return get(io.ReadAll(r))(t)
}

// What is kept of a person, and where the history was cut, is still known when
// Git has put the refs into its list.
func TestTidiedUpRetention(t *testing.T) {
	dir, store := pair(t)
	d := native(dir)
	must(t, d.WriteFile("yours", []byte("what a person had"), 0o644))
	w := opened(t, dir, store, func(c *Config) { c.History.MaxCommits = 4 })
	first := hashOf(t, w, "HEAD")
	for i := range 24 {
		write(t, w, Note{}, "yours", fmt.Sprint("by an agent ", i), "large", noise()+fmt.Sprint(i))
		if i%6 == 5 {
			asGit(t, w, "gc", "--prune=now", "-q")
		}
		asGit(t, w, "fsck", "--strict")
	}
	kept := get(w.Kept())(t)
	if len(kept) != 1 || kept[0].Hash != first {
		t.Fatalf("kept %v", kept)
	}
	if b := contentAt(t, w, first, "yours"); string(b) != "what a person had" {
		t.Errorf("found %q", b)
	}
	n := 0
	for _, err := range w.History() {
		must(t, err)
		n++
	}
	if n < 4 || n > 6 {
		t.Errorf("%d commits are left of 4", n)
	}
}

// What was recorded and is in no commit yet is recorded again when Git has
// thrown it away.
func TestTidiedUpBeforeUse(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w := opened(t, dir, store)
	must(t, w.Close())
	must(t, os.Chtimes(filepath.Join(dir, "away/x/deep"), when, when.AddDate(1, 0, 0))) // a change that makes no commit
	for range 2 {
		w = opened(t, dir, store)
		must(t, w.Close())
	}
	w = opened(t, dir, store)
	asGit(t, w, "gc", "--prune=now", "-q")
	write(t, w, Note{}, "f", "one")
	asGit(t, w, "fsck", "--strict")
	get(w.At(hashOf(t, w, "HEAD")))(t)
}

// A commit that cannot be joined or named stands, and lets go of the lock.
func TestUpkeepFails(t *testing.T) {
	dir, store := pair(t)
	furnish(t, dir)
	w, err := Open(context.Background(), dir, Config{Store: store})
	must(t, err)
	refs := filepath.Join(w.GitDir(), "refs", "heads")
	must(t, os.RemoveAll(refs))
	must(t, os.WriteFile(refs, nil, 0o600)) // so no ref can be written
	c := write(t, w, Note{ID: "x"}, "f", "one")
	if w.lock.heldHere() {
		t.Fatal("the lock is kept")
	}
	if err := w.Close(); err == nil {
		t.Error("Close does not tell")
	}
	must(t, os.Remove(refs))
	w = opened(t, dir, store)
	if s, h, err := w.Outcome("x"); err != nil || s != Committed || h != c.Hash || hashOf(t, w, "HEAD") != h {
		t.Fatalf("%s %s %v", s, h, err)
	}
	asGit(t, w, "fsck", "--strict")
}
