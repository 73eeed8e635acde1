//go:build linux

package host_test

// What these tests were seen to catch, each by breaking the code on purpose:
//
//   - follow: the last state before in place of the first            TestUndoAnywhere
//   - look: what somebody else left taken for the process's own      TestUndoLeavesOthersAlone
//   - look: a change in between not seen                             TestUndoLeavesOthersAlone
//   - clear: what lies higher removed first                          TestUndoAnywhere
//   - content: no time, or no permissions                            TestUndoAnywhere
//   - content: a second name made a file of its own                  TestUndoKeepsLinks
//   - after: the step of the record itself taken back                TestUndoAnywhere
//   - records: children left out                                     TestUndoOfChildren
//   - export: the files of now                                       TestForkFiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
)

// held is a directory as undo promises it: names, kinds, permissions, content,
// targets, and the times of files.
func held(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		what := ""
		switch {
		case fi.Mode().IsRegular():
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what = fmt.Sprintf("%q %d", text, fi.ModTime().UnixNano())
		case fi.Mode()&fs.ModeSymlink != 0:
			what, err = os.Readlink(p)
		}
		fmt.Fprintf(&b, "%s %s %s\n", name, fi.Mode(), what)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// stir makes random changes to a view.
func stir(r *rand.Rand, l *host.Layer) error {
	names := []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "f", "f/g", "f/g/h", "f/g/i"}
	for range 3 + r.IntN(8) {
		name := names[r.IntN(len(names))]
		what := r.IntN(9)
		if e, err := l.Lstat(name); what > 6 && err == nil && e.Target == "" {
			if err := l.Chmod(name, fs.FileMode(0o500|r.IntN(0o100))); err != nil {
				return err
			}
			continue
		}
		for at := name; at != "."; at = filepath.Dir(at) { // what is in the way goes
			if e, err := l.Lstat(at); err == nil && (at == name && what < 6 || e.Kind != 'd') {
				if err := l.RemoveAll(at); err != nil {
					return err
				}
			}
		}
		if what < 2 {
			continue
		}
		err := l.MkdirAll(filepath.Dir(name), 0o755)
		switch {
		case err != nil:
		case what == 2:
			err = l.Symlink("somewhere", name)
		case what == 3:
			err = l.MkdirAll(name, 0o755)
		case what < 6:
			err = errors.Join(l.WriteFile(name, fmt.Appendf(nil, "%d\n", r.IntN(100)), 0o640), l.Chtimes(name, time.Unix(int64(r.IntN(1e9)), 42)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stirred runs an agent whose tool changes the workspace n times, and returns
// the states before each time and after the last.
func stirred(t *testing.T, s *space, k *host.Kernel, n int, change func(i int, l *host.Layer) error) (abi.Pid, []string) {
	t.Helper()
	var script strings.Builder
	script.WriteString("replies:\n")
	for i := range n {
		fmt.Fprintf(&script, "  - calls: [{tool: stir, args: {n: %d}}]\n", i)
	}
	script.WriteString("  - text: done\n")
	if err := os.WriteFile(s.script, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var states []string
	type in struct {
		N int `json:"n"`
	}
	stir := host.Tool("stir", "Change files.", func(ctx context.Context, a in) (string, error) {
		states = append(states, held(t, s.files))
		l := host.Files(ctx)
		if err := l.WriteFile("count", fmt.Appendf(nil, "%d", a.N), 0o644); err != nil {
			return "", err
		}
		return "ok", change(a.N, l)
	}).As(abi.Transactional)
	r, err := k.Run(t.Context(), host.Agent{Model: "script:" + s.script, Workspace: s.files, Tools: []host.Callable{stir}}, "go")
	if err != nil || r.Exit != abi.ExitDone {
		t.Fatalf("%+v %v", r, err)
	}
	return r.Pid, append(states, held(t, s.files))
}

func undo(t *testing.T, k *host.Kernel, pid abi.Pid, u abi.UndoOptions) (abi.UndoResult, error) {
	t.Helper()
	return k.Files.Undo(t.Context(), pid, u)
}

func history(t *testing.T, k *host.Kernel, pid abi.Pid) []abi.Commit {
	t.Helper()
	all, err := k.Files.Commits(t.Context(), pid)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestUndoAnywhere goes back and forth between the states after random changes:
// each comes back, to the byte, the permissions and the time.
func TestUndoAnywhere(t *testing.T) {
	rounds := 3
	if os.Getenv("KERN_SOAK") != "" {
		rounds = 40
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(7, uint64(seed)))
		s := newSpace(t, "replies: []")
		k := s.open()
		pid, states := stirred(t, s, k, 8, func(_ int, l *host.Layer) error { return stir(r, l) })
		commits := history(t, k, pid)
		if len(commits) != 8 {
			t.Fatalf("%d commits, want 8", len(commits))
		}
		for range 12 {
			to := r.IntN(len(states))
			u := abi.UndoOptions{}
			if to > 0 {
				u.To = commits[to-1].Seq
			}
			before := held(t, s.files)
			done, err := undo(t, k, pid, u)
			if err != nil {
				t.Fatalf("seed %d: to %d: %v", seed, to, err)
			}
			if got := held(t, s.files); got != states[to] {
				t.Fatalf("seed %d: to %d: from\n%s\ngot\n%s\nwant\n%s\n%+v", seed, to, before, got, states[to], done)
			}
			if done.Hash == "" && before != states[to] || len(done.Kept) > 0 {
				t.Fatalf("seed %d: to %d: %+v", seed, to, done)
			}
		}
	}
}

// TestStatesReadFromEachOther: a state that is read as what differs from another
// is the state that is read whole.
func TestStatesReadFromEachOther(t *testing.T) {
	s := newSpace(t, "replies: []")
	k := s.open()
	r := rand.New(rand.NewPCG(8, 8))
	stirred(t, s, k, 6, func(_ int, l *host.Layer) error { return stir(r, l) })
	w, err := k.Space(s.files)
	if err != nil {
		t.Fatal(err)
	}
	for a := range w.History() {
		near, err := w.At(a.Hash)
		if err != nil {
			t.Fatal(err)
		}
		for b := range w.History() {
			whole, err := w.At(b.Hash)
			if err != nil {
				t.Fatal(err)
			}
			got, err := w.AtFrom(b.Hash, near)
			if err != nil || !got.Identical(whole) || got.Digest() != b.Digest {
				t.Fatalf("%s from %s: %v", b.Hash, a.Hash, err)
			}
		}
	}
}

// TestUndoLeavesOthersAlone: what somebody else changed since, or in between,
// is a conflict that is named, and stays to the byte.
func TestUndoLeavesOthersAlone(t *testing.T) {
	s := newSpace(t, "replies: []")
	k := s.open()
	pid, _ := stirred(t, s, k, 3, func(i int, l *host.Layer) error {
		if i == 1 { // somebody else, between two commits
			s.put("between.txt", "theirs\n")
			return l.WriteFile("mine.txt", []byte("mine\n"), 0o644)
		}
		if i == 2 {
			return errors.Join(l.Remove("kept.txt"), l.WriteFile("between.txt", []byte("again\n"), 0o644), l.MkdirAll("d", 0o755), l.WriteFile("d/x", nil, 0o644))
		}
		return l.WriteFile("between.txt", []byte("first\n"), 0o644)
	})
	s.put("mine.txt", "theirs now\n")
	s.put("d/theirs", "theirs\n")
	before := s.tree()
	_, err := undo(t, k, pid, abi.UndoOptions{})
	var e *abi.Error
	if !errors.As(err, &e) || e.Code != abi.WorkspaceConflict || !strings.Contains(e.Message, "between.txt, mine.txt;") || e.Where != "between.txt" {
		t.Fatalf("%v, want a conflict about both", err)
	}
	if after := s.tree(); after != before {
		t.Fatalf("a refused undo changed\n%s\ninto\n%s", before, after)
	}
	done, err := undo(t, k, pid, abi.UndoOptions{Partial: true, By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(done.Kept)
	if !slices.Equal(done.Kept, []string{"between.txt", "d", "mine.txt"}) {
		t.Errorf("kept %v", done.Kept)
	}
	for name, want := range map[string]string{"kept.txt": "as it was\n", "mine.txt": "theirs now\n", "between.txt": "again\n", "d/theirs": "theirs\n"} {
		if b, err := os.ReadFile(filepath.Join(s.files, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q %v, want %q", name, b, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(s.files, "d/x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("d/x: %v", err)
	}
	last := history(t, k, pid)
	if c := last[len(last)-1]; c.Seq != 0 || c.Tool != "undo" || !strings.Contains(c.Note, "by ann") {
		t.Errorf("the undo stands in the history as %+v", c)
	}
}

// TestUndoKeepsLinks: names that shared a file share it again.
func TestUndoKeepsLinks(t *testing.T) {
	s := newSpace(t, "replies: []")
	if err := os.Link(filepath.Join(s.files, "kept.txt"), filepath.Join(s.files, "too.txt")); err != nil {
		t.Fatal(err)
	}
	k := s.open()
	pid, states := stirred(t, s, k, 1, func(_ int, l *host.Layer) error {
		return errors.Join(l.Remove("kept.txt"), l.Remove("too.txt"))
	})
	if _, err := undo(t, k, pid, abi.UndoOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := held(t, s.files); got != states[0] {
		t.Errorf("got\n%s\nwant\n%s", got, states[0])
	}
	a, err := os.Stat(filepath.Join(s.files, "kept.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.Stat(filepath.Join(s.files, "too.txt")); err != nil || !os.SameFile(a, b) {
		t.Errorf("they share no file any more: %v", err)
	}
}

// TestUndoOfChildren: what the processes below did is a process's doing.
func TestUndoOfChildren(t *testing.T) {
	s := newSpace(t, `
replies:
  - calls: [{tool: fs.write, args: {path: mine, content: "1"}}]
  - calls: [{tool: spawn, args: {task: "write", model: "script:child.yaml"}}]
  - calls: [{tool: wait}]
  - calls: [{tool: fs.write, args: {path: mine, content: "2"}}]
  - text: done
`)
	child := "replies:\n  - calls: [{tool: fs.write, args: {path: theirs, content: \"c\"}}, {tool: fs.edit, args: {path: kept.txt, old: was, new: is}}]\n  - text: done\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.script), "child.yaml"), []byte(child), 0o600); err != nil {
		t.Fatal(err)
	}
	before := held(t, s.files)
	k := s.open()
	r, _ := s.do(k, s.agent("tools: [{name: spawn}, {name: wait}]\n"))
	if r.Exit != abi.ExitDone {
		t.Fatalf("%+v", r)
	}
	all := history(t, k, r.Pid)
	if len(all) != 4 || all[1].Pid == r.Pid || all[0].Pid != r.Pid {
		t.Fatalf("history %+v", all)
	}
	if n := len(history(t, k, all[1].Pid)); n != 2 {
		t.Errorf("the child's own history has %d commits", n)
	}
	after := held(t, s.files)
	if _, err := undo(t, k, r.Pid, abi.UndoOptions{To: all[0].Seq}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(s.files, "mine")); err != nil || string(b) != "1" {
		t.Errorf("mine: %q %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(s.files, "theirs")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("theirs: %v", err)
	}
	if _, err := undo(t, k, r.Pid, abi.UndoOptions{}); err != nil || held(t, s.files) != before {
		t.Errorf("%v\n%s", err, held(t, s.files))
	}
	if _, err := undo(t, k, r.Pid, abi.UndoOptions{To: all[3].Seq}); err != nil || held(t, s.files) != after {
		t.Errorf("%v\n%s\nwant\n%s", err, held(t, s.files), after)
	}
}

// TestForkFiles: a fork has the files of its moment, and changes only them.
func TestForkFiles(t *testing.T) {
	s := newSpace(t, "replies: []")
	k := s.open()
	r := rand.New(rand.NewPCG(9, 9))
	pid, states := stirred(t, s, k, 4, func(_ int, l *host.Layer) error { return stir(r, l) })
	commits := history(t, k, pid)
	for i, at := range []uint64{1, commits[0].Seq, commits[2].Seq, commits[3].Seq} {
		dir := filepath.Join(t.TempDir(), "copy")
		f, err := k.Fork(t.Context(), pid, abi.ForkOptions{At: at, Workspace: dir})
		if err != nil {
			t.Fatal(err)
		}
		if f.Workspace != dir {
			t.Errorf("it works in %s", f.Workspace)
		}
		if err := k.Signal(t.Context(), f.Pid, abi.Kill, "test"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Wait(t.Context(), f.Pid); err != nil {
			t.Fatal(err)
		}
		want := states[[]int{0, 1, 3, 4}[i]]
		if got := held(t, dir); got != want { // what it did next came to nothing, for its tool is not here
			t.Errorf("at %d: got\n%s\nwant\n%s", at, got, want)
		}
	}
	if held(t, s.files) != states[4] {
		t.Error("a fork changed the files of the first")
	}
	if _, err := k.Fork(t.Context(), pid, abi.ForkOptions{At: 9999}); err == nil {
		t.Error("forked at a record that is not there")
	}
	if left, _ := filepath.Glob(s.files + ".fork*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestVerifyWorkspaceDamage: a byte that went wrong in the history is found.
func TestVerifyWorkspaceDamage(t *testing.T) {
	s := newSpace(t, "replies: []")
	k := s.open()
	stirred(t, s, k, 2, func(i int, l *host.Layer) error {
		return l.WriteFile("big", []byte(strings.Repeat(fmt.Sprintf("line %d\n", i), 2000)), 0o644)
	})
	sound, err := k.Files.Verify(t.Context(), s.files)
	if err != nil || sound.Commits != 3 || len(sound.Outside) != 0 || sound.Contents < 4 {
		t.Fatalf("%+v %v", sound, err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	packs, err := filepath.Glob(filepath.Join(sound.History, "objects/pack/*.pack"))
	if err != nil || len(packs) == 0 {
		t.Fatalf("no packs in %s: %v", sound.History, err)
	}
	for _, p := range packs {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0x20
		if err := errors.Join(os.Chmod(p, 0o600), os.WriteFile(p, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	k = s.open()
	if sound, err := k.Files.Verify(t.Context(), s.files); err == nil {
		t.Errorf("found nothing: %+v", sound)
	}
}

// TestCodeUndone: what code did with compensable tools before it ended with an
// exception is undone.
func TestCodeUndone(t *testing.T) {
	w := newWorld(t, `
replies:
  - calls:
      - tool: code
        args:
          source: |
            from tools.agent import book
            book(seat="a")
            book(seat="b")
            raise ValueError("no")
  - text: done
`)
	log := filepath.Join(t.TempDir(), "log")
	k := w.open()
	r := w.run(k, host.Agent{Calls: []string{"code"}, Tools: travel(log, abi.Irreversible, "")})
	b, err := os.ReadFile(log)
	if want := "book a\nbook b\ncancel t-b\ncancel t-a\n"; err != nil || string(b) != want || r.Output != "done" {
		t.Errorf("%v, it did\n%s want\n%s", err, b, want)
	}
	if u := told(t, k, r.Pid); len(u.Undone) != 2 || len(u.Kept) != 0 {
		t.Errorf("%+v", u)
	}
}
