package wal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/workspace/git"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestZerosAreNoRecord(t *testing.T) {
	for i := range 100 {
		if _, n := readFrame(make([]byte, i)); n > 0 {
			t.Fatalf("%d zeros read as a record", i)
		}
	}
}

// What one process appends another follows, also when the log was written
// anew between.
func TestFollow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	a, err := Open(name, true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Open(name, true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range uint64(20) {
		if err := a.Append(Record{Kind: "intent", Head: git.Head{Seq: i + 1}, Intent: &Intent{Note: git.Note{ID: "x"}}}); err != nil {
			t.Fatal(err)
		}
		if i%5 == 4 {
			if err := a.Rewrite(); err != nil {
				t.Fatal(err)
			}
		}
		moved, err := b.Follow()
		if err != nil || !moved || b.Pending() == nil || b.Pending().Seq != i+1 {
			t.Fatalf("after %d: %t %v %+v", i, moved, err, b.Now())
		}
		if err := a.Append(Record{Kind: "seal", Head: git.Head{Seq: i + 1}}); err != nil {
			t.Fatal(err)
		}
		if moved, err := b.Follow(); err != nil || !moved || b.Pending() != nil || b.Now().Seq != i+1 {
			t.Fatalf("after sealing %d: %t %v %+v", i, moved, err, b.Now())
		}
	}
	if moved, err := b.Follow(); err != nil || moved {
		t.Fatalf("nothing was written, but: %t %v", moved, err)
	}
	fi, err := os.Stat(name)
	if err != nil || fi.Size() > 1<<20 {
		t.Fatalf("%v %v", fi.Size(), err)
	}
}
