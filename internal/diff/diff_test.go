package diff

// What these tests were seen to catch, each by breaking the code on purpose:
//
//   - hunk: context taken from the wrong side, or not at all         TestGitApplies
//   - put: a missing last newline not said                           TestGitApplies, TestForm
//   - name: odd names written as they are                            TestGitApplies
//   - span: an empty side that begins at its next line               TestForm
//   - hunks: two changes near each other in hunks that overlap       TestGitApplies
//   - backtrack: wrong diagonal taken                                TestLines, TestGitApplies
//   - rising: any order of anchors                                   TestLines
//   - File: a file that becomes a link in one patch                  TestGitApplies

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestForm(t *testing.T) {
	v := func(s string) *Version { return &Version{0o100644, []byte(s)} }
	for _, c := range []struct {
		from, to *Version
		want     string
		stat     Stat
	}{
		{v("a\n"), v("a\n"), "", Stat{}},
		{nil, nil, "", Stat{}},
		{nil, v("a\n"), "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n", Stat{Added: 1}},
		{v("a\nb\n"), nil, "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n", Stat{Removed: 2}},
		{v("a\nb\nc\n"), v("a\nB\nc"), "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+c\n\\ No newline at end of file\n", Stat{Added: 2, Removed: 2}},
		{v("a\n"), &Version{0o100755, []byte("a\n")}, "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", Stat{}},
		{nil, v(""), "diff --git a/f b/f\nnew file mode 100644\n", Stat{}},
		{v("a"), v("a\x00"), "diff --git a/f b/f\nBinary files a/f and b/f differ\n", Stat{Binary: true}},
	} {
		got, stat := File("f", c.from, c.to)
		if got != c.want || stat != c.stat {
			t.Errorf("got\n%s%+v\nwant\n%s%+v", got, stat, c.want, c.stat)
		}
	}
}

// TestLines: the runs that differ lead from a to b, and what is between them
// is the same in both, also for texts that are far apart.
func TestLines(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 400 {
		words, n := 2+r.IntN(8), r.IntN(40)
		if round%100 == 99 {
			words, n = 100000, 4000
		}
		a, b := lines(r, n, words), lines(r, n, words)
		if round%2 == 1 {
			b = mutate(r, a, words)
		}
		var got []string
		at, bt := 0, 0
		for _, run := range runsOf(a, b) {
			if run.a0 < at || run.a0-at != run.b0-bt || run.a0 == at && at > 0 {
				t.Fatalf("runs %+v of %q and %q", run, a, b)
			}
			got = append(append(got, a[at:run.a0]...), b[run.b0:run.b1]...)
			at, bt = run.a1, run.b1
		}
		got = append(got, a[at:]...)
		if strings.Join(got, "") != strings.Join(b, "") {
			t.Fatalf("round %d: %d lines to %d do not lead there", round, len(a), len(b))
		}
	}
	// Far apart, and yet the common lines are found by those that stand once.
	var a, b []string
	for i := range 3000 {
		a = append(a, fmt.Sprintf("old %d\n", i))
		b = append(b, fmt.Sprintf("new %d\n", i))
		if i%10 == 0 {
			a, b = append(a, fmt.Sprintf("same %d\n", i)), append(b, fmt.Sprintf("same %d\n", i))
		}
	}
	if n := len(runsOf(a, b)); n != 300+1 {
		t.Errorf("%d runs, want 301", n)
	}
	const moved = "same 2990\n"
	i := slices.Index(b, moved)
	b = slices.Insert(slices.Delete(b, i, i+1), 0, moved)
	at := run{}
	for _, run := range runsOf(a, b) {
		if run.a0 < at.a1 || run.b0 < at.b1 || run.a1 < run.a0 || run.b1 < run.b0 {
			t.Fatalf("%+v comes after %+v", run, at)
		}
		at = run
	}
}

func lines(r *rand.Rand, n, words int) (out []string) {
	for range n {
		out = append(out, fmt.Sprintf("%d\n", r.IntN(words)))
	}
	return out
}

func mutate(r *rand.Rand, a []string, words int) (out []string) {
	for _, l := range a {
		switch r.IntN(8) {
		case 0:
		case 1:
			out = append(out, l, fmt.Sprintf("%d\n", r.IntN(words)))
		default:
			out = append(out, l)
		}
	}
	return out
}

// TestGitApplies: Git reads every patch, and applied it gives the other tree.
func TestGitApplies(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	version := func() *Version {
		if r.IntN(6) == 0 {
			return nil
		}
		v := &Version{Mode: 0o100644, Content: []byte(strings.Join(lines(r, r.IntN(30), 6), ""))}
		switch r.IntN(8) {
		case 0:
			v.Mode = 0o100755
		case 1:
			v = &Version{0o120000, []byte("to")}
		case 2:
			v.Content = append(v.Content, "no newline"...)
		case 3:
			v.Content = []byte(strings.ReplaceAll(string(v.Content), "\n", "\r\n"))
		}
		return v
	}
	names := []string{"plain", "with space", "qu\"ote", "back\\slash", "new\nline", "tab\tbed", "ümlaut", "deep/er/file", "\xff"}
	for round := range 25 {
		from, to := map[string]*Version{}, map[string]*Version{}
		patch, stat := "", Stat{}
		for _, n := range names {
			from[n], to[n] = version(), version()
			if from[n] != nil && to[n] != nil && r.IntN(2) == 0 {
				to[n] = &Version{from[n].Mode, []byte(strings.Join(mutate(r, split(from[n].Content), 6), ""))}
			}
			p, s := File(n, from[n], to[n])
			patch, stat.Added, stat.Removed = patch+p, stat.Added+s.Added, stat.Removed+s.Removed
		}
		dir := t.TempDir()
		write(t, dir, from)
		if patch != "" {
			c := exec.Command("git", "apply", "--whitespace=nowarn", "-")
			c.Dir, c.Stdin = dir, strings.NewReader(patch)
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("round %d: %v: %s\n%s", round, err, out, patch)
			}
		}
		for n, v := range to {
			if got := read(t, filepath.Join(dir, n)); !same(got, v) {
				t.Fatalf("round %d: %q is %+v, want %+v\n%s", round, n, got, v, patch)
			}
		}
		if a, d := strings.Count("\n"+patch, "\n+")-strings.Count("\n"+patch, "\n+++ "), strings.Count("\n"+patch, "\n-")-strings.Count("\n"+patch, "\n--- "); a != stat.Added || d != stat.Removed {
			t.Errorf("counted +%d -%d, said %+v", a, d, stat)
		}
	}
}

func write(t *testing.T, dir string, files map[string]*Version) {
	for n, v := range files {
		full := filepath.Join(dir, n)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if v != nil && err == nil {
			if v.Mode == 0o120000 {
				err = os.Symlink(string(v.Content), full)
			} else {
				err = os.WriteFile(full, v.Content, os.FileMode(v.Mode&0o777))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, name string) *Version {
	fi, err := os.Lstat(name)
	if err != nil {
		return nil
	}
	if fi.Mode()&os.ModeSymlink != 0 {
		to, err := os.Readlink(name)
		if err != nil {
			t.Fatal(err)
		}
		return &Version{0o120000, []byte(to)}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return &Version{0o100000 | uint32(fi.Mode().Perm()), b}
}

func same(a, b *Version) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Mode == b.Mode && string(a.Content) == string(b.Content))
}
