package staging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/workspace"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Mutants that die here: states are taken to be the same when their digests
// are; a state that came back is another; the history is not looked at; a check
// that forgives; a pattern whose * crosses directories.

func openSpace(t *testing.T, dir, store string) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(context.Background(), dir, workspace.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func put(t *testing.T, w *workspace.Workspace, id, text string) *workspace.Commit {
	t.Helper()
	tx, err := w.Begin(context.Background(), workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Layer().WriteFile("a", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := tx.Commit(context.Background(), workspace.Note{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConflictNamesPath: somebody else changes the file that a call changes. The
// conflict names the path, and their change stays.
func TestConflictNamesPath(t *testing.T) {
	dir := t.TempDir()
	w := openSpace(t, dir, t.TempDir())
	ws := &Workspaces{Open: func(string) (*workspace.Workspace, error) { return w, nil }}
	for n := range uint64(5) {
		s, e := ws.Begin(t.Context(), Rules{Dir: dir}, workspace.Layered)
		if e != nil {
			t.Fatal(e)
		}
		if err := s.tx.Layer().WriteFile("a", []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a"), fmt.Appendf(nil, "theirs %d", n), 0o644); err != nil {
			t.Fatal(err)
		}
		out := s.Finish(t.Context(), Call{Pid: 1, N: n + 1, Attempt: 1, Tool: "put", Effect: abi.Transactional}, nil)
		if out.Err == nil || out.Err.Code != abi.WorkspaceConflict || out.Err.Where != "a" {
			t.Errorf("%+v", out.Err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != fmt.Sprintf("theirs %d", n) {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// TestCollision makes every digest the same. States that differ must still be
// told apart in what is recorded, and states that are the same must not be,
// also after a restart.
func TestCollision(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	w := openSpace(t, dir, store)
	collide := func(workspace.Hash) abi.Key { return abi.Key{1} }
	st := states{hash: collide}
	digestNow := func(st *states, w *workspace.Workspace) abi.Key {
		s, err := w.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.addSnapshot(w, s)
	}
	empty := digestNow(&st, w)
	one := st.addCommit(w, put(t, w, "1", "one"))
	two := st.addCommit(w, put(t, w, "2", "two"))
	again := st.addCommit(w, put(t, w, "3", "one"))
	seen := digestNow(&st, w)
	if empty == one || one == two || empty == two || again != one || seen != one {
		t.Errorf("nothing %x, one %x, two %x, one again %x, looked at %x", empty, one, two, again, seen)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = openSpace(t, dir, store)
	fresh := states{hash: collide}
	if k := digestNow(&fresh, w); k != one {
		t.Errorf("what the last commit holds is %x after a restart, and was %x", k, one)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("three"), 0o644); err != nil {
		t.Fatal(err)
	}
	if k := digestNow(&fresh, w); k == empty || k == one || k == two {
		t.Errorf("another state has the digest %x of one that the history holds", k)
	}
}

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		check, text string
		ok          bool
	}{
		{"json", `{"a": [1, 2]}`, true}, {"json", "{\"a\": 1}\n", true}, {"json", `{"a": `, false}, {"json", ``, false}, {"json", `{"a":1,"a":2}`, false},
		{"csv", "a,b\n1,2\n", true}, {"csv", "", true}, {"csv", "a,b\n1\n", false}, {"csv", "a,\"b\n", false},
		{"utf8", "na\u00efve \ufffd", true}, {"utf8", "na\xefve", false},
		{"yaml", "a: 1\n---\nb: [2]\n", true}, {"yaml", "a: [1\n", false}, {"yaml", "a: \"x\n", false},
	} {
		if err := checks[c.check]([]byte(c.text)); (err == nil) != c.ok {
			t.Errorf("%s of %q: %v", c.check, c.text, err)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		paths, name string
		match       bool
	}{
		{"a.json", "a.json", true}, {"a.json", "b/a.json", false}, {"a.json", "axjson", false},
		{"*.json", "x.json", true}, {"*.json", "d/x.json", false}, {"*.json", "x.json5", false},
		{"**/*.json", "x.json", true}, {"**/*.json", "d/e/x.json", true}, {"**", "d/e", true},
		{"d/?.txt", "d/a.txt", true}, {"d/?.txt", "d//.txt", false}, {"d/**/x", "d/x", true}, {"d/**/x", "d/a/b/x", true}, {"d/**/x", "dx", false},
		{"a+(b)", "a+(b)", true}, {"*", "a\nb", true},
	} {
		p, err := (&abi.Invariant{Paths: c.paths}).Pattern()
		if err != nil || p.MatchString(c.name) != c.match {
			t.Errorf("%s on %q: %v, want %v", c.paths, c.name, err, c.match)
		}
	}
	for _, bad := range []string{"", "/a", "../a", "a/../b", "a/"} {
		if _, err := (&abi.Invariant{Paths: bad}).Pattern(); err == nil {
			t.Errorf("%q is a pattern", bad)
		}
	}
}

// TestDecide: what a call published stays when the journal has its answer, and is
// taken back when it has not.
//
// Mutants that die here: each taken for the other.
func TestDecide(t *testing.T) {
	dir := t.TempDir()
	space := openSpace(t, dir, t.TempDir())
	w := &Workspaces{Open: func(string) (*workspace.Workspace, error) { return space, nil }}
	for n, stands := range []bool{true, false, true} {
		was, _ := os.ReadFile(filepath.Join(dir, "a"))
		s, e := w.Begin(t.Context(), Rules{Dir: dir}, workspace.Layered)
		if e != nil {
			t.Fatal(e)
		}
		text := fmt.Sprint("text ", n)
		if err := s.tx.Layer().WriteFile("a", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		d := s.Finish(t.Context(), Call{Pid: 1, N: uint64(n), Effect: abi.Transactional}, nil)
		if d.Err != nil || d.Decide == nil || d.Commit.IsZero() {
			t.Fatalf("%+v", d)
		}
		d.Decide(stands)
		want := text
		if !stands {
			want = string(was)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != want {
			t.Errorf("call %d, which stands %v, left %q, %v; want %q", n, stands, b, err, want)
		}
	}
}

// TestCountsAsRollback: a failure of a transactional tool counts against it, but for one that
// says nothing of what it would have changed.
//
// Mutants that die here: a call that was stopped, or had wrong arguments, counts.
func TestCountsAsRollback(t *testing.T) {
	for code, want := range map[abi.Code]bool{abi.ToolFailed: true, abi.WorkspaceConflict: true, abi.Interrupted: false, abi.InvalidArguments: false, abi.FileMissing: false} {
		if countsAsRollback(code) != want {
			t.Errorf("%s counts: %v", code, !want)
		}
	}
}
